// Operand: an array or a C++ number as an argument of an elementwise operator, with the source location of
// the call.
#pragma once

#include <concepts>
#include <source_location>
#include <type_traits>

#include "ndarray/ndarray.h"

namespace mx {

/// Refers to the array, so it must not outlive the call.
class Operand {
 public:
  Operand(const NDArray& array, std::source_location where = std::source_location::current())
      : array_(&array), number_(0), where_(where) {}
  Operand(const Arg& a) : array_(&a.array), number_(0), where_(a.where) {}
  template <class T>
  requires std::is_arithmetic_v<T> || std::same_as<T, float16> || std::same_as<T, bfloat16> ||
      std::same_as<T, Scalar>
      Operand(T number, std::source_location where = std::source_location::current())
      : array_(nullptr), number_(number), where_(where) {}

  bool is_array() const { return array_ != nullptr; }
  const NDArray& array() const { return *array_; }
  const Scalar& number() const { return number_; }
  std::source_location where() const { return where_; }

  /// Returns the array, or the number as an array: of the type to which it is promoted with `other`, and on
  /// the device of `other`. For operators that have no form with a number. Throws InvalidArgument if the type
  /// cannot hold the number.
  NDArray with(const Operand& other, const char* op) const;

 private:
  const NDArray* array_;
  Scalar number_;
  std::source_location where_;
};

}  // namespace mx
