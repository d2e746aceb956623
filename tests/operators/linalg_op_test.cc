// What defines the results of linear algebra: products that give the operands back, orthonormal columns,
// triangles and signs, for sizes below and above those at which the algorithms divide a matrix.
#include "operators/linalg.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::kNan;
using test::numbers;
using test::Values;

NDArray turned(const NDArray& x) { return x.swap_axes(-2, -1); }
NDArray identity(int64_t n, DType dtype) { return eye(n, n, dtype); }

/// Matrices with singular values far from 0.
NDArray well_conditioned(const Shape& shape, DType dtype, uint64_t seed = 1) {
  const int64_t n = shape.back();
  return numbers(shape, dtype, seed) + identity(n, dtype) * (2 * std::sqrt(static_cast<double>(n)) + 1);
}
NDArray positive_definite(const Shape& shape, DType dtype, uint64_t seed = 1) {
  const NDArray x = numbers(shape, dtype, seed);
  return matmul(x, turned(x)) + identity(shape.back(), dtype);
}

/// Compares a product with what it should be, both computed here, relative to the largest element.
void expect_equal(const NDArray& want, const NDArray& got, const std::string& what, double scale = 1) {
  ASSERT_EQ(want.shape(), got.shape()) << what;
  const double size = want.numel() == 0 ? 0 : max(abs(want)).item<double>();
  const double bound = (want.dtype() == f32 ? 3e-5 : 1e-12) * scale * std::max(1., size);
  const Values x = test::values(want), y = test::values(got);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], bound) << what << " [" << i << ']';
}

const std::vector<int64_t> kSizes = {1, 2, 5, 16, 17, 33, 70, 150};

void each_type(const std::function<void(DType)>& f) {
  for (const DType dtype : {f32, f64}) {
    SCOPED_TRACE(to_string(dtype));
    f(dtype);
  }
}

TEST(Linalg, SolutionsTimesTheMatrixAreTheRightSide) {
  each_type([](DType dtype) {
    for (const int64_t n : kSizes) {
      const NDArray a = well_conditioned({n, n}, dtype), b = numbers({n, 3}, dtype, 2);
      expect_equal(b, matmul(a, linalg::solve(a, b)), "solve");
      expect_equal(b.select(1, 0), matmul(a, linalg::solve(a, b.select(1, 0))), "solve for a vector");
      expect_equal(identity(n, dtype), matmul(a, linalg::inv(a)), "inv");
      expect_equal(b, matmul(a, linalg::lu_solve(linalg::lu_factor(a), b)), "lu_solve");
      const NDArray p = positive_definite({n, n}, dtype);
      for (const bool upper : {false, true}) {
        const NDArray l = linalg::cholesky(p, upper);
        expect_equal(p, upper ? matmul(turned(l), l) : matmul(l, turned(l)), "cholesky");
        expect_equal(upper ? triu(l) : tril(l), l, "the triangle", 0);
        expect_equal(b, matmul(p, linalg::cholesky_solve(b, l, upper)), "cholesky_solve", 100);
        const NDArray t = upper ? triu(a) : tril(a);
        expect_equal(b, matmul(t, linalg::solve_triangular(a, b, {.upper = upper})), "triangular");
        expect_equal(turned(b),
                     matmul(linalg::solve_triangular(a, turned(b), {.upper = upper, .left = false}), t),
                     "triangular from the right");
        // Small elements beside a diagonal of 1, so that the solution stays small.
        const NDArray small = a / static_cast<double>(n),
                      unit = (upper ? triu(small, 1) : tril(small, -1)) + identity(n, dtype);
        expect_equal(
            b, matmul(unit, linalg::solve_triangular(small, b, {.upper = upper, .unitriangular = true})),
            "triangular with a diagonal of 1");
      }
    }
    const NDArray p = positive_definite({2, 6, 6}, dtype);
    expect_equal(identity(6, dtype).broadcast_to({2, 6, 6}),
                 matmul(p, linalg::cholesky_inverse(linalg::cholesky(p))), "cholesky_inverse", 10);
  });
}

