#include "benchmarks/gemm/peak.h"

#include "benchmarks/support/clock.h"

// The loop keeps its chains in an array.
#include <hwy/detect_targets.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/gemm/peak.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double peak() {
  const hn::ScalableTag<float> d;
  constexpr int kChains = HWY_TARGET <= HWY_AVX3 ? 24 : 12;
  constexpr int64_t kSteps = 2'000'000;
  hn::Vec<decltype(d)> sum[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  volatile float input = 0.999F;
  const auto factor = hn::Set(d, input), addend = hn::Set(d, input);
  const int64_t start = thread_cpu_ns();
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sum[i] = hn::MulAdd(sum[i], factor, addend);
  }
  const double ns = static_cast<double>(thread_cpu_ns() - start);
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  input = hn::GetLane(sum[0]);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * kSteps / ns;
}

}  // namespace mx::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::bench {
HWY_EXPORT(peak);
double fma_peak_f32() { return HWY_DYNAMIC_DISPATCH(peak)(); }
}  // namespace mx::bench
#endif
