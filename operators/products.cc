#include "operators/products.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/distance.h"
#include "operators/elementwise_binary.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"

namespace mx {
namespace {

/// x as a matrix: the dimensions `axes` are joined into one dimension, all others into the other one.
struct Folded {
  NDArray matrix;  // (others, axes), or (axes, others)
  Shape others;
};

Folded fold_axes(const NDArray& x, const Shape& axes, bool axes_last, std::source_location where) {
  Shape order, others;
  bool contracted[kMaxRank] = {};
  int64_t rows = 1, terms = 1;
  for (int64_t axis : axes) {
    const int d = normalize_axis(axis, x.rank(), "tensordot");
    MX_CHECK(!contracted[d], InvalidArgument, "[tensordot] expected each axis once, got ", axes);
    contracted[d] = true;
    terms *= x.shape()[d];
  }
  if (!axes_last)
    for (int64_t axis : axes) order.push_back(normalize_axis(axis, x.rank(), "tensordot"));
  for (int d = 0; d < x.rank(); ++d) {
    if (contracted[d]) continue;
    order.push_back(d);
    others.push_back(x.shape()[d]);
    rows *= x.shape()[d];
  }
  if (axes_last)
    for (int64_t axis : axes) order.push_back(normalize_axis(axis, x.rank(), "tensordot"));
  const NDArray turned = x.rank() == 0 ? x : x.transpose(order);
  return {turned.reshape(axes_last ? Shape{rows, terms} : Shape{terms, rows}, where), others};
}

Shape joined_shapes(const Shape& a, const Shape& b, const char* op) {
  MX_CHECK(a.rank() + b.rank() <= kMaxRank, InvalidArgument, "[", op, "] expected a result of rank ",
           kMaxRank, " at most, got dimensions ", a, " and ", b);
  Shape all = a;
  for (int64_t size : b) all.push_back(size);
  return all;
}

}  // namespace

NDArray tensordot(const Arg& a, const NDArray& b, const Shape& axes_a, const Shape& axes_b) try {
  const NDArray& x = a.array;
  MX_CHECK(axes_a.rank() == axes_b.rank(), InvalidArgument,
           "[tensordot] expected as many axes of a as of b, got ", axes_a, " and ", axes_b);
  for (int i = 0; i < axes_a.rank(); ++i)
    MX_CHECK(x.size(axes_a[i]) == b.size(axes_b[i]), InvalidArgument,
             "[tensordot] expected equal sizes of the axes ", axes_a, " of a and ", axes_b, " of b, got ",
             x.shape(), " and ", b.shape());
  const Folded left = fold_axes(x, axes_a, true, a.where), right = fold_axes(b, axes_b, false, a.where);
  const Shape shape = joined_shapes(left.others, right.others, "tensordot");
  return matmul({left.matrix, a.where}, right.matrix).reshape(shape, a.where);
} catch (const Error&) {
  detail::rethrow_at(a.where);
}

NDArray tensordot(const Arg& a, const NDArray& b, IntArg axes) try {
  const int rank = a.array.rank();
  MX_CHECK(axes >= 0 && axes <= rank && axes <= b.rank(), InvalidArgument,
           "[tensordot] expected a number of axes from 0 to the smaller rank, got ", axes, " for shapes ",
           a.array.shape(), " and ", b.shape());
  Shape last, first;
  for (int64_t i = 0; i < axes; ++i) {
    last.push_back(rank - axes + i);
    first.push_back(i);
  }
  return tensordot(a, b, last, first);
} catch (const Error&) {
  detail::rethrow_at(a.where);
}

NDArray inner(const Arg& a, const NDArray& b) try {
  if (a.array.rank() == 0 || b.rank() == 0) return mul({a.array, a.where}, b);
  MX_CHECK(a.array.shape().back() == b.shape().back(), InvalidArgument,
           "[inner] expected last dimensions of the same size, got shapes ", a.array.shape(), " and ",
           b.shape());
  return tensordot(a, b, Shape{-1}, Shape{-1});
} catch (const Error&) {
  detail::rethrow_at(a.where);
}

NDArray kron(const Arg& a, const NDArray& b) try {
  const int rank = std::max(a.array.rank(), b.rank());
  MX_CHECK(2 * rank <= kMaxRank, InvalidArgument, "[kron] expected arrays of rank ", kMaxRank / 2,
           " at most, got shapes ", a.array.shape(), " and ", b.shape());
  Shape outer, inside, product;
  const auto size = [rank](const NDArray& x, int d) {
    const int own = d - (rank - x.rank());
    return own < 0 ? int64_t{1} : x.shape()[own];
  };
  for (int d = 0; d < rank; ++d) {
    const int64_t m = size(a.array, d), n = size(b, d);
    outer.push_back(m);
    outer.push_back(1);
    inside.push_back(1);
    inside.push_back(n);
    int64_t both = 0;
    MX_CHECK(!__builtin_mul_overflow(m, n, &both), InvalidArgument,
             "[kron] expected sizes whose product is below 2^63, got ", m, " and ", n);
    product.push_back(both);
  }
  return mul({a.array.reshape(outer, a.where), a.where}, b.reshape(inside, a.where))
      .reshape(product, a.where);
} catch (const Error&) {
  detail::rethrow_at(a.where);
}

NDArray cross(const Arg& a, const NDArray& b, IntArg axis) try {
  const NDArray pair[] = {a.array, b};
  for (const NDArray& x : pair)
    MX_CHECK(x.rank() > 0 && x.size(axis) == 3, InvalidArgument,
             "[cross] expected vectors of 3 elements along axis ", axis, ", got shapes ", a.array.shape(),
             " and ", b.shape());
  const std::vector<NDArray> wide = broadcast_arrays(pair);
  const NDArray &x = wide[0], &y = wide[1];
  MX_CHECK(x.size(axis) == 3, InvalidArgument,
           "[cross] expected an axis that is the same dimension of both arrays after broadcasting, got axis ",
           axis, " of shapes ", a.array.shape(), " and ", b.shape());
  std::vector<NDArray> parts;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    parts.push_back(sub({mul({x.select(axis, j), a.where}, y.select(axis, k)), a.where},
                        mul({x.select(axis, k), a.where}, y.select(axis, j))));
  }
  return stack(parts, axis, a.where);
} catch (const Error&) {
  detail::rethrow_at(a.where);
}

