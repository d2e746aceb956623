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
  Index(T i) : value_(detail::int64_of(i)) {}
  Index(IntArg i) : value_(int64_t{i}) {}
  Index(const Slice& slice) : value_(slice) {}
  Index(Ellipsis e) : value_(e) {}
  Index(NewAxis n) : value_(n) {}
  Index(const NDArray& array, std::source_location where = std::source_location::current())
      : value_(&array), where_(where) {}

  using Value = std::variant<int64_t, Slice, Ellipsis, NewAxis, const NDArray*>;
  const Value& value() const { return value_; }
  /// Returns the source location of the call, for an array. Only a read with an array can fail after the
  /// call.
  std::source_location where() const { return where_; }

 private:
  Value value_;
  std::source_location where_;
};

}  // namespace mx