TEST(Linalg, StacksBroadcastAndHaveTheBitsOfEachMatrix) {
  const NDArray a = well_conditioned({3, 1, 4, 4}, f64), b = numbers({2, 4, 5}, f64, 2);
  const NDArray x = linalg::solve(a, b);
  ASSERT_EQ((Shape{3, 2, 4, 5}), x.shape());
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 2; ++j) {
      const NDArray one = x[{i, j}];
      EXPECT_EQ(test::values(linalg::solve(a[{i, 0}], b[j])), test::values(one));
    }
  // Many small matrices, so that several threads take part.
  const NDArray many = well_conditioned({4000, 3, 3}, f64);
  expect_equal(identity(3, f64).broadcast_to({4000, 3, 3}), matmul(many, linalg::inv(many)), "inv");
}

TEST(Linalg, EveryLayoutGivesTheSameBits) {
  const NDArray x = well_conditioned({2, 20, 20}, f64), p = positive_definite({2, 20, 20}, f64);
  const auto bits = [](const NDArray& a, const NDArray& b) {
    std::vector<Values> all;
    for (const NDArray& y :
         {linalg::inv(a), linalg::det(a), linalg::cholesky(b), linalg::qr(a).q, linalg::svd(a).u,
          linalg::eigh(b).eigenvectors, linalg::pinv(a), linalg::matrix_exp(a / 100.)})
      all.push_back(test::values(y));
    return all;
  };
  const std::vector<NDArray> xs = test::layouts(x), ps = test::layouts(p);
  for (size_t i = 1; i < xs.size(); ++i) EXPECT_EQ(bits(xs[0], ps[0]), bits(xs[i], ps[i])) << i;
}

TEST(Linalg, LuFactorsGiveTheMatrixBack) {
  each_type([](DType dtype) {
    for (const Shape& shape : {Shape{1, 1},
                               {5, 5},
                               {33, 33},
                               {150, 150},
                               {40, 17},
                               {17, 40},
                               {1, 6},
                               {6, 1},
                               {100, 20},
                               {2, 19, 33}}) {
      const NDArray a = numbers(shape, dtype);
      const auto [p, l, u] = linalg::lu(a);
      expect_equal(a, matmul(p, matmul(l, u)), "p l u");
      EXPECT_LE(max(abs(l)).item<double>(), 1) << "partial pivoting";
      const linalg::LuFactors factors = linalg::lu_factor(a);
      const NDArray rows =
          take_along_axis(a, factors.permutation.expand_dims(-1).broadcast_to(a.shape()), -2);
      expect_equal(rows, matmul(l, u), "the permutation");
    }
  });
}

/// The determinant by expansion along the first row.
double expansion(const std::vector<Values>& a) {
  if (a.empty()) return 1;
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    std::vector<Values> minor;
    for (size_t i = 1; i < a.size(); ++i) {
      minor.push_back(a[i]);
      minor.back().erase(minor.back().begin() + static_cast<std::ptrdiff_t>(k));
    }
    sum += (k % 2 == 0 ? 1 : -1) * a[0][k] * expansion(minor);
  }
  return sum;
}
std::vector<Values> rows_of(const NDArray& a) {
  std::vector<Values> rows;
  for (int64_t i = 0; i < a.size(0); ++i) rows.push_back(test::values(a[i]));
  return rows;
}

TEST(Linalg, DeterminantsAndCofactorsAreTheirExpansions) {
  for (int64_t n = 0; n <= 6; ++n) {
    NDArray regular = numbers({n, n}, f64, 5), singular = regular.clone();
    if (n > 1) singular[0] = singular[n - 1] * 2;
    for (const NDArray& a : {regular, singular}) {
      const std::vector<Values> rows = rows_of(a);
      const double want = expansion(rows);
      EXPECT_NEAR(want, linalg::det(a).item<double>(), 1e-12 * std::max(1., std::abs(want)));
      const auto [sign, logabsdet] = linalg::slogdet(a);
      if (std::abs(want) > 1e-9) {
        EXPECT_EQ(want > 0 ? 1 : -1, sign.item<double>());
        EXPECT_NEAR(std::log(std::abs(want)), logabsdet.item<double>(), 1e-12);
      }
      const Values cofactors = test::values(call(*find_operator("linalg_cofactor"), {}, a));
      for (size_t i = 0; i < rows.size(); ++i)
        for (size_t j = 0; j < rows.size(); ++j) {
          std::vector<Values> minor = rows;
          minor.erase(minor.begin() + static_cast<std::ptrdiff_t>(i));
          for (Values& row : minor) row.erase(row.begin() + static_cast<std::ptrdiff_t>(j));
          EXPECT_NEAR(((i + j) % 2 == 0 ? 1 : -1) * expansion(minor), cofactors[i * rows.size() + j], 1e-10)
              << n << ": " << i << ", " << j;
        }
    }
  }
}

