// A new elementwise operator from a function of one or two numbers, in one file:
//
//   const Operator& record() {
//     static const Operator op = unary_operator("softsign", "x / (1 + |x|).",
//                                               [](auto x) { return x / (1 + std::abs(x)); });
//     return op;
//   }
//   NDArray softsign(const Arg& x) { return call(record(), {}, x); }
//
// In this source tree, also define detail::OperatorFamily family_softsign() and add a line to
// operators/CMakeLists.txt; elsewhere call register_operator(record()). The record provides shape and type
// inference, broadcasting, every layout, all element types, parallel loops, in-place use, numbers as
// operands, samples, and the tests and documents that are generated from the registry.
//
// The function is a lambda without captures that accepts float and double. f16, bf16, integers and bool are
// computed in float and rounded once. If the function returns bool, the result is of bool. Types of two
// operands are promoted; integers give f32. An element's result depends only on its operands. Derivatives may
// be passed after the function.
//
// binary_operator() also makes the form with a number, "<name>_scalar", which call_binary() calls if one
// operand is a number. The number is converted to the type of the computation, float or double.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "operators/kernels/rows.h"
#include "operators/number.h"
#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

namespace detail {

template <class F, class... T>
inline constexpr bool kPredicate = std::is_same_v<std::invoke_result_t<F, T...>, bool>;

/// Returns true if F returns bool for kInputs arguments of type T.
template <class T, class F, size_t kInputs>
constexpr bool is_predicate() {
  if constexpr (kInputs == 1) {
    return kPredicate<F, T>;
  } else {
    return kPredicate<F, T, T>;
  }
}

/// Sets out[i] = f(in[0][i], ...) for n contiguous elements; out may be one of the inputs.
template <class T, class F, size_t kInputs>
[[gnu::always_inline]] inline void elementwise_loop(void* out, const void* const* in, int64_t n) {
  using To = std::conditional_t<is_predicate<T, F, kInputs>(), bool, T>;
  To* const to = static_cast<To*>(out);
  const T* const x = static_cast<const T*>(in[0]);
  const T* const y = static_cast<const T*>(in[kInputs - 1]);
  const F f{};
  // out is either equal to an input or disjoint from it, so no iteration reads what an earlier one wrote.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kInputs == 1) {
      to[i] = static_cast<To>(f(x[i]));
    } else {
      to[i] = static_cast<To>(f(x[i], y[i]));
    }
  }
}

/// The instruction sets that the rows below are compiled for; widest_vectors() returns the widest one that
/// this processor has.
enum class Vectors : uint8_t { baseline, avx2, avx512 };
Vectors widest_vectors();

