#include "operators/fft.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/fft_attrs.h"
#include "operators/kernels/fourier.h"
#include "operators/matmul.h"
#include "operators/shape_ops.h"

namespace mx {
namespace {

using detail::FourierAttrs;
using detail::RealFourierAttrs;
using detail::ToRealAttrs;

// Numbers that the calling thread transforms itself in about two microseconds.
constexpr int64_t kDirectWork = 256;

/// Checks the type and the pairs of input 0; returns the axis.
int checked_axis(const InferContext& c, int64_t axis, bool is_complex) {
  MX_CHECK(c.dtype(0) == f32 || c.dtype(0) == f64, InvalidArgument, "[", c.name(),
           "] expected elements of type f32 or f64, got ", c.dtype(0));
  const Shape& x = c.shape(0);
  MX_CHECK(
      !is_complex || (x.rank() >= 2 && x.back() == 2), InvalidArgument, "[", c.name(),
      "] expected complex numbers (.., n, 2), real and imaginary parts in the last dimension, got shape ", x);
  const int at = normalize_axis(axis, is_complex ? x.rank() - 1 : x.rank(), c.name());
  MX_CHECK(x[at] > 0, InvalidArgument, "[", c.name(),
           "] expected at least one number along the transformed axis, got shape ", x, " and axis ", axis);
  return at;
}

void infer_fourier(InferContext& c) {
  checked_axis(c, c.attr<FourierAttrs>().axis, true);
  c.output(c.shape(0), c.dtype(0));
}

void infer_of_real(InferContext& c) {
  Shape shape = c.shape(0);
  const int axis = checked_axis(c, c.attr<RealFourierAttrs>().axis, false);
  shape[axis] = shape[axis] / 2 + 1;
  shape.push_back(2);
  c.output(shape, c.dtype(0));
}

void infer_to_real(InferContext& c) {
  const auto& attrs = c.attr<ToRealAttrs>();
  Shape shape = c.shape(0);
  const int axis = checked_axis(c, attrs.axis, true);
  MX_CHECK(attrs.n > 0 && shape[axis] == attrs.n / 2 + 1, InvalidArgument, "[", c.name(),
           "] expected n / 2 + 1 numbers along the transformed axis for n = ", attrs.n, ", got shape ", shape,
           " and axis ", attrs.axis);
  shape.resize(shape.rank() - 1);
  shape[axis] = attrs.n;
  c.output(shape, c.dtype(0));
}

int64_t work(const InferContext& c) { return 8 * std::max(c.shape(0).numel(), c.output_shape(0).numel()); }

void run_fourier(const KernelArgs& args) {
  const auto& attrs = args.attr<FourierAttrs>();
  const Tensor& x = args.in[0];
  kernels::fourier(args.out[0], x, normalize_axis(attrs.axis, x.rank() - 1, "fft"), attrs.inverse,
                   attrs.scale);
}
void run_of_real(const KernelArgs& args) {
  const auto& attrs = args.attr<RealFourierAttrs>();
  const Tensor& x = args.in[0];
  kernels::fourier_of_real(args.out[0], x, normalize_axis(attrs.axis, x.rank(), "rfft"), attrs.scale);
}
void run_to_real(const KernelArgs& args) {
  const auto& attrs = args.attr<ToRealAttrs>();
  const Tensor& x = args.in[0];
  kernels::fourier_to_real(args.out[0], x, normalize_axis(attrs.axis, x.rank() - 1, "irfft"), attrs.scale);
}

extern const Operator kFourier, kOfReal, kToReal;

/// The numbers that rfft() leaves out are conjugates of others, so that those count twice. Returns x with the
/// numbers multiplied that have such a conjugate; `axis` counts no pairs.
NDArray weighted(const NDArray& x, int axis, int64_t n, double factor) {
  const int64_t paired = (n - 1) / 2;  // numbers 1 to `paired`
  if (paired == 0) return x;
  const int64_t size = x.size(axis);
  std::vector<NDArray> parts = {x.slice(axis, Slice{0, 1}), x.slice(axis, Slice{1, paired + 1}) * factor};
  if (size > paired + 1) parts.push_back(x.slice(axis, Slice{paired + 1, size}));
  return concat(parts, axis);
}

// The real and the imaginary part of a gradient are those of the loss. So the gradient of a complex matrix is
// its conjugate transpose, and for the symmetric Fourier matrix that is the inverse transform.
void gradient_fourier(GradientContext& g) {
  FourierAttrs attrs = g.attr<FourierAttrs>();
  attrs.inverse = !attrs.inverse;
  g.set(0, call(kFourier, attrs, g.head()));
}

void gradient_of_real(GradientContext& g) {
  const auto& attrs = g.attr<RealFourierAttrs>();
  const Shape& x = g.input_shape(0);
  const int axis = normalize_axis(attrs.axis, x.rank(), "rfft");
  g.set(0, call(kToReal, ToRealAttrs{axis, x[axis], attrs.scale}, weighted(g.head(), axis, x[axis], 0.5)));
}

void gradient_to_real(GradientContext& g) {
  const auto& attrs = g.attr<ToRealAttrs>();
  const int axis = normalize_axis(attrs.axis, g.input_shape(0).rank() - 1, "irfft");
  g.set(0, weighted(call(kOfReal, RealFourierAttrs{axis, attrs.scale}, g.head()), axis, attrs.n, 2));
}

constexpr detail::RecordList<DType, kDTypes> kReal = {f32, f64};

constinit const Operator kFourier = {
    .kernel = {"fft", run_fourier, cuda::fft, kDirectWork},
    .doc =
        "Discrete Fourier transform along an axis of complex numbers, which are pairs in the last dimension.",
    .family = "fft",
    .inputs = {"x"},
    .attrs = &kAttrType<FourierAttrs>,
    .infer = infer_fourier,
    .gradient = gradient_fourier,
    .dtypes = kReal,
    .work = work,
};

constinit const Operator kOfReal = {
    .kernel = {"rfft", run_of_real, cuda::rfft, kDirectWork},
    .doc =
        "Discrete Fourier transform along an axis of real numbers: the first n / 2 + 1 complex numbers, as "
        "pairs in a new last dimension.",
    .family = "fft",
    .inputs = {"x"},
    .attrs = &kAttrType<RealFourierAttrs>,
    .infer = infer_of_real,
    .gradient = gradient_of_real,
    .dtypes = kReal,
    .work = work,
};

constinit const Operator kToReal = {
    .kernel = {"irfft", run_to_real, cuda::irfft, kDirectWork},
    .doc =
        "Inverse of rfft, without the division by n: n real numbers from n / 2 + 1 complex ones, which are "
        "pairs in the last dimension.",
    .family = "fft",
    .inputs = {"x"},
    .attrs = &kAttrType<ToRealAttrs>,
    .infer = infer_to_real,
    .gradient = gradient_to_real,
    .dtypes = kReal,
    .work = work,
};

}  // namespace

namespace detail {
OperatorFamily family_fft() { return {&kFourier, &kOfReal, &kToReal}; }
}  // namespace detail

namespace fft {
namespace {

using mx::detail::called_at;

double scale_of(int64_t n, bool inverse, Norm norm) {
  const auto size = static_cast<double>(n);
  if (norm == Norm::ortho) return 1 / std::sqrt(size);
  return (norm == Norm::forward) != inverse ? 1 / size : 1;
}

/// Cuts an axis off or pads it with zeros.
NDArray resized(const NDArray& x, int axis, int64_t size) {
  const int64_t had = x.size(axis);
  if (size < had) return x.slice(axis, Slice{0, size});
  if (size == had) return x;
  std::vector<int64_t> widths(static_cast<size_t>(2 * x.rank()), 0);
  widths[static_cast<size_t>(2 * axis + 1)] = size - had;
  return pad(x, widths);
}

void check_length(int64_t n, const char* op, const Arg& x) {
  MX_CHECK(n > 0, InvalidArgument, "[", op, "] expected a length of at least 1, got ", n, called_at(x.where));
}

void check_complex(const Arg& x, const char* op) {
  const Shape& shape = x.array.shape();
  MX_CHECK(
      shape.rank() >= 1 && shape.back() == 2, InvalidArgument, "[", op,
      "] expected complex numbers (.., 2), real and imaginary parts in the last dimension (fft::complex(x) "
      "makes them of real ones), got shape ",
      shape, called_at(x.where));
}

NDArray transform(const Arg& x, std::optional<IntArg> n, int64_t axis, Norm norm, bool inverse,
                  const char* op) try {
  check_complex(x, op);
  const int at = normalize_axis(axis, x.array.rank() - 1, op);
  const int64_t size = n ? static_cast<int64_t>(*n) : x.array.size(at);
  check_length(size, op, x);
  return call(kFourier, FourierAttrs{at, inverse, scale_of(size, inverse, norm)},
              {resized(x.array, at, size), x.where});
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray of_real(const Arg& x, std::optional<IntArg> n, int64_t axis, Norm norm, const char* op) try {
  const int at = normalize_axis(axis, x.array.rank(), op);
  const int64_t size = n ? static_cast<int64_t>(*n) : x.array.size(at);
  check_length(size, op, x);
  return call(kOfReal, RealFourierAttrs{at, scale_of(size, false, norm)},
              {resized(x.array, at, size), x.where});
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray to_real(const Arg& x, std::optional<IntArg> n, int64_t axis, Norm norm, const char* op) try {
  check_complex(x, op);
  const int at = normalize_axis(axis, x.array.rank() - 1, op);
  const int64_t size = n ? static_cast<int64_t>(*n) : 2 * (x.array.size(at) - 1);
  check_length(size, op, x);
  return call(kToReal, ToRealAttrs{at, size, scale_of(size, true, norm)},
              {resized(x.array, at, size / 2 + 1), x.where});
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

/// The axes of a transform along several, and the size of each: -1 for that of the array.
struct Passes {
  std::vector<int> axes;
  std::vector<int64_t> sizes;

  Passes(const Shape& given, const Axes& wanted, int rank, const char* op, const Arg& x) {
    const int count = wanted.rank() > 0 ? wanted.rank() : given.rank() > 0 ? given.rank() : rank;
    MX_CHECK(given.rank() == 0 || given.rank() == count, InvalidArgument, "[", op,
             "] expected one size for each axis, got sizes ", given, " and ", count, " axes",
             called_at(x.where));
    MX_CHECK(count <= rank, InvalidArgument, "[", op, "] expected at most ", rank, " axes, got ", count,
             called_at(x.where));
    for (int i = 0; i < count; ++i) {
      const int axis = wanted.rank() > 0 ? normalize_axis(wanted[i], rank, op) : rank - count + i;
      MX_CHECK(std::find(axes.begin(), axes.end(), axis) == axes.end(), InvalidArgument, "[", op,
               "] expected different axes, got ", static_cast<const Shape&>(wanted), called_at(x.where));
      axes.push_back(axis);
      sizes.push_back(given.rank() > 0 ? given[i] : -1);
    }
  }
  size_t count() const { return axes.size(); }
  std::optional<IntArg> size(size_t i) const {
    return sizes[i] < 0 ? std::optional<IntArg>() : std::optional<IntArg>(sizes[i]);
  }
};

NDArray transform_all(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm, bool inverse,
                      const char* op) {
  check_complex(x, op);
  const Passes passes(sizes, axes, x.array.rank() - 1, op, x);
  NDArray y = x.array;
  for (size_t i = passes.count(); i-- > 0;)
    y = transform({y, x.where}, passes.size(i), passes.axes[i], norm, inverse, op);
  return y;
}

NDArray of_real_all(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm, const char* op) {
  const Passes passes(sizes, axes, x.array.rank(), op, x);
  MX_CHECK(passes.count() > 0, InvalidArgument, "[", op, "] expected at least one axis, got none",
           called_at(x.where));
  size_t i = passes.count() - 1;
  NDArray y = of_real(x, passes.size(i), passes.axes[i], norm, op);
  while (i-- > 0) y = transform({y, x.where}, passes.size(i), passes.axes[i], norm, false, op);
  return y;
}

NDArray to_real_all(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm, const char* op) {
  check_complex(x, op);
  const Passes passes(sizes, axes, x.array.rank() - 1, op, x);
  MX_CHECK(passes.count() > 0, InvalidArgument, "[", op, "] expected at least one axis, got none",
           called_at(x.where));
  NDArray y = x.array;
  const size_t last = passes.count() - 1;
  for (size_t i = 0; i < last; ++i)
    y = transform({y, x.where}, passes.size(i), passes.axes[i], norm, true, op);
  return to_real({y, x.where}, passes.size(last), passes.axes[last], norm, op);
}

}  // namespace

NDArray fft(const Arg& x, std::optional<IntArg> n, IntArg axis, Norm norm) {
  return transform(x, n, axis, norm, false, "fft");
}
NDArray ifft(const Arg& x, std::optional<IntArg> n, IntArg axis, Norm norm) {
  return transform(x, n, axis, norm, true, "ifft");
}
NDArray rfft(const Arg& x, std::optional<IntArg> n, IntArg axis, Norm norm) {
  return of_real(x, n, axis, norm, "rfft");
}
NDArray irfft(const Arg& x, std::optional<IntArg> n, IntArg axis, Norm norm) {
  return to_real(x, n, axis, norm, "irfft");
}

NDArray fftn(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return transform_all(x, sizes, axes, norm, false, "fftn");
}
NDArray ifftn(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return transform_all(x, sizes, axes, norm, true, "ifftn");
}
NDArray rfftn(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return of_real_all(x, sizes, axes, norm, "rfftn");
}
NDArray irfftn(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return to_real_all(x, sizes, axes, norm, "irfftn");
}
NDArray fft2(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return transform_all(x, sizes, axes, norm, false, "fft2");
}
NDArray ifft2(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return transform_all(x, sizes, axes, norm, true, "ifft2");
}
NDArray rfft2(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return of_real_all(x, sizes, axes, norm, "rfft2");
}
NDArray irfft2(const Arg& x, const Shape& sizes, const Axes& axes, Norm norm) {
  return to_real_all(x, sizes, axes, norm, "irfft2");
}

}  // namespace fft
}  // namespace mx
