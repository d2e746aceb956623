// Random numbers whose number of random words is not known beforehand, permutations, and draws by weights:
// operators/kernels/random.h. The words are those of the CPU, so permutations have the CPU's values, and the
// other results differ only where a function of the GPU differs in the last place.
#include "engine/base/check.h"
#include "ndarray/cuda/kernel_errors.cuh"
#include "ndarray/cuda/strided.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda/prim.h"
#include "operators/cuda/random.cuh"
#include "operators/cuda/search.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/random_draws.h"
#include "operators/random_records.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using kernels::detail::ElementStream;

enum class Rejecting : uint8_t { gamma, poisson, binomial };

struct RejectSettings {
  Rejecting draw;
  double a, b;
  bool turned;  ///< binomial: the result is a minus the number drawn
};

/// The first array of the loop is the row-major order.
__global__ void __launch_bounds__(kLoopThreads)
    draw_rejecting(Elements to, Loop<2> loop, KeyPlace key, RejectSettings s) {
  const auto gamma_logarithm = [](double x) { return log_gamma(x); };
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    ElementStream stream(key.seed(), key.offset() + static_cast<uint64_t>(at[0]),
                         kernels::detail::kElementKind);
    double value = 0;
    if (s.draw == Rejecting::gamma) {
      value = s.b * kernels::detail::gamma_draw(stream, s.a);
    } else if (s.draw == Rejecting::poisson) {
      value = s.a == 0 ? 0.0 : kernels::detail::poisson_draw(stream, s.a, gamma_logarithm);
    } else {
      value = s.b == 0 || s.a == 0 ? 0.0 : kernels::detail::binomial_draw(stream, s.a, s.b, gamma_logarithm);
      if (s.turned) value = s.a - value;
    }
    store(to, at[1], value);
  }
}

void draw_all(const KernelArgs& args, const RejectSettings& settings) {
  const Tensor& out = args.out[0];
  const Tensor order = kernels::row_major_order(out.shape);
  const Loop<2> loop({&order, &out});
  if (loop.empty()) return;
  launch(stream_of(args), blocks_for(loop.plan.numel, kLoopThreads, 1 << 16), kLoopThreads, 0, draw_rejecting,
         elements_of(out), loop, KeyPlace(args.in[0]), settings);
}

// A permutation. The CPU fills places in turn: at step i, place i gets what place target[i] <= i holds, and
// place target[i] gets i. So place p holds the last step i > p, or i = p, with target[i] == p; without such a
// step, what place target[p] held before step p, and so on. Sorted by target, the steps of a place are found
// by a binary search.

__global__ void __launch_bounds__(kBlock)
    draw_targets(KeyPlace key, uint64_t* targets, int64_t* steps, int64_t n) {
  const auto make = [](const PhiloxWords& words, int j) { return pair_of(words, j); };
  for_blocks<2>(key, n, make, [&](int64_t i, uint64_t bits) {
    targets[i] = kernels::detail::bounded(bits, static_cast<uint64_t>(i) + 1, key.seed(),
                                          key.offset() + static_cast<uint64_t>(i));
    steps[i] = i;
  });
}

__global__ void __launch_bounds__(kBlock)
    follow_targets(const uint64_t* targets, const uint64_t* sorted, const int64_t* steps, Elements out,
                   int64_t out_step, int64_t n) {
  for (int64_t p = global_index(); p < n; p += global_size()) {
    int64_t place = p, before = n;  // what `place` holds before the step `before`
    for (;;) {
      const int64_t first = count_below(sorted, n, place), end = count_below(sorted, n, place + 1);
      // The steps of one place ascend.
      const int64_t earlier = count_below(steps + first, end - first, before);
      if (earlier > 0) {
        store(out, p * out_step, steps[first + earlier - 1]);
        break;
      }
      before = place;
      place = static_cast<int64_t>(targets[place]);
    }
  }
}

// Draws by weights. Bad ones are noted: the largest logit of row r at r * (n + 2), weight i behind it, and
// the sum of all at the end of the n + 2 places.

__global__ void __launch_bounds__(kBlock)
    read_weights(Elements weights, Rows<1> rows, bool logits, double* out, KernelError* bad) {
  const int64_t row = blockIdx.x, from = rows.outer.offset(0, row);
  double largest = 0;
  if (logits) {
    largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < rows.n; i += kBlock)
      largest = Larger()(largest, load<double>(weights, from + i * rows.step[0]));
    largest = Group<kBlock>::all(largest, Larger());
    if (threadIdx.x == 0 && !std::isfinite(largest)) note_error(bad, row * (rows.n + 2), largest);
  }
  for (int64_t i = threadIdx.x; i < rows.n; i += kBlock) {
    const double value = load<double>(weights, from + i * rows.step[0]);
    out[row * rows.n + i] = logits ? exp(value - largest) : value;
  }
}

/// Replaces the weights of each row by their running sums, in order.
__global__ void __launch_bounds__(kBlock)
    sum_weights(double* weights, int64_t rows, int64_t n, KernelError* bad) {
  const int64_t row = global_index();
  if (row >= rows) return;
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double weight = weights[row * n + i];
    if (!(weight >= 0 && std::isfinite(weight))) note_error(bad, row * (n + 2) + 1 + i, weight);
    weights[row * n + i] = total += weight;
  }
  if (!(total > 0 && std::isfinite(total))) note_error(bad, row * (n + 2) + 1 + n, total);
}