// The same loop for each instruction set, with the function inlined. fp-contract=off: otherwise a product and
// a sum could be fused in the vector loop and not in its remainder, so an element's result would depend on
// its position. no-math-errno and no-trapping-math: without them sqrt, floor and comparisons are not
// vectorized, and no caller reads errno or the traps.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
template <class T, class F, size_t kInputs>
[[gnu::flatten, gnu::optimize("O3", "no-math-errno", "no-trapping-math", "fp-contract=off"),
  gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void
row_avx512(void* out, const void* const* in, int64_t n) {
  elementwise_loop<T, F, kInputs>(out, in, n);
}
template <class T, class F, size_t kInputs>
[[gnu::flatten, gnu::optimize("O3", "no-math-errno", "no-trapping-math", "fp-contract=off"),
  gnu::target("avx2")]] void
row_avx2(void* out, const void* const* in, int64_t n) {
  elementwise_loop<T, F, kInputs>(out, in, n);
}
template <class T, class F, size_t kInputs>
[[gnu::flatten, gnu::optimize("O3", "no-math-errno", "no-trapping-math", "fp-contract=off")]] void
row_baseline(void* out, const void* const* in, int64_t n) {
  elementwise_loop<T, F, kInputs>(out, in, n);
}
#elif defined(__x86_64__)
template <class T, class F, size_t kInputs>
[[gnu::flatten, gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void row_avx512(void* out,
                                                                                    const void* const* in,
                                                                                    int64_t n) {
  elementwise_loop<T, F, kInputs>(out, in, n);
}
template <class T, class F, size_t kInputs>
[[gnu::flatten, gnu::target("avx2")]] void row_avx2(void* out, const void* const* in, int64_t n) {
  elementwise_loop<T, F, kInputs>(out, in, n);
}
template <class T, class F, size_t kInputs>
void row_baseline(void* out, const void* const* in, int64_t n) {
  elementwise_loop<T, F, kInputs>(out, in, n);
}
#else
template <class T, class F, size_t kInputs>
void row_baseline(void* out, const void* const* in, int64_t n) {
  elementwise_loop<T, F, kInputs>(out, in, n);
}
#endif

/// Returns the row function for each value of `Vectors`.
template <class T, class F, size_t kInputs>
constexpr std::array<kernels::Row, 3> elementwise_rows() {
#if defined(__x86_64__)
  return {row_baseline<T, F, kInputs>, row_avx2<T, F, kInputs>, row_avx512<T, F, kInputs>};
#else
  return {row_baseline<T, F, kInputs>};
#endif
}

/// Sets out = f(in...), computed in T. Precondition: the inputs have out's shape.
template <class T, class F, size_t kInputs>
void run_elementwise(const Tensor& out, const std::array<Tensor, kInputs>& in) {
  constexpr int kCount = static_cast<int>(kInputs);
  static const kernels::Row row = elementwise_rows<T, F, kInputs>()[static_cast<size_t>(widest_vectors())];
  constexpr DType kOut = is_predicate<T, F, kInputs>() ? DType::bool_ : dtype_of<T>;
  if constexpr (kInputs == 1) {
    if (kernels::run_small(row, kOut, dtype_of<T>, out, in[0])) return;
  } else {
    if (kernels::run_small(row, kOut, dtype_of<T>, out, in[0], in[1])) return;
  }
  kernels::RowPass<kCount> pass{row, kOut, {}};
  std::array<const Tensor*, kInputs> operands;
  for (size_t i = 0; i < kInputs; ++i) {
    pass.in[i] = dtype_of<T>;
    operands[i] = &in[i];
  }
  kernels::walk_rows<kCount>(pass, out, operands);
}

/// Returns the promoted type of the operands; f32 for integers.
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

template <class T, class F>
void run_with_number(const Tensor& out, const Tensor& x, const NumberAttrs& attrs) {
  const kernels::Element element(attrs.number, dtype_of<T>, out.shape);
  run_elementwise<T, F, 2>(out, attrs.left ? std::array{*element, x} : std::array{x, *element});
}

template <class F>
void number_kernel(const KernelArgs& args) {
  const Tensor &out = args.out[0], &x = args.in[0];
  const auto& attrs = args.attr<NumberAttrs>();
  if (out.numel() == 0) return;
  x.dtype == f64 ? run_with_number<double, F>(out, x, attrs) : run_with_number<float, F>(out, x, attrs);
}

/// Sets the gradient of input i to the head times the derivative.
void set_product(GradientContext& g, size_t i, const NDArray& derivative);

/// Sets the gradients of both operands. A: the derivative with respect to the first, B: to the second.
template <class A, class B>
void binary_product_gradient(GradientContext& g) {
  if (g.wanted(0)) set_product(g, 0, A{}(g.input(0), g.input(1)));
  if (g.wanted(1)) set_product(g, 1, B{}(g.input(0), g.input(1)));
}

/// Returns the number as an array for use with x in a derivative, of the type in which x is computed. A
/// number that is too large for the type becomes infinite, as in the computation itself.
NDArray number_beside(const NDArray& x, const Scalar& number);

/// The same for the form with a number.
template <class A, class B>
void number_product_gradient(GradientContext& g) {
  if (!g.wanted(0)) return;
  const auto& attrs = g.attr<NumberAttrs>();
  const NDArray& x = g.input(0);
  const NDArray number = number_beside(x, attrs.number);
  set_product(g, 0, attrs.left ? B{}(number, x) : A{}(x, number));
}

std::vector<Sample> unary_samples();
std::vector<Sample> binary_samples();
/// With positive elements and numbers, for which more functions are defined.
std::vector<Sample> number_samples();

/// Completes and keeps the form with a number of that operator: everything but the kernel and the gradient
/// follows from the operator. The result lives as long as the process.
const Operator& keep_number_form(const Operator& op, bool predicate, void (*kernel)(const KernelArgs&),
                                 void (*gradient)(GradientContext&));

template <class F, size_t kInputs>
Operator elementwise_operator(const char* name, const char* doc, bool predicate) {
  static_assert(std::is_default_constructible_v<F>, "expected a lambda without captures");
  Operator op;
  op.kernel = {name, elementwise_kernel<F, kInputs>};
  op.kernel.direct_work = 64;  // the function may be slow
  op.doc = doc;
  op.family = "elementwise";
  op.inputs = kInputs == 1 ? RecordNames{"x"} : RecordNames{"a", "b"};
  op.infer = predicate ? +[](InferContext& c) { infer_elementwise(c, true); }
                       : +[](InferContext& c) { infer_elementwise(c, false); };
  op.samples = kInputs == 1 ? unary_samples : binary_samples;
  op.dtypes = {kAllDTypes, kAllDTypes + kDTypes};
  op.in_place = predicate ? 0 : (uint64_t{1} << kInputs) - 1;
  op.elementwise = true;
  return op;
}

}  // namespace detail

/// Returns the record of f(x). `name` and `doc` must live as long as the record.
template <class F>
Operator unary_operator(const char* name, const char* doc, F) {
  static_assert(std::invocable<F, float> && std::invocable<F, double>, "expected f(float) and f(double)");
  return detail::elementwise_operator<F, 1>(name, doc, detail::kPredicate<F, float>);
}

/// Returns the record of f(a, b).
template <class F>
Operator binary_operator(const char* name, const char* doc, F) {
  static_assert(std::invocable<F, float, float> && std::invocable<F, double, double>,
                "expected f(float, float) and f(double, double)");
  constexpr bool kPredicate = detail::kPredicate<F, float, float>;
  Operator op = detail::elementwise_operator<F, 2>(name, doc, kPredicate);
  op.number_form = &detail::keep_number_form(op, kPredicate, detail::number_kernel<F>, nullptr);
  return op;
}

/// The same with the derivative. It is a function of arrays that calls operators, so that derivatives of
/// every order exist: unary_operator("cube", "x^3.", [](auto x) { return x * x * x; },
///                             [](const NDArray& x) { return square(x) * 3; })
template <class F, class D>
Operator unary_operator(const char* name, const char* doc, F f, D) {
  static_assert(std::is_invocable_r_v<NDArray, D, const NDArray&>,
                "expected NDArray derivative(const NDArray& x)");
  Operator op = unary_operator(name, doc, f);
  op.gradient = [](GradientContext& g) { detail::set_product(g, 0, D{}(g.input(0))); };
  op.gradient_uses = {.inputs = bit_set(0)};
  return op;
}

/// The same with the derivatives with respect to a and to b; both are functions of a and b.
template <class F, class A, class B>
Operator binary_operator(const char* name, const char* doc, F, A, B) {
  static_assert(std::is_invocable_r_v<NDArray, A, const NDArray&, const NDArray&> &&
                    std::is_invocable_r_v<NDArray, B, const NDArray&, const NDArray&>,
                "expected NDArray derivative(const NDArray& a, const NDArray& b), one for each operand");
  constexpr bool kPredicate = detail::kPredicate<F, float, float>;
  Operator op = detail::elementwise_operator<F, 2>(name, doc, kPredicate);
  op.gradient = detail::binary_product_gradient<A, B>;
  op.gradient_uses = {.inputs = bit_set(0, 1)};
  op.number_form = &detail::keep_number_form(op, kPredicate, detail::number_kernel<F>,
                                             detail::number_product_gradient<A, B>);
  return op;
}

}  // namespace mx
