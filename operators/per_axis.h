// PerAxis: one number for all spatial axes, or one number for each: the stride of a convolution, for example.
//
//   {.stride = 2}         // 2 along each axis
//   {.stride = {2, 1}}    // 2 along the first spatial axis, 1 along the second
//
// A plain value of up to three numbers, made without an allocation.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "ndarray/attrs.h"
#include "ndarray/scalar.h"

namespace mx {

class PerAxis {
 public:
  static constexpr int kMost = 3;

  template <detail::IntegerNumber T>
  constexpr PerAxis(T number) : count_(1), numbers_{detail::int64_of(number), 0, 0} {}
  constexpr PerAxis(IntArg number) : count_(1), numbers_{number, 0, 0} {}
  /// Throws InvalidArgument for no numbers, and for more than three.
  PerAxis(std::initializer_list<IntArg> numbers);
  explicit PerAxis(std::span<const int64_t> numbers);

  int count() const { return count_; }
  /// Returns the number of an axis. Precondition: count() is 1 or greater than `axis`.
  int64_t operator[](int axis) const { return numbers_[count_ == 1 ? 0 : axis]; }
  /// Returns true if all numbers are equal to `number`.
  bool all(int64_t number) const;
  std::span<const int64_t> numbers() const { return {numbers_, static_cast<size_t>(count_)}; }

  /// Throws InvalidArgument, naming `op` and `what`, unless there are 1 or `axes` numbers, all from `least`
  /// to 2^31 - 1.
  void check(const char* op, const char* what, int axes, int64_t least) const;

  bool operator==(const PerAxis&) const = default;

 private:
  int32_t count_;
  int64_t numbers_[kMost];
};

/// "2" or "(2, 1)".
std::string to_string(const PerAxis& numbers);

// Makes a PerAxis usable as a field of attributes; other code sees a list of integers.
AttrValue attr_to_value(const PerAxis& value);
void attr_from_value(PerAxis& target, const AttrValue& value, const char* name);
namespace detail {
template <>
constexpr const char* attr_type_name<PerAxis>() {
  return "ints";
}
}  // namespace detail

}  // namespace mx
