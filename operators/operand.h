// Operand: an array or a C++ number as an argument of an elementwise operator, with the source location of
// the call.
#pragma once

#include <concepts>
#include <source_location>
#include <type_traits>

#include "ndarray/ndarray.h"

namespace mx {

struct Operator;

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

 private:
  const NDArray* array_;
  Scalar number_;
  std::source_location where_;
};

/// Calls an operator of two operands. If one of them is a number, calls the operator's form with a number
/// (Operator::number_form), so no array is made of the number. Throws InvalidArgument for two numbers, and
/// for a number if the operator has no such form.
NDArray call_binary(const Operator& op, const Operand& a, const Operand& b);

}  // namespace mx