// Two rows are equal, so a pivot is exactly 0.
TEST(Linalg, TheDeterminantOfASingularMatrixIsZero) {
  const NDArray a = array({{1., 2., 3.}, {1., 2., 3.}, {0., 1., 5.}});
  EXPECT_EQ(0, linalg::det(a).item<double>());
  EXPECT_EQ(0, linalg::slogdet(a).sign.item<double>());
  EXPECT_EQ(-kInfinity, linalg::slogdet(a).logabsdet.item<double>());
  EXPECT_EQ(0, linalg::det(zeros({3, 3})).item<float>());
}

/// Checks that the first element of each column with at least half of the largest magnitude is positive.
void expect_signs(const NDArray& v, const char* what) {
  const NDArray large = abs(v) >= max(abs(v), -2, true) / 2;
  const NDArray leading = take_along_axis(v, argmax(large, -2, true), -2);
  EXPECT_GT(min(leading).item<double>(), 0) << what;
}

void expect_orthonormal(const NDArray& q, const char* what) {
  expect_equal(identity(q.size(-1), q.dtype()).broadcast_to(matmul(turned(q), q).shape()),
               matmul(turned(q), q), what);
}

const std::vector<Shape> kRectangles = {{1, 1},   {5, 5},   {7, 3},  {3, 7},      {40, 33},
                                        {33, 40}, {70, 70}, {90, 4}, {2, 3, 6, 4}};

TEST(Linalg, QrGivesTheMatrixBack) {
  each_type([](DType dtype) {
    for (const Shape& shape : kRectangles)
      for (const linalg::QrMode mode : {linalg::QrMode::reduced, linalg::QrMode::complete}) {
        const NDArray a = numbers(shape, dtype);
        const auto [q, r] = linalg::qr(a, mode);
        expect_equal(a, matmul(q, r), "q r");
        expect_orthonormal(q, "q");
        expect_equal(triu(r), r, "the triangle", 0);
        EXPECT_GE(min(r.diagonal(0, -2, -1)).item<double>(), 0) << "the diagonal of r";
        EXPECT_EQ(mode == linalg::QrMode::complete ? shape[-2] : std::min(shape[-2], shape[-1]), q.size(-1));
      }
  });
}

TEST(Linalg, SvdGivesTheMatrixBack) {
  each_type([](DType dtype) {
    for (const Shape& shape : kRectangles)
      for (const bool full : {false, true}) {
        const NDArray a = numbers(shape, dtype);
        const auto [u, s, vh] = linalg::svd(a, full);
        const int64_t k = s.size(-1);
        expect_equal(a, matmul(u.slice(-1, Slice{0, k}) * s.expand_dims(-2), vh.slice(-2, Slice{0, k})),
                     "u s vh");
        expect_orthonormal(u, "u");
        expect_orthonormal(turned(vh), "vh");
        expect_equal(sort(s, -1, true), s, "the order", 0);
        EXPECT_GE(min(s).item<double>(), 0);
        expect_equal(s, linalg::svdvals(a), "svdvals");
        expect_signs(u, "the signs of u");
      }
  });
}

