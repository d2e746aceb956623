// Losses that compare two arrays element by element. Sums are added in double, in an order that depends on
// the number of elements only.
#include "ndarray/cuda/strided.cuh"
#include "operators/cuda/group.cuh"
#include "operators/loss_formulas.h"
#include "operators/loss_plan.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using kernels::ElementwiseLoss;

/// Elements of a block of the sum.
constexpr int64_t kSumBlock = 4096;

struct LossArrays {
  Elements x, target, weight;  ///< weight: null for all 1
};

template <class A>
__device__ inline A loss_at(ElementwiseLoss op, const LossArrays& in, const int64_t (&at)[4], A p) {
  const A w = in.weight.data != nullptr ? load<A>(in.weight, at[3]) : A{1};
  const A x = load<A>(in.x, at[1]), t = load<A>(in.target, at[2]);
  return formulas::loss_value(op, x, t, formulas::loss_inner(op, x, t), w, p);
}

template <class A>
__global__ void each_loss(Elements to, LossArrays in, Loop<4> loop, ElementwiseLoss op, A p) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[4];
    element_offsets(loop.plan, loop.narrow, i, at);
    store(to, at[0], loss_at(op, in, at, p));
  }
}

// The first array of the loop is the row-major order.
template <class A>
__global__ void __launch_bounds__(kBlock)
    block_losses(double* sums, LossArrays in, Loop<4> loop, ElementwiseLoss op, A p) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSumBlock;
  const int64_t end = first + kSumBlock < loop.plan.numel ? first + kSumBlock : loop.plan.numel;
  double sum = 0;
  for (int64_t i = first + threadIdx.x; i < end; i += kBlock) {
    int64_t at[4];
    element_offsets(loop.plan, loop.narrow, i, at);
    sum += static_cast<double>(loss_at(op, in, at, p));
  }
  sum = Group<kBlock>::all(sum, Add());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlock)
    total_loss(Elements to, const double* sums, int64_t n, double divisor) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kBlock) sum += sums[i];
  sum = Group<kBlock>::all(sum, Add());
  if (threadIdx.x == 0) store(to, 0, sum / divisor);
}

// head: of every element, or one number that is divided by the divisor.
template <class A>
__global__ void loss_slopes(Elements to, Elements head, LossArrays in, Loop<5> loop, ElementwiseLoss op, A p,
                            bool each, double divisor) {
  const A scale = each ? A{1} : static_cast<A>(load<double>(head, 0) / divisor);
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[5];
    element_offsets(loop.plan, loop.narrow, i, at);
    const A w = in.weight.data != nullptr ? load<A>(in.weight, at[3]) : A{1};
    const A x = load<A>(in.x, at[1]), t = load<A>(in.target, at[2]);
    const A slope = formulas::loss_slope(op, x, t, formulas::slope_inner(op, x, t), w, p);
    store(to, at[0], slope * (each ? load<A>(head, at[4]) : scale));
  }
}

bool in_double(const Tensor& a, const Tensor& x, const Tensor& target) {
  return a.dtype == DType::f64 || x.dtype == DType::f64 || target.dtype == DType::f64;
}

LossArrays arrays_of(const Tensor& x, const Tensor& target, const Tensor* weight) {
  return {elements_of(x), elements_of(target),
          weight != nullptr ? elements_of(*weight) : Elements{nullptr, f32}};
}

unsigned loop_blocks(int64_t n) { return blocks_for(n, kLoopThreads, 1 << 16); }

}  // namespace

void loss_values(const KernelArgs& args) {
  const auto& plan = args.attr<detail::LossPlanAttrs>();
  const auto op = static_cast<ElementwiseLoss>(plan.loss);
  const Tensor &x = args.in[0], &target = args.in[1], &out = args.out[0];
  const Tensor weight = args.in.size() > 2 ? args.in[2].broadcast(x.shape) : Tensor{};
  const Tensor* const given = args.in.size() > 2 ? &weight : nullptr;
  const LossArrays in = arrays_of(x, target, given);
  const NativeStream stream = stream_of(args);
  const Tensor order = kernels::row_major_order(x.shape);
  const Loop<4> loop({plan.each ? &out : &order, &x, &target, given != nullptr ? given : &x});
  const auto run = [&](auto computing) {
    using A = decltype(computing);
    const A p = static_cast<A>(plan.parameter);
    if (plan.each) {
      if (!loop.empty())
        launch(stream, loop_blocks(loop.plan.numel), kLoopThreads, 0, each_loss<A>, elements_of(out), in,
               loop, op, p);
      return;
    }
    const int64_t blocks = (loop.plan.numel + kSumBlock - 1) / kSumBlock;
    const Scratch sums(args, static_cast<size_t>(blocks) * sizeof(double));
    if (blocks > 0)
      launch(stream, whole_grid(blocks), kBlock, 0, block_losses<A>, sums.as<double>(), in, loop, op, p);
    launch(stream, 1u, kBlock, 0, total_loss, elements_of(out), static_cast<const double*>(sums.as<double>()),
           blocks, plan.divisor);
  };
  in_double(out, x, target) ? run(double{}) : run(float{});
}

void loss_derivatives(const KernelArgs& args) {
  const auto& plan = args.attr<detail::LossPlanAttrs>();
  const auto op = static_cast<ElementwiseLoss>(plan.loss);
  const Tensor &head = args.in[0], &x = args.in[1], &target = args.in[2], &out = args.out[0];
  const Tensor weight = args.in.size() > 3 ? args.in[3].broadcast(x.shape) : Tensor{};
  const Tensor* const given = args.in.size() > 3 ? &weight : nullptr;
  const LossArrays in = arrays_of(x, target, given);
  const Loop<5> loop({&out, &x, &target, given != nullptr ? given : &x, plan.each ? &head : &x});
  if (loop.empty()) return;
  const auto run = [&](auto computing) {
    using A = decltype(computing);
    launch(stream_of(args), loop_blocks(loop.plan.numel), kLoopThreads, 0, loss_slopes<A>, elements_of(out),
           elements_of(head), in, loop, op, static_cast<A>(plan.parameter), plan.each, plan.divisor);
  };
  in_double(out, x, target) ? run(double{}) : run(float{});
}

}  // namespace mx::cuda
