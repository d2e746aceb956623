// A new elementwise operator from a function of one or two numbers, in one file:
//
//   const Operator& record() {
//     static const Operator op = unary_operator("softsign", "x / (1 + |x|).",
//                                               [](auto x) { return x / (1 + std::abs(x)); });
//     return op;
//   }
//   NDArray softsign(const Arg& x) { return call(record(), {}, x); }
//
// and either a line in operators/CMakeLists.txt with detail::OperatorFamily family_softsign(), or outside the
// tree register_operator(record()). With it come shape and type inference, broadcasting, every layout, all
// element types, parallel loops, in-place use, numbers as operands, samples, and the tests and documents that
// are made from the registry.
//
// The function is a lambda without captures, for float and for double. f16, bf16, integers and bool are
// computed in float, and rounded once. It may return bool: then the result is of bool. Types of two operands
// are promoted; integers give f32. An element's result depends on its operands alone. Derivatives may be
// given beside the function.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/row_convert.h"
#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

namespace detail {

/// Elements that are converted at once.
inline constexpr int64_t kConvertedRun = 256;

/// `n` elements of T: where they are, if they are such elements side by side, else converted into `buffer`.
template <class T>
const T* elements(const Tensor& tensor, int64_t first, int64_t stride, int64_t n, T* buffer) {
  if (tensor.dtype == dtype_of<T> && stride == 1) return tensor.as<const T>() + first;
  kernels::load_run(buffer, tensor.data, tensor.dtype, first, stride, n);
  return buffer;
}

/// out = f(in...), with inputs of out's shape, computed in T.
template <class T, class F, size_t kInputs>
void run_elementwise(const Tensor& out, const std::array<Tensor, kInputs>& in) {
  constexpr int kOperands = static_cast<int>(kInputs) + 1;
  std::array<const Tensor*, kInputs + 1> operands{&out};
  for (size_t i = 0; i < kInputs; ++i) operands[i + 1] = &in[i];
  const kernels::LoopPlan<kOperands> plan(operands);
  kernels::parallel_runs<kOperands>(plan, [&](const int64_t* offsets, int64_t n) {
    const F f{};
    T buffers[kInputs][kConvertedRun];
    const T* x[kInputs];
    for (int64_t done = 0; done < n; done += kConvertedRun) {
      const int64_t here = std::min(kConvertedRun, n - done);
      for (size_t i = 0; i < kInputs; ++i) {
        const int64_t stride = plan.strides[i + 1][0];
        x[i] = elements(in[i], offsets[i + 1] + done * stride, stride, here, buffers[i]);
      }
      const auto value = [&](int64_t i) {
        if constexpr (kInputs == 1) {
          return f(x[0][i]);
        } else {
          return f(x[0][i], x[1][i]);
        }
      };
      const int64_t step = plan.strides[0][0], first = offsets[0] + done * step;
      if constexpr (std::is_same_v<decltype(value(0)), bool>) {
        bool* const to = out.as<bool>() + first;
        for (int64_t i = 0; i < here; ++i) to[i * step] = value(i);
      } else {
        // Into the buffer first: f may call what the compiler cannot see, and out may be an input.
        T result[kConvertedRun];
        for (int64_t i = 0; i < here; ++i) result[i] = static_cast<T>(value(i));
        kernels::store_run(out.data, out.dtype, first, step, result, here);
      }
    }
  });
}

/// The type in which the operands meet; f32 for integers.
DType computing_type(const InferContext& c);
void infer_elementwise(InferContext& c, bool predicate);

template <class F, size_t kInputs>
void elementwise_kernel(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  std::array<Tensor, kInputs> in;
  bool wide = false;
  for (size_t i = 0; i < kInputs; ++i) {
    const Tensor& x = args.in[i];
    in[i] = x.broadcast(out.shape);
    wide = wide || x.dtype == f64;
  }
  if (out.numel() == 0) return;
  wide ? run_elementwise<double, F, kInputs>(out, in) : run_elementwise<float, F, kInputs>(out, in);
}

/// The gradient of input i: the head times a derivative.
void set_product(GradientContext& g, size_t i, const NDArray& derivative);

std::vector<Sample> unary_samples();
std::vector<Sample> binary_samples();

template <class F, class... T>
inline constexpr bool kPredicate = std::is_same_v<std::invoke_result_t<F, T...>, bool>;

template <class F, size_t kInputs>
Operator elementwise_operator(const char* name, const char* doc, bool predicate) {
  static_assert(std::is_default_constructible_v<F>, "expected a lambda without captures");
  Operator op;
  op.kernel = {name, elementwise_kernel<F, kInputs>};
  op.kernel.direct_work = 64;  // the function may be slow
  op.doc = doc;
  op.family = "elementwise";
  op.inputs = kInputs == 1 ? std::vector<const char*>{"x"} : std::vector<const char*>{"a", "b"};
  op.infer = predicate ? +[](InferContext& c) { infer_elementwise(c, true); }
                       : +[](InferContext& c) { infer_elementwise(c, false); };
  op.samples = kInputs == 1 ? unary_samples : binary_samples;
  op.dtypes = {kAllDTypes, kAllDTypes + kDTypes};
  op.in_place = predicate ? 0 : (uint64_t{1} << kInputs) - 1;
  op.elementwise = true;
  return op;
}

}  // namespace detail

