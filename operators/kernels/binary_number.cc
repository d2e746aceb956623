// Functions of an array and a number: exact comparisons, powers by multiplication, and clamping.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>

#include "ndarray/kernels/copy.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/comparison.h"
#include "operators/kernels/element.h"
#include "operators/kernels/tables.h"

namespace mx::kernels {
namespace {

/// The largest value of T that is at most the number, if there is one.
template <class T>
struct Floor {
  T value{};
  bool exact = false;  ///< `value` equals the number
  bool none = false;   ///< all values of T are larger than the number
};

template <class T>
Floor<T> integer_floor(const Scalar& number, DType dtype) {
  constexpr T kMost = std::numeric_limits<T>::max(), kLeast = std::numeric_limits<T>::min();
  // bool has only 0 and 1.
  const T most = dtype == DType::bool_ ? T{1} : kMost;
  if (!number.floating()) {
    if (!number.fits() || number.integer() > static_cast<int64_t>(most)) return {most};
    if (number.integer() < static_cast<int64_t>(kLeast)) return {.none = true};
    return {static_cast<T>(number.integer()), true};
  }
  const double real = number.real(), whole = std::floor(real);
  if (whole < static_cast<double>(kLeast)) return {.none = true};
  if (whole >= static_cast<double>(most) + 1) return {most};  // 2^63 for int64_t
  return {static_cast<T>(whole), whole == real};
}

/// Returns the number rounded to that floating-point type.
double rounded(double number, DType dtype) {
  return visit(dtype, [number](auto tag) {
    using T = typename decltype(tag)::type;
    return static_cast<double>(Scalar(number).to<T>());
  });
}

/// The floor in T, the elements' type of computation, which can represent all values of `dtype`.
template <class T>
Floor<T> floating_floor(const Scalar& number, DType dtype) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  if (!number.floating()) {
    const T near = number.to<T>();
    const auto value = number.fits() ? static_cast<__int128>(number.integer())
                                     : static_cast<__int128>(number.unsigned_integer());
    const auto whole = static_cast<__int128>(near);
    return {whole > value ? std::nextafter(near, -kInfinity) : near, whole == value};
  }
  const double real = number.real(), close = rounded(real, dtype);
  if (std::isinf(real) || (std::isfinite(close) && (close != 0 || real == 0)))
    return {static_cast<T>(close), true};
  const T near = static_cast<T>(real);
  const auto wide = static_cast<double>(near);
  return {wide > real ? std::nextafter(near, -kInfinity) : near, wide == real};
}

/// Returns a comparison that gives the same answer for all elements.
template <class T>
Comparison always(bool answer) {
  if constexpr (std::is_floating_point_v<T>) {
    return {answer ? BinaryOp::not_equal : BinaryOp::equal, std::numeric_limits<T>::quiet_NaN()};
  } else {
    return {answer ? BinaryOp::greater_equal : BinaryOp::less, std::numeric_limits<T>::min()};
  }
}

/// Returns the comparison with a value of T that is equivalent to "element op number".
template <class T>
Comparison compared(BinaryOp op, const Scalar& number, DType dtype) {
  if (std::isnan(number.real())) return always<T>(op == BinaryOp::not_equal);
  Floor<T> floor;
  if constexpr (std::is_floating_point_v<T>) {
    floor = floating_floor<T>(number, dtype);
  } else {
    floor = integer_floor<T>(number, dtype);
  }
  const bool above = op == BinaryOp::greater || op == BinaryOp::greater_equal;
  if (floor.none) return always<T>(above || op == BinaryOp::not_equal);
  if (floor.exact) return {op, floor.value};
  // The number lies between two values of T, of which floor.value is the lower one.
  if (op == BinaryOp::equal || op == BinaryOp::not_equal) return always<T>(op == BinaryOp::not_equal);
  return {above ? BinaryOp::greater : BinaryOp::less_equal, floor.value};
}

Comparison compared_as(BinaryOp op, const Scalar& number, DType dtype) {
  return visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>) {
      return compared<uint8_t>(op, number, dtype);
    } else if constexpr (sizeof(T) == 2) {
      return compared<float>(op, number, dtype);
    } else {
      return compared<T>(op, number, dtype);
    }
  });
}

