// The loops are plain: the compiler makes vectors of them, for each instruction set. Products and sums are
// not joined (operators/CMakeLists.txt), so that all instruction sets give the same bits.
#include "operators/kernels/fourier_stages.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/fourier_stages.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::FourierStage;
using detail::kLargestRadix;

struct Root {
  double re, im;
};
HWY_INLINE Root root_at(const FourierStage& t, int64_t k) { return {t.roots_re[k], t.roots_im[k]}; }

HWY_INLINE void radix2(const FourierStage& t) {
  const int64_t row = t.s * t.lanes;
  for (int64_t q = 0; q < t.m; ++q) {
    const Root w = root_at(t, q * t.s);
    const double* HWY_RESTRICT ar = t.x_re + row * q;
    const double* HWY_RESTRICT ai = t.x_im + row * q;
    const double* HWY_RESTRICT br = ar + row * t.m;
    const double* HWY_RESTRICT bi = ai + row * t.m;
    double* HWY_RESTRICT yr = t.y_re + 2 * row * q;
    double* HWY_RESTRICT yi = t.y_im + 2 * row * q;
    for (int64_t r = 0; r < row; ++r) {
      const double dr = ar[r] - br[r], di = ai[r] - bi[r];
      yr[r] = ar[r] + br[r];
      yi[r] = ai[r] + bi[r];
      yr[row + r] = dr * w.re - di * w.im;
      yi[row + r] = dr * w.im + di * w.re;
    }
  }
}

HWY_INLINE void radix4(const FourierStage& t) {
  const int64_t row = t.s * t.lanes, step = row * t.m;
  for (int64_t q = 0; q < t.m; ++q) {
    const Root w1 = root_at(t, q * t.s), w2 = root_at(t, 2 * q * t.s), w3 = root_at(t, 3 * q * t.s);
    const double* HWY_RESTRICT xr = t.x_re + row * q;
    const double* HWY_RESTRICT xi = t.x_im + row * q;
    double* HWY_RESTRICT yr = t.y_re + 4 * row * q;
    double* HWY_RESTRICT yi = t.y_im + 4 * row * q;
    for (int64_t r = 0; r < row; ++r) {
      const double ar = xr[r], ai = xi[r], br = xr[step + r], bi = xi[step + r], cr = xr[2 * step + r],
                   ci = xi[2 * step + r], dr = xr[3 * step + r], di = xi[3 * step + r];
      const double sr = ar + cr, si = ai + ci, tr = ar - cr, ti = ai - ci, ur = br + dr, ui = bi + di;
      // -i (b - d)
      const double vr = bi - di, vi = dr - br;
      const double r1 = tr + vr, i1 = ti + vi, r2 = sr - ur, i2 = si - ui, r3 = tr - vr, i3 = ti - vi;
      yr[r] = sr + ur;
      yi[r] = si + ui;
      yr[row + r] = r1 * w1.re - i1 * w1.im;
      yi[row + r] = r1 * w1.im + i1 * w1.re;
      yr[2 * row + r] = r2 * w2.re - i2 * w2.im;
      yi[2 * row + r] = r2 * w2.im + i2 * w2.re;
      yr[3 * row + r] = r3 * w3.re - i3 * w3.im;
      yi[3 * row + r] = r3 * w3.im + i3 * w3.re;
    }
  }
}

/// Odd factors, for up to kChunk numbers of a row at a time. The sums and differences of elements k and p - k
/// are used twice.
constexpr int64_t kChunk = 16;

