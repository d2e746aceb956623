// Fourier transforms of any length: operators/kernels/fourier.h. All is computed in f64.
//
// A length is divided into factors as on the CPU, and each factor is one pass over all lines (Stockham, which
// needs no reordering). A length with a larger prime factor is a convolution of a power of two (Bluestein).
// Lines are transformed in parts, so that the memory for intermediate results is limited.
#include <algorithm>
#include <numbers>
#include <vector>

#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/fft_attrs.h"
#include "operators/kernels/fourier_stages.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

struct alignas(16) Complex {
  double re, im;
};
__device__ inline Complex product_of(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

unsigned line_blocks(int64_t n) { return blocks_for(n, kBlock, 1 << 16); }

/// roots[k] = exp(-2 pi i k / n).
__global__ void __launch_bounds__(kBlock) fill_roots(Complex* roots, int64_t n) {
  for (int64_t k = global_index(); k < n; k += global_size()) {
    // The angle at most pi / 4 away from a multiple of pi / 2, which keeps small angles exact.
    const int64_t quarter = (8 * k + n) / (2 * n) % 4;
    const double angle = std::numbers::pi / 2 *
                         (static_cast<double>(4 * k - ((8 * k + n) / (2 * n)) * n) / static_cast<double>(n));
    const double c = std::cos(angle), s = -std::sin(angle);
    roots[k] = quarter == 0   ? Complex{c, s}
               : quarter == 1 ? Complex{s, -c}
               : quarter == 2 ? Complex{-c, -s}
                              : Complex{-s, c};
  }
}

/// One pass. Before it, number k of the transform of the numbers q, q + n / done, .. of a line is at q * done
/// + k; behind it, the same holds with done * p in place of done.
__global__ void __launch_bounds__(kBlock)
    fourier_stage(const Complex* from, Complex* to, const Complex* roots, int64_t n, int64_t done, int64_t p,
                  int64_t total) {
  const int64_t longer = done * p, rest = n / longer;
  for (int64_t index = global_index(); index < total; index += global_size()) {
    const int64_t line = index / n * n, at = index - line, q = at / longer, k = at - q * longer;
    const Complex* const x = from + line + k % done;
    Complex sum = x[q * done];
    for (int64_t j = 1; j < p; ++j) {
      const Complex term = product_of(x[(q + j * rest) * done], roots[j * k % longer * rest]);
      sum.re += term.re;
      sum.im += term.im;
    }
    to[index] = sum;
  }
}

/// The factors of a length; empty if a larger prime is left.
std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  for (int64_t p = 4; p <= kernels::detail::kLargestRadix && n > 1; p = p == 4 ? 2 : p == 2 ? 3 : p + 2)
    for (; n % p == 0; n /= p) factors.push_back(p);
  if (n > 1) factors.clear();
  return factors;
}

/// Transforms all lines of `data`; `other` is memory of the same size. Returns where the result is.
Complex* run_stages(const KernelArgs& args, Complex* data, Complex* other, const Complex* roots,
                    const std::vector<int64_t>& factors, int64_t n, int64_t lines) {
  int64_t done = 1;
  for (const int64_t p : factors) {
    launch(stream_of(args), line_blocks(n * lines), kBlock, 0, fourier_stage,
           static_cast<const Complex*>(data), other, roots, n, done, p, n * lines);
    done *= p;
    std::swap(data, other);
  }
  return data;
}

/// exp(-pi i k^2 / n).
__device__ inline Complex chirp(int64_t k, int64_t n) {
  const int64_t square = k * k % (2 * n);
  const double angle = std::numbers::pi * (static_cast<double>(square) / static_cast<double>(n));
  return {std::cos(angle), -std::sin(angle)};
}

__global__ void __launch_bounds__(kBlock) copy_numbers(const Complex* from, Complex* to, int64_t n) {
  for (int64_t k = global_index(); k < n; k += global_size()) to[k] = from[k];
}

/// wide[k] = x[k] chirp[k] for k < n, else 0.
__global__ void __launch_bounds__(kBlock)
    widen(const Complex* x, Complex* wide, int64_t n, int64_t size, int64_t total) {
  for (int64_t index = global_index(); index < total; index += global_size()) {
    const int64_t line = index / size, k = index - line * size;
    wide[index] = k < n ? product_of(x[line * n + k], chirp(k, n)) : Complex{0, 0};
  }
}
/// The conjugate of the chirp, for distances of -n + 1 to n - 1.
__global__ void __launch_bounds__(kBlock) fill_chirp(Complex* to, int64_t n, int64_t size) {
  for (int64_t k = global_index(); k < size; k += global_size()) {
    const int64_t distance = k < n ? k : size - k;
    const Complex c = distance < n ? chirp(distance, n) : Complex{0, 0};
    to[k] = {c.re, -c.im};
  }
}
/// Multiplies transforms; the result has real and imaginary parts exchanged, so that the next transform is
/// the inverse one.
__global__ void __launch_bounds__(kBlock)
    multiply_transforms(Complex* wide, const Complex* other, int64_t size, int64_t total) {
  const double scale = 1 / static_cast<double>(size);
  for (int64_t index = global_index(); index < total; index += global_size()) {
    const Complex c = product_of(wide[index], other[index % size]);
    wide[index] = {c.im * scale, c.re * scale};
  }
}
__global__ void __launch_bounds__(kBlock)
    narrow(const Complex* wide, Complex* y, int64_t n, int64_t size, int64_t total) {
  for (int64_t index = global_index(); index < total; index += global_size()) {
    const int64_t line = index / n, k = index - line * n;
    const Complex c = wide[line * size + k];
    y[index] = product_of({c.im, c.re}, chirp(k, n));
  }
}

