// Functional differentiation: turns a function of arrays into the function that computes its gradient, which
// can be differentiated again. Modelled on autograd and JAX.
//
//   auto g = grad([](const NDArray& w, const NDArray& x) { return sum(tanh(matmul(x, w))); });
//   NDArray gw = g(w, x);
//   auto second = grad([&](const NDArray& w) { return sum(g(w, x)); });
//
// Arguments need no requires_grad_(), and their grad() is not set. If the function captures recorded arrays,
// for example a module, its results are recorded, and differentiating a result gives gradients of the
// captured arrays too. Under NoGrad no result is recorded.
//
// The array that f gets shares the memory of the argument, so f must not change it in place: doing so throws
// InvalidState. f may change a clone().
#pragma once

#include <functional>
#include <source_location>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/detail/place.h"

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

/// Wraps f, a function of kArguments arrays, as a function of a list of arrays. The result refers to f.
template <size_t kArguments, class F>
ArrayFunction as_list(const F& f) {
  return
      [&f](const std::vector<NDArray>& a) { return call_with(f, a, std::make_index_sequence<kArguments>{}); };
}

}  // namespace detail

/// Returns a function that computes the gradient of f with respect to argument `argnum`. f must return one
/// element. The function throws InvalidArgument if f returns more than one or has no such argument.
template <class F>
auto grad(F f, size_t argnum = 0) {
  return [f = std::move(f), argnum](const auto&... arguments) {
    return detail::value_and_grad(detail::as_list<sizeof...(arguments)>(f), {arguments...}, argnum).grad;
  };
}

/// Returns a function like grad()'s that also returns f's value: {value, grad}.
template <class F>
auto value_and_grad(F f, size_t argnum = 0) {
  return [f = std::move(f), argnum](const auto&... arguments) {
    return detail::value_and_grad(detail::as_list<sizeof...(arguments)>(f), {arguments...}, argnum);
  };
}

/// Returns a function that computes all derivatives of f, which may return any number of elements. The shape
/// is that of f's result followed by the argument's. Runs one backward pass per element of the result.
template <class F>
auto jacobian(F f, size_t argnum = 0) {
  return [f = std::move(f), argnum](const auto&... arguments) {
    return detail::jacobian(detail::as_list<sizeof...(arguments)>(f), {arguments...}, argnum);
  };
}

/// Returns the product of the Hessian of f at x with v, without computing the Hessian. f must return one
/// element. f has one argument; a function of several arguments captures the others:
///   hvp([&](const NDArray& a) { return f(a, b); }, a, v)
template <class F>
NDArray hvp(const F& f, const NDArray& x, const NDArray& v,
            std::source_location where = std::source_location::current()) try {
  return detail::hvp(detail::as_list<1>(f), x, v);
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace mx
