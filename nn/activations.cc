#include "nn/activations.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

NDArray positive(const Arg& x) { return greater({x.array, x.where}, 0); }

/// Returns exp(x) - 1 where x is not positive, and 0 elsewhere. Positive x are replaced before exp(): it
/// would overflow, and an infinite gradient times 0 would be NaN.
NDArray expm1_below(const NDArray& above, const NDArray& x) { return expm1(where(above, 0, x)); }

}  // namespace

NDArray leaky_relu(const Arg& x, double slope) {
  return where({positive(x), x.where}, x.array, x.array * slope);
}

NDArray prelu(const Arg& x, const NDArray& slope) try {
  const Shape& shape = x.array.shape();
  MX_CHECK(slope.rank() == 1, InvalidArgument, "[prelu] expected slopes of shape (n,), got ", slope.shape());
  const int64_t n = slope.numel();
  MX_CHECK(n == 1 || (shape.rank() >= 2 && shape[1] == n), InvalidArgument,
           "[prelu] expected one slope, or as many as dimension 1 of shape ", shape, " has entries, got ", n);
  NDArray by_channel = slope;
  if (n != 1) {
    Shape aligned = Shape::filled(shape.rank() - 1, 1);
    aligned[0] = n;
    by_channel = slope.reshape(aligned);
  }
  if (shape.rank() == 0) by_channel = slope.reshape({});
  return where({positive(x), x.where}, x.array, x.array * by_channel);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray elu(const Arg& x, double alpha) {
  const NDArray above = positive(x);
  return where({above, x.where}, x.array, expm1_below(above, x.array) * alpha);
}

// Source of the constants: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
NDArray selu(const Arg& x) {
  return elu(x, 1.6732632423543772848170429916717) * 1.0507009873554804934193349852946;
}

NDArray celu(const Arg& x, double alpha) try {
  MX_CHECK(alpha != 0, InvalidArgument, "[celu] expected an alpha other than 0, got 0");
  const NDArray above = positive(x);
  return where({above, x.where}, x.array, expm1_below(above, x.array / alpha) * alpha);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray hardtanh(const Arg& x, double low, double high) { return clamp(x, low, high); }
NDArray relu6(const Arg& x) { return clamp(x, 0, 6); }
NDArray hardsigmoid(const Arg& x) { return clamp(x.array * (1. / 6) + 0.5, 0, 1); }
NDArray hardswish(const Arg& x) { return x.array * hardsigmoid(x); }
NDArray mish(const Arg& x) { return x.array * tanh(softplus(x)); }
NDArray log_sigmoid(const Arg& x) { return -softplus(-x.array); }
NDArray softsign(const Arg& x) { return x.array / (abs(x) + 1); }

NDArray scaled_softplus(const Arg& x, double beta) try {
  MX_CHECK(beta != 0, InvalidArgument, "[softplus] expected a beta other than 0, got 0");
  return beta == 1 ? softplus(x) : softplus(x.array * beta) / beta;
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray tanhshrink(const Arg& x) { return x.array - tanh(x); }

NDArray softshrink(const Arg& x, double limit) try {
  MX_CHECK(limit >= 0, InvalidArgument, "[softshrink] expected a limit of 0 or more, got ", limit);
  // The selection decides on the gradient: it is 0 at the limits too.
  const NDArray rest = x.array - clamp({x.array.detach(), x.where}, -limit, limit);
  return where({abs(x) <= limit, x.where}, 0, rest);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray hardshrink(const Arg& x, double limit) try {
  MX_CHECK(limit >= 0, InvalidArgument, "[hardshrink] expected a limit of 0 or more, got ", limit);
  return where({abs(x) <= limit, x.where}, 0, x.array);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray threshold(const Arg& x, double limit, double value) {
  return where({less_equal({x.array, x.where}, limit), x.where}, value, x.array);
}

NDArray softmin(const Arg& x, IntArg axis) { return softmax({-x.array, x.where}, axis); }

NDArray rrelu(const Arg& x, double low, double high, bool train, Generator* generator) try {
  MX_CHECK(low <= high, InvalidArgument, "[rrelu] expected low <= high, got ", low, " and ", high);
  if (!train) return leaky_relu(x, (low + high) / 2);
  Generator& numbers = generator_or_default(generator, x.array.context());
  const NDArray slope = numbers.uniform(low, high, x.array.shape(), x.array.dtype(), x.where);
  return where({positive(x), x.where}, x.array, x.array * slope);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray glu(const Arg& x, IntArg axis) try {
  const int d = normalize_axis(axis, x.array.rank(), "glu");
  const int64_t size = x.array.shape()[d];
  MX_CHECK(size % 2 == 0, InvalidArgument, "[glu] expected an even size of dimension ", d, ", got ", size,
           " in shape ", x.array.shape());
  return x.array.slice(d, {0, size / 2}) * sigmoid(x.array.slice(d, {size / 2, size}));
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

std::string detail::number_extra(const char* what, double number) { return mx::detail::concat(what, number); }

GELU::GELU(const std::string& approximate, std::source_location where) try : tanh_(approximate == "tanh") {
  MX_CHECK(tanh_ || approximate == "none", InvalidArgument,
           "[GELU] expected the approximation \"none\" or \"tanh\", got \"", approximate, '"');
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}
NDArray GELU::forward(const NDArray& x) {
  const Arg input = detail::at_call(x);
  return tanh_ ? gelu_tanh(input) : gelu(input);
}
std::string GELU::extra() const { return tanh_ ? "approximate=tanh" : ""; }

Hardtanh::Hardtanh(double low, double high, std::source_location where) try : low_(low), high_(high) {
  MX_CHECK(low < high, InvalidArgument, "[Hardtanh] expected low < high, got ", low, " and ", high);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}
std::string Hardtanh::extra() const { return mx::detail::concat("low=", low_, ", high=", high_); }

NDArray Softmax2d::forward(const NDArray& x) {
  MX_CHECK(x.rank() == 3 || x.rank() == 4, InvalidArgument,
           "[Softmax2d] expected an array (N, C, H, W) or (C, H, W), got shape ", x.shape());
  return softmax(detail::at_call(x), -3);
}

std::string Threshold::extra() const { return mx::detail::concat("limit=", limit_, ", value=", value_); }

RReLU::RReLU(double low, double high, std::optional<Generator> generator, std::source_location where) try
    : low_(low), high_(high), generator_(std::move(generator)) {
  MX_CHECK(low <= high, InvalidArgument, "[RReLU] expected low <= high, got ", low, " and ", high);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}
NDArray RReLU::forward(const NDArray& x) {
  return rrelu(detail::at_call(x), low_, high_, train_mode(), generator_ ? &*generator_ : nullptr);
}
std::string RReLU::extra() const { return mx::detail::concat("low=", low_, ", high=", high_); }

PReLU::PReLU(IntArg count, double initial, std::source_location where) try
    : weight(add_parameter("weight", full({count}, initial))) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}
std::string PReLU::extra() const { return mx::detail::concat("count=", weight.numel()); }

}  // namespace mx::nn
