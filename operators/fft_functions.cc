// Functions that call the operators of fft.cc, complex arithmetic, and windows.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/arrange.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/fft.h"
#include "operators/indexing.h"
#include "operators/shape_ops.h"

namespace mx::fft {
namespace {

using mx::detail::called_at;

NDArray numbers_of(const std::vector<double>& values, DType dtype, Context context) {
  return array(values).to(dtype).to(context);
}

/// Half the size of each axis, rounded down or up, with the sign.
NDArray rolled(const Arg& x, const Axes& axes, bool back) {
  Shape shifts;
  for (int64_t axis : axes) {
    const int64_t n = x.array.size(axis);
    shifts.push_back(back ? -(n / 2) : n / 2);
  }
  return roll(x, shifts, axes);
}

/// Returns the smallest number from n on that has no prime factors but 2, 3 and 5.
int64_t fast_length(int64_t n) {
  for (;; ++n) {
    int64_t rest = n;
    for (int64_t p : {2, 3, 5})
      while (rest % p == 0) rest /= p;
    if (rest == 1) return n;
  }
}

/// sum of coefficients[i] cos(2 pi i k / n), with n one less for a symmetric window.
NDArray cosine_window(int64_t n, bool periodic, std::initializer_list<double> coefficients, DType dtype,
                      Context context, const char* op) {
  MX_CHECK(n >= 0, InvalidArgument, "[", op, "] expected a size of at least 0, got ", n);
  std::vector<double> values;
  for (int64_t k = 0; k < n; ++k) {
    const double angle =
        n == 1 ? std::numbers::pi
               : 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(periodic ? n : n - 1);
    double sum = 0, factor = 0;
    for (double c : coefficients) sum += c * std::cos(angle * factor++);
    values.push_back(sum);
  }
  return numbers_of(values, dtype, context);
}

/// The checked numbers of a short-time transform.
struct Frames {
  int64_t size, hop;
  NDArray window;  // empty for ones

