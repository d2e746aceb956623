#include "operators/kernels/pooling_pairs.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/pooling_pairs.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The largest elements so far and their positions.
template <class V, class I>
struct LargestLanes {
  V value;
  I position;

  template <class DI>
  HWY_INLINE void take(DI di, V v, I at) {
    const auto better = hn::Or(hn::Gt(v, value), hn::IsNaN(v));
    value = hn::IfThenElse(better, v, value);
    position = hn::IfThenElse(hn::RebindMask(di, better), at, position);
  }
};

#if HWY_TARGET != HWY_SCALAR
/// Computes `count` windows if these are at least as many as a vector has lanes, otherwise returns false. The
/// last vector may compute windows again that the one before it has computed.
template <size_t kMostLanes>
bool max_pool_vectors(const float* upper, int64_t width, int64_t first, int64_t count, float* y,
                      int64_t* indices) {
  const hn::CappedTag<float, kMostLanes> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Repartition<int64_t, decltype(di)> dl;
  const hn::Rebind<int32_t, decltype(dl)> dh;  // half a vector of i32
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (count < lanes) return false;
  for (int64_t next = 0; next < count; next += lanes) {
    const int64_t o = std::min(next, count - lanes);
    hn::Vec<decltype(d)> a, b, c, e;
    hn::LoadInterleaved2(d, upper + 2 * o, a, b);
    hn::LoadInterleaved2(d, upper + width + 2 * o, c, e);
    const auto even = hn::Iota(di, 0);
    const auto at = hn::Add(hn::Add(even, even), hn::Set(di, static_cast<int32_t>(first + 2 * o)));
    const auto below = hn::Add(at, hn::Set(di, static_cast<int32_t>(width)));
    const auto one = hn::Set(di, 1);
    LargestLanes<hn::Vec<decltype(d)>, hn::Vec<decltype(di)>> largest{a, at};
    largest.take(di, b, hn::Add(at, one));
    largest.take(di, c, below);
    largest.take(di, e, hn::Add(below, one));
    hn::StoreU(largest.value, d, y + o);
    hn::StoreU(hn::PromoteTo(dl, hn::LowerHalf(dh, largest.position)), dl, indices + o);
    hn::StoreU(hn::PromoteTo(dl, hn::UpperHalf(dh, largest.position)), dl, indices + o + lanes / 2);
  }
  return true;
}
#endif

void max_pool_pairs(const float* upper, int64_t width, int64_t first, int64_t count, float* y,
                    int64_t* indices) {
#if HWY_TARGET != HWY_SCALAR
  if (max_pool_vectors<16>(upper, width, first, count, y, indices) ||
      max_pool_vectors<8>(upper, width, first, count, y, indices) ||
      max_pool_vectors<4>(upper, width, first, count, y, indices))
    return;
#endif
  for (int64_t o = 0; o < count; ++o) {
    const int64_t at[] = {2 * o, 2 * o + 1, width + 2 * o, width + 2 * o + 1};
    int64_t best = at[0];
    for (const int64_t k : at)
      if (upper[k] > upper[best] || upper[k] != upper[k]) best = k;
    y[o] = upper[best];
    indices[o] = first + best;
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(max_pool_pairs);
namespace detail {
void max_pool_pairs(const float* upper, int64_t width, int64_t first, int64_t count, float* y,
                    int64_t* indices) {
  HWY_DYNAMIC_DISPATCH(max_pool_pairs)(upper, width, first, count, y, indices);
}
}  // namespace detail
}  // namespace mx::kernels
#endif
