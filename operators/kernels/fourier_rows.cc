// Products and sums are not joined (operators/CMakeLists.txt), so that all instruction sets give the same
// bits, which are those of the loops in fourier.cc.
#include "operators/kernels/fourier_rows.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/fourier_rows.cc"
#include <hwy/foreach_target.h>
// These must follow foreach_target.h.
#include <hwy/highway.h>

#include "operators/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace fourier_rows {

constexpr int64_t kSide = mx::kernels::detail::kFourierLanes;
// Numbers of a row that are handled at once. They stay in the first-level cache.
constexpr int64_t kBlock = 64;
static_assert(kSide % kLanes<double> == 0 && kBlock % kLanes<double> == 0);

/// A block of each row, with gaps, so that rows do not share cache sets.
struct RowBlock {
  alignas(64) double at[kSide][kBlock + 8];
};

/// to[k * kSide + l] = from.at[l][k] for k < count.
HWY_INLINE void to_sides(double* to, const RowBlock& from, int64_t count) {
  for (int64_t l = 0; l < kSide; l += kLanes<double>)
    transpose_columns<double>(to + l, kSide, from.at[l], kBlock + 8, count);
}

/// The reverse, from kBlock numbers of each lane, of which `count` are needed.
HWY_INLINE void to_rows(RowBlock& to, const double* from, int64_t count) {
  for (int64_t k = 0; k < count; k += kLanes<double>)
    transpose_columns<double>(&to.at[0][k], kBlock + 8, from + k * kSide, kSide, kSide);
}

template <class T>
void read_pairs(const T* const* rows, int64_t n, double* re, double* im) {
  RowBlock first, second;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t l = 0; l < kSide; ++l) {
      const T* HWY_RESTRICT in = rows[l] + 2 * begin;
      double *HWY_RESTRICT a = first.at[l], *HWY_RESTRICT b = second.at[l];
      for (int64_t k = 0; k < count; ++k) {
        a[k] = static_cast<double>(in[2 * k]);
        b[k] = static_cast<double>(in[2 * k + 1]);
      }
    }
    to_sides(re + begin * kSide, first, count);
    to_sides(im + begin * kSide, second, count);
  }
}

/// Writes `count` pairs from number `begin` on to each row.
template <class T>
HWY_INLINE void write_block(T* const* rows, int64_t begin, int64_t count, const RowBlock& re,
                            const RowBlock& im, double scale) {
  for (int64_t l = 0; l < kSide; ++l) {
    T* HWY_RESTRICT out = rows[l] + 2 * begin;
    const double *HWY_RESTRICT a = re.at[l], *HWY_RESTRICT b = im.at[l];
    for (int64_t k = 0; k < count; ++k) {
      out[2 * k] = static_cast<T>(a[k] * scale);
      out[2 * k + 1] = static_cast<T>(b[k] * scale);
    }
  }
}

template <class T>
void write_pairs(T* const* rows, int64_t n, const double* re, const double* im, double scale) {
  RowBlock first, second;
  alignas(64) double spare[2][kBlock * kSide];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    const double *a = re + begin * kSide, *b = im + begin * kSide;
    if (count % kLanes<double> != 0) {  // whole vectors of numbers are read
      std::fill_n(std::copy_n(a, count * kSide, spare[0]), (kBlock - count) * kSide, 0.);
      std::fill_n(std::copy_n(b, count * kSide, spare[1]), (kBlock - count) * kSide, 0.);
      a = spare[0];
      b = spare[1];
    }
    to_rows(first, a, count);
    to_rows(second, b, count);
    write_block(rows, begin, count, first, second, scale);
  }
}