NDArray trace(const Arg& x, IntArg offset, IntArg axis1, IntArg axis2) try {
  MX_CHECK(x.array.rank() >= 2, InvalidArgument, "[trace] expected an array of rank 2 or more, got shape ",
           x.array.shape());
  return sum({x.array.diagonal(offset, axis1, axis2), x.where}, -1);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray cdist(const Arg& a, const NDArray& b, double p) try {
  const NDArray& x = a.array;
  MX_CHECK(p >= 0, InvalidArgument, "[cdist] expected a p of 0 or more, got ", p);
  const Shape shape = detail::distance_shape(x.shape(), b.shape(), "cdist");
  const DType type = promote(x.dtype(), b.dtype());
  if (is_floating(type)) return detail::row_distances({x.to(type, a.where), a.where}, b.to(type, a.where), p);
  const NDArray columns = b.expand_dims(-3);
  const int64_t rows = x.size(-2);
  const auto distances = [&](const NDArray& some) {
    return norm({sub({some.expand_dims(-2), a.where}, columns), a.where}, p, -1);
  };
  const int64_t step = detail::distance_rows(shape, b.size(-1));
  if (rows <= step) return distances(x);
  std::vector<NDArray> parts;
  for (int64_t first = 0; first < rows; first += step)
    parts.push_back(distances(x.slice(-2, {first, std::min(first + step, rows)})));
  return concat(parts, -2, a.where);
} catch (const Error&) {
  detail::rethrow_at(a.where);
}

}  // namespace mx