TEST(Linalg, EighGivesTheMatrixBackAndReadsOneTriangle) {
  each_type([](DType dtype) {
    for (const Shape& shape : {Shape{1, 1}, {5, 5}, {33, 33}, {70, 70}, {2, 3, 4, 4}}) {
      const NDArray x = numbers(shape, dtype), a = x + turned(x);
      for (const bool upper : {false, true}) {
        const NDArray garbage = full(shape, kNan, dtype);
        const NDArray read =
            upper ? where(triu(ones(shape)) > 0, a, garbage) : where(tril(ones(shape)) > 0, a, garbage);
        const auto [w, v] = linalg::eigh(read, upper);
        expect_equal(a, matmul(v * w.expand_dims(-2), turned(v)), "v w v'");
        expect_orthonormal(v, "v");
        expect_equal(sort(w), w, "the order", 0);
        expect_equal(w, linalg::eigvalsh(read, upper), "eigvalsh");
        expect_signs(v, "the signs of v");
        expect_equal(
            linalg::cholesky(positive_definite(shape, dtype), upper),
            linalg::cholesky(upper ? where(triu(ones(shape)) > 0, positive_definite(shape, dtype), garbage)
                                   : where(tril(ones(shape)) > 0, positive_definite(shape, dtype), garbage),
                             upper),
            "cholesky", 0);
      }
    }
  });
}

TEST(Linalg, EigFulfilsItsEquationAndIsUnique) {
  each_type([](DType dtype) {
    for (const Shape& shape : {Shape{1, 1}, {2, 2}, {5, 5}, {40, 40}, {2, 3, 4, 4}}) {
      const int64_t n = shape[-1];
      const NDArray a = numbers(shape, dtype).swap_axes(-2, -1);
      const auto [w, v] = linalg::eig(a);
      const NDArray wr = fft::real(w), wi = fft::imag(w), re = fft::real(v), im = fft::imag(v);
      expect_equal(matmul(a, re), re * wr.expand_dims(-2) - im * wi.expand_dims(-2), "the real part of v w");
      expect_equal(matmul(a, im), re * wi.expand_dims(-2) + im * wr.expand_dims(-2), "the imaginary part");
      expect_equal(sum(square(re) + square(im), -2), ones_like(wr), "the norms");
      expect_equal(sum(wr, -1), sum(a * identity(n, dtype), {-2, -1}), "the trace");
      expect_equal(sort(wr), wr, "the order", 0);
      expect_equal(linalg::eigvals(a), w, "eigvals");
      // The leading element of each column is real and positive.
      const NDArray size = sqrt(square(re) + square(im));
      const NDArray lead = argmax((size >= 0.5 * max(size, -2, true)).to(i32), -2, true);
      EXPECT_GT(min(take_along_axis(re, lead, -2)).item<double>(), 0);
      EXPECT_EQ(0, max(abs(take_along_axis(im, lead, -2))).item<double>());
      // The values of two that are conjugate to each other follow one another, the negative one first.
      const std::vector<double> x = test::values(wr), y = test::values(wi);
      for (size_t i = 0; i < y.size(); ++i) {
        if (y[i] >= 0) continue;
        ASSERT_EQ(x[i], x[i + 1]);
        ASSERT_EQ(-y[i], y[i + 1]);
      }
    }
  });
  test::expect_values({0, -2, 0, 2}, linalg::eigvals(array({{0., 2.}, {-2., 0.}})), "of a turn");
  test::expect_values({1, 0, 3, 0}, linalg::eigvals(array({{3., 5.}, {0., 1.}})), "of a triangle");
}

/// A (.., m, n) matrix of the given rank.
NDArray of_rank(int64_t m, int64_t n, int64_t rank) {
  return matmul(numbers({2, m, rank}, f64, 3), numbers({2, rank, n}, f64, 4));
}

// The four conditions that define it (Penrose).
TEST(Linalg, PseudoinversesAndRanksOfMatricesWithoutFullRank) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{6, 4}, {4, 6}, {5, 5}})
    for (int64_t rank = 0; rank <= 4; ++rank) {
      const NDArray a = of_rank(m, n, rank), p = linalg::pinv(a, 1e-10);
      expect_equal(a, matmul(matmul(a, p), a), "a p a", 10);
      expect_equal(p, matmul(matmul(p, a), p), "p a p", 10);
      expect_equal(turned(matmul(a, p)), matmul(a, p), "a p", 10);
      expect_equal(turned(matmul(p, a)), matmul(p, a), "p a", 10);
      EXPECT_EQ((Values{static_cast<double>(rank), static_cast<double>(rank)}),
                test::values(linalg::matrix_rank(a, 1e-10)));
      const NDArray b = numbers({m, 3}, f64, 6);
      const linalg::LstsqResult found = linalg::lstsq(a, b, 1e-10);
      expect_equal(matmul(p, b), found.solution, "lstsq", 100);
      EXPECT_EQ(test::values(linalg::matrix_rank(a, 1e-10)), test::values(found.rank));
      expect_equal(linalg::svdvals(a), found.singular_values, "singular values");
      expect_equal(sum(square(matmul(a, found.solution) - b), -2), found.residuals, "residuals");
    }
  const NDArray a = numbers({5, 2}, f64), b = numbers({5}, f64, 2);
  EXPECT_EQ((Shape{2}), linalg::lstsq(a, b).solution.shape());
  EXPECT_EQ((Shape{}), linalg::lstsq(a, b).residuals.shape());
}

