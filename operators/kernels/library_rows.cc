// Functions computed by the C library, element by element; float32 in float64, rounded once.
#include <type_traits>

#include "operators/formulas.h"
#include "operators/kernels/log_gamma.h"
#include "operators/kernels/tables.h"

namespace mx::kernels {
namespace {

template <UnaryOp kOp, class T>
void unary_row(void* out, const void* const* in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const T* const x = static_cast<const T*>(in[0]);
  for (int64_t i = 0; i < n; ++i) {
    const double value = x[i];
    // The C library's lgamma() writes a global variable, so threads may not call it.
    if constexpr (kOp == UnaryOp::lgamma) {
      to[i] = static_cast<T>(log_gamma(value));
    } else {
      to[i] = static_cast<T>(formulas::unary<kOp>(value));
    }
  }
}

// A: the type of computation.
template <BinaryOp kOp, class T, class A>
void binary_row(void* out, const void* const* in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const T* const a = static_cast<const T*>(in[0]);
  const T* const b = static_cast<const T*>(in[1]);
  for (int64_t i = 0; i < n; ++i)
    to[i] = static_cast<T>(formulas::binary<kOp>(static_cast<A>(a[i]), static_cast<A>(b[i]), 8 * sizeof(T)));
}

template <class T, UnaryOp... kOps>
Row unary_among(UnaryOp op) {
  Row found = nullptr;
  ((found = op == kOps ? unary_row<kOps, T> : found), ...);
  return found;
}
template <class T, class A, BinaryOp... kOps>
Row binary_among(BinaryOp op) {
  Row found = nullptr;
  ((found = op == kOps ? binary_row<kOps, T, A> : found), ...);
  return found;
}

template <class T>
Row find_unary(UnaryOp op) {
  using enum UnaryOp;
  return unary_among<T, exp2, cbrt, tan, erf, erfc, lgamma, softplus, gelu>(op);
}

template <class T>
Row find_binary(BinaryOp op) {
  using enum BinaryOp;
  if constexpr (std::is_floating_point_v<T>) {
    // These are exact in their own type, or must be computed in it.
    if (const Row found = binary_among<T, T, floor_div, mod, fmod, nextafter>(op)) return found;
    return binary_among<T, double, pow, atan2, hypot, logaddexp, gelu_backward>(op);
  } else {
    return binary_among<T, int64_t, floor_div, mod, fmod, pow>(op);
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
