// The arrays among the arguments and results of a module's call, for hooks. Internal.
//
// Found are NDArrays, and those in pairs, tuples, std::optional, ranges of arrays, and structs with a member
// `template <class V> void arrays(V&& visit)` that calls visit() with each of its arrays. Empty handles are
// left out. Other values (numbers, options) are passed on as they are.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::nn::detail {

struct AnyVisitor {
  void operator()(NDArray&) const {}
};

template <class T>
concept HasArrays = requires(T& value) {
  value.arrays(AnyVisitor{});
};
template <class T>
concept IsTuple = requires {
  std::tuple_size<T>::value;
};
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// Calls visit(NDArray&) with each array in `value`, in order.
template <class T, class V>
void visit_arrays(T& value, V&& visit) {
  if constexpr (std::is_const_v<T>) {
    return;
  } else if constexpr (std::derived_from<T, NDArray>) {
    if (value.defined()) visit(static_cast<NDArray&>(value));
  } else if constexpr (HasArrays<T>) {
    value.arrays([&](NDArray& array) {
      if (array.defined()) visit(array);
    });
  } else if constexpr (kIsOptional<T>) {
    if (value.has_value()) visit_arrays(*value, visit);
  } else if constexpr (std::ranges::range<T>) {
    for (auto&& element : value)
      if constexpr (std::is_lvalue_reference_v<decltype(element)>) visit_arrays(element, visit);
  } else if constexpr (IsTuple<T>) {
    std::apply([&](auto&... parts) { (visit_arrays(parts, visit), ...); }, value);
  }
}

template <class T>
std::vector<NDArray> arrays_of(T& value) {
  std::vector<NDArray> found;
  visit_arrays(value, [&](NDArray& array) { found.push_back(array); });
  return found;
}

/// Throws InvalidArgument: a hook has changed the number of arrays.
[[noreturn]] void throw_other_count(const std::string& module, const char* what, size_t expected, size_t got);

/// Replaces the arrays in `value`. Throws InvalidArgument if there are more or fewer.
template <class T>
void set_arrays(T& value, std::span<const NDArray> arrays, const std::string& module, const char* what) {
  size_t count = 0;
  visit_arrays(value, [&](NDArray&) { ++count; });
  if (count != arrays.size()) throw_other_count(module, what, count, arrays.size());
  size_t next = 0;
  visit_arrays(value, [&](NDArray& array) { array = arrays[next++]; });
}

/// How an argument is kept while hooks may replace its arrays: by value, and a View or Parameter as an
/// NDArray.
template <class A>
using Kept = std::conditional_t<std::is_convertible_v<A, NDArray>, NDArray, std::decay_t<A>>;

}  // namespace mx::nn::detail
