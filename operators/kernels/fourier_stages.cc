// The loops of odd factors are plain: the compiler makes vectors of them, for each instruction set. Products
// and sums are not joined (operators/CMakeLists.txt), so that all instruction sets give the same bits.
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

namespace hn = hwy::HWY_NAMESPACE;

/// A complex number in each lane.
template <class V>
struct Complex {
  V re, im;

  Complex operator+(const Complex& o) const { return {hn::Add(re, o.re), hn::Add(im, o.im)}; }
  Complex operator-(const Complex& o) const { return {hn::Sub(re, o.re), hn::Sub(im, o.im)}; }
};

/// The operations on numbers r to r + Lanes(d) of a row.
template <class D>
struct Rows {
  using C = Complex<hn::Vec<D>>;
  D d;

  HWY_INLINE C load(const double* re, const double* im, int64_t at) const {
    return {hn::LoadU(d, re + at), hn::LoadU(d, im + at)};
  }
  HWY_INLINE void store(const C& x, double* re, double* im, int64_t at) const {
    hn::StoreU(x.re, d, re + at);
    hn::StoreU(x.im, d, im + at);
  }
  /// x w
  HWY_INLINE C turned(const C& x, Root w) const {
    const auto wr = hn::Set(d, w.re), wi = hn::Set(d, w.im);
    return {hn::Sub(hn::Mul(x.re, wr), hn::Mul(x.im, wi)), hn::Add(hn::Mul(x.re, wi), hn::Mul(x.im, wr))};
  }
};

/// Calls f(tag, r) for the numbers r < n of a row: vectors first, then single numbers.
template <class F>
HWY_INLINE void each_vector(int64_t n, const F& f) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t r = 0;
  for (; r + lanes <= n; r += lanes) f(d, r);
  // Counted in int, or GCC warns that the addresses of 2^61 numbers would overflow.
  for (auto left = static_cast<int>(n - r); left > 0; --left, ++r) f(hn::CappedTag<double, 1>(), r);
}

HWY_INLINE void radix2(const FourierStage& t, int64_t row) {
  for (int64_t q = 0; q < t.m; ++q) {
    const Root w = root_at(t, q * t.s);
    const double *const xr = t.x_re + row * q, *const xi = t.x_im + row * q;
    double *const yr = t.y_re + 2 * row * q, *const yi = t.y_im + 2 * row * q;
    each_vector(row, [&](auto d, int64_t r) HWY_ATTR {
      const Rows<decltype(d)> rows{d};
      const auto a = rows.load(xr, xi, r), b = rows.load(xr, xi, row * t.m + r);
      rows.store(a + b, yr, yi, r);
      rows.store(rows.turned(a - b, w), yr, yi, row + r);
    });
  }
}

HWY_INLINE void radix4(const FourierStage& t, int64_t row) {
  const int64_t step = row * t.m;
  for (int64_t q = 0; q < t.m; ++q) {
    const Root w1 = root_at(t, q * t.s), w2 = root_at(t, 2 * q * t.s), w3 = root_at(t, 3 * q * t.s);
    const double *const xr = t.x_re + row * q, *const xi = t.x_im + row * q;
    double *const yr = t.y_re + 4 * row * q, *const yi = t.y_im + 4 * row * q;
    each_vector(row, [&](auto d, int64_t r) HWY_ATTR {
      const Rows<decltype(d)> rows{d};
      const auto a = rows.load(xr, xi, r), b = rows.load(xr, xi, step + r),
                 c = rows.load(xr, xi, 2 * step + r), e = rows.load(xr, xi, 3 * step + r);
      const auto sum = a + c, difference = a - c, other = b + e;
      // -i (b - e)
      const decltype(a) turned{hn::Sub(b.im, e.im), hn::Sub(e.re, b.re)};
      rows.store(sum + other, yr, yi, r);
      rows.store(rows.turned(difference + turned, w1), yr, yi, row + r);
      rows.store(rows.turned(sum - other, w2), yr, yi, 2 * row + r);
      rows.store(rows.turned(difference - turned, w3), yr, yi, 3 * row + r);
    });
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

void stage(const FourierStage& t) {
  const int64_t row = t.s * t.lanes;
  if (t.p != 4 && t.p != 2) return radix_odd(t);
  // The first stages have short rows, for which a constant length saves the preparations of a loop.
  if (row == kChunk / 2) return t.p == 4 ? radix4(t, kChunk / 2) : radix2(t, kChunk / 2);
  t.p == 4 ? radix4(t, row) : radix2(t, row);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(stage);

void detail::run_stage(const FourierStage& t) { HWY_DYNAMIC_DISPATCH(stage)(t); }

}  // namespace mx::kernels
#endif
