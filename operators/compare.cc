#include "operators/compare.h"

#include <cmath>
#include <source_location>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
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

/// Returns the type in which the operand is compared. A number next to a floating-point array takes the type
/// of that array, as in arithmetic; next to integers it is f64.
DType operand_type(const Operand& x, const Operand& other) {
  if (x.is_array()) return x.array().dtype();
  const DType type = other.array().dtype();
  return is_floating(type) ? type : f64;
}

/// One side of a comparison: an array in the type of the computation, or a number.
class Side {
 public:
  Side(const Operand& x, const Operand& other, DType computing, std::source_location place) : place_(place) {
    if (x.is_array()) {
      array_ = x.array().to(computing, place);
    } else {
      number_ = visit(operand_type(x, other), [&](auto tag) -> double {
        return static_cast<double>(x.number().to<typename decltype(tag)::type>());
      });
    }
  }

  Operand operand() const { return array_.defined() ? Operand(array_, place_) : Operand(number_, place_); }

  /// Calls f with an operand that holds the result of `of_array` for an array or `of_number` for a number.
  template <class Array, class Number, class F>
  NDArray with(const Array& of_array, const Number& of_number, const F& f) const {
    if (!array_.defined()) return f(Operand(of_number(number_), place_));
    const NDArray result = of_array(Arg(array_, place_));
    return f(Operand(result, place_));
  }

 private:
  NDArray array_;
  double number_ = 0;
  std::source_location place_;
};

}  // namespace

NDArray isclose(const Operand& a, const Operand& b, const Tolerance& tolerance) try {
  const double rtol = tolerance.rtol, atol = tolerance.atol;
  MX_CHECK(rtol >= 0 && atol >= 0, InvalidArgument, "[isclose] expected tolerances of 0 or more, got rtol ",
           rtol, " and atol ", atol);
  MX_CHECK(a.is_array() || b.is_array(), InvalidArgument,
           "[isclose] expected an array among the operands, got two numbers");
  const std::source_location place = a.is_array() ? a.where() : b.where();
  const DType a_type = operand_type(a, b), b_type = operand_type(b, a);
  const DType type = difference_type(a_type, b_type);
  const bool whole = !is_floating(a_type) && !is_floating(b_type);
  const Side x(a, b, type, place), y(b, a, type, place);
  const NDArray same = equal(a, b);  // exact for integers, also above 2^53
  const NDArray apart = abs({sub(x.operand(), y.operand()), place});
  NDArray near = y.with(
      [&](const Arg& v) {
        return add({abs(v) * rtol, place}, atol);
      },
      [&](double v) { return std::abs(v) * rtol + atol; },
      [&](const Operand& margin) {
        return less_equal({apart, place}, margin);
      });
  if (whole) return logical_or({near, place}, same);
  near = y.with([](const Arg& v) { return isfinite(v); }, [](double v) { return std::isfinite(v); },
                [&](const Operand& finite) {
                  return logical_and({near, place}, finite);
                });
  NDArray result = logical_or({near, place}, same);
  if (!tolerance.equal_nan) return result;
  const auto nan_of_array = [](const Arg& v) { return isnan(v); };
  const auto nan_of_number = [](double v) { return std::isnan(v); };
  return x.with(nan_of_array, nan_of_number, [&](const Operand& first) {
    return y.with(nan_of_array, nan_of_number, [&](const Operand& second) {
      return logical_or({result, place}, logical_and(first, second));
    });
  });
} catch (const Error&) {
  detail::rethrow_at(a.where());
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
