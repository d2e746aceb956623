// Gradients of linear algebra whose operands are symmetric or whose functions call several operators, first
// and second derivatives; and the values of PyTorch's gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "executor/autograd/functional.h"
#include "operators/operators.h"
#include "tests/operators/golden_arrays.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using Arrays = std::vector<NDArray>;
using test::formula_numbers;

const char* const kLinalgGradients =
#include <golden_linalg.inc>
    ;

NDArray turned_matrix(const NDArray& x) { return x.swap_axes(-2, -1); }
NDArray symmetric_part(const NDArray& x) { return (x + turned_matrix(x)) * 0.5; }

/// Compares the first gradient of sum(weight * f), and the gradient of a weighted sum of that gradient, with
/// finite differences.
void expect_both(const char* name, NDArray (*f)(const NDArray&), const NDArray& x) {
  SCOPED_TRACE(name);
  const auto loss = [f](const NDArray& a) {
    const NDArray y = f(a);
    return sum(y * test::some(y.shape(), 9));
  };
  test::expect_gradients([&](const Arrays& a) { return loss(a[0]); }, {x}, 2e-6);
  test::expect_gradients(
      [&](const Arrays& a) {
        NDArray leaf = a[0].requires_grad() ? a[0] : a[0].detach().requires_grad_();
        const NDArray first = gradients({loss(leaf)}, {leaf}, {.create_graph = true})[0];
        return sum(first * test::some(first.shape(), 11));
      },
      {x}, 5e-5);
}

/// Matrices without symmetry, with eigenvalues and singular values that differ.
NDArray matrices(const Shape& shape) {
  return test::some(shape, 3) - 1 + eye(shape[-2], shape[-1], f64) * arange(1, 1 + shape[-1], f64);
}

TEST(LinalgGradients, OfSymmetricOperandsAgreeWithFiniteDifferences) {
  const NDArray x = matrices({2, 3, 3});
  expect_both(
      "cholesky",
      [](const NDArray& a) { return linalg::cholesky(matmul(a, turned_matrix(a)) + eye(3, 3, f64)); }, x);
  expect_both(
      "upper cholesky",
      [](const NDArray& a) { return linalg::cholesky(symmetric_part(a) + 2 * eye(3, 3, f64), true); }, x);
  expect_both(
      "eigenvalues", [](const NDArray& a) { return linalg::eigh(symmetric_part(a)).eigenvalues; }, x);
  expect_both(
      "eigenvectors", [](const NDArray& a) { return linalg::eigh(symmetric_part(a), true).eigenvectors; }, x);
  expect_both(
      "eigvalsh", [](const NDArray& a) { return linalg::eigvalsh(symmetric_part(a)); }, x);
  expect_both(
      "cholesky_solve",
      [](const NDArray& a) {
        return linalg::cholesky_solve(a, linalg::cholesky(matmul(a, turned_matrix(a))));
      },
      x);
}

TEST(LinalgGradients, OfFunctionsOfSeveralOperatorsAgreeWithFiniteDifferences) {
  const NDArray x = matrices({2, 3, 3}), tall = matrices({4, 3});
  expect_both(
      "solve from the right",
      [](const NDArray& a) { return linalg::solve_triangular(a, a * a, {.upper = true, .left = false}); }, x);
  expect_both(
      "lu", [](const NDArray& a) { return linalg::lu(a).l; }, tall);
  expect_both(
      "lu_solve", [](const NDArray& a) { return linalg::lu_solve(linalg::lu_factor(a), a * a); }, x);
  expect_both(
      "lstsq", [](const NDArray& a) { return linalg::lstsq(a, a * a).residuals; }, tall);
  expect_both(
      "cond", [](const NDArray& a) { return linalg::cond(a); }, tall);
  expect_both(
      "nuclear norm", [](const NDArray& a) { return linalg::matrix_norm(a, "nuc"); }, tall);
  expect_both(
      "largest row", [](const NDArray& a) { return linalg::matrix_norm(a, INFINITY); }, tall);
  expect_both(
      "matrix_power", [](const NDArray& a) { return linalg::matrix_power(a, -2); }, x);
  expect_both(
      "multi_dot",
      [](const NDArray& a) {
        return linalg::multi_dot({a, turned_matrix(a), a});
      },
      tall);
  expect_both(
      "tensorinv", [](const NDArray& a) { return linalg::tensorinv(a, 1); }, x[0]);
}

// The determinant is a polynomial, so it has a gradient everywhere, also at matrices of rank n - 1, n - 2, 0.
TEST(LinalgGradients, OfTheDeterminantOfASingularMatrix) {
  for (const NDArray& a : {array({{1., 2., 3.}, {2., 4., 6.}, {0., 1., 5.}}),
                           array({{1., 2., 3.}, {2., 4., 6.}, {3., 6., 9.}}), zeros({3, 3}, f64)})
    test::expect_gradients([](const Arrays& x) { return linalg::det(x[0]); }, {a}, 1e-8);
}