/// The exponential by its series, in long double.
Values exponential_series(const Values& a, size_t n) {
  std::vector<long double> term(n * n, 0), sum(n * n, 0);
  for (size_t i = 0; i < n; ++i) term[i * n + i] = 1;
  for (int step = 1; step < 400; ++step) {
    std::vector<long double> next(n * n, 0);
    for (size_t i = 0; i < n * n; ++i) sum[i] += term[i];
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < n; ++k)
        for (size_t j = 0; j < n; ++j) next[i * n + j] += term[i * n + k] * a[k * n + j] / step;
    term = next;
  }
  return Values(sum.begin(), sum.end());
}

TEST(Linalg, ExponentialsAgreeWithTheSeries) {
  for (const int64_t n : {1, 2, 5, 8})
    for (const double size : {0., 1e-8, 0.3, 2., 9.}) {
      const NDArray a = numbers({n, n}, f64) * size;
      const Values want = exponential_series(test::values(a), static_cast<size_t>(n));
      expect_equal(array(want).reshape({n, n}), linalg::matrix_exp(a), "matrix_exp", 100);
    }
  const NDArray a = numbers({3, 4, 4}, f32);
  expect_equal(linalg::matrix_exp(a.to(f64)).to(f32), linalg::matrix_exp(a), "f32");
}

TEST(Linalg, ErrorsNameTheOperatorAndTheMatrix) {
  NDArray a = well_conditioned({2, 3, 4, 4}, f64), b = ones({4, 1}, f64);
  a[{1, 2}] = ones({4, 4}, f64);
  for (const std::string& text : {error_of<InvalidArgument>([&] { linalg::solve(a, b).wait(); }),
                                  error_of<InvalidArgument>([&] { linalg::inv(a).wait(); })}) {
    EXPECT_TRUE(contains(text, "expected invertible matrices")) << text;
    EXPECT_TRUE(contains(text, "pivot 1 is 0 (matrix (1, 2) of a stack of shape (2, 3))")) << text;
  }
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { linalg::solve(a, b).wait(); }), "[linalg_solve]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { linalg::inv(a).wait(); }), "[linalg_inv]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         linalg::inv(zeros({2, 2})).wait();
                       }),
                       "pivot 0 is 0"));
  NDArray t = tril(a);
  t[{0, 1, 2, 2}] = 0;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { linalg::solve_triangular(t, b).wait(); }),
                       "diagonal element 2 is 0 (matrix (0, 1) of a stack of shape (2, 3))"));
  NDArray p = positive_definite({3, 5, 5}, f32);
  p[{2, 3, 3}] = -1;
  const std::string text = error_of<InvalidArgument>([&] { linalg::cholesky(p).wait(); });
  EXPECT_TRUE(contains(text, "[linalg_cholesky] expected positive definite matrices")) << text;
  EXPECT_TRUE(contains(text, "leading part of 4 rows and columns is not (matrix (2,) of a stack")) << text;
}

// The smallest position is named, whichever thread finds it.
TEST(Linalg, OfSeveralSingularMatricesTheFirstIsNamed) {
  NDArray a = well_conditioned({5000, 3, 3}, f64);
  for (const int64_t i : {4321, 77, 2500}) a[i] = zeros({3, 3}, f64);
  for (int repeat = 0; repeat < 20; ++repeat)
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { linalg::inv(a).wait(); }), "matrix (77,)"));
}