BinaryOp mirrored(BinaryOp op) {
  switch (op) {
    case BinaryOp::less:
      return BinaryOp::greater;
    case BinaryOp::less_equal:
      return BinaryOp::greater_equal;
    case BinaryOp::greater:
      return BinaryOp::less;
    case BinaryOp::greater_equal:
      return BinaryOp::less_equal;
    default:
      return op;
  }
}

/// Calls run(operands...), where the operands are the numbers as tensors of `type` and of x's shape.
///
/// For a small array, the numbers are written out as contiguous arrays, so that no loop plan is needed.
template <class F, class... Numbers>
void with_elements(const Tensor& x, DType type, const Shape& shape, const F& run, const Numbers&... numbers) {
  constexpr int64_t kFew = 1024;
  const int64_t n = x.shape.numel();
  if (n > kFew || x.dtype != type || !Tensor::is_contiguous(x.shape, x.strides))
    return run(*Element(numbers, type, shape)...);
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    alignas(64) T values[sizeof...(Numbers)][kFew];
    size_t k = 0;
    const auto written = [&](const Scalar& number) {
      T* const to = values[k++];
      // Doubles the filled part by copies, which use wider stores than this file is compiled for.
      constexpr int64_t kFirst = 64;
      std::fill_n(to, std::min(n, kFirst), number.to<T>());
      for (int64_t done = kFirst; done < n; done *= 2)
        std::memcpy(to + done, to, static_cast<size_t>(std::min(done, n - done)) * sizeof(T));
      return Tensor{to, type, x.shape, x.strides};
    };
    const std::array<Tensor, sizeof...(Numbers)> operands{written(numbers)...};
    std::apply(run, operands);
  });
}

void with_number(BinaryOp op, const Tensor& out, const Tensor& a, const Scalar& number, DType type,
                 bool left) {
  const auto run = [&](const Tensor& b) { left ? binary(op, out, b, a) : binary(op, out, a, b); };
  with_elements(a, type, out.shape, run, number);
}

/// Returns false, and does nothing, if the exponent is not one of those computed by multiplication.
bool power(const Tensor& out, const Tensor& a, const Scalar& exponent) {
  const DType type = row_type(out.dtype);
  const Row row = power_row(type, exponent.real());
  if (row == nullptr) return false;
  if (!run_small(row, type, type, out, a)) walk_rows<1>({row, type, {type}}, out, {&a});
  return true;
}

}  // namespace

Comparison comparison_with(BinaryOp op, const Scalar& number, DType dtype, bool left) {
  return compared_as(left ? mirrored(op) : op, number, dtype);
}

void binary_number(BinaryOp op, const Tensor& out, const Tensor& a, const Scalar& number, bool left) {
  if (op >= BinaryOp::equal && op <= BinaryOp::greater_equal) {
    const Comparison c = comparison_with(op, number, a.dtype, left);
    // Elements of bool are compared as numbers, those of f16 and bf16 as floats.
    return with_number(c.op, out, a, c.value, row_type(a.dtype), false);
  }
  if (op >= BinaryOp::logical_and && op <= BinaryOp::logical_xor)
    return with_number(op, out, a, number.truth() ? 1 : 0, row_type(a.dtype), false);
  if (op == BinaryOp::pow && !left && power(out, a, number)) return;
  with_number(op, out, a, number, row_type(out.dtype), left);
}

void clamp(const Tensor& out, const Tensor& x, const std::optional<Scalar>& low,
           const std::optional<Scalar>& high) {
  const DType type = row_type(out.dtype);
  const Scalar least = is_floating(type)      ? Scalar(-std::numeric_limits<double>::infinity())
                       : type == DType::bool_ ? Scalar(false)
                                              : Scalar(INT64_MIN);
  const Scalar most = is_floating(type) ? Scalar(std::numeric_limits<double>::infinity()) : Scalar(INT64_MAX);
  const auto run = [&](const Tensor& from, const Tensor& to) { clamp(out, x, from, to); };
  with_elements(x, type, out.shape, run, low.value_or(least), high.value_or(most));
}

}  // namespace mx::kernels
