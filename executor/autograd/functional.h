// Functional differentiation: from a function of arrays the function of its gradient, which can be
// differentiated again (after autograd and JAX).
//
//   auto g = grad([](const NDArray& w, const NDArray& x) { return sum(tanh(matmul(x, w))); });
//   NDArray gw = g(w, x);
//   auto second = grad([&](const NDArray& w) { return sum(g(w, x)); });
//
// Arguments need no requires_grad_(), and get no .grad(). The function may capture recorded arrays, a module
// for one; what comes out is recorded then, and gradients flow to them when it is itself differentiated.
// Under NoGrad nothing that comes out is recorded.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"

namespace mx {

struct ValueAndGrad {
  NDArray value;
  NDArray grad;
};

namespace detail {

using ArrayFunction = std::function<NDArray(const std::vector<NDArray>& arguments)>;

ValueAndGrad value_and_grad(const ArrayFunction& f, const std::vector<NDArray>& arguments, size_t argnum);
NDArray jacobian(const ArrayFunction& f, const std::vector<NDArray>& arguments, size_t argnum);
NDArray hvp(const ArrayFunction& f, const NDArray& x, const NDArray& v);

template <class F, size_t... kIndex>
NDArray call_with(const F& f, const std::vector<NDArray>& a, std::index_sequence<kIndex...>) {
  return f(a[kIndex]...);
}

/// f of arrays as a function of a list of them.
template <size_t kArguments, class F>
ArrayFunction as_list(const F& f) {
  return
      [&f](const std::vector<NDArray>& a) { return call_with(f, a, std::make_index_sequence<kArguments>{}); };
}

}  // namespace detail

/// The gradient of f, which returns one element, with respect to argument `argnum`. The result throws
/// InvalidArgument when f returns more than one element or has no such argument.
template <class F>
auto grad(F f, size_t argnum = 0) {
  return [f = std::move(f), argnum](const auto&... arguments) {
    return detail::value_and_grad(detail::as_list<sizeof...(arguments)>(f), {arguments...}, argnum).grad;
  };
}

/// The same with f's value, {value, grad}.
template <class F>
auto value_and_grad(F f, size_t argnum = 0) {
  return [f = std::move(f), argnum](const auto&... arguments) {
    return detail::value_and_grad(detail::as_list<sizeof...(arguments)>(f), {arguments...}, argnum);
  };
}

/// All derivatives of an f with any number of elements: its shape, then the argument's. Goes back once per
/// element of f.
template <class F>
auto jacobian(F f, size_t argnum = 0) {
  return [f = std::move(f), argnum](const auto&... arguments) {
    return detail::jacobian(detail::as_list<sizeof...(arguments)>(f), {arguments...}, argnum);
  };
}

/// The product of the matrix of second derivatives of f, which returns one element, at x with v; without the
/// matrix. f has one argument: of several, the others are captured,
///   hvp([&](const NDArray& a) { return f(a, b); }, a, v)
template <class F>
NDArray hvp(const F& f, const NDArray& x, const NDArray& v) {
  return detail::hvp(detail::as_list<1>(f), x, v);
}

}  // namespace mx