TEST(Linalg, ErrorsAtTheCallNameWhatCame) {
  const auto message = [](const std::function<void()>& f) { return error_of<InvalidArgument>(f); };
  for (const DType dtype : {f16, bf16, i32, bool_})
    EXPECT_TRUE(
        contains(message([&] {
                   linalg::inv(ones({2, 2}, dtype));
                 }),
                 "[linalg_inv] expected elements of type f32 or f64, got " + std::string(to_string(dtype))));
  EXPECT_TRUE(contains(message([] { linalg::det(ones({2, 3})); }), "square matrices (.., n, n), got shape"));
  EXPECT_TRUE(contains(message([] { linalg::svd(ones({2})); }), "matrices (.., m, n), got shape (2,)"));
  EXPECT_TRUE(contains(message([] { linalg::solve(ones({2, 2}), ones({3, 1})); }), "(3, 1)"));
  EXPECT_TRUE(contains(message([] { linalg::lstsq(ones({2, 2}), ones({3})); }), "[linalg_lstsq]"));
  EXPECT_TRUE(contains(message([] { linalg::multi_dot({ones({2, 3}), ones({2, 3})}); }), "arrays 0 and 1"));
  EXPECT_TRUE(contains(message([] { linalg::matrix_power(ones({2, 3}), 2); }), "[linalg_matrix_power]"));
  EXPECT_TRUE(contains(message([] { linalg::matrix_norm(ones({2, 3}), 3); }), "got 3"));
  EXPECT_TRUE(contains(message([] { linalg::matrix_norm(ones({2, 3}), "frob"); }), "got \"frob\""));
  EXPECT_TRUE(contains(message([] { linalg::matrix_norm(ones({2, 3}), "fro", {1, -1}); }), "different axes"));
  EXPECT_TRUE(contains(message([] { linalg::tensorsolve(ones({2, 3}), ones({2})); }), "(2, 3)"));
  EXPECT_TRUE(contains(message([] { linalg::tensorinv(ones({2, 3}), 1); }), "(2, 3)"));
  EXPECT_TRUE(contains(message([] { linalg::cond(ones({0, 3})); }), "(0, 3)"));
  EXPECT_TRUE(contains(message([] {
                         linalg::cond(ones({0, 0}), 1);
                       }),
                       "[linalg_cond] expected matrices with"));
}

TEST(Linalg, NansPass) {
  NDArray a = well_conditioned({2, 4, 4}, f64);
  a[{1, 2, 0}] = kNan;
  const auto expect_nans_in_the_second = [](const NDArray& y) {
    EXPECT_TRUE(all(isfinite(y[0])).item<bool>());
    EXPECT_TRUE(any(isnan(y[1])).item<bool>());
  };
  expect_nans_in_the_second(linalg::solve(a, ones({4, 1}, f64)));
  expect_nans_in_the_second(linalg::inv(a));
  expect_nans_in_the_second(linalg::det(a));
  expect_nans_in_the_second(linalg::slogdet(a).logabsdet);
  expect_nans_in_the_second(linalg::cholesky(matmul(a, turned(a))));
  expect_nans_in_the_second(linalg::qr(a).r);
  expect_nans_in_the_second(linalg::svd(a).u);
  expect_nans_in_the_second(linalg::svdvals(a));
  expect_nans_in_the_second(linalg::eigh(a).eigenvectors);
  expect_nans_in_the_second(linalg::eig(a).eigenvectors);
  expect_nans_in_the_second(linalg::eigvals(a));
  expect_nans_in_the_second(linalg::pinv(a));
  expect_nans_in_the_second(linalg::lstsq(a, ones({4, 1}, f64)).solution);
  expect_nans_in_the_second(linalg::matrix_exp(a));
}

