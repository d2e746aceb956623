// Random numbers: the same words of Philox for the same seed and position as on the CPU, so uniform numbers,
// integers, Bernoulli samples and dropout have the CPU's bits. normal and exponential may differ in the last
// places.
//
// A thread computes one block of Philox: 4 words, which are 4 elements of one word or 2 elements of two
// words.
#include <optional>

#include "engine/base/check.h"
#include "ndarray/cuda/kernel_errors.cuh"
#include "ndarray/cuda/strided.cuh"
#include "operators/cuda/random.cuh"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/random.h"
#include "operators/kernels/random_fill.h"
#include "operators/random_records.h"

namespace mx::cuda {
namespace {

using detail::DropoutAttrs;
using RandomAttrs = detail::FillAttrs;

enum class Draw : uint8_t { uniform, uniform_unit, normal, exponential };

struct DrawSettings {
  Draw draw;
  double a, b;         // limits, mean and deviation, or rate
  double first, last;  // of uniform
};

// V is the type in which the numbers are made: double for f64, float for the other types.
template <class V, int kWords>
__global__ void draw_numbers(Elements to, Loop<2> loop, KeyPlace key, DrawSettings s) {
  const auto make = [&](const PhiloxWords& words, int j) -> V {
    if (s.draw == Draw::normal) {
      // Two neighbours are the sides of one triangle.
      V uniform, angle;
      if constexpr (kWords == 1) {
        const uint32_t a = words[static_cast<size_t>(j / 2 * 2)],
                       b = words[static_cast<size_t>(j / 2 * 2 + 1)];
        uniform = rounded_product(rounded_sum(static_cast<float>(a >> 1), 0.5f), 0x1p-31f);
        angle = rounded_product(static_cast<float>(static_cast<int32_t>(b)), 1.46291808e-9f);
      } else {
        uniform = rounded_product(rounded_sum(static_cast<double>(pair_of(words, 0) >> 11), 0.5), 0x1p-53);
        angle = static_cast<double>(static_cast<int64_t>(pair_of(words, 1)) >> 11) *
                (6.283185307179586 * 0x1p-53);
      }
      const V radius = std::sqrt(V{-2} * std::log(uniform));
      return radius * (j % 2 == 0 ? std::cos(angle) : std::sin(angle));
    }
    if constexpr (kWords == 1) {
      return uniform24(words[static_cast<size_t>(j)]);
    } else {
      return uniform53(pair_of(words, j));
    }
  };
  for_blocks<kWords>(key, loop.plan.numel, make, [&](int64_t i, V value) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    if (s.draw == Draw::normal) {
      const V product = rounded_product(value, static_cast<V>(s.b));
      store(to, at[1], rounded_sum(product, static_cast<V>(s.a)));
      return;
    }
    if (s.draw == Draw::uniform_unit) {
      const bool beyond = size_of(to.type) == 2 && value > static_cast<V>(s.last);
      store(to, at[1], beyond ? static_cast<V>(s.last) : value);
      return;
    }
    const double half = rounded_product(s.b / 2 - s.a / 2, static_cast<double>(value));
    double number = rounded_sum(rounded_sum(s.a, half), half);
    // Rounded to the type first, then limited, as on the CPU; the limits are numbers of the type.
    store(to, at[1], number);
    const double made = load<double>(to, at[1]);
    if (made < s.first) store(to, at[1], s.first);
    if (made > s.last) store(to, at[1], s.last);
  });
}

__global__ void draw_exponential(Elements to, Loop<2> loop, KeyPlace key, double rate) {
  const auto make = [](const PhiloxWords& words, int j) {
    const double whole = static_cast<double>(pair_of(words, j) >> 11);
    return -std::log(rounded_product(rounded_sum(whole, 0.5), 0x1p-53));
  };
  for_blocks<2>(key, loop.plan.numel, make, [&](int64_t i, double value) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    store(to, at[1], value / rate);
  });
}

