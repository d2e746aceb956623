// Plain loops, which the compiler vectorises once for each instruction set without changing a bit.
#include "operators/kernels/rotary_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/rotary_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

template <class C, bool kInterleaved>
HWY_INLINE void turn(const C* from, C* to, const C* cosines, const C* sines, int64_t pairs) {
  const int64_t step = kInterleaved ? 2 : 1, other = kInterleaved ? 1 : pairs;
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const C a = from[i * step], b = from[i * step + other];
    to[i * step] = a * cosines[i] - b * sines[i];
    to[i * step + other] = b * cosines[i] + a * sines[i];
  }
}

template <class C>
HWY_INLINE void turn_either(const C* from, C* to, const C* cosines, const C* sines, int64_t pairs,
                            bool interleaved) {
  if (interleaved) return turn<C, true>(from, to, cosines, sines, pairs);
  turn<C, false>(from, to, cosines, sines, pairs);
}

// Highway exports no templates.
void turn_f32(const float* from, float* to, const float* cosines, const float* sines, int64_t pairs,
              bool interleaved) {
  turn_either(from, to, cosines, sines, pairs, interleaved);
}
void turn_f64(const double* from, double* to, const double* cosines, const double* sines, int64_t pairs,
              bool interleaved) {
  turn_either(from, to, cosines, sines, pairs, interleaved);
}

void sum_of_angles(const double* cos_a, const double* sin_a, const double* cos_b, const double* sin_b,
                   int64_t pairs, double sign, float* cosines, float* sines) {
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    cosines[i] = static_cast<float>(cos_a[i] * cos_b[i] - sin_a[i] * sin_b[i]);
    sines[i] = static_cast<float>(sign * (sin_a[i] * cos_b[i] + cos_a[i] * sin_b[i]));
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels::detail {
HWY_EXPORT(turn_f32);
HWY_EXPORT(turn_f64);
HWY_EXPORT(sum_of_angles);

template <>
void rotate_pairs(const float* from, float* to, const float* cosines, const float* sines, int64_t pairs,
                  bool interleaved) {
  HWY_DYNAMIC_DISPATCH(turn_f32)(from, to, cosines, sines, pairs, interleaved);
}
template <>
void rotate_pairs(const double* from, double* to, const double* cosines, const double* sines, int64_t pairs,
                  bool interleaved) {
  HWY_DYNAMIC_DISPATCH(turn_f64)(from, to, cosines, sines, pairs, interleaved);
}
void add_angles(const double* cos_a, const double* sin_a, const double* cos_b, const double* sin_b,
                int64_t pairs, double sign, float* cosines, float* sines) {
  HWY_DYNAMIC_DISPATCH(sum_of_angles)(cos_a, sin_a, cos_b, sin_b, pairs, sign, cosines, sines);
}

}  // namespace mx::kernels::detail
#endif
