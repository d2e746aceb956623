// Comparisons for equality, exact or within a tolerance: numpy.isclose, allclose and array_equal.
#pragma once

#include <concepts>
#include <type_traits>

#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

/// `allclose(a, b, {.rtol = 1e-3})`.
struct Tolerance {
  double rtol = 1e-5;      ///< relative to the magnitude of the second operand
  double atol = 1e-8;      ///< absolute
  bool equal_nan = false;  ///< if true, NaN equals NaN
};

/// Returns |a - b| <= atol + rtol * |b|, element by element, as bool; shapes broadcast. An infinity is close
/// only to an equal infinity. NaN is close to nothing, unless equal_nan is set. Integers are compared in f64,
/// f16 and bf16 in f32. Throws InvalidArgument for a tolerance that is negative or NaN.
NDArray isclose(const Operand& a, const Operand& b, const Tolerance& tolerance = {});
/// Returns true if all elements are close; true for arrays without elements. Waits for the arrays.
bool allclose(const Operand& a, const Operand& b, const Tolerance& tolerance = {});

// With tolerances in the order of NumPy and PyTorch: allclose(a, b, 1e-3, 1e-3). Templates, so that a list in
// braces means a Tolerance.
template <class T>
requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) NDArray
    isclose(const Operand& a, const Operand& b, T rtol, RealArg atol = 1e-8, bool equal_nan = false) {
  return isclose(a, b, Tolerance{static_cast<double>(rtol), atol, equal_nan});
}
template <class T>
requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) bool allclose(const Operand& a, const Operand& b,
                                                                          T rtol, RealArg atol = 1e-8,
                                                                          bool equal_nan = false) {
  return allclose(a, b, Tolerance{static_cast<double>(rtol), atol, equal_nan});
}

/// Returns true if both have the same shape and equal elements. Waits, unless the shapes differ. Types may
/// differ: an integer and a floating-point array are compared in f64.
bool array_equal(const Arg& a, const NDArray& b, bool equal_nan = false);

}  // namespace mx