// With an array of probabilities, or one number if its address is null.
__global__ void draw_bernoulli(Elements to, Elements probabilities, double probability, Loop<3> loop,
                               KeyPlace key, KernelError* bad) {
  const auto make = [](const PhiloxWords& words, int j) { return uniform53(pair_of(words, j)); };
  for_blocks<2>(key, loop.plan.numel, make, [&](int64_t i, double u) {
    int64_t at[3];
    element_offsets(loop.plan, loop.narrow, i, at);
    const double p = probabilities.data != nullptr ? load<double>(probabilities, at[2]) : probability;
    if (!(p >= 0 && p <= 1)) note_error(bad, i, p);
    store(to, at[1], static_cast<int64_t>(u < p));
  });
}

__global__ void draw_integers(Elements to, Loop<2> loop, KeyPlace key, int64_t low, uint64_t range) {
  const auto make = [](const PhiloxWords& words, int j) { return pair_of(words, j); };
  for_blocks<2>(key, loop.plan.numel, make, [&](int64_t i, uint64_t bits) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    const uint64_t k =
        kernels::detail::bounded(bits, range, key.seed(), key.offset() + static_cast<uint64_t>(i));
    store(to, at[1], static_cast<int64_t>(static_cast<uint64_t>(low) + k));
  });
}

template <class A>
__global__ void drop(Elements y, uint8_t* mask, Elements x, Loop<4> loop, KeyPlace key, double kept,
                     A scale) {
  const auto make = [](const PhiloxWords& words, int j) { return uniform53(pair_of(words, j)); };
  for_blocks<2>(key, loop.plan.numel, make, [&](int64_t i, double u) {
    int64_t at[4];
    element_offsets(loop.plan, loop.narrow, i, at);
    const bool keep = u < kept;
    mask[at[2]] = keep;
    store(y, at[1], keep ? load<A>(x, at[3]) * scale : A{0});
  });
}

__global__ void take_key(int64_t* state, int64_t state_step, int64_t* key, int64_t key_step, int64_t count) {
  key[0] = state[0];
  key[key_step] = state[state_step];
  state[state_step] =
      static_cast<int64_t>(static_cast<uint64_t>(state[state_step]) + static_cast<uint64_t>(count));
}

unsigned blocks_of(int64_t n) { return blocks_for(n / 2 + 2, kLoopThreads, 1 << 16); }

void draw(const KernelArgs& args, const DrawSettings& settings) {
  const Tensor& out = args.out[0];
  const Tensor order = kernels::row_major_order(out.shape);
  const Loop<2> loop({&order, &out});
  if (loop.empty()) return;
  const auto run = [&](auto kernel) {
    launch(stream_of(args), blocks_of(loop.plan.numel), kLoopThreads, 0, kernel, elements_of(out), loop,
           KeyPlace(args.in[0]), settings);
  };
  out.dtype == DType::f64 ? run(draw_numbers<double, 2>) : run(draw_numbers<float, 1>);
}

void check_floating(const char* op, const Tensor& out) {
  MX_CHECK(is_floating(out.dtype), InvalidArgument, "[", op, "] expected a floating-point target, got ",
           out.dtype);
}

void run_bernoulli(const KernelArgs& args, const Tensor* probabilities, double probability,
                   const Tensor& key) {
  const Tensor& out = args.out[0];
  const Tensor order = kernels::row_major_order(out.shape);
  const Loop<3> loop({&order, &out, probabilities != nullptr ? probabilities : &order});
  if (loop.empty()) return;
  const Elements none{nullptr, DType::f32};
  std::optional<BadValues> bad;  // one number has been checked
  if (probabilities != nullptr)
    bad.emplace(args, [](const KernelError& e) {
      return kernels::detail::bad_probability(number_noted(e), e.place);
    });
  launch(stream_of(args), blocks_of(loop.plan.numel), kLoopThreads, 0, draw_bernoulli, elements_of(out),
         probabilities != nullptr ? elements_of(*probabilities) : none, probability, loop, KeyPlace(key),
         bad ? bad->word() : nullptr);
  if (bad) bad->check();
}

}  // namespace

