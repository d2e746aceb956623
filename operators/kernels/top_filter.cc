#include "operators/kernels/top_filter.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/top_filter.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The layout of the elements' bits.
enum class Bits { floating, signed_integer, unsigned_integer };

/// Elements are compared as signed integers that have the order of their keys, except for -0 and NaN: the
/// key without its highest bit, inverted for the descending order. S has the size of the elements.
template <class S, Bits kBits>
struct Order {
  hn::Vec<hn::ScalableTag<S>> flip, limit;

  Order(S given_limit, bool descending) {
    const hn::ScalableTag<S> d;
    flip = hn::Set(d, static_cast<S>(descending ? -1 : 0));
    limit = hn::Set(d, given_limit);
  }
  HWY_INLINE hn::Mask<hn::ScalableTag<S>> below(const S* x) const {
    const hn::ScalableTag<S> d;
    constexpr S kHighest = hwy::LimitsMin<S>();
    auto v = hn::LoadU(d, x);
    if constexpr (kBits == Bits::floating) {
      const auto negative = hn::MaskFromVec(hn::BroadcastSignBit(v));
      v = hn::Xor(v, hn::IfThenElseZero(negative, hn::Set(d, static_cast<S>(~kHighest))));
    } else if constexpr (kBits == Bits::unsigned_integer) {
      v = hn::Xor(v, hn::Set(d, kHighest));
    }
    return hn::Lt(hn::Xor(v, flip), limit);
  }
};

template <class S, Bits kBits>
int64_t filter(const void* elements, int64_t n, S limit, bool descending, uint16_t* found) {
  const hn::ScalableTag<S> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  static_assert(hn::MaxLanes(d) <= 64, "one word has the bits of a mask");
  const Order<S, kBits> order(limit, descending);
  int64_t count = 0;
  const auto take = [&](int64_t at, hn::Mask<hn::ScalableTag<S>> mask) HWY_ATTR {
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, mask, bytes);
    uint64_t bits = 0;
    std::memcpy(&bits, bytes, sizeof bits);
    for (; bits != 0; bits &= bits - 1) found[count++] = static_cast<uint16_t>(at + __builtin_ctzll(bits));
  };
  const S* const x = static_cast<const S*>(elements);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto m0 = order.below(x + i), m1 = order.below(x + i + lanes), m2 = order.below(x + i + 2 * lanes),
               m3 = order.below(x + i + 3 * lanes);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Or(hn::Or(m0, m1), hn::Or(m2, m3))))) continue;
    take(i, m0);
    take(i + lanes, m1);
    take(i + 2 * lanes, m2);
    take(i + 3 * lanes, m3);
  }
  for (; i + lanes <= n; i += lanes) take(i, order.below(x + i));
  if (i == n) return count;
  HWY_ALIGN S rest[hn::MaxLanes(d)] = {};
  std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(S));
  take(i, hn::And(order.below(rest), hn::FirstN(d, static_cast<size_t>(n - i))));
  return count;
}

#define MX_FILTER(name, type, bits)                                                      \
  int64_t name(const void* x, int64_t n, type limit, bool descending, uint16_t* found) { \
    return filter<type, Bits::bits>(x, n, limit, descending, found);                     \
  }
MX_FILTER(filter_f16, int16_t, floating)
MX_FILTER(filter_f32, int32_t, floating)
MX_FILTER(filter_f64, int64_t, floating)
MX_FILTER(filter_i8, int8_t, signed_integer)
MX_FILTER(filter_u8, int8_t, unsigned_integer)
MX_FILTER(filter_i32, int32_t, signed_integer)
MX_FILTER(filter_i64, int64_t, signed_integer)
#undef MX_FILTER

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(filter_f16);
HWY_EXPORT(filter_f32);
HWY_EXPORT(filter_f64);
HWY_EXPORT(filter_i8);
HWY_EXPORT(filter_u8);
HWY_EXPORT(filter_i32);
HWY_EXPORT(filter_i64);

template <class T>
int64_t filter_top(const T* x, int64_t n, BitsOf<T> limit, bool descending, uint16_t* found) {
  const auto signed_limit = static_cast<std::make_signed_t<BitsOf<T>>>(limit ^ kSignBit<T>);
  if constexpr (kOfFloating<T>) {
    if constexpr (sizeof(T) == 2)
      return HWY_DYNAMIC_DISPATCH(filter_f16)(x, n, signed_limit, descending, found);
    if constexpr (sizeof(T) == 4)
      return HWY_DYNAMIC_DISPATCH(filter_f32)(x, n, signed_limit, descending, found);
    if constexpr (sizeof(T) == 8)
      return HWY_DYNAMIC_DISPATCH(filter_f64)(x, n, signed_limit, descending, found);
  } else if constexpr (std::is_signed_v<T>) {
    if constexpr (sizeof(T) == 1)
      return HWY_DYNAMIC_DISPATCH(filter_i8)(x, n, signed_limit, descending, found);
    if constexpr (sizeof(T) == 4)
      return HWY_DYNAMIC_DISPATCH(filter_i32)(x, n, signed_limit, descending, found);
    if constexpr (sizeof(T) == 8)
      return HWY_DYNAMIC_DISPATCH(filter_i64)(x, n, signed_limit, descending, found);
  } else {
    static_assert(sizeof(T) == 1);
    return HWY_DYNAMIC_DISPATCH(filter_u8)(x, n, signed_limit, descending, found);
  }
}

template int64_t filter_top(const float*, int64_t, uint32_t, bool, uint16_t*);
template int64_t filter_top(const double*, int64_t, uint64_t, bool, uint16_t*);
template int64_t filter_top(const float16*, int64_t, uint16_t, bool, uint16_t*);
template int64_t filter_top(const bfloat16*, int64_t, uint16_t, bool, uint16_t*);
template int64_t filter_top(const int8_t*, int64_t, uint8_t, bool, uint16_t*);
template int64_t filter_top(const uint8_t*, int64_t, uint8_t, bool, uint16_t*);
template int64_t filter_top(const int32_t*, int64_t, uint32_t, bool, uint16_t*);
template int64_t filter_top(const int64_t*, int64_t, uint64_t, bool, uint16_t*);
template int64_t filter_top(const bool*, int64_t, uint8_t, bool, uint16_t*);

}  // namespace mx::kernels
#endif
