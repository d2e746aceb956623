// Elementwise functions of two operands, and of an array and a number.
#include <utility>

#include "operators/cuda/pointwise.cuh"
#include "operators/formulas.h"
#include "operators/kernels/comparison.h"
#include "operators/number.h"

namespace mx::cuda {
namespace {

using kernels::BinaryOp;

template <BinaryOp kOp>
struct BinaryFormula {
  int width;
  template <class A>
  __device__ auto operator()(A a, A b) const {
    return formulas::binary<kOp>(a, b, width);
  }
};

constexpr bool to_bool(BinaryOp op) { return op >= BinaryOp::equal && op <= BinaryOp::logical_xor; }

// Calls f with a value of the type in which elements of `type` are computed.
template <BinaryOp kOp, class F>
void with_computing(DType type, const F& f) {
  if (type == DType::f64) {
    if constexpr (formulas::has_binary<double>(kOp)) f(double{});
  } else if (is_floating(type)) {
    if constexpr (formulas::has_binary<float>(kOp)) f(float{});
  } else if constexpr (formulas::has_binary<int64_t>(kOp)) {
    f(int64_t{});
  }
}

template <BinaryOp kOp>
void run_op(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const DType type = to_bool(kOp) ? promote(args.in[0].dtype, args.in[1].dtype) : out.dtype;
  with_computing<kOp>(type, [&](auto computing) {
    using A = decltype(computing);
    const Converted<A> a(args, args.in[0], out.shape), b(args, args.in[1], out.shape);
    map<A, 2>(args, out, {&a.tensor(), &b.tensor()}, {},
              BinaryFormula<kOp>{static_cast<int>(8 * size_of(type))});
  });
}

// The number in the type of computation, by way of the type of the elements.
template <class A>
A as_element(const Scalar& number, DType type) {
  return visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == 2) {
      return static_cast<A>(number.to<float>());
    } else {
      return static_cast<A>(number.to<T>());
    }
  });
}

template <BinaryOp kOp>
void run_with(const KernelArgs& args, const Scalar& number, DType type, bool left) {
  const Tensor& out = args.out[0];
  with_computing<kOp>(type, [&](auto computing) {
    using A = decltype(computing);
    const Converted<A> x(args, args.in[0], out.shape), none(out.shape);
    const A value = as_element<A>(number, type);
    map<A, 2>(args, out, {left ? &none.tensor() : &x.tensor(), left ? &x.tensor() : &none.tensor()},
              {value, value}, BinaryFormula<kOp>{static_cast<int>(8 * size_of(type))});
  });
}

template <size_t... kOp>
void dispatch(int op, const KernelArgs& args, std::index_sequence<kOp...>) {
  constexpr KernelFn kTable[] = {run_op<static_cast<BinaryOp>(kOp)>...};
  kTable[op](args);
}

using RunWith = void (*)(const KernelArgs&, const Scalar&, DType, bool);
template <size_t... kOp>
RunWith number_kernel(BinaryOp op, std::index_sequence<kOp...>) {
  constexpr RunWith kTable[] = {run_with<static_cast<BinaryOp>(kOp)>...};
  return kTable[static_cast<int>(op)];
}

}  // namespace

void run_binary(int op, const KernelArgs& args) {
  dispatch(op, args, std::make_index_sequence<kernels::kBinaryOps>());
}

void run_binary_number(int index, const KernelArgs& args) {
  auto op = static_cast<BinaryOp>(index);
  const NumberAttrs& attrs = args.attr<NumberAttrs>();
  const DType in = args.in[0].dtype;
  Scalar number = attrs.number;
  bool left = attrs.left;
  DType type = args.out[0].dtype;
  if (op >= BinaryOp::equal && op <= BinaryOp::greater_equal) {
    const kernels::Comparison c = kernels::comparison_with(op, number, in, left);
    op = c.op;
    number = c.value;
    left = false;
    type = in;
  } else if (to_bool(op)) {
    number = number.truth() ? 1 : 0;
    type = in;
  }
  number_kernel(op, std::make_index_sequence<kernels::kBinaryOps>())(args, number, type, left);
}

}  // namespace mx::cuda