template <class T>
void write_real_transform(T* const* rows, int64_t n, const double* re, const double* im,
                          const double* roots_re, const double* roots_im, double scale) {
  RowBlock first, second;
  alignas(64) double to_re[kBlock * kSide], to_im[kBlock * kSide];
  std::fill_n(to_re, kBlock * kSide, 0.);
  std::fill_n(to_im, kBlock * kSide, 0.);
  for (int64_t begin = 1; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = begin + i;
      const double *HWY_RESTRICT ra = re + k * kSide, *HWY_RESTRICT ia = im + k * kSide;
      const double *HWY_RESTRICT rb = re + (n - k) * kSide, *HWY_RESTRICT ib = im + (n - k) * kSide;
      double *HWY_RESTRICT r = to_re + i * kSide, *HWY_RESTRICT j = to_im + i * kSide;
      const double wr = roots_re[k], wi = roots_im[k];
      for (int64_t l = 0; l < kSide; ++l) {
        const double er = (ra[l] + rb[l]) / 2, ei = (ia[l] - ib[l]) / 2, o_r = (ia[l] + ib[l]) / 2,
                     oi = (rb[l] - ra[l]) / 2;
        r[l] = er + (wr * o_r - wi * oi);
        j[l] = ei + (wr * oi + wi * o_r);
      }
    }
    to_rows(first, to_re, count);
    to_rows(second, to_im, count);
    write_block(rows, begin, count, first, second, scale);
  }
  for (int64_t l = 0; l < kSide; ++l) {
    rows[l][0] = static_cast<T>((re[l] + im[l]) * scale);
    rows[l][2 * n] = static_cast<T>((re[l] - im[l]) * scale);
    rows[l][1] = rows[l][2 * n + 1] = static_cast<T>(0 * scale);
  }
}

// Highway exports no templates.
void read_f32(const float* const* rows, int64_t n, double* re, double* im) { read_pairs(rows, n, re, im); }
void read_f64(const double* const* rows, int64_t n, double* re, double* im) { read_pairs(rows, n, re, im); }
void write_f32(float* const* rows, int64_t n, const double* re, const double* im, double scale) {
  write_pairs(rows, n, re, im, scale);
}
void write_f64(double* const* rows, int64_t n, const double* re, const double* im, double scale) {
  write_pairs(rows, n, re, im, scale);
}
void write_real_f32(float* const* rows, int64_t n, const double* re, const double* im, const double* wr,
                    const double* wi, double scale) {
  write_real_transform(rows, n, re, im, wr, wi, scale);
}
void write_real_f64(double* const* rows, int64_t n, const double* re, const double* im, const double* wr,
                    const double* wi, double scale) {
  write_real_transform(rows, n, re, im, wr, wi, scale);
}

}  // namespace fourier_rows
using fourier_rows::read_f32;
using fourier_rows::read_f64;
using fourier_rows::write_f32;
using fourier_rows::write_f64;
using fourier_rows::write_real_f32;
using fourier_rows::write_real_f64;
}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels::detail {
HWY_EXPORT(read_f32);
HWY_EXPORT(read_f64);
HWY_EXPORT(write_f32);
HWY_EXPORT(write_f64);
HWY_EXPORT(write_real_f32);
HWY_EXPORT(write_real_f64);

template <>
void read_pairs<float>(const float* const* rows, int64_t n, double* re, double* im) {
  HWY_DYNAMIC_DISPATCH(read_f32)(rows, n, re, im);
}
template <>
void read_pairs<double>(const double* const* rows, int64_t n, double* re, double* im) {
  HWY_DYNAMIC_DISPATCH(read_f64)(rows, n, re, im);
}
template <>
void write_pairs<float>(float* const* rows, int64_t n, const double* re, const double* im, double scale) {
  HWY_DYNAMIC_DISPATCH(write_f32)(rows, n, re, im, scale);
}
template <>
void write_pairs<double>(double* const* rows, int64_t n, const double* re, const double* im, double scale) {
  HWY_DYNAMIC_DISPATCH(write_f64)(rows, n, re, im, scale);
}
template <>
void write_real_transform<float>(float* const* rows, int64_t n, const double* re, const double* im,
                                 const double* roots_re, const double* roots_im, double scale) {
  HWY_DYNAMIC_DISPATCH(write_real_f32)(rows, n, re, im, roots_re, roots_im, scale);
}
template <>
void write_real_transform<double>(double* const* rows, int64_t n, const double* re, const double* im,
                                  const double* roots_re, const double* roots_im, double scale) {
  HWY_DYNAMIC_DISPATCH(write_real_f64)(rows, n, re, im, roots_re, roots_im, scale);
}

}  // namespace mx::kernels::detail
#endif
