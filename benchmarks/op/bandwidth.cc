#include "benchmarks/op/bandwidth.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/op/bandwidth.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace mx::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

uint64_t read_bytes(const void* from, size_t bytes) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d), words = bytes / sizeof(uint64_t);
  const auto* p = static_cast<const uint64_t*>(from);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= words; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, p + i));
    s1 = hn::Add(s1, hn::LoadU(d, p + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, p + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, p + i + 3 * lanes));
  }
  uint64_t sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < words; ++i) sum += p[i];
  return sum;
}

void copy_non_temporal(void* to, const void* from, size_t bytes) {
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d), words = bytes / sizeof(uint64_t);
  const auto* p = static_cast<const uint64_t*>(from);
  auto* q = static_cast<uint64_t*>(to);
  for (size_t i = 0; i + lanes <= words; i += lanes) hn::Stream(hn::LoadU(d, p + i), d, q + i);
  hwy::FlushStream();
}

template <bool kNonTemporal>
void add(float* c, const float* a, const float* b, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i + lanes <= count; i += lanes) {
    const auto sum = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    if constexpr (kNonTemporal) {
      hn::Stream(sum, d, c + i);
    } else {
      hn::StoreU(sum, d, c + i);
    }
  }
  if constexpr (kNonTemporal) hwy::FlushStream();
}
void add_cached(float* c, const float* a, const float* b, size_t count) { add<false>(c, a, b, count); }
void add_streamed(float* c, const float* a, const float* b, size_t count) { add<true>(c, a, b, count); }

// Twelve chains: more than latency times issue width on any current processor, and fewer than there are
// registers.
double fma_rounds(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto m = hn::Set(d, 0.999f), k = hn::Set(d, 1e-3f);
  // Every chain begins with another value, because compilers detect equal chains and compute only one of
  // them.
  const auto start = [&](float by) { return hn::Set(d, *sink + by); };
  auto r0 = start(0), r1 = start(1), r2 = start(2), r3 = start(3), r4 = start(4), r5 = start(5);
  auto r6 = start(6), r7 = start(7), r8 = start(8), r9 = start(9), r10 = start(10), r11 = start(11);
  for (int64_t i = 0; i < rounds; ++i) {
    r0 = hn::MulAdd(r0, m, k);
    r1 = hn::MulAdd(r1, m, k);
    r2 = hn::MulAdd(r2, m, k);
    r3 = hn::MulAdd(r3, m, k);
    r4 = hn::MulAdd(r4, m, k);
    r5 = hn::MulAdd(r5, m, k);
    r6 = hn::MulAdd(r6, m, k);
    r7 = hn::MulAdd(r7, m, k);
    r8 = hn::MulAdd(r8, m, k);
    r9 = hn::MulAdd(r9, m, k);
    r10 = hn::MulAdd(r10, m, k);
    r11 = hn::MulAdd(r11, m, k);
  }
  r0 = hn::Add(hn::Add(hn::Add(r0, r1), hn::Add(r2, r3)), hn::Add(hn::Add(r4, r5), hn::Add(r6, r7)));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(r0, hn::Add(hn::Add(r8, r9), hn::Add(r10, r11)))));
  return 12.0 * 2.0 * static_cast<double>(hn::Lanes(d));
}

}  // namespace mx::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::bench {

HWY_EXPORT(read_bytes);
HWY_EXPORT(copy_non_temporal);
HWY_EXPORT(add_cached);
HWY_EXPORT(add_streamed);
HWY_EXPORT(fma_rounds);

uint64_t read_bytes(const void* from, size_t bytes) { return HWY_DYNAMIC_DISPATCH(read_bytes)(from, bytes); }
void copy_non_temporal(void* to, const void* from, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_non_temporal)(to, from, bytes);
}
void add_floats(float* c, const float* a, const float* b, size_t count) {
  HWY_DYNAMIC_DISPATCH(add_cached)(c, a, b, count);
}
void add_floats_non_temporal(float* c, const float* a, const float* b, size_t count) {
  HWY_DYNAMIC_DISPATCH(add_streamed)(c, a, b, count);
}
double fma_rounds(int64_t rounds, float* sink) { return HWY_DYNAMIC_DISPATCH(fma_rounds)(rounds, sink); }

}  // namespace mx::bench
#endif
