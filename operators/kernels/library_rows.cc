// Functions computed by the C library, element by element; float32 in float64, rounded once.
#include <cmath>
#include <numbers>

#include "operators/kernels/log_gamma.h"
#include "operators/kernels/scalar_math.h"
#include "operators/kernels/tables.h"

namespace mx::kernels {
namespace {

double softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double gelu(double x) {
  // Returns the limit, because the product would be infinity times 0.
  if (x < -40) return std::isinf(x) ? -0.0 : x * 0.0;
  return x * (0.5 * std::erfc(-x / std::numbers::sqrt2));
}

template <class T, double (*F)(double)>
void unary_row(void* out, const void* const* in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const T* const x = static_cast<const T*>(in[0]);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(F(x[i]));
}

template <class T>
Row find_unary(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp2:
      return unary_row<T, std::exp2>;
    case UnaryOp::cbrt:
      return unary_row<T, std::cbrt>;
    case UnaryOp::tan:
      return unary_row<T, std::tan>;
    case UnaryOp::erf:
      return unary_row<T, std::erf>;
    case UnaryOp::erfc:
      return unary_row<T, std::erfc>;
    case UnaryOp::lgamma:
      return unary_row<T, log_gamma>;
    case UnaryOp::softplus:
      return unary_row<T, softplus>;
    case UnaryOp::gelu:
      return unary_row<T, gelu>;
    default:
      return nullptr;
  }
}

// Floating point:

double gelu_backward(double head, double x) {
  const double at = std::fmax(-40.0, std::fmin(40.0, x));  // at these limits the function has reached 0 or 1
  const double slope = 0.5 * std::erfc(-at / std::numbers::sqrt2) +
                       at * std::exp(-0.5 * at * at) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
  return head * (std::isnan(x) ? x : slope);
}

template <class T>
struct Floating {
  static T fmod(T a, T b) { return std::fmod(a, b); }
  static T mod(T a, T b) { return floored_mod(a, b); }
  static T floor_div(T a, T b) { return floored_quotient(a, b); }
  static T pow(T a, T b) { return static_cast<T>(std::pow(double{a}, double{b})); }
  static T atan2(T a, T b) { return static_cast<T>(std::atan2(double{a}, double{b})); }
  static T hypot(T a, T b) { return static_cast<T>(std::hypot(double{a}, double{b})); }
  static T nextafter(T a, T b) { return std::nextafter(a, b); }
  static T logaddexp(T a, T b) { return static_cast<T>(log_add_exp(a, b)); }
  static T gelu_backward(T a, T b) { return static_cast<T>(mx::kernels::gelu_backward(a, b)); }
};

// Integers. `Wide` can hold every quotient, so that nothing traps.
template <class T>
struct Integral {
  static T fmod(T a, T b) { return b == 0 || b == minus_one() ? T{0} : static_cast<T>(a % b); }
  static T mod(T a, T b) {
    const T rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  }
  static T floor_div(T a, T b) {
    if (b == 0) return 0;
    if (b == minus_one()) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(a));
    const T quotient = static_cast<T>(a / b);
    return a % b != 0 && (a < 0) != (b < 0) ? static_cast<T>(quotient - 1) : quotient;
  }
  static T pow(T a, T b) {
    if (b < 0) {
      if (a == 1) return 1;
      if (a == minus_one()) return b % 2 == 0 ? T{1} : a;
      return 0;
    }
    uint64_t result = 1, base = static_cast<uint64_t>(a);
    for (auto rest = static_cast<uint64_t>(b); rest != 0; rest >>= 1) {
      if ((rest & 1) != 0) result *= base;
      base *= base;
    }
    return static_cast<T>(result);
  }

 private:
  // The divisor for which the quotient may overflow. Unsigned types have none: 0, which is handled before,
  // replaces it.
  static constexpr T minus_one() { return std::is_signed_v<T> ? static_cast<T>(-1) : T{0}; }
};

template <class T, T (*F)(T, T)>
void binary_row(void* out, const void* const* in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const T* const a = static_cast<const T*>(in[0]);
  const T* const b = static_cast<const T*>(in[1]);
  for (int64_t i = 0; i < n; ++i) to[i] = F(a[i], b[i]);
}

template <class T, class F>
Row find_remainder(BinaryOp op) {
  switch (op) {
    case BinaryOp::floor_div:
      return binary_row<T, F::floor_div>;
    case BinaryOp::mod:
      return binary_row<T, F::mod>;
    case BinaryOp::fmod:
      return binary_row<T, F::fmod>;
    case BinaryOp::pow:
      return binary_row<T, F::pow>;
    default:
      return nullptr;
  }
}

template <class T>
Row find_binary(BinaryOp op) {
  if constexpr (std::is_floating_point_v<T>) {
    using F = Floating<T>;
    switch (op) {
      case BinaryOp::atan2:
        return binary_row<T, F::atan2>;
      case BinaryOp::hypot:
        return binary_row<T, F::hypot>;
      case BinaryOp::nextafter:
        return binary_row<T, F::nextafter>;
      case BinaryOp::logaddexp:
        return binary_row<T, F::logaddexp>;
      case BinaryOp::gelu_backward:
        return binary_row<T, F::gelu_backward>;
      default:
        return find_remainder<T, F>(op);
    }
  } else {
    return find_remainder<T, Integral<T>>(op);
  }
}

}  // namespace

Row unary_library_row(UnaryOp op, DType computing) {
  if (computing == DType::f32) return find_unary<float>(op);
  if (computing == DType::f64) return find_unary<double>(op);
  return nullptr;
}

Row binary_library_row(BinaryOp op, DType computing) {
  switch (computing) {
    case DType::f32:
      return find_binary<float>(op);
    case DType::f64:
      return find_binary<double>(op);
    case DType::i8:
      return find_binary<int8_t>(op);
    case DType::u8:
      return find_binary<uint8_t>(op);
    case DType::i32:
      return find_binary<int32_t>(op);
    case DType::i64:
      return find_binary<int64_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace mx::kernels
