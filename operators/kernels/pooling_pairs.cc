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

/// Writes two rows of dx from a row of `count` windows. Returns false if there are fewer windows than lanes,
/// and sets `outside` if an index is not in its window.
template <size_t kMostLanes>
bool max_pool_vectors_backward(const float* dy, const int64_t* indices, int64_t width, int64_t first,
                               int64_t count, float* upper, bool& outside) {
  const hn::CappedTag<float, kMostLanes> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Repartition<int64_t, decltype(di)> dl;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (count < lanes) return false;
  for (int64_t next = 0; next < count; next += lanes) {
    const int64_t o = std::min(next, count - lanes);
    const auto low = hn::BitCast(di, hn::LoadU(dl, indices + o));
    const auto high = hn::BitCast(di, hn::LoadU(dl, indices + o + lanes / 2));
    const auto index = hn::ConcatEven(di, high, low), upper_bits = hn::ConcatOdd(di, high, low);
    const auto even = hn::Iota(di, 0);
    const auto at = hn::Add(hn::Add(even, even), hn::Set(di, static_cast<int32_t>(first + 2 * o)));
    const auto below = hn::Add(at, hn::Set(di, static_cast<int32_t>(width)));
    const auto one = hn::Set(di, 1);
    const auto a = hn::Eq(index, at), b = hn::Eq(index, hn::Add(at, one));
    const auto c = hn::Eq(index, below), e = hn::Eq(index, hn::Add(below, one));
    const auto known = hn::Or(hn::Or(a, b), hn::Or(c, e));
    if (!hn::AllTrue(di, hn::And(known, hn::Eq(upper_bits, hn::Zero(di))))) {
      outside = true;
      return true;
    }
    const auto value = hn::Add(hn::LoadU(d, dy + o), hn::Zero(d));  // a sum of one term; turns -0 into 0
    const auto at_mask = [&](auto mask)
                             HWY_ATTR { return hn::IfThenElseZero(hn::RebindMask(d, mask), value); };
    hn::StoreInterleaved2(at_mask(a), at_mask(b), d, upper + 2 * o);
    hn::StoreInterleaved2(at_mask(c), at_mask(e), d, upper + width + 2 * o);
  }
  return true;
}
#endif

void max_pool_pairs_of_row(const float* upper, int64_t width, int64_t first, int64_t count, float* y,
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

void max_pool_pairs(const float* x, int64_t width, int64_t rows, int64_t count, float* y, int64_t* indices) {
  for (int64_t r = 0; r < rows; ++r)
    max_pool_pairs_of_row(x + 2 * r * width, width, 2 * r * width, count, y + r * count, indices + r * count);
}

bool max_pool_pairs_backward([[maybe_unused]] const float* dy, [[maybe_unused]] const int64_t* indices,
                             [[maybe_unused]] int64_t width, [[maybe_unused]] int64_t height,
                             [[maybe_unused]] float* dx) {
#if HWY_TARGET == HWY_SCALAR
  return false;
#else
  const int64_t rows = height / 2, count = width / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t first = 2 * r * width, from = r * count;
    bool outside = false;
    const bool done =
        max_pool_vectors_backward<16>(dy + from, indices + from, width, first, count, dx + first, outside) ||
        max_pool_vectors_backward<8>(dy + from, indices + from, width, first, count, dx + first, outside) ||
        max_pool_vectors_backward<4>(dy + from, indices + from, width, first, count, dx + first, outside);
    if (!done || outside) return false;
    if (width % 2 != 0) dx[first + width - 1] = dx[first + 2 * width - 1] = 0;
  }
  std::fill(dx + 2 * rows * width, dx + height * width, 0.0F);
  return true;
#endif
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(max_pool_pairs);
HWY_EXPORT(max_pool_pairs_backward);
namespace detail {
void max_pool_pairs(const float* x, int64_t width, int64_t rows, int64_t count, float* y, int64_t* indices) {
  HWY_DYNAMIC_DISPATCH(max_pool_pairs)(x, width, rows, count, y, indices);
}
bool max_pool_pairs_backward(const float* dy, const int64_t* indices, int64_t width, int64_t height,
                             float* dx) {
  return HWY_DYNAMIC_DISPATCH(max_pool_pairs_backward)(dy, indices, width, height, dx);
}
}  // namespace detail
}  // namespace mx::kernels
#endif
