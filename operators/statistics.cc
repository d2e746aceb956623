#include "operators/statistics.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/select.h"

namespace mx {
namespace {

/// Returns the type of the computation: f64 for integers, f32 for f16 and bf16.
DType statistics_type(DType type) { return is_floating(type) ? promote(type, f32) : f64; }
DType statistics_result(DType type) { return is_floating(type) ? type : f32; }

/// Returns the weights of observations in the type of the computation.
NDArray observation_weights(const NDArray& weights, const char* name, int64_t n, DType type,
                            std::source_location place) {
  MX_CHECK(weights.shape() == Shape({n}), InvalidArgument, "[cov] expected ", name, " of shape ", Shape({n}),
           ", one for each observation, got ", weights.shape());
  return weights.to(type, place);
}

NDArray wide_covariance(const Arg& x, const CovOptions& options, const char* op) {
  const NDArray& given = x.array;
  MX_CHECK(given.rank() <= 2, InvalidArgument, "[", op, "] expected an array of rank 2 at most, got shape ",
           given.shape());
  MX_CHECK(!options.fweights.defined() || is_integral(options.fweights.dtype()), InvalidArgument, "[", op,
           "] expected fweights of an integer type, got ", options.fweights.dtype());
  const DType type = statistics_type(given.dtype());
  NDArray values = given.to(type, x.where);
  if (values.rank() < 2) {
    values = values.reshape({1, values.numel()});
  } else if (!options.rows) {
    values = values.transpose();
  }
  const int64_t n = values.size(1);
  NDArray weights;
  if (options.fweights.defined())
    weights = observation_weights(options.fweights, "fweights", n, type, x.where);
  if (options.aweights.defined()) {
    const NDArray more = observation_weights(options.aweights, "aweights", n, type, x.where);
    weights = weights.defined() ? mul({weights, x.where}, more) : more;
  }
  NDArray product;
  if (!weights.defined()) {
    const NDArray centred = sub({values, x.where}, mean({values, x.where}, 1, true));
    product = matmul({centred, x.where}, centred.transpose()) /
              std::max(0.0, static_cast<double>(n) - options.correction);
  } else {
    const NDArray total = sum({weights, x.where});
    const NDArray centred = sub({values, x.where}, sum(values * weights, 1, true) / total);
    // The normalization of numpy.cov: aweights are relative, so they do not add to the number of
    // observations.
    const NDArray lost = options.aweights.defined()
                             ? sum(weights * options.aweights.to(type, x.where)) / total * options.correction
                             : full({}, options.correction, type, given.context());
    product = matmul({centred * weights, x.where}, centred.transpose()) / maximum(total - lost, 0);
  }
  return given.rank() < 2 || product.numel() == 1 ? product.squeeze() : product;
}

}  // namespace

NDArray average(const Arg& x, const NDArray& weights, const Axes& axes, bool keep_dims) try {
  if (!weights.defined()) return mean(x, axes, keep_dims);
  const NDArray& values = x.array;
  NDArray wide = weights;
  if (weights.shape() != values.shape()) {
    MX_CHECK(axes.rank() == 1 && weights.rank() == 1, InvalidArgument,
             "[average] expected weights of x's shape ", values.shape(),
             ", or with one axis a vector of its size, got ", weights.shape(), " and axes ", axes);
    const int axis = normalize_axis(axes[0], values.rank(), "average");
    MX_CHECK(weights.numel() == values.shape()[axis], InvalidArgument, "[average] expected ",
             values.shape()[axis], " weights for axis ", axis, " of ", values.shape(), ", got ",
             weights.numel());
    Shape shape = Shape::filled(values.rank(), 1);
    shape[axis] = weights.numel();
    wide = weights.reshape(shape, x.where).broadcast_to(values.shape());
  }
  const DType met = promote(values.dtype(), weights.dtype());
  const DType type = statistics_type(met);
  const NDArray w = wide.to(type, x.where);
  const NDArray total = sum({mul({values.to(type, x.where), x.where}, w), x.where}, axes, keep_dims);
  return div({total, x.where}, sum({w, x.where}, axes, keep_dims)).to(statistics_result(met), x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray ptp(const Arg& x, const Axes& axes, bool keep_dims) {
  return sub({max(x, axes, keep_dims), x.where}, min(x, axes, keep_dims));
}

NDArray cov(const Arg& x, const CovOptions& options) try {
  return wide_covariance(x, options, "cov").to(statistics_result(x.array.dtype()), x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray corrcoef(const Arg& x, bool rows) try {
  const NDArray c = wide_covariance(x, {.rows = rows}, "corrcoef");
  const DType type = statistics_result(x.array.dtype());
  if (c.rank() == 0) return (c / c).to(type, x.where);
  const NDArray deviation = sqrt({c.diagonal(), x.where});
  const NDArray scaled = div({div({c, x.where}, deviation.expand_dims(1)), x.where}, deviation);
  return clamp({scaled, x.where}, -1, 1).to(type, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
