// Sources of the formulas: M. Giles, "An extended collection of matrix derivative results for forward and
// reverse mode automatic differentiation" (Oxford, 2008); for QR, S. Walter and L. Lehmann, "Algorithmic
// differentiation of linear algebra functions with application in optimum experimental design"
// (arXiv:1001.1654); for the pseudoinverse, G. Golub and V. Pereyra (SIAM J. Numer. Anal. 10:2, 1973).
//
// Below, a' is the transposed a, and a name in capitals is the gradient of the loss with respect to it.
#include "operators/linalg_gradient.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/linalg.h"
#include "operators/linalg_records.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/scan.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx::detail {
namespace {

NDArray turned(const NDArray& x) { return x.swap_axes(-2, -1); }
NDArray rows_of(const NDArray& v) { return v.expand_dims(-1); }     // scales rows of a matrix
NDArray columns_of(const NDArray& v) { return v.expand_dims(-2); }  // scales columns

NDArray upper_solve(const NDArray& u, const NDArray& b, bool unit = false) {
  return linalg::solve_triangular(u, b, {.upper = true, .unitriangular = unit});
}
/// b u'^-1 for an upper triangle u.
NDArray times_inverse_turned(const NDArray& b, const NDArray& u) { return turned(upper_solve(u, turned(b))); }

NDArray identity(int64_t n, const NDArray& like) { return eye(n, n, like.dtype(), like.context()); }

/// The lower triangle of x, copied to the upper one.
NDArray mirrored(const NDArray& x) { return tril(x) + turned(tril(x, -1)); }

NDArray symmetric(const NDArray& x) { return (x + turned(x)) * 0.5; }

/// 1 / (v[j] - v[i]) for i != j, and 1 on the diagonal.
NDArray gaps(const NDArray& v) { return columns_of(v) - rows_of(v) + identity(v.shape().back(), v); }

/// The matrices of x without the diagonal.
NDArray off_diagonal(const NDArray& x) { return tril(x, -1) + triu(x, 1); }

/// The gradient of a with respect to q and r of a = q r, for matrices with at least as many rows as columns.
NDArray qr_of_tall(const NDArray& q, const NDArray& r, const NDArray& head_q, const NDArray& head_r) {
  const NDArray m = matmul(r, turned(head_r)) - matmul(turned(head_q), q);
  return times_inverse_turned(head_q + matmul(q, mirrored(m)), r);
}

/// At [i][j], i != j: the product of all elements of s but i and j. On the diagonal: 0.
NDArray products_without_two(const NDArray& s) {
  const int64_t n = s.shape().back();
  const NDArray right = triu(ones({n, n}, s.dtype(), s.context()), 1);
  const NDArray before = cumprod(s, -1, true), after = cumprod(s, -1, true, true);
  // At [i][j]: of the elements between i and j.
  const NDArray between = cumprod(columns_of(s) * right + (1 - right), -1, true);
  const NDArray upper = triu(rows_of(before) * between * columns_of(after), 1);
  return upper + turned(upper);
}

/// The gradient of a with respect to its cofactors, by a = u diag(s) v', without a division. In the basis of
/// u and v, the cofactor at [i][i] depends on each a[k][k], and that at [i][j] on a[j][i].
NDArray cofactor_gradient_values(const NDArray& a, const NDArray& head) {
  const NoGrad off;
  const auto [u, s, vh] = linalg::svd(a);
  const NDArray others = products_without_two(s);
  const NDArray turned_head = matmul(matmul(turned(u), head), turned(vh));
  const NDArray unit = identity(s.shape().back(), s);
  const NDArray diagonal = matmul(others, rows_of(sum(turned_head * unit, -1)));
  const NDArray inner = diagonal * unit - others * turned(turned_head);
  const NDArray signs = sign(linalg::det(u) * linalg::det(vh));
  return columns_of(rows_of(signs)) * matmul(matmul(u, inner), vh);
}

NDArray pinv_gradient(const NDArray& a, const NDArray& p, const NDArray& head) {
  const NDArray turned_head = turned(head), left = matmul(turned_head, matmul(p, turned(p))),
                right = matmul(matmul(turned(p), p), turned_head);
  return left - matmul(a, matmul(p, left)) + right - matmul(matmul(right, p), a) -
         matmul(matmul(turned(p), head), turned(p));
}

}  // namespace

// x = a^-1 b
void gradient_solve(GradientContext& g) {
  const NDArray right = linalg::solve(turned(g.input(0)), g.head());
  if (g.wanted(0)) g.set(0, -matmul(right, turned(g.output())));
  if (g.wanted(1)) g.set(1, right);
}