void uniform(const KernelArgs& args) {
  const auto& a = args.attr<RandomAttrs>();
  check_floating("random_uniform", args.out[0]);
  const kernels::UniformLimits limits = kernels::uniform_limits(args.out[0].dtype, a.a, a.b);
  const Draw kind = a.a == 0 && a.b == 1 ? Draw::uniform_unit : Draw::uniform;
  draw(args, {kind, a.a, a.b, limits.first, limits.last});
}

void normal(const KernelArgs& args) {
  const auto& a = args.attr<RandomAttrs>();
  check_floating("random_normal", args.out[0]);
  MX_CHECK(std::isfinite(a.a) && std::isfinite(a.b) && a.b >= 0, InvalidArgument,
           "[random_normal] expected a finite mean and a deviation of 0 or more, got ", a.a, " and ", a.b);
  draw(args, {Draw::normal, a.a, a.b, 0, 0});
}

void exponential(const KernelArgs& args) {
  const double rate = args.attr<RandomAttrs>().a;
  const Tensor& out = args.out[0];
  check_floating("random_exponential", out);
  MX_CHECK(std::isfinite(rate) && rate > 0, InvalidArgument,
           "[random_exponential] expected a finite rate above 0, got ", rate);
  const Tensor order = kernels::row_major_order(out.shape);
  const Loop<2> loop({&order, &out});
  if (loop.empty()) return;
  launch(stream_of(args), blocks_of(loop.plan.numel), kLoopThreads, 0, draw_exponential, elements_of(out),
         loop, KeyPlace(args.in[0]), rate);
}

void bernoulli(const KernelArgs& args) {
  const double p = args.attr<RandomAttrs>().a;
  MX_CHECK(p >= 0 && p <= 1, InvalidArgument, "[random_bernoulli] expected a probability from 0 to 1, got ",
           p);
  run_bernoulli(args, nullptr, p, args.in[0]);
}

void bernoulli_of(const KernelArgs& args) { run_bernoulli(args, &args.in[0], 0, args.in[1]); }

void randint(const KernelArgs& args) {
  const auto& a = args.attr<detail::IntegerAttrs>();
  const Tensor& out = args.out[0];
  const Tensor order = kernels::row_major_order(out.shape);
  const Loop<2> loop({&order, &out});
  if (loop.empty()) return;
  launch(stream_of(args), blocks_of(loop.plan.numel), kLoopThreads, 0, draw_integers, elements_of(out), loop,
         KeyPlace(args.in[0]), a.low, static_cast<uint64_t>(a.high) - static_cast<uint64_t>(a.low));
}

void dropout(const KernelArgs& args) {
  const double p = args.attr<DropoutAttrs>().p, scale = p < 1 ? 1 / (1 - p) : 0;
  const Tensor &y = args.out[0], &mask = args.out[1], &x = args.in[0];
  const Tensor order = kernels::row_major_order(y.shape);
  const Loop<4> loop({&order, &y, &mask, &x});
  if (loop.empty()) return;
  const auto run = [&](auto kernel, auto factor) {
    launch(stream_of(args), blocks_of(loop.plan.numel), kLoopThreads, 0, kernel, elements_of(y),
           mask.as<uint8_t>(), elements_of(x), loop, KeyPlace(args.in[1]), 1 - p, factor);
  };
  y.dtype == DType::f64 ? run(drop<double>, scale) : run(drop<float>, static_cast<float>(scale));
}

void random_key(const KernelArgs& args) {
  const Tensor &state = args.in[0], &key = args.out[0];
  launch(stream_of(args), 1u, 1u, 0, take_key, state.as<int64_t>(), state.strides[0], key.as<int64_t>(),
         key.strides[0], args.attr<detail::KeyAttrs>().count);
}

}  // namespace mx::cuda
