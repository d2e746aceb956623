// Update rules of optimisers on a GPU, for whole lists of tensors.
//
// The numbers of a step are arrays of the GPU, so a small kernel first makes the steps of all parameters from
// them; the formulas are those of the CPU (operators/kernels/update_numbers.h). Then each launch updates up
// to kListed tensors. Sums of squares have a fixed order, so results repeat bit for bit. A step number below
// 1, which is an error on the CPU, is not noticed here.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "ndarray/cuda/element.cuh"
#include "operators/kernels/update_numbers.h"
#include "operators/scratch.h"
#include "optim/cuda_kernels.h"
#include "optim/detail/update_call.h"

namespace mx::cuda {
namespace {

using kernels::detail::GradientStep;
using kernels::detail::StateSlots;
using kernels::detail::StepNumbers;
using optim::detail::UpdateCall;

constexpr int kUpdateThreads = 256;
constexpr int64_t kBlockElements = 2048;  // of one tensor, for each block
constexpr int kListed = 32;               // tensors of one launch, whose addresses are its arguments

/// Some tensors of a list; each block has a piece of one of them.
struct Listed {
  int count = 0;
  unsigned first_block[kListed + 1] = {0};
  int64_t elements[kListed];

  __device__ int tensor_of(unsigned block) const {
    int i = 0;
    while (i + 1 < count && first_block[i + 1] <= block) ++i;
    return i;
  }
  unsigned blocks() const { return first_block[count]; }
  void add(int64_t n) {
    elements[count] = n;
    first_block[count + 1] =
        first_block[count] + static_cast<unsigned>((n + kBlockElements - 1) / kBlockElements);
    ++count;
  }
};

/// The elements [begin, end) of a tensor that a block has.
struct Piece {
  int tensor;
  int64_t begin, end;
  __device__ explicit Piece(const Listed& list) : tensor(list.tensor_of(blockIdx.x)) {
    begin = static_cast<int64_t>(blockIdx.x - list.first_block[tensor]) * kBlockElements;
    end = begin + kBlockElements < list.elements[tensor] ? begin + kBlockElements : list.elements[tensor];
  }
};

/// Returns the sum over the block, to all its threads, in a fixed order.
__device__ inline double block_sum(double x) {
  double* const sums = block_shared<double, kUpdateThreads>();
  barrier();  // the sums of the call before have been read
  sums[threadIdx.x] = x;
  barrier();
  for (unsigned half = kUpdateThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    barrier();
  }
  return sums[0];
}

template <class T>
struct ListedUpdate {
  Listed list;
  T* w[kListed];
  T* state[3][kListed];  // null for a slot that the rule does not have
  Elements g[kListed], copy[kListed];
};

/// Arrays of rank 0; data is null for those that the call does not have.
struct Scalars {
  Elements rate, step, scale, skip;
  double* counts;
  double clip, decay;
  bool maximize;

