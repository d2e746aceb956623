// Operand: an array or a C++ number, as an argument of an elementwise operator, with the place of the call.
#pragma once

#include <concepts>
#include <source_location>
#include <type_traits>

#include "ndarray/ndarray.h"

namespace mx {

/// Lives no longer than the call.
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

  /// The array, or the number as one of the type and on the device in which it meets `other`: for operators
  /// that have no form with a number. Throws InvalidArgument for one that this type cannot hold.
  NDArray with(const Operand& other, const char* op) const;

 private:
  const NDArray* array_;
  Scalar number_;
  std::source_location where_;
};

}  // namespace mx