  Frames(const Arg& x, int64_t n, const StftOptions& options, const char* op)
      : size(n), hop(options.hop == 0 ? n / 4 : options.hop), window(options.window) {
    MX_CHECK(n > 0 && hop > 0, InvalidArgument, "[", op, "] expected positive n_fft and hop, got ", n,
             " and ", hop, called_at(x.where));
    MX_CHECK(!window.defined() || window.shape() == Shape{n}, InvalidArgument, "[", op,
             "] expected a window of shape ", Shape{n}, ", got ", window.defined() ? window.shape() : Shape{},
             called_at(x.where));
  }
  NDArray windowed(const NDArray& x) const { return window.defined() ? x * window : x; }
  /// Adds overlapping frames (.., frames, size) up.
  NDArray added(const NDArray& frames) const {
    const int64_t count = frames.size(-2), length = size + hop * (count - 1);
    const NDArray places =
        (arange(count, i64, frames.context()).expand_dims(1) * hop + arange(size, i64, frames.context()))
            .flatten();
    Shape shape = frames.shape();
    shape.resize(shape.rank() - 1);
    shape[-1] = count * size;
    const NDArray updates = frames.reshape(shape);
    shape[-1] = length;
    return index_add(zeros(shape, frames.dtype(), frames.context()), places, updates, -1);
  }
};

}  // namespace

NDArray fftfreq(IntArg n, double d, DType dtype, Context context, std::source_location where) {
  const int64_t size = n;
  MX_CHECK(size > 0, InvalidArgument, "[fftfreq] expected a size of at least 1, got ", size,
           called_at(where));
  std::vector<double> values;
  for (int64_t k = 0; k < size; ++k)
    values.push_back(static_cast<double>(k <= (size - 1) / 2 ? k : k - size) /
                     (static_cast<double>(size) * d));
  return numbers_of(values, dtype, context);
}

NDArray rfftfreq(IntArg n, double d, DType dtype, Context context, std::source_location where) {
  const int64_t size = n;
  MX_CHECK(size > 0, InvalidArgument, "[rfftfreq] expected a size of at least 1, got ", size,
           called_at(where));
  std::vector<double> values;
  for (int64_t k = 0; k <= size / 2; ++k)
    values.push_back(static_cast<double>(k) / (static_cast<double>(size) * d));
  return numbers_of(values, dtype, context);
}

NDArray fftshift(const Arg& x, const Axes& axes) { return rolled(x, axes, false); }
NDArray ifftshift(const Arg& x, const Axes& axes) { return rolled(x, axes, true); }

NDArray complex(const Arg& re, const NDArray& im) try {
  const DType dtype = promote(re.array.dtype(), im.dtype());
  const NDArray parts[] = {re.array.to(dtype), im.to(dtype)};
  return stack(broadcast_arrays(parts), -1, re.where);
} catch (const Error&) {
  mx::detail::rethrow_at(re.where);
}
NDArray complex(const Arg& re) { return complex(re, zeros_like(re.array)); }

namespace {
NDArray part_of(const NDArray& z, int64_t i, const char* op) {
  MX_CHECK(z.rank() >= 1 && z.shape().back() == 2, InvalidArgument, "[", op,
           "] expected complex numbers (.., 2), real and imaginary parts in the last dimension, got shape ",
           z.shape());
  return z.select(-1, i);
}
}  // namespace

NDArray real(const NDArray& z) { return part_of(z, 0, "real"); }
NDArray imag(const NDArray& z) { return part_of(z, 1, "imag"); }
NDArray conj(const Arg& z) try {
  return complex({part_of(z.array, 0, "conj"), z.where}, -part_of(z.array, 1, "conj"));
} catch (const Error&) {
  mx::detail::rethrow_at(z.where);
}
NDArray absolute(const Arg& z) try {
  return hypot({part_of(z.array, 0, "absolute"), z.where}, part_of(z.array, 1, "absolute"));
} catch (const Error&) {
  mx::detail::rethrow_at(z.where);
}
NDArray angle(const Arg& z) try {
  return atan2({part_of(z.array, 1, "angle"), z.where}, part_of(z.array, 0, "angle"));
} catch (const Error&) {
  mx::detail::rethrow_at(z.where);
}
NDArray multiply(const Arg& a, const NDArray& b) try {
  const NDArray ar = part_of(a.array, 0, "multiply"), ai = part_of(a.array, 1, "multiply"),
                br = part_of(b, 0, "multiply"), bi = part_of(b, 1, "multiply");
  return complex({mul({ar, a.where}, br) - ai * bi, a.where}, ar * bi + ai * br);
} catch (const Error&) {
  mx::detail::rethrow_at(a.where);
}

NDArray convolve(const Arg& a, const NDArray& b, const std::string& mode) {
  MX_CHECK(mode == "full" || mode == "same" || mode == "valid", InvalidArgument,
           "[convolve] expected mode \"full\", \"same\" or \"valid\", got \"", mode, '"', called_at(a.where));
  MX_CHECK(a.array.rank() >= 1 && b.rank() >= 1 && a.array.size(-1) > 0 && b.size(-1) > 0, InvalidArgument,
           "[convolve] expected arrays (.., n) with elements, got shapes ", a.array.shape(), " and ",
           b.shape(), called_at(a.where));
  const int64_t n = a.array.size(-1), m = b.size(-1), full = n + m - 1, size = fast_length(full);
  const NDArray product = multiply({rfft(a, size), a.where}, rfft({b, a.where}, size));
  const NDArray y = irfft({product, a.where}, size);
  if (mode == "full") return y.slice(-1, Slice{0, full});
  if (mode == "same") return y.slice(-1, Slice{(m - 1) / 2, (m - 1) / 2 + n});
  return y.slice(-1, Slice{std::min(n, m) - 1, std::max(n, m)});
}

NDArray hann_window(IntArg n, bool periodic, DType dtype, Context context) {
  return cosine_window(n, periodic, {0.5, -0.5}, dtype, context, "hann_window");
}
NDArray hamming_window(IntArg n, bool periodic, DType dtype, Context context) {
  return cosine_window(n, periodic, {0.54, -0.46}, dtype, context, "hamming_window");
}
NDArray blackman_window(IntArg n, bool periodic, DType dtype, Context context) {
  return cosine_window(n, periodic, {0.42, -0.5, 0.08}, dtype, context, "blackman_window");
}

NDArray stft(const Arg& x, IntArg n_fft, const StftOptions& options) try {
  const Frames frames(x, n_fft, options, "stft");
  NDArray signal = x.array;
  MX_CHECK(signal.rank() >= 1, InvalidArgument, "[stft] expected samples (.., n), got shape ", signal.shape(),
           called_at(x.where));
  if (options.center) {
    std::vector<int64_t> widths(static_cast<size_t>(2 * signal.rank()), 0);
    widths[widths.size() - 2] = widths[widths.size() - 1] = frames.size / 2;
    signal = pad({signal, x.where}, widths, PadMode::reflect);
  }
  MX_CHECK(signal.size(-1) >= frames.size, InvalidArgument, "[stft] expected at least n_fft = ", frames.size,
           " samples, got shape ", x.array.shape(), called_at(x.where));
  const NDArray parts = sliding_window(signal, frames.size, -1).slice(-2, Slice{{}, {}, frames.hop});
  return rfft({frames.windowed(parts), x.where}, {}, -1, options.normalized ? Norm::ortho : Norm::backward)
      .swap_axes(-3, -2);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray istft(const Arg& z, IntArg n_fft, const StftOptions& options, IntArg length) {
  const Frames frames(z, n_fft, options, "istft");
  const Shape& shape = z.array.shape();
  MX_CHECK(shape.rank() >= 3 && shape[-1] == 2 && shape[-3] == frames.size / 2 + 1 && shape[-2] > 0,
           InvalidArgument,
           "[istft] expected transforms (.., n_fft / 2 + 1, frames, 2) for n_fft = ", frames.size,
           ", got shape ", shape, called_at(z.where));
  const NDArray parts = frames.windowed(irfft({z.array.swap_axes(-3, -2), z.where}, frames.size, -1,
                                              options.normalized ? Norm::ortho : Norm::backward));
  const NDArray ones_or_window =
      frames.window.defined() ? frames.window : ones({frames.size}, parts.dtype(), parts.context());
  const NDArray weight = square(ones_or_window).broadcast_to({shape[-2], frames.size});
  const NDArray y = frames.added(parts);
  const int64_t all = y.size(-1), cut = options.center ? frames.size / 2 : 0, wanted = length;
  MX_CHECK(wanted >= 0 && cut + wanted <= all, InvalidArgument, "[istft] expected a length from 0 to ",
           all - cut, ", got ", wanted, called_at(z.where));
  // Windows may be 0 at the ends, so these are cut off before the division.
  const Slice kept{cut, wanted > 0 ? cut + wanted : all - cut};
  return y.slice(-1, kept) / frames.added(weight).slice(-1, kept);
}

}  // namespace mx::fft