  __device__ bool skipped() const { return skip.data != nullptr && load<double>(skip, 0) != 0; }
  __device__ StepNumbers numbers() const {
    const double factor = scale.data == nullptr ? 1 : load<double>(scale, 0);
    return {load<double>(rate, 0), decay, GradientStep{maximize ? -factor : factor, clip, decay}};
  }
};

/// The indices in counts of some parameters.
struct CountRows {
  static constexpr int kMost = 384;
  int count = 0;
  int32_t row[kMost];
};

// Makes steps[i] of the parameters, and counts them.
template <class Rule, class StepOf>
__global__ void make_steps(Rule rule, Scalars scalars, CountRows rows, StepOf* steps) {
  if (scalars.skipped()) return;
  const StepNumbers numbers = scalars.numbers();
  for (int i = static_cast<int>(threadIdx.x); i < rows.count; i += static_cast<int>(blockDim.x)) {
    double t = scalars.step.data == nullptr ? 0 : load<double>(scalars.step, 0);
    if (scalars.counts != nullptr) t = scalars.counts[rows.row[i]] += 1;
    steps[i] = kernels::detail::step_of(rule, numbers, t);
  }
}

template <class T, class StepOf>
__global__ void __launch_bounds__(kUpdateThreads)
    apply_steps(ListedUpdate<T> update, const StepOf* steps, Elements skip) {
  if (skip.data != nullptr && load<double>(skip, 0) != 0) return;
  const Piece piece(update.list);
  const int p = piece.tensor;
  const StepOf step = steps[p];
  T *const w = update.w[p], *const s0 = update.state[0][p], *const s1 = update.state[1][p],
           *const s2 = update.state[2][p];
  const StateSlots has{s0 != nullptr, s1 != nullptr, s2 != nullptr};
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x) {
    T x = w[i], a = has.s0 ? s0[i] : T{0}, b = has.s1 ? s1[i] : T{0}, c = has.s2 ? s2[i] : T{0};
    const T g = kernels::detail::prepared_gradient(step.gradient, load<T>(update.g[p], i), x);
    kernels::detail::apply_step(step, has, x, g, a, b, c);
    w[i] = x;
    if (has.s0) s0[i] = a;
    if (has.s1) s1[i] = b;
    if (has.s2) s2[i] = c;
    if (update.copy[p].data != nullptr) store(update.copy[p], i, x);
  }
}

/// Of the parameter, and of its gradient or direction.
struct SquareSums {
  double w, other;
};

// Sums of squares for rules that need norms of whole parameters: sums[block]. Lamb's moments are updated.
template <class T, class StepOf>
__global__ void __launch_bounds__(kUpdateThreads)
    sum_step_squares(ListedUpdate<T> update, const StepOf* steps, Elements skip, SquareSums* sums) {
  if (skip.data != nullptr && load<double>(skip, 0) != 0) return;
  const Piece piece(update.list);
  const int p = piece.tensor;
  StepOf step = steps[p];
  double w_sum = 0, other_sum = 0;
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x) {
    T x = update.w[p][i], other = kernels::detail::clipped_gradient(step.gradient, load<T>(update.g[p], i));
    if constexpr (std::is_same_v<StepOf, kernels::detail::LambStep>) {
      T m = update.state[0][p][i], v = update.state[1][p][i];
      const T g = other;  // its weight decay is part of the direction
      step.moments = true;
      kernels::detail::apply_step(step, {true, true, true}, x, g, m, v, other);
      update.state[0][p][i] = m;
      update.state[1][p][i] = v;
    }
    w_sum += static_cast<double>(x) * static_cast<double>(x);
    other_sum += static_cast<double>(other) * static_cast<double>(other);
  }
  w_sum = block_sum(w_sum);
  other_sum = block_sum(other_sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = {w_sum, other_sum};
}

// Sets the learning rates of the steps; one block for each parameter.
template <class Rule, class StepOf>
__global__ void __launch_bounds__(kUpdateThreads)
    adapt_steps(Rule rule, Scalars scalars, Listed list, const SquareSums* sums, StepOf* steps) {
  if (scalars.skipped()) return;
  const unsigned p = blockIdx.x;
  double w = 0, other = 0;
  for (unsigned i = list.first_block[p] + threadIdx.x; i < list.first_block[p + 1]; i += blockDim.x) {
    w += sums[i].w;
    other += sums[i].other;
  }
  w = block_sum(w);
  other = block_sum(other);
  if (threadIdx.x == 0) steps[p].rate = kernels::detail::adapted_rate(rule, scalars.numbers(), w, other);
}

struct ListedTensors {
  Listed list;
  Elements x[kListed];
};

__global__ void __launch_bounds__(kUpdateThreads) sum_squares(ListedTensors tensors, double* sums) {
  const Piece piece(tensors.list);
  double sum = 0;
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x) {
    const double x = load<double>(tensors.x[piece.tensor], i);
    sum += x * x;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kUpdateThreads) finish_norm(const double* sums, int64_t n, Elements norm) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) store(norm, 0, sqrt(sum));
}

__global__ void scale_for_norm(Elements scale, Elements norm, double max_norm) {
  if (global_index() != 0) return;
  const double ratio = max_norm / (load<double>(norm, 0) + 1e-6);
  store(scale, 0, ratio > 1 ? 1. : ratio);  // NaN if the norm is NaN
}

Elements optional(const Tensor* t) { return t == nullptr ? Elements{nullptr, DType::f32} : elements_of(*t); }

Scalars scalars_of(const UpdateCall& call, bool maximize) {
  Scalars s{};
  s.rate = elements_of(call.common.learning_rate);
  s.step = optional(call.step);
  s.scale = optional(call.common.scale);
  s.skip = optional(call.common.skip);
  s.counts = call.common.counts == nullptr ? nullptr : call.common.counts->as<double>();
  s.clip = call.common.clip;
  s.decay = call.common.weight_decay;
  s.maximize = maximize;
  return s;
}

template <class T>
ListedUpdate<T> listed_update(const UpdateCall& call, const std::array<std::span<const Tensor>, 3>& states,
                              size_t first) {
  ListedUpdate<T> u{};
  const size_t end = std::min(call.lists.parameters.size(), first + kListed);
  for (size_t i = first; i < end; ++i) {
    const int at = u.list.count;
    u.list.add(call.lists.parameters[i].numel());
    u.w[at] = call.lists.parameters[i].as<T>();
    u.g[at] = elements_of(call.lists.gradients[i]);
    u.copy[at] = optional(call.lists.copies.empty() ? nullptr : &call.lists.copies[i]);
    for (size_t k = 0; k < 3; ++k) u.state[k][at] = states[k].empty() ? nullptr : states[k][i].as<T>();
  }
  return u;
}

