// Functions of one operand with the same bits in every instruction set. They are plain loops, which the
// compiler vectorises once for each instruction set without changing a bit.
#include <type_traits>

#include "operators/formulas.h"
#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/unary_exact.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

template <UnaryOp kOp, class T>
void row(void* out, const void* const* in, int64_t n) {
  constexpr bool kPredicate = std::is_same_v<decltype(formulas::unary<kOp>(T{})), bool>;
  using To = std::conditional_t<kPredicate, uint8_t, T>;
  To* const to = static_cast<To*>(out);
  const T* const x = static_cast<const T*>(in[0]);
  // The arrays are the same or do not overlap: no element depends on one that was written before it.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(formulas::unary<kOp>(x[i]));
}

/// Finds the row of `op` among those of kOps.
template <class T, UnaryOp... kOps>
Row find_among(UnaryOp op) {
  Row found = nullptr;
  ((found = op == kOps ? row<kOps, T> : found), ...);
  return found;
}

template <class T>
Row find_any(UnaryOp op) {
  using enum UnaryOp;
  if (const Row found = find_among<T, copy, neg, abs, sign, square, relu, floor, ceil, round, trunc,
                                   logical_not, isnan, isinf, isfinite, signbit>(op))
    return found;
  if constexpr (std::is_floating_point_v<T>) {
    return find_among<T, sqrt, rsqrt, reciprocal>(op);
  } else {
    return find_among<T, bitwise_not>(op);
  }
}

Row find_unary(UnaryOp op, DType computing) {
  switch (computing) {
    case DType::f32:
      return find_any<float>(op);
    case DType::f64:
      return find_any<double>(op);
    case DType::i8:
      return find_any<int8_t>(op);
    case DType::u8:
      return find_any<uint8_t>(op);
    case DType::i32:
      return find_any<int32_t>(op);
    case DType::i64:
      return find_any<int64_t>(op);
    default:
      break;
  }
  if (computing != DType::bool_) return nullptr;
  // bool: the bytes 0 and 1.
  if (op == UnaryOp::bitwise_not || op == UnaryOp::logical_not) return row<UnaryOp::logical_not, uint8_t>;
  if (op == UnaryOp::neg || op == UnaryOp::sign) return nullptr;
  return find_any<uint8_t>(op);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_unary);
Row unary_exact_row(UnaryOp op, DType computing) { return HWY_DYNAMIC_DISPATCH(find_unary)(op, computing); }
}  // namespace mx::kernels
#endif
