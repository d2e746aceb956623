// gradcheck: compares the gradients of a function with finite differences. For tests of a program's own
// operators, Functions and modules.
//
//   const NDArray w = randn({3, 4}, f64), x = randn({2, 4}, f64);
//   gradcheck([](const NDArray& a, const NDArray& b) { return tanh(matmul(b, a.T())); }, {w, x});
//
// Differences need digits, so the arrays of floating-point type are f64: cast them, or move a module to f64.
// The function should have derivatives at these arrays: at a kink, such as relu(0), differences are not one
// of them. It is called twice for each element of these arrays, and runs one backward pass for each element
// of the result; so small arrays are enough.
#pragma once

#include <cstddef>
#include <functional>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor/autograd/functional.h"

namespace mx {

struct GradcheckOptions {
  double step = 1e-6;  ///< the difference is (f(x + step) - f(x - step)) / (2 step)
  double atol = 1e-5;  ///< a derivative d may differ from the difference e by atol + rtol * |e|
  double rtol = 1e-3;
  bool raise = true;  ///< false: returns false where it would throw for a derivative that differs
};

namespace detail {

bool gradcheck(const ArrayFunction& f, const std::vector<NDArray>& arrays, const GradcheckOptions& options);
[[noreturn]] void throw_wrong_arity(size_t arrays);

template <class F, size_t... kIndex>
constexpr bool takes(std::index_sequence<kIndex...>) {
  return std::is_invocable_v<const F&,
                             decltype(static_cast<void>(kIndex), std::declval<const NDArray&>())...>;
}

/// Calls f, a function of one to eight arrays, or of a list of arrays.
template <size_t kArguments = 1, class F>
NDArray call_with_all(const F& f, const std::vector<NDArray>& a) {
  using Arguments = std::make_index_sequence<kArguments>;
  if constexpr (std::is_invocable_v<const F&, const std::vector<NDArray>&>) {
    return f(a);
  } else if constexpr (kArguments > 8) {
    throw_wrong_arity(a.size());
  } else {
    if constexpr (takes<F>(Arguments{}))
      if (a.size() == kArguments) return call_with(f, a, Arguments{});
    return call_with_all<kArguments + 1>(f, a);
  }
}

}  // namespace detail

/// Compares the derivatives that backward() computes for f with differences, for all elements of the result
/// and all elements of the arrays of floating-point type. f takes that many arrays, or one list of arrays
/// (const std::vector<NDArray>&), and returns one array. The other arrays, such as indices, are passed on.
/// Names and defaults are those of torch.autograd.gradcheck.
///
/// Returns true, or throws InvalidArgument, which names the first derivative that differs. Throws
/// InvalidArgument for arrays of another floating-point type than f64, if there is nothing to compare, and if
/// two calls of f for the same arrays differ, as with dropout.
template <class F>
bool gradcheck(const F& f, const std::vector<NDArray>& arrays, const GradcheckOptions& options = {},
               std::source_location where = std::source_location::current()) try {
  return detail::gradcheck([&f](const std::vector<NDArray>& a) { return detail::call_with_all(f, a); },
                           arrays, options);
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace mx