/// `states`: by the slots of the rule's step.
template <class T, class Rule>
void update_as(const KernelArgs& args, const UpdateCall& call, const Rule& rule, bool maximize,
               const std::array<std::span<const Tensor>, 3>& states) {
  using StepOf = decltype(kernels::detail::step_of(rule, StepNumbers{}, 1.));
  const size_t n = call.lists.parameters.size();
  const Scalars scalars = scalars_of(call, maximize);
  const Scratch memory(args, n * sizeof(StepOf));
  StepOf* const steps = memory.as<StepOf>();
  for (size_t first = 0; first < n; first += CountRows::kMost) {
    CountRows rows;
    for (size_t i = first; i < std::min(n, first + CountRows::kMost); ++i)
      rows.row[rows.count++] =
          static_cast<int32_t>(call.common.rows.empty() ? static_cast<int64_t>(i) : call.common.rows[i]);
    launch(stream_of(args), 1, kUpdateThreads, 0, make_steps<Rule, StepOf>, rule, scalars, rows,
           steps + first);
  }
  for (size_t first = 0; first < n; first += kListed) {
    const ListedUpdate<T> u = listed_update<T>(call, states, first);
    if (u.list.blocks() == 0) continue;
    if constexpr (requires { requires Rule::kWholeParameters; }) {
      const Scratch sums(args, u.list.blocks() * sizeof(SquareSums));
      launch(stream_of(args), u.list.blocks(), kUpdateThreads, 0, sum_step_squares<T, StepOf>, u,
             static_cast<const StepOf*>(steps + first), scalars.skip, sums.as<SquareSums>());
      launch(stream_of(args), static_cast<unsigned>(u.list.count), kUpdateThreads, 0,
             adapt_steps<Rule, StepOf>, rule, scalars, u.list,
             static_cast<const SquareSums*>(sums.as<SquareSums>()), steps + first);
    }
    launch(stream_of(args), u.list.blocks(), kUpdateThreads, 0, apply_steps<T, StepOf>, u,
           static_cast<const StepOf*>(steps + first), scalars.skip);
  }
}

template <class Rule>
void update(const KernelArgs& args, const UpdateCall& call, const Rule& rule, bool maximize) {
  if (call.lists.parameters.empty()) return;
  std::array<std::span<const Tensor>, 3> states{};
  std::copy(call.states.begin(), call.states.end(), states.begin());
  if constexpr (std::is_same_v<Rule, kernels::RmspropRule>) {
    // The momentum has its own slot, also if there is no mean.
    const auto given = states;
    states = {given[0], {}, {}};
    if (rule.momentum != 0) states[2] = given[1];
    if (rule.centered) states[1] = given[rule.momentum != 0 ? 2 : 1];
  }
  if (call.lists.parameters[0].dtype == DType::f32) {
    update_as<float>(args, call, rule, maximize, states);
  } else {
    update_as<double>(args, call, rule, maximize, states);
  }
}

}  // namespace

void update_by_sgd(const KernelArgs& args) {
  const auto& rule = args.attr<optim::detail::UpdateAttrs<optim::SgdRule>>().rule;
  const kernels::SgdOptions options{rule.momentum, rule.dampening, rule.nesterov, rule.ema};
  update(args, optim::detail::unpack<optim::SgdRule>(args), options, rule.maximize);
}

void update_by_adam(const KernelArgs& args) {
  const auto& rule = args.attr<optim::detail::UpdateAttrs<optim::AdamRule>>().rule;
  const kernels::AdamOptions options{rule.beta1, rule.beta2, rule.eps, rule.decoupled, rule.bias_correction};
  update(args, optim::detail::unpack<optim::AdamRule>(args), options, rule.maximize);
}

void update_by_rule(const KernelArgs& args) {
  const auto& rule = args.attr<optim::detail::UpdateAttrs<optim::detail::OtherRule>>().rule;
  const UpdateCall call = optim::detail::unpack<optim::detail::OtherRule>(args);
  std::visit([&](const auto& own) { update(args, call, own, rule.maximize); }, rule.rule);
}

void global_norm(const KernelArgs& args) {
  size_t blocks = 0;
  for (const Tensor& t : args.in)
    blocks += static_cast<size_t>((t.numel() + kBlockElements - 1) / kBlockElements);
  const Scratch memory(args, blocks * sizeof(double));
  double* const sums = memory.as<double>();
  int64_t done = 0;
  for (size_t first = 0; first < args.in.size(); first += kListed) {
    ListedTensors tensors{};
    for (size_t i = first; i < std::min(args.in.size(), first + kListed); ++i) {
      tensors.x[tensors.list.count] = elements_of(args.in[i]);
      tensors.list.add(args.in[i].numel());
    }
    if (tensors.list.blocks() == 0) continue;
    launch(stream_of(args), tensors.list.blocks(), kUpdateThreads, 0, sum_squares, tensors, sums + done);
    done += tensors.list.blocks();
  }
  launch(stream_of(args), 1, kUpdateThreads, 0, finish_norm, static_cast<const double*>(sums), done,
         elements_of(args.out[0]));
}

void clip_scale(const KernelArgs& args) {
  launch(stream_of(args), 1, 1, 0, scale_for_norm, elements_of(args.out[0]), elements_of(args.in[0]),
         args.attr<optim::detail::ClipAttrs>().max_norm);
}

}  // namespace mx::cuda
