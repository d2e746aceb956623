// The records of distances of rows; cdist() in products.cc calls them.
#include "operators/distance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/kernels/parallel.h"
#include "operators/cuda_kernels.h"
#include "operators/distance_attrs.h"
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

using detail::DistanceAttrs;
using detail::DistanceKind;

constexpr int64_t kDirectWork = 1 << 15;
/// A power costs as much as this number of additions.
constexpr int64_t kPowerWork = 16;

Shape batch_of(const Shape& shape) {
  Shape result = shape;
  result.resize(shape.rank() - 2);
  return result;
}

void check_types(const InferContext& c) {
  for (size_t i = 0; i < c.inputs(); ++i)
    MX_CHECK(is_floating(c.dtype(i)) && c.dtype(i) == c.dtype(0), InvalidArgument, "[", c.name(),
             "] expected arrays of one floating-point type, got ", c.dtype(0), " and ", c.dtype(i));
}

void check_order(const InferContext& c) {
  const double p = c.attr<DistanceAttrs>().p;
  MX_CHECK(p >= 0, InvalidArgument, "[", c.name(), "] expected a p of 0 or more, got ", p);
}

void infer_euclidean(InferContext& c) {
  const Shape shape = detail::distance_shape(c.shape(0), c.shape(1), c.name());
  check_types(c);
  c.output(shape, c.dtype(0));
}

void infer_minkowski(InferContext& c) {
  infer_euclidean(c);
  check_order(c);
}

void infer_backward(InferContext& c) {
  Shape shape = detail::distance_shape(c.shape(1), c.shape(2), c.name());
  check_types(c);
  check_order(c);
  MX_CHECK(c.shape(0) == shape && c.shape(3) == shape, InvalidArgument, "[", c.name(),
           "] expected dy and y of shape ", shape, ", got ", c.shape(0), " and ", c.shape(3));
  shape[shape.rank() - 1] = c.shape(1).back();
  c.output(shape, c.dtype(0));
}

int64_t work_of(const Shape& distances, int64_t coordinates, DistanceKind kind) {
  const int64_t each = kind == DistanceKind::power ? kPowerWork : 1;
  return distances.numel() * std::max<int64_t>(1, coordinates) * each;
}

int64_t work_euclidean(const InferContext& c) {
  return work_of(c.output_shape(0), c.shape(0).back(), DistanceKind::squares);
}
int64_t work_minkowski(const InferContext& c) {
  return work_of(c.output_shape(0), c.shape(0).back(), detail::distance_kind(c.attr<DistanceAttrs>().p));
}
int64_t work_backward(const InferContext& c) {
  return work_of(c.shape(0), 2 * c.shape(1).back(), detail::distance_kind(c.attr<DistanceAttrs>().p));
}

/// The matrices of stacks whose leading dimensions broadcast to `batch`.
class Matrices {
 public:
  Matrices(const Tensor& x, const Shape& batch) : batch_(batch) {
    Shape shape = batch;
    shape.push_back(x.shape[x.rank() - 2]);
    shape.push_back(x.shape[x.rank() - 1]);
    x_ = x.broadcast(shape);
  }
  Tensor operator[](int64_t i) const {
    const int r = batch_.rank();
    const int64_t offset = place_of(i, batch_, batch_of(x_.strides));
    return {element_at(x_.data, x_.dtype, offset),
            x_.dtype,
            {x_.shape[r], x_.shape[r + 1]},
            {x_.strides[r], x_.strides[r + 1]}};
  }

 private:
  Shape batch_;
  Tensor x_;
};

/// Computes all matrices of the stacks. All operands have one type, f32 or f64.
void compute(const Tensor& out, const Tensor& left, const Tensor& right, double p) {
  const Shape batch = batch_of(out.shape);
  const Matrices to(out, batch), a(left, batch), b(right, batch);
  parallel_for(batch.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernels::distances(to[i], a[i], b[i], p);
  });
}

/// f16 and bf16 are computed in f32 and rounded once.
void run_distances(const KernelArgs& args, double p) {
  const Tensor& out = args.out[0];
  if (out.dtype == f32 || out.dtype == f64) return compute(out, args.in[0], args.in[1], p);
  const detail::Temporary wide(f32, out.shape);
  compute(*wide, *detail::Converted(args.in[0], f32), *detail::Converted(args.in[1], f32), p);
  kernels::copy(out, *wide);
}

void run_euclidean(const KernelArgs& args) { run_distances(args, 2); }
void run_minkowski(const KernelArgs& args) { run_distances(args, args.attr<DistanceAttrs>().p); }

void compute_gradient(const Tensor& out, const Tensor& dy, const Tensor& left, const Tensor& right,
                      const Tensor& y, double p) {
  const Shape batch = batch_of(out.shape);
  const Matrices to(out, batch), head(dy, batch), a(left, batch), b(right, batch), distance(y, batch);
  parallel_for(batch.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      kernels::distance_gradient(to[i], head[i], a[i], b[i], distance[i], p);
  });
}

