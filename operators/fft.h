// Discrete Fourier transforms of any length, with the names of numpy.fft and torch.fft.
//
//   NDArray y = fft::rfft(x);                     // x (.., n) real, y (.., n / 2 + 1, 2) complex
//   NDArray power = square(fft::absolute(y));
//   NDArray back = fft::irfft(y, x.size(-1));
//
// There is no complex element type. A complex array is an array with a last dimension of size 2, the real and
// the imaginary part, as torch.view_as_real returns it. `axis` counts the other dimensions only: -1 is the
// one before the pairs.
//
// y[k] = sum of x[j] exp(-2 pi i j k / n). `n` cuts the axis off or pads it with zeros first. Elements are
// f32 or f64; f16, bf16, integers and bool throw InvalidArgument. All is computed in f64 and rounded once.
// The transforms are linear and have gradients of any order. All functions throw InvalidArgument for shapes,
// axes and lengths that do not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "ndarray/axes.h"
#include "operators/operator.h"

namespace mx::fft {

/// Where a transform and its inverse are divided by n: backward: in the inverse; forward: in the transform;
/// ortho: both by sqrt(n).
enum class Norm : uint8_t { backward, forward, ortho };

/// Complex (.., n, 2) to complex.
NDArray fft(const Arg& x, std::optional<IntArg> n = {}, IntArg axis = -1, Norm norm = Norm::backward);
NDArray ifft(const Arg& x, std::optional<IntArg> n = {}, IntArg axis = -1, Norm norm = Norm::backward);
/// Real (.., n) to complex (.., n / 2 + 1, 2); the other numbers are the conjugates of these.
NDArray rfft(const Arg& x, std::optional<IntArg> n = {}, IntArg axis = -1, Norm norm = Norm::backward);
/// The inverse of rfft: complex to real. n is the length of the result; by default twice the size of the axis
/// less one. For an odd n it must be given.
NDArray irfft(const Arg& x, std::optional<IntArg> n = {}, IntArg axis = -1, Norm norm = Norm::backward);

/// Transforms along several axes, one after the other. `sizes`: one for each axis, or empty. `axes`: empty
/// for all, or with sizes for the last ones. rfftn and irfftn have the real transform along the last one.
NDArray fftn(const Arg& x, const Shape& sizes = {}, const Axes& axes = {}, Norm norm = Norm::backward);
NDArray ifftn(const Arg& x, const Shape& sizes = {}, const Axes& axes = {}, Norm norm = Norm::backward);
NDArray rfftn(const Arg& x, const Shape& sizes = {}, const Axes& axes = {}, Norm norm = Norm::backward);
NDArray irfftn(const Arg& x, const Shape& sizes = {}, const Axes& axes = {}, Norm norm = Norm::backward);
/// The same along two axes.
NDArray fft2(const Arg& x, const Shape& sizes = {}, const Axes& axes = {-2, -1}, Norm norm = Norm::backward);
NDArray ifft2(const Arg& x, const Shape& sizes = {}, const Axes& axes = {-2, -1}, Norm norm = Norm::backward);
NDArray rfft2(const Arg& x, const Shape& sizes = {}, const Axes& axes = {-2, -1}, Norm norm = Norm::backward);
NDArray irfft2(const Arg& x, const Shape& sizes = {}, const Axes& axes = {-2, -1},
               Norm norm = Norm::backward);

/// The frequencies of the numbers that fft() returns for n samples at distance d: 0, 1, .., -2, -1, over n d.
NDArray fftfreq(IntArg n, double d = 1, DType dtype = f32, Context context = cpu(),
                std::source_location where = std::source_location::current());
/// Those of rfft(): 0, 1, .., n / 2, over n d.
NDArray rfftfreq(IntArg n, double d = 1, DType dtype = f32, Context context = cpu(),
                 std::source_location where = std::source_location::current());
/// Rolls the axes so that frequency 0 is in the middle; ifftshift undoes that. Unlike in numpy.fft, the axes
/// must be given, because the array does not say whether its last dimension is a pair; negative ones count
/// all dimensions.
NDArray fftshift(const Arg& x, const Axes& axes);
NDArray ifftshift(const Arg& x, const Axes& axes);

/// Complex arrays. The parts are views.
NDArray complex(const Arg& re, const NDArray& im);  ///< the parts broadcast and are promoted
NDArray complex(const Arg& re);                     ///< with imaginary parts of 0
NDArray real(const NDArray& z);
NDArray imag(const NDArray& z);
NDArray conj(const Arg& z);
NDArray absolute(const Arg& z);
NDArray angle(const Arg& z);
NDArray multiply(const Arg& a, const NDArray& b);  ///< complex products; the arrays broadcast

/// The convolution of real arrays along the last axis, by transforms: c[k] = sum of a[j] b[k - j]; the other
/// dimensions broadcast. mode "full": all n + m - 1 numbers; "same": the n in the middle; "valid": those for
/// which the arrays overlap completely. As scipy.signal.fftconvolve.
NDArray convolve(const Arg& a, const NDArray& b, const std::string& mode = "full");

/// Windows of n numbers. periodic: as for n + 1 numbers without the last one, for spectra; false: symmetric,
/// as in NumPy.
NDArray hann_window(IntArg n, bool periodic = true, DType dtype = f32, Context context = cpu());
NDArray hamming_window(IntArg n, bool periodic = true, DType dtype = f32, Context context = cpu());
NDArray blackman_window(IntArg n, bool periodic = true, DType dtype = f32, Context context = cpu());

struct StftOptions {
  int64_t hop = 0;          ///< samples between frames; 0: n_fft / 4
  NDArray window{};         ///< (n_fft,); empty: ones
  bool center = true;       ///< frame t is centered at sample t * hop; the ends are padded by reflection
  bool normalized = false;  ///< divides by sqrt(n_fft)
};
/// The transforms of overlapping frames of real x (.., samples): complex (.., n_fft / 2 + 1, frames, 2), as
/// torch.stft.
NDArray stft(const Arg& x, IntArg n_fft, const StftOptions& options = {});
/// The signal (.., length) with these transforms, from overlapping frames divided by the sum of the squared
/// windows, as torch.istft. length 0: as many samples as the frames have. Where the windows are 0, the result
/// is NaN or infinite.
NDArray istft(const Arg& z, IntArg n_fft, const StftOptions& options = {}, IntArg length = 0);

}  // namespace mx::fft
