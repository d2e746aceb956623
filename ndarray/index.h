// Index: what an array can be indexed with: numbers, slices, ellipsis, new axes, arrays.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <variant>

#include "ndarray/shape.h"

namespace mx {

class NDArray;

/// start:stop:step, as in Python. Omitted numbers mean "from the beginning", "to the end" and 1. Negative
/// numbers count from the end. The range is clipped to the dimension. The step must not be 0.
struct Slice {
  std::optional<IntArg> start{};
  std::optional<IntArg> stop{};
  IntArg step = 1;
};

struct Ellipsis {};
struct NewAxis {};

/// a[{colon, 1}] is Python's a[:, 1]; a[{ellipsis, 0}] is a[..., 0]; a[{newaxis, colon}] is a[None, :].
inline constexpr Slice colon{};
inline constexpr Ellipsis ellipsis{};
inline constexpr NewAxis newaxis{};

namespace detail {
/// A number between the brackets: any integer but bool, and types that convert to one (an enumerator).
template <class T>
concept IndexNumber = std::convertible_to<T, int64_t> && !std::same_as<T, bool> && !std::floating_point<T>;
}  // namespace detail

/// One entry of an index. For an array (of integers or of bool) it refers to the caller's handle, so an Index
/// must not outlive that handle.
class Index {
 public:
  /// Accepts any integer; one that an int64_t cannot hold is out of range.
  template <detail::IntegerNumber T>
  Index(T i, std::source_location where = std::source_location::current())
      : value_(detail::int64_of(i)), where_(where) {}
  Index(IntArg i, std::source_location where = std::source_location::current())
      : value_(int64_t{i}), where_(where) {}
  Index(const Slice& slice, std::source_location where = std::source_location::current())
      : value_(slice), where_(where) {}
  Index(Ellipsis e, std::source_location where = std::source_location::current())
      : value_(e), where_(where) {}
  Index(NewAxis n, std::source_location where = std::source_location::current()) : value_(n), where_(where) {}
  Index(const NDArray& array, std::source_location where = std::source_location::current())
      : value_(&array), where_(where) {}

  using Value = std::variant<int64_t, Slice, Ellipsis, NewAxis, const NDArray*>;
  const Value& value() const { return value_; }
  /// Returns the source location of the call, which errors name.
  std::source_location where() const { return where_; }

 private:
  Value value_;
  std::source_location where_;
};

}  // namespace mx