void run_backward(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const double p = args.attr<DistanceAttrs>().p;
  if (p == 0) return kernels::fill(out, 0);  // the distance is a count
  if (out.dtype == f32 || out.dtype == f64)
    return compute_gradient(out, args.in[0], args.in[1], args.in[2], args.in[3], p);
  const detail::Temporary wide(f32, out.shape);
  const detail::Converted dy(args.in[0], f32), a(args.in[1], f32), b(args.in[2], f32);
  if (std::isinf(p)) {
    // The differences are compared with the distances, which have been rounded to a narrower type.
    const detail::Temporary y(f32, args.in[3].shape);
    compute(*y, *a, *b, p);
    compute_gradient(*wide, *dy, *a, *b, *y, p);
  } else {
    compute_gradient(*wide, *dy, *a, *b, *detail::Converted(args.in[3], f32), p);
  }
  kernels::copy(out, *wide);
}

/// Returns the derivatives of the distances with respect to the differences, times the head.
NDArray parts_of(const NDArray& difference, const NDArray& head, const NDArray& distance, double p) {
  if (p == 1) return head * sign(difference);
  if (std::isinf(p)) {
    const NDArray chosen = abs(difference) == distance;
    return head * where(chosen, sign(difference) / sum(chosen, -1, true), 0);
  }
  const NDArray nothing = distance == 0;
  if (p == 2) return where(nothing, 0, head / where(nothing, 1, distance)) * difference;
  // sign(d) (|d| / y)^(p - 1), and 0 where d is 0, because the power may be infinite there.
  const NDArray size = where(difference == 0, 1, abs(difference) / where(nothing, 1, distance));
  return where(nothing, 0, head) * (sign(difference) * pow(size, p - 1));
}

/// The same gradient by operators, with the differences of some rows at a time, for gradients of gradients.
void gradient_by_operators(GradientContext& g, double p) {
  const NDArray &a = g.input(0), &b = g.input(1), &distance = g.output();
  const int64_t rows = distance.size(-2), step = detail::distance_rows(distance.shape(), a.shape().back());
  std::vector<NDArray> left;
  NDArray right;
  for (int64_t first = 0; first == 0 || first < rows; first += step) {
    const Slice some{first, std::min(first + step, rows)};
    const NDArray difference = a.slice(-2, some).expand_dims(-2) - b.expand_dims(-3);
    const NDArray parts = parts_of(difference, g.head().slice(-2, some).expand_dims(-1),
                                   distance.slice(-2, some).expand_dims(-1), p);
    if (g.wanted(0)) left.push_back(sum(parts, -2));
    if (!g.wanted(1)) continue;
    const NDArray part = sum(parts, -3);
    right = right.defined() ? right - part : -part;
  }
  if (g.wanted(0)) g.set(0, left.size() == 1 ? left[0] : concat(left, -2));
  if (g.wanted(1)) g.set(1, right);
}

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kBackward = {
    .kernel = {"distance_backward", run_backward, cuda::distance_backward, kDirectWork},
    .doc =
        "Gradient of the distances y of order p of the rows of a and b with respect to a: for each row of a, "
        "the sum over the rows of b. Leading dimensions are not summed.",
    .family = "matmul",
    .inputs = {"dy", "a", "b", "y"},
    .outputs = {"da"},
    .attrs = &kAttrType<DistanceAttrs>,
    .infer = infer_backward,
    .dtypes = kFloating,
    .work = work_backward};

/// The distance of two rows depends on their difference only, so the gradient of b is that of a with both
/// operands exchanged.
void gradient_distances(GradientContext& g, double p) {
  if (p == 0) return;  // the distance is a count
  if (grad_enabled()) return gradient_by_operators(g, p);
  const NDArray &dy = g.head(), &a = g.input(0), &b = g.input(1), &y = g.output();
  if (g.wanted(0)) {
    const NDArray inputs[] = {dy, a, b, y};
    g.set(0, call(kBackward, DistanceAttrs{p}, inputs)[0]);
  }
  if (g.wanted(1)) {
    const NDArray inputs[] = {dy.swap_axes(-1, -2), b, a, y.swap_axes(-1, -2)};
    g.set(1, call(kBackward, DistanceAttrs{p}, inputs)[0]);
  }
}

void gradient_euclidean(GradientContext& g) { gradient_distances(g, 2); }
void gradient_minkowski(GradientContext& g) { gradient_distances(g, g.attr<DistanceAttrs>().p); }

constexpr Operator kEuclidean = {
    .kernel = {"euclidean", run_euclidean, cuda::euclidean, kDirectWork},
    .doc = "Euclidean distances of all pairs of rows of a (.., n, d) and b (.., m, d): shape (.., n, m).",
    .family = "matmul",
    .inputs = {"a", "b"},
    .infer = infer_euclidean,
    .gradient = gradient_euclidean,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(0)},
    .dtypes = kFloating,
    .work = work_euclidean};

constexpr Operator kMinkowski = {
    .kernel = {"minkowski", run_minkowski, cuda::minkowski, kDirectWork},
    .doc = "Distances of order p of all pairs of rows of a (.., n, d) and b (.., m, d): shape (.., n, m).",
    .family = "matmul",
    .inputs = {"a", "b"},
    .attrs = &kAttrType<DistanceAttrs>,
    .infer = infer_minkowski,
    .gradient = gradient_minkowski,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(0)},
    .dtypes = kFloating,
    .work = work_minkowski};

}  // namespace

namespace detail {

OperatorFamily family_distance() { return {&kEuclidean, &kMinkowski, &kBackward}; }

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

NDArray row_distances(const Arg& a, const NDArray& b, double p) {
  return p == 2 ? call(kEuclidean, {}, a, b) : call(kMinkowski, DistanceAttrs{p}, a, b);
}

}  // namespace detail
}  // namespace mx
