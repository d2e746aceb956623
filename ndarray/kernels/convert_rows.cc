#include "ndarray/kernels/convert_rows.h"

#include <algorithm>
#include <cstring>

#include "ndarray/kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ndarray/kernels/convert_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The compiler vectorises this loop. Conversions are exact or correctly rounded, so vectors and single
// elements give equal results.
template <class To, class From>
HWY_INLINE void convert_n(To* HWY_RESTRICT to, const From* HWY_RESTRICT from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
}

#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
// Processors have instructions for float16 that compilers do not generate from a loop.
HWY_INLINE void convert_n(float* HWY_RESTRICT to, const float16* HWY_RESTRICT from, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* bits = reinterpret_cast<const hwy::float16_t*>(from);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, bits + i)), d, to + i);
  for (; i < n; ++i) to[i] = convert<float>(from[i]);
}

HWY_INLINE void convert_n(float16* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto* bits = reinterpret_cast<hwy::float16_t*>(to);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh, bits + i);
  for (; i < n; ++i) to[i] = convert<float16>(from[i]);
}
#endif

template <class To, class From>
void contiguous_row(void* to, const void* from, int64_t n) {
  convert_n(static_cast<To*>(to), static_cast<const From*>(from), n);
}

using ContiguousRow = void (*)(void* to, const void* from, int64_t n);

ContiguousRow find_row(DType to, DType from) {
  return visit(to, [&](auto t) {
    return visit(from, [&](auto f) -> ContiguousRow {
      return contiguous_row<typename decltype(t)::type, typename decltype(f)::type>;
    });
  });
}

void stream_bytes(void* to, const void* from, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  auto* t = static_cast<uint8_t*>(to);
  const auto* f = static_cast<const uint8_t*>(from);
  const int64_t head =
      std::min(bytes, (width - static_cast<int64_t>(reinterpret_cast<uintptr_t>(t)) % width) % width);
  if (head > 0) std::memcpy(t, f, static_cast<size_t>(head));
  int64_t i = head;
  for (; i + width <= bytes; i += width) hn::Stream(hn::LoadU(d, f + i), d, t + i);
  if (i < bytes) std::memcpy(t + i, f + i, static_cast<size_t>(bytes - i));
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#  include <hwy/cache_control.h>

namespace mx::kernels {
namespace {

HWY_EXPORT(find_row);
HWY_EXPORT(stream_bytes);

using ContiguousRow = void (*)(void* to, const void* from, int64_t n);

struct RowTable {
  ContiguousRow rows[kDTypes][kDTypes];
  RowTable() {
    for (const DType to : kAllDTypes)
      for (const DType from : kAllDTypes)
        rows[static_cast<int>(to)][static_cast<int>(from)] = HWY_DYNAMIC_DISPATCH(find_row)(to, from);
  }
};

ContiguousRow contiguous(DType to, DType from) {
  static const RowTable table;
  return table.rows[static_cast<int>(to)][static_cast<int>(from)];
}

template <class To, class From>
void any_row(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n) {
  auto* t = static_cast<To*>(to);
  const auto* f = static_cast<const From*>(from);
  if (to_step == 1 && from_step == 1) {
    if constexpr (std::is_same_v<To, From>) {
      if (t != f) std::memcpy(t, f, static_cast<size_t>(n) * sizeof(To));
    } else {
      contiguous(dtype_of<To>, dtype_of<From>)(t, f, n);
    }
    return;
  }
  if (from_step == 0) {
    const To value = convert<To>(*f);
    if (to_step == 1) {
      std::fill_n(t, n, value);
    } else {
      for (int64_t i = 0; i < n; ++i) t[i * to_step] = value;
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) t[i * to_step] = convert<To>(f[i * from_step]);
}

}  // namespace

ConvertRow convert_row(DType to, DType from) {
  return visit(to, [&](auto t) {
    return visit(from, [&](auto f) -> ConvertRow {
      return any_row<typename decltype(t)::type, typename decltype(f)::type>;
    });
  });
}

void stream_row(void* to, const void* from, int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(stream_bytes)(to, from, bytes);
}
void stream_fence() { hwy::FlushStream(); }

}  // namespace mx::kernels
#endif
