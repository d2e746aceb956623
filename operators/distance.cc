// The record of Euclidean distances; cdist() in products.cc calls it.
#include "operators/distance.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/parallel.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/gradient.h"
#include "operators/kernels/distance.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/temporary.h"

namespace mx {
namespace {

constexpr int64_t kDirectWork = 1 << 15;

Shape batch_of(const Shape& shape) {
  Shape result = shape;
  result.resize(shape.rank() - 2);
  return result;
}

void infer_euclidean(InferContext& c) {
  const Shape shape = detail::distance_shape(c.shape(0), c.shape(1), c.name());
  MX_CHECK(is_floating(c.dtype(0)) && c.dtype(0) == c.dtype(1), InvalidArgument, "[", c.name(),
           "] expected arrays of one floating-point type, got ", c.dtype(0), " and ", c.dtype(1));
  c.output(shape, c.dtype(0));
}

int64_t work_euclidean(const InferContext& c) {
  return c.output_shape(0).numel() * std::max<int64_t>(1, c.shape(0).back());
}

/// Computes all matrices of the stacks. All operands have one type, f32 or f64.
void compute(const Tensor& out, const Tensor& left, const Tensor& right) {
  const Shape batch = batch_of(out.shape);
  const auto matrices = [&](const Tensor& x) {
    Shape shape = batch;
    shape.push_back(x.shape[x.rank() - 2]);
    shape.push_back(x.shape[x.rank() - 1]);
    return x.broadcast(shape);
  };
  const Tensor a = matrices(left), b = matrices(right);
  const auto matrix = [&](const Tensor& x, int64_t i) {
    const int r = batch.rank();
    const int64_t offset = place_of(i, batch, batch_of(x.strides));
    return Tensor{element_at(x.data, x.dtype, offset),
                  x.dtype,
                  {x.shape[r], x.shape[r + 1]},
                  {x.strides[r], x.strides[r + 1]}};
  };
  parallel_for(batch.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernels::distances(matrix(out, i), matrix(a, i), matrix(b, i));
  });
}

/// f16 and bf16 are computed in f32 and rounded once.
void run_euclidean(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.dtype == f32 || out.dtype == f64) return compute(out, args.in[0], args.in[1]);
  const detail::Temporary wide(f32, out.shape);
  compute(*wide, *detail::Converted(args.in[0], f32), *detail::Converted(args.in[1], f32));
  kernels::copy(out, *wide);
}

/// d|a - b| / da = (a - b) / |a - b|, and 0 where the distance is 0. The differences themselves are used here
/// too, for some rows at a time.
void gradient_euclidean(GradientContext& g) {
  const NDArray &a = g.input(0), &b = g.input(1), &distance = g.output();
  const NDArray zero = distance == 0;
  const NDArray weight = where(zero, 0, g.head() / where(zero, 1, distance));
  const int64_t rows = distance.size(-2), step = detail::distance_rows(distance.shape(), a.shape().back());
  std::vector<NDArray> left;
  NDArray right;
  for (int64_t first = 0; first == 0 || first < rows; first += step) {
    const Slice some{first, std::min(first + step, rows)};
    const NDArray parts =
        weight.slice(-2, some).expand_dims(-1) * (a.slice(-2, some).expand_dims(-2) - b.expand_dims(-3));
    if (g.wanted(0)) left.push_back(sum(parts, -2));
    if (!g.wanted(1)) continue;
    const NDArray part = sum(parts, -3);
    right = right.defined() ? right - part : -part;
  }
  if (g.wanted(0)) g.set(0, left.size() == 1 ? left[0] : concat(left, -2));
  if (g.wanted(1)) g.set(1, right);
}

constexpr Operator kEuclidean = {
    .kernel = {"euclidean", run_euclidean, cuda::euclidean, kDirectWork},
    .doc = "Euclidean distances of all pairs of rows of a (.., n, d) and b (.., m, d): shape (.., n, m).",
    .family = "matmul",
    .inputs = {"a", "b"},
    .infer = infer_euclidean,
    .gradient = gradient_euclidean,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(0)},
    .dtypes = {f32, f64, f16, bf16},
    .work = work_euclidean};

}  // namespace

namespace detail {

OperatorFamily family_distance() { return {&kEuclidean}; }

Shape distance_shape(const Shape& a, const Shape& b, const char* op) {
  MX_CHECK(a.rank() >= 2 && b.rank() >= 2 && a.back() == b.back(), InvalidArgument, "[", op,
           "] expected rows of one size, (.., m, k) and (.., n, k), got shapes ", a, " and ", b);
  Shape shape = broadcast_shapes(batch_of(a), batch_of(b), op);
  shape.push_back(a[-2]);
  shape.push_back(b[-2]);
  return shape;
}

int64_t distance_rows(const Shape& result, int64_t coordinates) {
  constexpr int64_t kDifferenceElements = int64_t{1} << 22;
  const int64_t rows = std::max<int64_t>(1, result[result.rank() - 2]);
  const int64_t per_row = std::max<int64_t>(1, result.numel() / rows * coordinates);
  return std::max<int64_t>(1, kDifferenceElements / per_row);
}

NDArray euclidean(const Arg& a, const NDArray& b) { return call(kEuclidean, {}, a, b); }

}  // namespace detail
}  // namespace mx