__global__ void __launch_bounds__(kLoopThreads)
    draw_indices(Elements to, Loop<2> loop, KeyPlace key, const double* sums, int64_t n, int64_t samples) {
  const auto make = [](const PhiloxWords& words, int j) { return uniform53(pair_of(words, j)); };
  for_blocks<2>(key, loop.plan.numel, make, [&](int64_t i, double u) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    const double* const first = sums + i / samples * n;
    const double total = first[n - 1], most = std::nextafter(total, 0.0);
    const double point = rounded_product(u, total) < most ? rounded_product(u, total) : most;
    int64_t low = 0, high = n - 1;  // the first sum beyond the point; with bad weights, some index
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (first[middle] <= point) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    store(to, at[1], low);
  });
}

}  // namespace

void gamma(const KernelArgs& args) {
  const auto& a = args.attr<detail::FillAttrs>();
  MX_CHECK(is_floating(args.out[0].dtype), InvalidArgument,
           "[random_gamma] expected a floating-point target, got ", args.out[0].dtype);
  MX_CHECK(std::isfinite(a.a) && std::isfinite(a.b) && a.a > 0 && a.b > 0, InvalidArgument,
           "[random_gamma] expected a finite shape and scale above 0, got ", a.a, " and ", a.b);
  draw_all(args, {Rejecting::gamma, a.a, a.b, false});
}

void poisson(const KernelArgs& args) {
  const double mean = args.attr<detail::FillAttrs>().a;
  MX_CHECK(args.out[0].dtype != DType::bool_, InvalidArgument,
           "[random_poisson] expected a target of a numeric type, got bool");
  MX_CHECK(std::isfinite(mean) && mean >= 0, InvalidArgument,
           "[random_poisson] expected a finite mean of 0 or more, got ", mean);
  draw_all(args, {Rejecting::poisson, mean, 0, false});
}

void binomial(const KernelArgs& args) {
  const auto& a = args.attr<detail::FillAttrs>();
  const auto trials = static_cast<int64_t>(a.a);
  MX_CHECK(args.out[0].dtype != DType::bool_, InvalidArgument,
           "[random_binomial] expected a target of a numeric type, got bool");
  MX_CHECK(trials >= 0 && trials <= int64_t{1} << 53, InvalidArgument,
           "[random_binomial] expected 0 to 2^53 trials, got ", trials);
  MX_CHECK(a.b >= 0 && a.b <= 1, InvalidArgument,
           "[random_binomial] expected a probability from 0 to 1, got ", a.b);
  const bool turned = a.b > 0.5;
  draw_all(args, {Rejecting::binomial, static_cast<double>(trials), turned ? 1 - a.b : a.b, turned});
}

void permutation(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const int64_t n = out.shape[0];
  if (n == 0) return;
  const Scratch memory(args, static_cast<size_t>(n) * 4 * sizeof(int64_t));
  auto* const targets = memory.as<uint64_t>();
  uint64_t* const sorted = targets + n;
  auto* const steps = reinterpret_cast<int64_t*>(sorted + n);
  int64_t* const sorted_steps = steps + n;
  launch(stream_of(args), blocks_for(n / 2 + 2, kBlock, 1 << 16), kBlock, 0, draw_targets,
         KeyPlace(args.in[0]), targets, steps, n);
  sort_pairs(args, targets, sorted, steps, sorted_steps, n, 0, bits_for(n));
  launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, follow_targets,
         static_cast<const uint64_t*>(targets), static_cast<const uint64_t*>(sorted),
         static_cast<const int64_t*>(sorted_steps), elements_of(out), out.strides[0], n);
}

void categorical(const KernelArgs& args) {
  const auto& attrs = args.attr<detail::CategoricalAttrs>();
  const Tensor &weights = args.in[0], &out = args.out[0];
  if (out.numel() == 0) return;
  const Rows<1> rows = rows_of<1>({&weights}, weights.rank() - 1);
  MX_CHECK(rows.n > 0, InvalidArgument,
           "[categorical] expected at least one weight per row, got weights of shape ", weights.shape);
  const Scratch sums(args, static_cast<size_t>(rows.rows * rows.n) * sizeof(double));
  const Tensor order = kernels::row_major_order(out.shape);
  const Loop<2> loop({&order, &out});
  BadValues bad(args, [n = rows.n](const KernelError& e) {
    const char* const op = "categorical";
    const int64_t row = e.place / (n + 2), at = e.place % (n + 2);
    if (at == 0) return kernels::detail::bad_largest_logit(op, number_noted(e), row);
    if (at <= n) return kernels::detail::bad_weight(op, number_noted(e), at - 1, row);
    return kernels::detail::bad_total_weight(op, number_noted(e), row);
  });
  launch(stream_of(args), whole_grid(rows.rows), kBlock, 0, read_weights, elements_of(weights), rows,
         attrs.logits, sums.as<double>(), bad.word());
  launch(stream_of(args), whole_grid(rows.rows, kBlock), kBlock, 0, sum_weights, sums.as<double>(), rows.rows,
         rows.n, bad.word());
  bad.check();
  launch(stream_of(args), blocks_for(loop.plan.numel / 2 + 2, kLoopThreads, 1 << 16), kLoopThreads, 0,
         draw_indices, elements_of(out), loop, KeyPlace(args.in[1]),
         static_cast<const double*>(sums.as<double>()), rows.n, attrs.samples);
}

}  // namespace mx::cuda