void gradient_solve_triangular(GradientContext& g) {
  const auto& attrs = g.attr<TriangularAttrs>();
  const NDArray right = linalg::solve_triangular(
      turned(g.input(0)), g.head(), {.upper = !attrs.upper, .unitriangular = attrs.unitriangular});
  if (g.wanted(1)) g.set(1, right);
  if (!g.wanted(0)) return;
  const NDArray whole = -matmul(right, turned(g.output()));
  const int64_t k = attrs.unitriangular ? 1 : 0;
  g.set(0, attrs.upper ? triu(whole, k) : tril(whole, -k));
}

void gradient_inv(GradientContext& g) {
  const NDArray y = turned(g.output());
  g.set(0, -matmul(matmul(y, g.head()), y));
}

void gradient_det(GradientContext& g) { g.set(0, columns_of(rows_of(g.head())) * cofactor(g.input(0))); }

// For an invertible a, with c = det(a) a^-1', it is (sum(C c) - c C') a^-1'. That loses digits where a is
// nearly singular, so the values come from the singular values. If the result is differentiated again, its
// derivative is that of the formula with the inverse.
void gradient_cofactor(GradientContext& g) {
  const NDArray &a = g.input(0), &c = g.output(), &head = g.head();
  const NDArray values = cofactor_gradient_values(a, head);
  if (!grad_enabled()) return g.set(0, values);
  const NDArray total = sum(head * c, {-2, -1}, true);
  const NDArray inverse = turned(linalg::inv(a));
  const NDArray differentiable = total * inverse - matmul(matmul(c, turned(head)), inverse);
  g.set(0, values + (differentiable - differentiable.detach()));
}

void gradient_slogdet(GradientContext& g) {
  if (!g.head(1).defined()) return;  // the sign is constant wherever the logarithm has a derivative
  g.set(0, columns_of(rows_of(g.head(1))) * turned(linalg::inv(g.input(0))));
}

// With the rows of a exchanged: a = l u. A square a has A = l'^-1 (tril(l' L, -1) + triu(U u')) u'^-1. Of a
// wide a the further columns are l times those of u; of a tall one the further rows are those of l times u.
void gradient_lu_factor(GradientContext& g) {
  if (!g.head(0).defined()) return;
  const NDArray &lu = g.output(0), &head = g.head(0);
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const auto part = [](const NDArray& x, const Slice& rows, const Slice& columns) {
    return x.slice(-2, rows).slice(-1, columns);
  };
  const Slice first{0, k}, later{k, {}};
  const NDArray square = part(lu, first, first), u = triu(square), l = tril(square, -1);
  NDArray head_l = tril(part(head, first, first), -1), head_u = triu(part(head, first, first)), more;
  if (n > m) {
    more = upper_solve(turned(l), part(head, first, later), true);
    head_l = head_l - tril(matmul(more, turned(part(lu, first, later))), -1);
  } else if (m > n) {
    more = times_inverse_turned(part(head, later, first), u);
    head_u = head_u - triu(matmul(turned(part(lu, later, first)), more));
  }
  const NDArray whole_l = l + identity(k, l);
  const NDArray middle = tril(matmul(turned(whole_l), head_l), -1) + triu(matmul(head_u, turned(u)));
  NDArray result = times_inverse_turned(upper_solve(turned(l), middle, true), u);
  if (more.defined()) result = mx::concat(result, more, n > m ? -1 : -2);
  const NDArray back = argsort(g.output(2)).expand_dims(-1).broadcast_to(result.shape());
  g.set(0, take_along_axis(result, back, -2));
}

void gradient_cholesky(GradientContext& g) {
  const bool upper = g.attr<SymmetricAttrs>().upper;
  const NDArray l = upper ? turned(g.output()) : g.output(), head = upper ? turned(g.head()) : g.head();
  const NDArray middle = mirrored(matmul(turned(l), tril(head)));
  // l'^-1 middle l^-1
  const NDArray half = upper_solve(turned(l), middle);
  g.set(0, symmetric(times_inverse_turned(half, turned(l))) * 0.5);
}

void gradient_qr(GradientContext& g) {
  const NDArray &q = g.output(0), &r = g.output(1);
  const int64_t m = q.size(-2), n = r.size(-1);
  MX_CHECK(m <= n || q.size(-1) == n, InvalidArgument,
           "[linalg_qr] expected no gradient of a complete decomposition of a matrix with more rows than "
           "columns, whose further columns of q are not unique; got one for shape ",
           g.input_shape(0));
  const NDArray head_q = g.head_or_zeros(0), head_r = g.head_or_zeros(1);
  if (m >= n) return g.set(0, qr_of_tall(q, r, head_q, head_r));
  // The first m columns are a square matrix with the same q; the others are q times those of r.
  const Slice first{0, m}, later{m, {}};
  const NDArray more = r.slice(-1, later), head_more = head_r.slice(-1, later);
  const NDArray whole_q = head_q + matmul(matmul(q, more), turned(head_more));
  g.set(0, mx::concat(qr_of_tall(q, r.slice(-1, first), whole_q, head_r.slice(-1, first)),
                      matmul(q, head_more), -1));
}

