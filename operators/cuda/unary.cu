// Elementwise functions of one operand.
#include <utility>

#include "operators/cuda/pointwise.cuh"
#include "operators/formulas.h"

namespace mx::cuda {
namespace {

using kernels::UnaryOp;

template <UnaryOp kOp>
struct UnaryFormula {
  template <class A>
  __device__ auto operator()(A x) const {
    return formulas::unary<kOp>(x);
  }
};

template <UnaryOp kOp, class A>
void run_as(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const Converted<A> x(args, args.in[0], out.shape);
  map<A, 1>(args, out, {&x.tensor()}, {}, UnaryFormula<kOp>());
}

template <UnaryOp kOp>
void run_op(const KernelArgs& args) {
  const DType type = args.in[0].dtype;
  if (type == DType::f64) {
    if constexpr (formulas::has_unary<double>(kOp)) run_as<kOp, double>(args);
  } else if (is_floating(type) || !formulas::has_unary<int64_t>(kOp)) {
    if constexpr (formulas::has_unary<float>(kOp)) run_as<kOp, float>(args);
  } else if constexpr (formulas::has_unary<int64_t>(kOp)) {
    // The complement of a bool is the other one.
    constexpr bool kComplement = kOp == UnaryOp::bitwise_not;
    if (kComplement && type == DType::bool_) return run_as<UnaryOp::logical_not, int64_t>(args);
    run_as<kOp, int64_t>(args);
  }
}

template <size_t... kOp>
void dispatch(int op, const KernelArgs& args, std::index_sequence<kOp...>) {
  constexpr KernelFn kTable[] = {run_op<static_cast<UnaryOp>(kOp)>...};
  kTable[op](args);
}

}  // namespace

void run_unary(int op, const KernelArgs& args) {
  dispatch(op, args, std::make_index_sequence<kernels::kUnaryOps>());
}

}  // namespace mx::cuda
