// Functions of linear algebra that call other operators.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/linalg.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx::linalg {
namespace {

using mx::detail::called_at;

void check_square(const Arg& a, const char* op) {
  const Shape& shape = a.array.shape();
  MX_CHECK(shape.rank() >= 2 && shape[-1] == shape[-2], InvalidArgument, "[", op,
           "] expected square matrices (.., n, n), got shape ", shape, called_at(a.where));
}

NDArray identity_like(const NDArray& a) {
  const int64_t n = a.size(-1);
  return eye(n, n, a.dtype(), a.context());
}

/// Moves two axes to the end, as rows and columns.
NDArray as_matrices(const Arg& x, const Shape& axes, Shape& kept, const char* op) {
  const int rank = x.array.rank();
  MX_CHECK(axes.rank() == 2, InvalidArgument, "[", op, "] expected two axes, got ", axes, called_at(x.where));
  const int row = normalize_axis(axes[0], rank, op), column = normalize_axis(axes[1], rank, op);
  MX_CHECK(row != column, InvalidArgument, "[", op, "] expected two different axes, got ", axes,
           called_at(x.where));
  kept = x.array.shape();
  kept[row] = kept[column] = 1;
  Shape order;
  for (int d = 0; d < rank; ++d)
    if (d != row && d != column) order.push_back(d);
  order.push_back(row);
  order.push_back(column);
  return x.array.transpose(order);
}

/// The order in which a chain of matrices is multiplied: the matrices of [first, last] are divided after
/// split[first][last] (Cormen et al., "Introduction to Algorithms", matrix-chain multiplication).
std::vector<std::vector<size_t>> chain_order(const std::vector<double>& sizes) {
  const size_t n = sizes.size() - 1;
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> split(n, std::vector<size_t>(n, 0));
  for (size_t length = 1; length < n; ++length)
    for (size_t first = 0; first + length < n; ++first) {
      const size_t last = first + length;
      cost[first][last] = std::numeric_limits<double>::infinity();
      for (size_t middle = first; middle < last; ++middle) {
        const double total =
            cost[first][middle] + cost[middle + 1][last] + sizes[first] * sizes[middle + 1] * sizes[last + 1];
        if (total < cost[first][last]) {
          cost[first][last] = total;
          split[first][last] = middle;
        }
      }
    }
  return split;
}

}  // namespace

NDArray cholesky_inverse(const Arg& l, bool upper) {
  check_square(l, "linalg_cholesky_inverse");
  return cholesky_solve({identity_like(l.array), l.where}, l.array, upper);
}

