#include "operators/interpolate.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"

namespace mx {
namespace {

/// Where the elements of a result come from along one axis: `terms` sources for each, with a weight.
struct Resampling {
  int64_t terms = 1;
  std::vector<std::vector<int64_t>> sources;  // for each term
  std::vector<std::vector<double>> weights;

  explicit Resampling(int64_t count)
      : terms(count), sources(static_cast<size_t>(count)), weights(sources.size()) {}
  void add(int64_t term, int64_t source, double weight) {
    sources[static_cast<size_t>(term)].push_back(source);
    weights[static_cast<size_t>(term)].push_back(weight);
  }
};

/// The step between sources, as in PyTorch: a given factor is not recomputed from the rounded size.
double step_of(int64_t in, int64_t out, double factor, bool align_corners) {
  if (align_corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  return factor > 0 ? 1 / factor : static_cast<double>(in) / static_cast<double>(out);
}

Resampling nearest(int64_t in, int64_t out, double step, bool exact) {
  Resampling r(1);
  // In float, as in PyTorch, so that the same element is chosen if the position is near a whole number.
  const auto scale = static_cast<float>(step);
  for (int64_t i = 0; i < out; ++i) {
    const float position = (static_cast<float>(i) + (exact ? 0.5f : 0.f)) * scale;
    r.add(0, std::clamp<int64_t>(static_cast<int64_t>(std::floor(position)), 0, in - 1), 1);
  }
  return r;
}

double position_of(int64_t i, double step, bool align_corners) {
  return align_corners ? step * static_cast<double>(i) : step * (static_cast<double>(i) + 0.5) - 0.5;
}

Resampling linear(int64_t in, int64_t out, double step, bool align_corners) {
  Resampling r(2);
  for (int64_t i = 0; i < out; ++i) {
    const double position = std::max(0., position_of(i, step, align_corners));
    const int64_t low = std::min(static_cast<int64_t>(position), in - 1), high = std::min(low + 1, in - 1);
    const double share = position - static_cast<double>(low);
    r.add(0, low, 1 - share);
    r.add(1, high, share);
  }
  return r;
}

/// The kernel of Keys, "Cubic convolution interpolation for digital image processing" (1981), with a = -3/4.
double cubic(double distance) {
  constexpr double a = -0.75;
  const double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

Resampling bicubic(int64_t in, int64_t out, double step, bool align_corners) {
  Resampling r(4);
  for (int64_t i = 0; i < out; ++i) {
    const double position = position_of(i, step, align_corners), low = std::floor(position);
    for (int64_t t = 0; t < 4; ++t) {
      const double source = low + static_cast<double>(t - 1);
      r.add(t, std::clamp<int64_t>(static_cast<int64_t>(source), 0, in - 1), cubic(position - source));
    }
  }
  return r;
}

NDArray resampled(const Arg& x, int axis, const Resampling& r) {
  const NDArray& a = x.array;
  Shape column = Shape::filled(a.rank(), 1);
  column[axis] = static_cast<int64_t>(r.sources[0].size());
  NDArray sum;
  for (size_t t = 0; t < r.sources.size(); ++t) {
    const NDArray sources = from_data(r.sources[t].data(), {column[axis]}, a.context());
    NDArray term = take(x, sources, axis);
    if (r.terms > 1) term = term * from_data(r.weights[t].data(), column).to(a.dtype()).to(a.context());
    sum = t == 0 ? term : sum + term;
  }
  return sum;
}

void check_interpolation(const NDArray& x, const InterpolateOptions& o) {
  MX_CHECK(is_floating(x.dtype()), InvalidArgument, "[interpolate] expected floating-point elements, got ",
           x.dtype());
  MX_CHECK(x.rank() >= 3 && x.rank() <= 5, InvalidArgument,
           "[interpolate] expected images, channels and 1 to 3 spatial axes, got shape ", x.shape());
  const int axes = x.rank() - 2;
  const bool is_nearest = o.mode == "nearest" || o.mode == "nearest-exact";
  const int needed = o.mode == "linear"                            ? 1
                     : o.mode == "bilinear" || o.mode == "bicubic" ? 2
                     : o.mode == "trilinear"                       ? 3
                                                                   : 0;
  MX_CHECK(
      is_nearest || needed == axes, InvalidArgument,
      "[interpolate] expected \"nearest\", \"nearest-exact\", \"linear\" for 1 spatial axis, \"bilinear\" or "
      "\"bicubic\" for 2, or \"trilinear\" for 3, got \"",
      o.mode, "\" for shape ", x.shape());
  MX_CHECK(!is_nearest || !o.align_corners, InvalidArgument,
           "[interpolate] expected align_corners = false for mode \"", o.mode, "\", got true");
  MX_CHECK(o.size.has_value() == o.scale_factor.empty(), InvalidArgument,
           "[interpolate] expected either sizes or scale factors, got ",
           o.size.has_value() ? "both" : "neither");
  if (o.size) o.size->check("interpolate", "size", axes, 1);
  const auto factors = static_cast<int>(o.scale_factor.size());
  MX_CHECK(o.size || factors == 1 || factors == axes, InvalidArgument, "[interpolate] expected 1 or ", axes,
           " scale factors, got ", factors);
  for (const double factor : o.scale_factor)
    MX_CHECK(factor > 0 && std::isfinite(factor), InvalidArgument,
             "[interpolate] expected scale factors greater than 0, got ", factor);
  for (int a = 0; a < axes; ++a)
    MX_CHECK(x.shape()[2 + a] >= 1, InvalidArgument,
             "[interpolate] expected spatial sizes of 1 or more, got ", x.shape());
}

}  // namespace

NDArray interpolate(const Arg& x, const InterpolateOptions& o) try {
  check_interpolation(x.array, o);
  const DType dtype = x.array.dtype();
  NDArray y = dtype == f16 || dtype == bf16 ? x.array.to(f32) : x.array;
  for (int a = 0; a < x.array.rank() - 2; ++a) {
    const int64_t in = y.shape()[2 + a];
    const double factor =
        o.size ? 0 : o.scale_factor[o.scale_factor.size() == 1 ? 0 : static_cast<size_t>(a)];
    const int64_t out = o.size ? (*o.size)[a] : static_cast<int64_t>(static_cast<double>(in) * factor);
    MX_CHECK(out >= 1, InvalidArgument,
             "[interpolate] expected a result of at least 1 element per axis, got factor ", factor,
             " for size ", in);
    const double step = step_of(in, out, factor, o.align_corners);
    const Resampling r = o.mode == "nearest"         ? nearest(in, out, step, false)
                         : o.mode == "nearest-exact" ? nearest(in, out, step, true)
                         : o.mode == "bicubic"       ? bicubic(in, out, step, o.align_corners)
                                                     : linear(in, out, step, o.align_corners);
    y = resampled(Arg(y, x.where), 2 + a, r);
  }
  return y.dtype() == dtype ? y : y.to(dtype);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray pixel_shuffle(const Arg& x, IntArg factor) try {
  const Shape& s = x.array.shape();
  const int64_t r = factor;
  MX_CHECK(r >= 1 && r <= INT32_MAX && s.rank() == 4 && s[1] % (r * r) == 0, InvalidArgument,
           "[pixel_shuffle] expected (images, channels, height, width) with channels that the square of the "
           "factor divides, "
           "got factor ",
           r, " for shape ", s);
  return x.array.reshape({s[0], s[1] / (r * r), r, r, s[2], s[3]}, x.where)
      .transpose({0, 1, 4, 2, 5, 3})
      .reshape({s[0], s[1] / (r * r), s[2] * r, s[3] * r}, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray pixel_unshuffle(const Arg& x, IntArg factor) try {
  const Shape& s = x.array.shape();
  const int64_t r = factor;
  MX_CHECK(r >= 1 && r <= INT32_MAX && s.rank() == 4 && s[2] % r == 0 && s[3] % r == 0, InvalidArgument,
           "[pixel_unshuffle] expected (images, channels, height, width) with sizes that the factor divides, "
           "got factor ",
           r, " for shape ", s);
  return x.array.reshape({s[0], s[1], s[2] / r, r, s[3] / r, r}, x.where)
      .transpose({0, 1, 3, 5, 2, 4})
      .reshape({s[0], s[1] * r * r, s[2] / r, s[3] / r}, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