TEST(LinalgGradients, OfWhatIsNotUniqueAreErrors) {
  using test::contains;
  using test::error_of;
  NDArray a = matrices({4, 3}).requires_grad_();
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { sum(linalg::svd(a, true).u).backward(); }), "[linalg_svd]"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { sum(linalg::qr(a, linalg::QrMode::complete).q).backward(); }),
               "[linalg_qr]"));
  // Singular values are unique all the same.
  NDArray b = a.detach().clone().requires_grad_();
  sum(linalg::svd(a, true).s).backward();
  sum(linalg::svdvals(b)).backward();
  test::expect_close(b.grad().to_vector<double>(), a.grad().to_vector<double>(), 1e-12, "singular values");
}

// Also for losses that depend on the phase of the eigenvectors, which PyTorch refuses.
TEST(LinalgGradients, OfComplexEigenvaluesAgreeWithFiniteDifferences) {
  NDArray x = matrices({2, 4, 4});  // real eigenvalues
  expect_both(
      "eigvals", [](const NDArray& a) { return linalg::eigvals(a); }, x);
  expect_both(
      "eig", [](const NDArray& a) { return linalg::eig(a).eigenvectors; }, x);
  NDArray y = stack({array({{1., 2., 0.5}, {-3., 1.5, 0.25}, {0.5, -0.25, 4.}}),
                     array({{0., 2., 0.1}, {-1., 0.3, 0.7}, {0.2, 0.4, -2.}})});
  EXPECT_GT(max(fft::imag(linalg::eigvals(y))).item<double>(), 1);
  expect_both(
      "eigvals", [](const NDArray& a) { return linalg::eigvals(a); }, y);
  expect_both(
      "eig, values", [](const NDArray& a) { return linalg::eig(a).eigenvalues; }, y);
  expect_both(
      "eig, vectors", [](const NDArray& a) { return linalg::eig(a).eigenvectors; }, y);
}

// The operator turns each eigenvector until its leading element is real, so the gradient of the imaginary
// part of that element is 0. Here one element has half the size of the other, up to rounding, which decides
// whether it leads.
TEST(LinalgGradients, OfEigenvectorsBelongToTheElementThatLeads) {
  for (double a = -4; a <= 4; a += 0.5) {
    for (double c = -4; c <= 4; c += 0.5) {
      if ((a - c) * (a - c) >= 16) continue;  // real eigenvalues
      const NDArray x = array({{a, 1.}, {-4., c}}).requires_grad_();
      const NDArray v = linalg::eig(x).eigenvectors.reshape({2, 2, 2});
      const int64_t lead = v[0].to_vector<double>()[1] == 0 ? 0 : 1;
      v[lead][0][1].backward();
      for (const double g : x.grad().to_vector<double>()) EXPECT_NEAR(0, g, 1e-12) << a << ' ' << c;
    }
  }
}

TEST(LinalgGradients, AreThoseOfPyTorch) {
  const test::GoldenArrays golden(kLinalgGradients);
  const auto check = [&](const std::string& name, const std::function<NDArray(const Arrays&)>& f,
                         const Arrays& arguments) {
    Arrays leaves;
    for (const NDArray& a : arguments) leaves.push_back(a.clone().requires_grad_());
    const NDArray y = f(leaves);
    sum(y * formula_numbers(y.shape())).backward();
    for (size_t i = 0; i < leaves.size(); ++i)
      golden.expect("gradient/" + name + '/' + std::to_string(i), leaves[i].grad(), 1e-9);
  };
  const NDArray square = formula_numbers({2, 4, 4}) + eye(4, 4, f64) * 3,
                positive = matmul(square, turned_matrix(square)) + eye(4, 4, f64),
                other = formula_numbers({2, 5, 5}),
                symmetric = other + turned_matrix(other) + diag(arange(5, f64)),
                tall = formula_numbers({2, 5, 3});
  check("solve", [](const Arrays& a) { return linalg::solve(a[0], a[1]); },
        {square, formula_numbers({4, 2})});
  check("inv", [](const Arrays& a) { return linalg::inv(a[0]); }, {square});
  check("det", [](const Arrays& a) { return linalg::det(a[0]); }, {square});
  check("slogdet", [](const Arrays& a) { return linalg::slogdet(a[0]).logabsdet; }, {square});
  check("cholesky", [](const Arrays& a) { return linalg::cholesky(a[0]); }, {positive});
  check("eigvalsh", [](const Arrays& a) { return linalg::eigvalsh(a[0]); }, {symmetric});
  check("svdvals", [](const Arrays& a) { return linalg::svdvals(a[0]); }, {tall});
  check("pinv", [](const Arrays& a) { return linalg::pinv(a[0]); }, {tall});
  check("lstsq", [](const Arrays& a) { return linalg::lstsq(a[0], a[1]).solution; },
        {tall, formula_numbers({2, 5, 2})});
  check("matrix_exp", [](const Arrays& a) { return linalg::matrix_exp(a[0]); }, {square / 4});
}

TEST(LinalgGradients, ThePowerZeroIsRecordedWithGradientZero) {
  NDArray a = test::some({2, 3, 3}).requires_grad_();
  const NDArray y = linalg::matrix_power(a, 0);
  test::expect_close(eye(3, 3, f64).broadcast_to({2, 3, 3}).to_vector<double>(), y.to_vector<double>(), 0,
                     "power 0");
  sum(y).backward();
  test::expect_close(std::vector<double>(18), a.grad().to_vector<double>(), 0, "gradient");
}

}  // namespace
}  // namespace mx