NDArray lu_solve(const LuFactors& factors, const NDArray& b, std::source_location where) try {
  const NDArray& lu = factors.lu;
  check_square({lu, where}, "linalg_lu_solve");
  const bool vector = b.rank() == 1;
  NDArray right = vector ? b.expand_dims(-1) : b;
  MX_CHECK(right.rank() >= 2 && right.size(-2) == lu.size(-1), InvalidArgument,
           "[linalg_lu_solve] expected factors (.., n, n) and b (.., n, k), got shapes ", lu.shape(), " and ",
           b.shape(), called_at(where));
  Shape stack = lu.shape(), other = right.shape();
  stack.resize(stack.rank() - 2);
  other.resize(other.rank() - 2);
  Shape shape = broadcast_shapes(stack, other, "linalg_lu_solve");
  shape.push_back(right.size(-2));
  shape.push_back(right.size(-1));
  right = take_along_axis({right.broadcast_to(shape), where},
                          factors.permutation.expand_dims(-1).broadcast_to(shape), -2);
  const NDArray y = solve_triangular({lu, where}, right, {.unitriangular = true});
  const NDArray x = solve_triangular({lu, where}, y, {.upper = true});
  return vector ? x.squeeze(-1) : x;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

LuResult lu(const Arg& a) {
  const LuFactors factors = lu_factor(a);
  const int64_t m = a.array.size(-2), n = a.array.size(-1), k = std::min(m, n);
  const NDArray left = factors.lu.slice(-1, Slice{0, k}), right = factors.lu.slice(-2, Slice{0, k});
  // Row permutation[i] of a is row i of l u, so p has its 1 of that row in column i.
  const NDArray p = one_hot(factors.permutation, m, a.array.dtype()).swap_axes(-2, -1);
  return {p, tril(left, -1) + eye(m, k, left.dtype(), left.context()), triu(right)};
}

NDArray matrix_rank(const Arg& a, RealArg rtol) {
  const NDArray s = svdvals(a);
  double tolerance = rtol;
  if (tolerance < 0)
    tolerance = static_cast<double>(std::max(a.array.size(-2), a.array.size(-1))) *
                (s.dtype() == f32 ? static_cast<double>(std::numeric_limits<float>::epsilon())
                                  : std::numeric_limits<double>::epsilon());
  if (s.size(-1) == 0) return count_nonzero(s, -1);
  return count_nonzero(s > s.slice(-1, Slice{0, 1}) * tolerance, -1);
}

NDArray cond(const Arg& a) {
  const NDArray s = svdvals(a);
  MX_CHECK(s.size(-1) > 0, InvalidArgument, "[linalg_cond] expected matrices with elements, got shape ",
           a.array.shape(), called_at(a.where));
  return s.select(-1, 0) / s.select(-1, s.size(-1) - 1);
}

NDArray cond(const Arg& a, RealArg p) {
  MX_CHECK(a.array.numel() > 0, InvalidArgument, "[linalg_cond] expected matrices with elements, got shape ",
           a.array.shape(), called_at(a.where));
  return matrix_norm(a, p) * matrix_norm({inv(a), a.where}, p);
}

NDArray matrix_power(const Arg& a, IntArg n) {
  check_square(a, "linalg_matrix_power");
  const int64_t power = n;
  MX_CHECK(power != std::numeric_limits<int64_t>::min(), InvalidArgument,
           "[linalg_matrix_power] expected an exponent whose negative is an integer too, got ", power,
           called_at(a.where));
  if (power == 0) {
    // Of the operand no element is chosen, but the result is recorded, and its gradient is 0.
    const NDArray none = zeros({}, bool_, a.array.context(), a.where);
    return where({none, a.where}, a.array, identity_like(a.array));
  }
  NDArray square = power < 0 ? inv(a) : a.array, result;
  for (int64_t rest = std::abs(power);; rest /= 2) {
    if (rest % 2 == 1) result = result.defined() ? matmul({result, a.where}, square) : square;
    if (rest <= 1) break;
    square = matmul({square, a.where}, square);
  }
  return power == 1 ? result.clone() : result;
}

NDArray multi_dot(std::span<const NDArray> arrays, std::source_location where) {
  const size_t n = arrays.size();
  MX_CHECK(n >= 1, InvalidArgument, "[linalg_multi_dot] expected at least one array, got none",
           called_at(where));
  std::vector<NDArray> matrices(arrays.begin(), arrays.end());
  if (n == 1) return matrices[0].clone();
  const bool row = matrices[0].rank() == 1, column = matrices[n - 1].rank() == 1;
  if (row) matrices[0] = matrices[0].expand_dims(0);
  if (column) matrices[n - 1] = matrices[n - 1].expand_dims(1);
  std::vector<double> sizes;
  for (size_t i = 0; i < n; ++i) {
    MX_CHECK(matrices[i].rank() == 2, InvalidArgument, "[linalg_multi_dot] expected matrices",
             i == 0 || i + 1 == n ? " or vectors" : "", ", got shape ", arrays[i].shape(), " for array ", i,
             called_at(where));
    MX_CHECK(i == 0 || matrices[i - 1].size(1) == matrices[i].size(0), InvalidArgument,
             "[linalg_multi_dot] expected arrays ", i - 1, " and ", i, " to fit each other, got shapes ",
             arrays[i > 0 ? i - 1 : 0].shape(), " and ", arrays[i].shape(), called_at(where));
    sizes.push_back(static_cast<double>(matrices[i].size(0)));
  }
  sizes.push_back(static_cast<double>(matrices[n - 1].size(1)));
  const std::vector<std::vector<size_t>> split = chain_order(sizes);
  const std::function<NDArray(size_t, size_t)> multiply = [&](size_t first, size_t last) {
    if (first == last) return matrices[first];
    const size_t middle = split[first][last];
    return matmul({multiply(first, middle), where}, multiply(middle + 1, last));
  };
  NDArray result = multiply(0, n - 1);
  if (column) result = result.squeeze(1);
  return row ? result.squeeze(0) : result;
}
NDArray multi_dot(std::initializer_list<NDArray> arrays, std::source_location where) {
  return multi_dot(std::span(arrays.begin(), arrays.size()), where);
}

NDArray vecdot(const Arg& a, const NDArray& b, IntArg axis) { return sum(mul({a.array, a.where}, b), axis); }

NDArray tensorsolve(const Arg& a, const NDArray& b) {
  const Shape& shape = a.array.shape();
  bool fits = shape.rank() >= b.rank();
  for (int d = 0; fits && d < b.rank(); ++d) fits = shape[d] == b.shape()[d];
  Shape rest;
  for (int d = b.rank(); fits && d < shape.rank(); ++d) rest.push_back(shape[d]);
  MX_CHECK(fits && rest.numel() == b.numel(), InvalidArgument,
           "[linalg_tensorsolve] expected an a of b's shape followed by dimensions of as many elements, got "
           "shapes ",
           shape, " and ", b.shape(), called_at(a.where));
  return solve({a.array.reshape({b.numel(), b.numel()}), a.where}, b.flatten()).reshape(rest);
}

NDArray tensorinv(const Arg& a, IntArg ind) {
  const Shape& shape = a.array.shape();
  const int64_t first = ind;
  MX_CHECK(first > 0 && first <= shape.rank(), InvalidArgument, "[linalg_tensorinv] expected ind from 1 to ",
           shape.rank(), ", got ", first, called_at(a.where));
  int64_t rows = 1;
  Shape turned;
  for (int d = static_cast<int>(first); d < shape.rank(); ++d) turned.push_back(shape[d]);
  const int64_t columns = turned.numel();
  for (int d = 0; d < first; ++d) {
    rows *= shape[d];
    turned.push_back(shape[d]);
  }
  MX_CHECK(rows == columns, InvalidArgument, "[linalg_tensorinv] expected the first ", first,
           " dimensions to have as many elements as the others, got shape ", shape, called_at(a.where));
  return inv({a.array.reshape({rows, columns}), a.where}).reshape(turned);
}

NDArray vector_norm(const Arg& x, RealArg p, const Axes& axes, bool keep_dims) {
  return mx::norm(x, p, axes, keep_dims);
}

NDArray matrix_norm(const Arg& x, const std::string& kind, const Shape& axes, bool keep_dims) try {
  Shape kept;
  const NDArray matrices = as_matrices(x, axes, kept, "linalg_matrix_norm");
  MX_CHECK(kind == "fro" || kind == "nuc", InvalidArgument,
           "[linalg_matrix_norm] expected \"fro\", \"nuc\" or a number, got \"", kind, '"',
           called_at(x.where));
  const NDArray y =
      kind == "fro" ? mx::norm({matrices, x.where}, 2, {-2, -1}) : sum(svdvals({matrices, x.where}), -1);
  return keep_dims ? y.reshape(kept) : y;
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray matrix_norm(const Arg& x, RealArg order, const Shape& axes, bool keep_dims) try {
  Shape kept;
  const NDArray matrices = as_matrices(x, axes, kept, "linalg_matrix_norm");
  const double p = order, size = std::abs(p);
  MX_CHECK(size == 1 || size == 2 || std::isinf(size), InvalidArgument,
           "[linalg_matrix_norm] expected p = 1, 2, infinity or the negative of one of them, got ", p,
           called_at(x.where));
  const NDArray sums =
      size == 2 ? svdvals({matrices, x.where}) : sum(abs({matrices, x.where}), size == 1 ? -2 : -1);
  const NDArray y = p > 0 ? max({sums, x.where}, -1) : min({sums, x.where}, -1);
  return keep_dims ? y.reshape(kept) : y;
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray norm(const Arg& x) { return mx::norm(x); }

NDArray norm(const Arg& x, RealArg p, const Axes& axes, bool keep_dims) {
  if (axes.rank() == 2) return matrix_norm(x, p, axes, keep_dims);
  if (axes.rank() == 0 && x.array.rank() == 2) return matrix_norm(x, p, {0, 1}, keep_dims);
  return vector_norm(x, p, axes, keep_dims);
}

NDArray norm(const Arg& x, const std::string& kind, const Axes& axes, bool keep_dims) {
  return matrix_norm(x, kind, axes.rank() == 0 ? Shape{-2, -1} : Shape(axes), keep_dims);
}

}  // namespace mx::linalg
