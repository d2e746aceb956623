// The operators of operators/special.h, and polygamma.
#include "engine/base/check.h"
#include "ndarray/cuda/strided.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/normal_quantile_formulas.h"
#include "operators/kernels/polygamma_formulas.h"
#include "operators/number.h"
#include "operators/polygamma_attrs.h"
#include "operators/special_formulas.h"

namespace mx::cuda {
namespace {

// The first two are computed in double.
enum class SpecialOp : uint8_t { erfinv, polygamma, logit };

template <class A>
__global__ void __launch_bounds__(kLoopThreads)
    special_elements(Elements to, Elements from, Loop<2> loop, SpecialOp op, int64_t order) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[2];
    element_offsets(loop.plan, loop.narrow, i, at);
    const A x = load<A>(from, at[1]);
    if constexpr (sizeof(A) == sizeof(double)) {
      store(to, at[0],
            op == SpecialOp::erfinv      ? formulas::erf_inverse(x)
            : op == SpecialOp::polygamma ? formulas::polygamma(order, x)
                                         : formulas::logit(x));
    } else {
      store(to, at[0], formulas::logit(x));
    }
  }
}

void run_special(const KernelArgs& args, SpecialOp op, int64_t order = 0) {
  const Tensor &x = args.in[0], &out = args.out[0];
  const Loop<2> loop({&out, &x});
  if (loop.empty()) return;
  const auto run = [&](auto kernel) {
    launch(stream_of(args), blocks_for(loop.plan.numel, kLoopThreads, 1 << 16), kLoopThreads, 0, kernel,
           elements_of(out), elements_of(x), loop, op, order);
  };
  op != SpecialOp::logit || x.dtype == DType::f64 ? run(special_elements<double>)
                                                  : run(special_elements<float>);
}

/// An operand is the number if its address is null.
template <class A>
__global__ void __launch_bounds__(kLoopThreads)
    xlogy_elements(Elements to, Elements x, Elements y, A number, Loop<3> loop) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[3];
    element_offsets(loop.plan, loop.narrow, i, at);
    const A a = x.data != nullptr ? load<A>(x, at[1]) : number,
            b = y.data != nullptr ? load<A>(y, at[2]) : number;
    store(to, at[0], formulas::xlogy(a, b));
  }
}

/// |value|, unsigned, because the magnitude of the smallest signed integer does not fit the signed type.
__device__ inline uint64_t magnitude_of(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}
__device__ inline uint64_t greatest_divisor(uint64_t a, uint64_t b) {
  while (b != 0) {
    const uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// The second operand is a number if its address is null.
__global__ void __launch_bounds__(kLoopThreads)
    divisor_elements(Elements to, Elements x, Elements y, int64_t number, Loop<3> loop, bool least_multiple) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[3];
    element_offsets(loop.plan, loop.narrow, i, at);
    const uint64_t a = magnitude_of(load<int64_t>(x, at[1])),
                   b = magnitude_of(y.data != nullptr ? load<int64_t>(y, at[2]) : number);
    const uint64_t divisor = greatest_divisor(a, b);
    const uint64_t result = !least_multiple ? divisor : divisor == 0 ? 0 : a / divisor * b;
    store(to, at[0], static_cast<int64_t>(result));
  }
}

void run_divisor(const KernelArgs& args, const Tensor* second, int64_t number, bool least_multiple) {
  const Tensor& out = args.out[0];
  const Tensor x = args.in[0].broadcast(out.shape), y = second ? second->broadcast(out.shape) : x;
  const Loop<3> loop({&out, &x, &y});
  if (loop.empty()) return;
  const Elements none{nullptr, out.dtype};
  launch(stream_of(args), blocks_for(loop.plan.numel, kLoopThreads, 1 << 16), kLoopThreads, 0,
         divisor_elements, elements_of(out), elements_of(x), second ? elements_of(y) : none, number, loop,
         least_multiple);
}

/// An operand is the number if its address is null.
void run_xlogy(const KernelArgs& args, const Tensor* a, const Tensor* b, const Scalar& number) {
  const Tensor& out = args.out[0];
  const Tensor x = (a ? a : b)->broadcast(out.shape), y = (b ? b : a)->broadcast(out.shape);
  const Loop<3> loop({&out, &x, &y});
  if (loop.empty()) return;
  const Elements none{nullptr, out.dtype};
  const auto run = [&]<class A>(A value) {
    launch(stream_of(args), blocks_for(loop.plan.numel, kLoopThreads, 1 << 16), kLoopThreads, 0,
           xlogy_elements<A>, elements_of(out), a ? elements_of(x) : none, b ? elements_of(y) : none, value,
           loop);
  };
  x.dtype == DType::f64 || y.dtype == DType::f64 ? run(number.to<double>()) : run(number.to<float>());
}

int64_t number_of(const KernelArgs& args) { return args.attr<NumberAttrs>().number.to<int64_t>(); }

}  // namespace

void erfinv(const KernelArgs& args) { run_special(args, SpecialOp::erfinv); }
void logit(const KernelArgs& args) { run_special(args, SpecialOp::logit); }
void polygamma(const KernelArgs& args) {
  run_special(args, SpecialOp::polygamma, args.attr<mx::detail::PolygammaAttrs>().order);
}

void xlogy(const KernelArgs& args) { run_xlogy(args, &args.in[0], &args.in[1], 0); }
void xlogy_scalar(const KernelArgs& args) {
  const auto& attrs = args.attr<NumberAttrs>();
  const Tensor* const x = &args.in[0];
  run_xlogy(args, attrs.left ? nullptr : x, attrs.left ? x : nullptr, attrs.number);
}

void gcd(const KernelArgs& args) { run_divisor(args, &args.in[1], 0, false); }
void lcm(const KernelArgs& args) { run_divisor(args, &args.in[1], 0, true); }
void gcd_scalar(const KernelArgs& args) { run_divisor(args, nullptr, number_of(args), false); }
void lcm_scalar(const KernelArgs& args) { run_divisor(args, nullptr, number_of(args), true); }

}  // namespace mx::cuda
