#include "operators/compare.h"

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"

namespace mx {
namespace {

/// Returns the type in which two arrays are compared. An integer and a floating-point array are compared in
/// f64, which represents more integers exactly than f32.
DType compared_type(DType a, DType b) {
  if (a == b) return a;
  return is_floating(a) != is_floating(b) ? f64 : promote(a, b);
}

/// Returns the type in which differences are computed.
DType difference_type(DType a, DType b) {
  const DType type = promote(a, b);
  return !is_floating(type) || is_floating(a) != is_floating(b) ? f64 : promote(type, f32);
}

/// Returns the operand as an array. A number next to a floating-point array takes the type of that array, as
/// in arithmetic; next to integers it is f64.
NDArray compared_operand(const Operand& x, const Operand& other) {
  if (x.is_array()) return x.array();
  MX_CHECK(other.is_array(), InvalidArgument,
           "[isclose] expected an array among the operands, got two numbers");
  const NDArray& array = other.array();
  return scalar_array(x.number(), is_floating(array.dtype()) ? array.dtype() : f64, array.context(),
                      x.where());
}

}  // namespace

NDArray isclose(const Operand& a, const Operand& b, const Tolerance& tolerance) {
  MX_CHECK(tolerance.rtol >= 0 && tolerance.atol >= 0, InvalidArgument,
           "[isclose] expected tolerances of 0 or more, got rtol ", tolerance.rtol, " and atol ",
           tolerance.atol);
  NDArray x = compared_operand(a, b), y = compared_operand(b, a);
  const std::source_location place = a.is_array() ? a.where() : b.where();
  const DType type = difference_type(x.dtype(), y.dtype());
  const bool whole = !is_floating(x.dtype()) && !is_floating(y.dtype());
  const NDArray same = equal({x, place}, y);  // exact for integers, also above 2^53
  x = x.to(type, place);
  y = y.to(type, place);
  const NDArray margin = add({abs({y, place}) * tolerance.rtol, place}, tolerance.atol);
  NDArray near = less_equal({abs({sub({x, place}, y), place}), place}, margin);
  if (!whole) near = logical_and({near, place}, isfinite({y, place}));
  NDArray result = logical_or({near, place}, same);
  if (tolerance.equal_nan && !whole)
    result = logical_or({result, place}, logical_and({isnan({x, place}), place}, isnan({y, place})));
  return result;
}

bool allclose(const Operand& a, const Operand& b, const Tolerance& tolerance) {
  return all(isclose(a, b, tolerance)).item<bool>();
}

bool array_equal(const Arg& a, const NDArray& b, bool equal_nan) {
  const NDArray& first = a.array;
  if (first.shape() != b.shape()) return false;
  const DType type = compared_type(first.dtype(), b.dtype());
  const NDArray x = first.to(type, a.where), y = b.to(type, a.where);
  NDArray same = equal({x, a.where}, y);
  if (equal_nan && is_floating(type))
    same = logical_or({same, a.where}, logical_and({isnan({x, a.where}), a.where}, isnan({y, a.where})));
  return all({same, a.where}).item<bool>();
}

}  // namespace mx
