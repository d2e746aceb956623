// Initialisers that compute on the calling thread, in f64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/kernels/parallel.h"
#include "nn/detail/normal_quantile.h"
#include "nn/detail/orthonormal.h"
#include "nn/init.h"

namespace mx::nn::init {
namespace {

/// The grain of parallel_for: about this many quantiles are worth a thread.
constexpr int64_t kQuantiles = 1024;

void set_values(NDArray& a, const std::vector<double>& values) {
  const NoGrad pause;
  a.copy_from(from_data(values.data(), a.shape()));
}

}  // namespace

NDArray trunc_normal_(NDArray a, double mean, double deviation, double low, double high,
                      Generator* generator) {
  MX_CHECK(is_floating(a.dtype()), InvalidArgument,
           "[trunc_normal_] expected an array of floating point, got ", a.dtype());
  MX_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation > 0, InvalidArgument,
           "[trunc_normal_] expected a finite mean and a deviation above 0, got ", mean, " and ", deviation);
  MX_CHECK(low < high, InvalidArgument, "[trunc_normal_] expected low < high, got ", low, " and ", high);
  if (a.numel() == 0) return a;
  // Probabilities are precise near 0 but not near 1. So an interval above the mean is mirrored to below it.
  const double left = (low - mean) / deviation, right = (high - mean) / deviation;
  const bool mirrored = left > 0;
  const double from = mirrored ? -right : left, to = mirrored ? -left : right;
  const double first = detail::normal_probability(from), last = detail::normal_probability(to);
  std::vector<double> values = generator_or_default(generator).rand(a.shape(), f64).to_vector<double>();
  parallel_for(static_cast<int64_t>(values.size()), kQuantiles, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double& x = values[static_cast<size_t>(i)];
      // If all probabilities of the interval underflow to 0, the clamp below yields its end nearest to the
      // mean.
      const double p = std::max(first + (last - first) * x, std::numeric_limits<double>::min());
      x = std::clamp(detail::normal_quantile(p), from, to);
      x = std::clamp(mean + deviation * (mirrored ? -x : x), low, high);
    }
  });
  set_values(a, values);
  return a;
}

NDArray orthogonal_(NDArray a, double gain, Generator* generator) {
  MX_CHECK(is_floating(a.dtype()) && a.rank() >= 2, InvalidArgument,
           "[orthogonal_] expected an array of floating point of at least two dimensions, got ", a.dtype(),
           ' ', a.shape());
  if (a.numel() == 0) return a;
  const int64_t rows = a.shape()[0], columns = a.numel() / rows;
  // orthonormalise() takes a column-major matrix with rows >= columns. A wide row-major matrix has the same
  // layout as its transpose in column-major, so it can be used as it is. A tall one is transposed first.
  const bool wide = columns >= rows;
  const NDArray random = generator_or_default(generator).randn({rows, columns}, f64);
  std::vector<double> q = (wide ? random : random.transpose()).to_vector<double>();
  detail::orthonormalise(q, std::max(rows, columns), std::min(rows, columns));
  if (!wide) {
    std::vector<double> turned(q.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        turned[static_cast<size_t>(r * columns + c)] = q[static_cast<size_t>(c * rows + r)];
    q = std::move(turned);
  }
  for (double& x : q) x *= gain;
  set_values(a, q);
  return a;
}

NDArray eye_(NDArray a) {
  MX_CHECK(a.rank() == 2, InvalidArgument, "[eye_] expected a matrix, got shape ", a.shape());
  const NoGrad pause;
  a.copy_from(eye(a.shape()[0], a.shape()[1]));
  return a;
}

NDArray dirac_(NDArray a, IntArg groups) {
  const Shape& shape = a.shape();
  MX_CHECK(shape.rank() >= 3 && shape.rank() <= 5, InvalidArgument,
           "[dirac_] expected a weight of 3 to 5 dimensions, got shape ", shape);
  MX_CHECK(groups > 0 && shape[0] % groups == 0, InvalidArgument,
           "[dirac_] expected a number of groups that divides ", shape[0], ", got ", groups);
  if (a.numel() == 0) return a;
  const int64_t field = a.numel() / (shape[0] * shape[1]), out = shape[0] / groups;
  int64_t middle = 0;
  for (int d = 2; d < shape.rank(); ++d) middle = middle * shape[d] + shape[d] / 2;
  std::vector<double> values(static_cast<size_t>(a.numel()));
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t c = 0; c < std::min(out, shape[1]); ++c)
      values[static_cast<size_t>(((g * out + c) * shape[1] + c) * field + middle)] = 1;
  set_values(a, values);
  return a;
}

NDArray sparse_(NDArray a, double sparsity, double deviation, Generator* generator) {
  MX_CHECK(is_floating(a.dtype()) && a.rank() == 2, InvalidArgument,
           "[sparse_] expected a matrix of floating point, got ", a.dtype(), ' ', a.shape());
  MX_CHECK(sparsity >= 0 && sparsity <= 1, InvalidArgument, "[sparse_] expected a sparsity from 0 to 1, got ",
           sparsity);
  MX_CHECK(std::isfinite(deviation) && deviation >= 0, InvalidArgument,
           "[sparse_] expected a deviation of 0 or more, got ", deviation);
  if (a.numel() == 0) return a;
  const int64_t rows = a.shape()[0], columns = a.shape()[1];
  const auto zeros = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(rows)));
  std::vector<double> values =
      generator_or_default(generator).normal(0, deviation, a.shape(), f64).to_vector<double>();
  const std::vector<double> keys =
      generator_or_default(generator).rand({columns, rows}, f64).to_vector<double>();
  std::vector<int64_t> order(static_cast<size_t>(rows));
  for (int64_t c = 0; c < columns; ++c) {
    const double* const key = keys.data() + c * rows;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [key](int64_t x, int64_t y) { return key[x] < key[y]; });
    for (int64_t i = 0; i < zeros; ++i)
      values[static_cast<size_t>(order[static_cast<size_t>(i)] * columns + c)] = 0;
  }
  set_values(a, values);
  return a;
}

NDArray bilinear_(NDArray a) {
  const Shape& shape = a.shape();
  MX_CHECK(shape.rank() == 4, InvalidArgument, "[bilinear_] expected a weight of 4 dimensions, got shape ",
           shape);
  if (a.numel() == 0) return a;
  const auto triangle = [](int64_t size) {
    const double factor = std::ceil(static_cast<double>(size) / 2);
    const double centre = factor - (size % 2 == 1 ? 1 : 0.5);
    std::vector<double> values;
    for (int64_t i = 0; i < size; ++i)
      values.push_back(1 - std::abs(static_cast<double>(i) - centre) / factor);
    return values;
  };
  const std::vector<double> down = triangle(shape[2]), across = triangle(shape[3]);
  std::vector<double> kernel;
  for (double y : down)
    for (double x : across) kernel.push_back(y * x);
  const NoGrad pause;
  a.copy_from(from_data(kernel.data(), {shape[2], shape[3]}));
  return a;
}

}  // namespace mx::nn::init