TEST(Linalg, MatricesWithoutElementsAndStacksWithoutMatrices) {
  const NDArray none = zeros({0, 0}), no_stack = zeros({0, 3, 3}), flat = zeros({0, 3}), thin = zeros({3, 0});
  EXPECT_EQ((Shape{0, 0}), linalg::inv(none).shape());
  EXPECT_EQ(1, linalg::det(none).item<float>());
  EXPECT_EQ(0, linalg::slogdet(none).logabsdet.item<float>());
  EXPECT_EQ((Shape{0, 2}), linalg::solve(none, zeros({0, 2})).shape());
  EXPECT_EQ((Shape{3, 0}), linalg::solve(identity(3, f32), zeros({3, 0})).shape());
  EXPECT_EQ((Shape{0, 3, 3}), linalg::cholesky(no_stack).shape());
  EXPECT_EQ((Shape{0, 3, 3}), linalg::svd(no_stack).u.shape());
  EXPECT_EQ((Shape{0}), linalg::det(no_stack).shape());
  EXPECT_EQ(test::values(identity(3, f32)), test::values(linalg::svd(flat).vh));
  EXPECT_EQ(test::values(identity(3, f32)), test::values(linalg::svd(thin).u));
  EXPECT_EQ(test::values(identity(3, f32)), test::values(linalg::qr(thin, linalg::QrMode::complete).q));
  EXPECT_EQ((Shape{0, 3}), linalg::qr(flat).r.shape());
  EXPECT_EQ(Values(9, 0), test::values(matmul(linalg::pinv(flat), flat)));
  EXPECT_EQ(Values(6, 0), test::values(linalg::lstsq(flat, zeros({0, 2})).solution));
  EXPECT_EQ(0, linalg::matrix_rank(flat).item<int64_t>());
  EXPECT_EQ((Shape{0, 0}), linalg::eigh(none).eigenvectors.shape());
  EXPECT_EQ((Shape{0, 0}), linalg::matrix_exp(none).shape());
  EXPECT_EQ((Shape{0, 0, 2}), linalg::eig(none).eigenvectors.shape());
  EXPECT_EQ((Shape{0, 3, 2}), linalg::eigvals(no_stack).shape());
}

// LAPACK is called by several threads at once: each must get the bits that it gets alone.
TEST(Linalg, SeveralThreadsAtOnceGetTheirOwnResults) {
  constexpr size_t kThreads = 4;
  const auto compute = [](uint64_t seed) {
    const NDArray a = numbers({3, 60, 60}, f64, seed);
    std::vector<Values> all;
    const auto [u, s, vh] = linalg::svd(a);
    const auto [w, v] = linalg::eigh(a);
    const auto [q, r] = linalg::qr(a);
    for (const NDArray& y : {u, s, vh, w, v, q, r}) all.push_back(test::values(y));
    return all;
  };
  std::vector<std::vector<Values>> want, got(kThreads);
  for (size_t i = 0; i < kThreads; ++i) want.push_back(compute(i + 1));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { got[i] = compute(i + 1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(want == got);
}

TEST(Linalg, OpenBlasIsKeptToOneThread) {
  void* const threads = dlsym(RTLD_DEFAULT, "openblas_get_num_threads");
  if (threads == nullptr) GTEST_SKIP() << "LAPACK is not OpenBLAS";
  linalg::svd(numbers({3, 3}, f64)).s.wait();
  EXPECT_EQ(1, reinterpret_cast<int (*)()>(threads)());
}

TEST(Linalg, ChainsAreMultipliedInTheCheapestOrder) {
  const NDArray a = numbers({2, 30}, f64), b = numbers({30, 1}, f64, 2), c = numbers({1, 20}, f64, 3),
                d = numbers({20}, f64, 4);
  expect_equal(matmul(matmul(matmul(a, b), c), d), linalg::multi_dot({a, b, c, d}), "multi_dot");
  EXPECT_EQ((Shape{}), linalg::multi_dot({d, numbers({20, 20}, f64), d}).shape());
  EXPECT_EQ((Shape{2, 30}), linalg::multi_dot({a}).shape());
}

TEST(Linalg, PowersAreNewArrays) {
  NDArray a = well_conditioned({2, 3, 3}, f64);
  for (const int n : {0, 1}) {
    NDArray y = linalg::matrix_power(a, n);
    const Values before = test::values(a);
    y += 1;
    EXPECT_EQ(before, test::values(a));
  }
  expect_equal(linalg::inv(matmul(a, a)), linalg::matrix_power(a, -2), "the inverse");
}

}  // namespace
}  // namespace mx