/// The record of f(x). `name` and `doc` must live as long as the record.
template <class F>
Operator unary_operator(const char* name, const char* doc, F) {
  static_assert(std::invocable<F, float> && std::invocable<F, double>, "expected f(float) and f(double)");
  return detail::elementwise_operator<F, 1>(name, doc, detail::kPredicate<F, float>);
}

/// The record of f(a, b).
template <class F>
Operator binary_operator(const char* name, const char* doc, F) {
  static_assert(std::invocable<F, float, float> && std::invocable<F, double, double>,
                "expected f(float, float) and f(double, double)");
  return detail::elementwise_operator<F, 2>(name, doc, detail::kPredicate<F, float, float>);
}

/// The same with the derivative, a function of arrays that is made of operators, so that there are
/// derivatives of every order: unary_operator("cube", "x^3.", [](auto x) { return x * x * x; },
///                                [](const NDArray& x) { return square(x) * 3; })
template <class F, class D>
Operator unary_operator(const char* name, const char* doc, F f, D) {
  static_assert(std::is_invocable_r_v<NDArray, D, const NDArray&>,
                "expected NDArray derivative(const NDArray& x)");
  Operator op = unary_operator(name, doc, f);
  op.gradient = [](GradientContext& g) { detail::set_product(g, 0, D{}(g.input(0))); };
  op.gradient_uses = {.inputs = 1};
  return op;
}

/// The same with the derivatives with respect to a and to b, functions of both.
template <class F, class A, class B>
Operator binary_operator(const char* name, const char* doc, F f, A, B) {
  static_assert(std::is_invocable_r_v<NDArray, A, const NDArray&, const NDArray&> &&
                    std::is_invocable_r_v<NDArray, B, const NDArray&, const NDArray&>,
                "expected NDArray derivative(const NDArray& a, const NDArray& b), one for each operand");
  Operator op = binary_operator(name, doc, f);
  op.gradient = [](GradientContext& g) {
    if (g.wanted(0)) detail::set_product(g, 0, A{}(g.input(0), g.input(1)));
    if (g.wanted(1)) detail::set_product(g, 1, B{}(g.input(0), g.input(1)));
  };
  op.gradient_uses = {.inputs = 3};
  return op;
}

/// Calls an elementwise operator of two operands, of which one may be a number.
NDArray call_binary(const Operator& op, const Operand& a, const Operand& b);

}  // namespace mx