void gradient_svd(GradientContext& g) {
  const NDArray& s = g.output(1);
  const int64_t k = s.size(-1);
  NDArray u = g.output(0), vh = g.output(2), middle;
  const bool vectors = g.head(0).defined() || g.head(2).defined();
  MX_CHECK(!vectors || (u.size(-1) == k && vh.size(-2) == k), InvalidArgument,
           "[linalg_svd] expected a gradient of s alone, or full_matrices = false, because further columns "
           "of u and rows of vh are not unique; got a gradient of them for shape ",
           g.input_shape(0));
  u = u.slice(-1, Slice{0, k});
  vh = vh.slice(-2, Slice{0, k});
  const NDArray head_s = rows_of(g.head_or_zeros(1));
  if (!vectors) return g.set(0, matmul(u, head_s * vh));
  const NDArray head_u = g.head_or_zeros(0), head_vh = g.head_or_zeros(2);
  const NDArray squares = gaps(s) * (columns_of(s) + rows_of(s)) + identity(k, s) * (1 - 2 * columns_of(s));
  const NDArray uu = matmul(turned(u), head_u), vv = matmul(vh, turned(head_vh));
  middle = (uu - turned(uu)) / squares * columns_of(s) + rows_of(s) * ((vv - turned(vv)) / squares);
  NDArray result = matmul(u, matmul(middle, vh) + head_s * vh);
  if (u.size(-2) > k) result = result + matmul((head_u - matmul(u, uu)) / columns_of(s), vh);
  if (vh.size(-1) > k) result = result + matmul(u, (head_vh - matmul(turned(vv), vh)) / rows_of(s));
  g.set(0, result);
}

void gradient_svdvals(GradientContext& g) {
  const auto [u, s, vh] = linalg::svd(g.input(0), false);
  g.set(0, matmul(u, rows_of(g.head()) * vh));
}

void gradient_eigh(GradientContext& g) {
  const NDArray &w = g.output(0), &v = g.output(1);
  NDArray middle = rows_of(g.head_or_zeros(0)) * turned(v);
  if (g.head(1).defined()) {
    const NDArray change = off_diagonal(matmul(turned(v), g.head(1))) / gaps(w);
    middle = middle + matmul(change, turned(v));
  }
  g.set(0, symmetric(matmul(v, middle)));
}

void gradient_eigvalsh(GradientContext& g) {
  const NDArray v = linalg::eigh(g.input(0), g.attr<SymmetricAttrs>().upper).eigenvectors;
  g.set(0, matmul(v, rows_of(g.head()) * turned(v)));
}

void gradient_pinv(GradientContext& g) { g.set(0, pinv_gradient(g.input(0), g.output(), g.head())); }

// x = a^+ b
void gradient_lstsq(GradientContext& g) {
  const NDArray& a = g.input(0);
  NDArray head_a;
  if (g.head(2).defined()) {
    const auto [u, s, vh] = linalg::svd(a, false);
    head_a = matmul(u, rows_of(g.head(2)) * vh);
  }
  if (g.head(0).defined()) {
    const NDArray p = linalg::pinv(a, g.attr<RankAttrs>().rtol);
    if (g.wanted(1)) g.set(1, matmul(turned(p), g.head(0)));
    if (g.wanted(0)) {
      const NDArray of_x = pinv_gradient(a, p, matmul(g.head(0), turned(g.input(1))));
      head_a = head_a.defined() ? head_a + of_x : of_x;
    }
  }
  if (g.wanted(0) && head_a.defined()) g.set(0, head_a);
}

// The exponential of the blocks (a', G; 0, a') has the derivative of a', in the direction of G, as its upper
// right block.
void gradient_matrix_exp(GradientContext& g) {
  const NDArray a = turned(g.input(0));
  const int64_t n = a.size(-1);
  const NDArray both =
      linalg::matrix_exp(mx::concat(mx::concat(a, g.head(), -1), mx::concat(zeros_like(a), a, -1), -2));
  g.set(0, both.slice(-2, Slice{0, n}).slice(-1, Slice{n, {}}));
}

}  // namespace mx::detail