/// The lines of an array. A complex one has parts; they are not part of `rows`.
struct LineArray {
  Elements data;
  Rows<1> rows;
  int64_t part;

  LineArray(const Tensor& t, int64_t axis, bool is_complex) : data(elements_of(t)) {
    Tensor parts = t;
    part = is_complex ? t.strides[-1] : 0;
    if (is_complex) {
      parts.shape.resize(t.rank() - 1);
      parts.strides.resize(t.rank() - 1);
    }
    rows = rows_of<1>({&parts}, normalize_axis(axis, parts.rank(), "fft"));
  }
  __device__ int64_t place(int64_t line, int64_t k) const {
    return rows.outer.offset(0, line) + k * rows.step[0];
  }
};

enum class Kind : uint8_t { complex, real, half };  // half: the numbers from n / 2 + 1 on are conjugates

/// `turned`: the conjugates are transformed, which is the transform with the other sign of the exponent.
__global__ void __launch_bounds__(kBlock)
    read_lines(LineArray x, Kind kind, bool turned, Complex* to, int64_t n, int64_t first, int64_t total) {
  for (int64_t index = global_index(); index < total; index += global_size()) {
    const int64_t line = index / n, k = index - line * n;
    const bool mirrored = kind == Kind::half && k > n / 2;
    const int64_t at = x.place(first + line, mirrored ? n - k : k);
    double im = kind == Kind::real ? 0.0 : load<double>(x.data, at + x.part);
    if (kind == Kind::half && (k == 0 || 2 * k == n)) im = 0;
    to[index] = {load<double>(x.data, at), mirrored != turned ? -im : im};
  }
}
__global__ void __launch_bounds__(kBlock)
    write_lines(LineArray y, Kind kind, bool turned, const Complex* from, int64_t n, int64_t first,
                int64_t total, double scale) {
  for (int64_t index = global_index(); index < total; index += global_size()) {
    const int64_t line = index / y.rows.n, k = index - line * y.rows.n;
    const Complex c = from[line * n + k];
    const int64_t at = y.place(first + line, k);
    store(y.data, at, c.re * scale);
    if (kind != Kind::real) store(y.data, at + y.part, (turned ? -c.im : c.im) * scale);
  }
}

struct Transform {
  Kind in, out;
  bool turned;
  int64_t axis;
  double scale;
};

void transform(const KernelArgs& args, const Transform& how) {
  const LineArray x(args.in[0], how.axis, how.in != Kind::real),
      y(args.out[0], how.axis, how.out != Kind::real);
  const int64_t n = how.out == Kind::real ? y.rows.n : x.rows.n, lines = x.rows.rows;
  if (lines == 0 || n == 0) return;
  const std::vector<int64_t> factors = factors_of(n);
  int64_t size = n;  // of the transform that is computed by factors
  const bool convolution = factors.empty() && n > 1;
  if (convolution)
    for (size = 1; size < 2 * n - 1;) size *= 2;
  constexpr int64_t kMostNumbers = int64_t{1} << 24;  // of a buffer
  const int64_t together = std::clamp<int64_t>(kMostNumbers / size, 1, lines);
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * sizeof(Complex); };
  const Scratch memory(args, bytes(2 * together * size + size + (convolution ? together * n + size : 0)));
  Complex *const data = memory.as<Complex>(), *const other = data + together * size,
                 *const roots = other + together * size;
  launch(stream_of(args), line_blocks(size), kBlock, 0, fill_roots, roots, size);
  const std::vector<int64_t> passes = convolution ? factors_of(size) : factors;
  Complex *const line_data = roots + size, *const chirps = line_data + (convolution ? together * n : 0);
  if (convolution) {
    launch(stream_of(args), line_blocks(size), kBlock, 0, fill_chirp, data, n, size);
    const Complex* const result = run_stages(args, data, other, roots, passes, size, 1);
    launch(stream_of(args), line_blocks(size), kBlock, 0, copy_numbers, result, chirps, size);
  }
  for (int64_t first = 0; first < lines; first += together) {
    const int64_t here = std::min(together, lines - first), total = here * size;
    Complex* const given = convolution ? line_data : data;
    launch(stream_of(args), line_blocks(here * n), kBlock, 0, read_lines, x, how.in, how.turned, given, n,
           first, here * n);
    const Complex* result = nullptr;
    if (convolution) {
      launch(stream_of(args), line_blocks(total), kBlock, 0, widen, static_cast<const Complex*>(given), data,
             n, size, total);
      Complex* const wide = run_stages(args, data, other, roots, passes, size, here);
      launch(stream_of(args), line_blocks(total), kBlock, 0, multiply_transforms, wide,
             static_cast<const Complex*>(chirps), size, total);
      const Complex* const back =
          run_stages(args, wide, wide == data ? other : data, roots, passes, size, here);
      launch(stream_of(args), line_blocks(here * n), kBlock, 0, narrow, back, given, n, size, here * n);
      result = given;
    } else {
      result = run_stages(args, data, other, roots, passes, n, here);
    }
    launch(stream_of(args), line_blocks(here * y.rows.n), kBlock, 0, write_lines, y, how.out, how.turned,
           result, n, first, here * y.rows.n, how.scale);
  }
}

}  // namespace

void fft(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::FourierAttrs>();
  transform(args, {Kind::complex, Kind::complex, attrs.inverse, attrs.axis, attrs.scale});
}
void rfft(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::RealFourierAttrs>();
  transform(args, {Kind::real, Kind::half, false, attrs.axis, attrs.scale});
}
void irfft(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::ToRealAttrs>();
  transform(args, {Kind::half, Kind::real, true, attrs.axis, attrs.scale});
}

}  // namespace mx::cuda