HWY_INLINE void odd_chunk(const FourierStage& t, int64_t q, int64_t begin, int64_t count, const Root* turn,
                          const Root* w) {
  const int64_t p = t.p, half = p / 2, row = t.s * t.lanes, step = row * t.m;
  double plus_re[kLargestRadix / 2 + 1][kChunk], plus_im[kLargestRadix / 2 + 1][kChunk],
      minus_re[kLargestRadix / 2 + 1][kChunk], minus_im[kLargestRadix / 2 + 1][kChunk];
  const double* HWY_RESTRICT xr = t.x_re + row * q + begin;
  const double* HWY_RESTRICT xi = t.x_im + row * q + begin;
  double* HWY_RESTRICT yr = t.y_re + p * row * q + begin;
  double* HWY_RESTRICT yi = t.y_im + p * row * q + begin;
  double sum_re[kChunk], sum_im[kChunk];
  for (int64_t r = 0; r < count; ++r) {
    sum_re[r] = xr[r];
    sum_im[r] = xi[r];
  }
  for (int64_t k = 1; k <= half; ++k) {
    const int64_t a = step * k, b = step * (p - k);
    for (int64_t r = 0; r < count; ++r) {
      plus_re[k][r] = xr[a + r] + xr[b + r];
      plus_im[k][r] = xi[a + r] + xi[b + r];
      minus_re[k][r] = xr[a + r] - xr[b + r];
      minus_im[k][r] = xi[a + r] - xi[b + r];
      sum_re[r] += plus_re[k][r];
      sum_im[r] += plus_im[k][r];
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    yr[r] = sum_re[r];
    yi[r] = sum_im[r];
  }
  for (int64_t j = 1; j <= half; ++j) {
    double re[kChunk], im[kChunk], turned_re[kChunk], turned_im[kChunk];
    for (int64_t r = 0; r < count; ++r) {
      re[r] = xr[r];
      im[r] = xi[r];
      turned_re[r] = turned_im[r] = 0;
    }
    for (int64_t k = 1, at = j; k <= half; ++k, at = at + j < p ? at + j : at + j - p) {
      const double cosine = turn[at].re, sine = turn[at].im;
      for (int64_t r = 0; r < count; ++r) {
        re[r] += plus_re[k][r] * cosine;
        im[r] += plus_im[k][r] * cosine;
        turned_re[r] -= minus_im[k][r] * sine;
        turned_im[r] += minus_re[k][r] * sine;
      }
    }
    const Root wa = w[j], wb = w[p - j];
    for (int64_t r = 0; r < count; ++r) {
      const double ar = re[r] + turned_re[r], ai = im[r] + turned_im[r], br = re[r] - turned_re[r],
                   bi = im[r] - turned_im[r];
      yr[row * j + r] = ar * wa.re - ai * wa.im;
      yi[row * j + r] = ar * wa.im + ai * wa.re;
      yr[row * (p - j) + r] = br * wb.re - bi * wb.im;
      yi[row * (p - j) + r] = br * wb.im + bi * wb.re;
    }
  }
}

HWY_INLINE void radix_odd(const FourierStage& t) {
  Root turn[kLargestRadix], w[kLargestRadix];
  for (int64_t k = 0; k < t.p; ++k) turn[k] = root_at(t, k * t.s * t.m);
  const int64_t row = t.s * t.lanes;
  for (int64_t q = 0; q < t.m; ++q) {
    for (int64_t j = 0; j < t.p; ++j) w[j] = root_at(t, q * j * t.s);
    int64_t begin = 0;
    // A constant count lets the compiler keep the numbers in registers.
    for (; begin + kChunk <= row; begin += kChunk) odd_chunk(t, q, begin, kChunk, turn, w);
    for (; begin + kChunk / 2 <= row; begin += kChunk / 2) odd_chunk(t, q, begin, kChunk / 2, turn, w);
    if (begin < row) odd_chunk(t, q, begin, row - begin, turn, w);
  }
}

void stage(const FourierStage& t) { t.p == 4 ? radix4(t) : t.p == 2 ? radix2(t) : radix_odd(t); }

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(stage);

void detail::run_stage(const FourierStage& t) { HWY_DYNAMIC_DISPATCH(stage)(t); }

}  // namespace mx::kernels
#endif
