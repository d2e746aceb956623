#include "operators/kernels/index_range.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/index_range.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class I>
bool outside(const I* p, int64_t n, int64_t lowest, int64_t size) {
  // The limits in I's range: no index lies beyond it.
  const I low = static_cast<I>(std::max<int64_t>(lowest, std::numeric_limits<I>::min()));
  const I high = static_cast<I>(std::min<int64_t>(size - 1, std::numeric_limits<I>::max()));
  const hn::ScalableTag<I> d;
  const auto least = hn::Set(d, low), most = hn::Set(d, high);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto any = hn::Lt(most, most);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto k = hn::LoadU(d, p + i);
    any = hn::Or(any, hn::Or(hn::Lt(k, least), hn::Lt(most, k)));
  }
  bool rest = false;
  for (; i < n; ++i) rest |= p[i] < low || p[i] > high;
  return rest || !hn::AllFalse(d, any);
}

bool outside_i32(const int32_t* p, int64_t n, int64_t lowest, int64_t size) {
  return outside(p, n, lowest, size);
}
bool outside_i64(const int64_t* p, int64_t n, int64_t lowest, int64_t size) {
  return outside(p, n, lowest, size);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(outside_i32);
HWY_EXPORT(outside_i64);
namespace detail {
bool any_outside(const int32_t* indices, int64_t n, int64_t lowest, int64_t size) {
  return HWY_DYNAMIC_DISPATCH(outside_i32)(indices, n, lowest, size);
}
bool any_outside(const int64_t* indices, int64_t n, int64_t lowest, int64_t size) {
  return HWY_DYNAMIC_DISPATCH(outside_i64)(indices, n, lowest, size);
}
}  // namespace detail
}  // namespace mx::kernels
#endif
