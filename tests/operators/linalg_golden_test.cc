// Linear algebra gives the values of NumPy, SciPy and PyTorch, which golden/make_linalg.py computed. The
// gradients are in tests/executor/linalg_gradient_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "operators/operators.h"
#include "tests/operators/golden_arrays.h"

namespace mx {
namespace {

using test::formula_numbers;
using test::kInfinity;

const char* const kLinalgGolden =
#include <golden_linalg.inc>
    ;

void expect_linalg(const std::string& name, const NDArray& got) {
  static const test::GoldenArrays all(kLinalgGolden);
  all.expect(name, got, 1e-11);
}

NDArray golden_turned(const NDArray& x) { return x.swap_axes(-2, -1); }

NDArray golden_square() { return formula_numbers({2, 4, 4}) + eye(4, 4, f64) * 3; }
NDArray golden_tall() { return formula_numbers({2, 5, 3}); }
NDArray golden_symmetric() {
  const NDArray x = formula_numbers({2, 5, 5});
  return x + golden_turned(x) + diag(arange(5, f64));
}

TEST(LinalgGolden, Systems) {
  const NDArray a = golden_square(), b = formula_numbers({4, 2});
  expect_linalg("solve", linalg::solve(a, b));
  expect_linalg("inv", linalg::inv(a));
  expect_linalg("det", linalg::det(a));
  expect_linalg("slogdet/sign", linalg::slogdet(a).sign);
  expect_linalg("slogdet/log", linalg::slogdet(a).logabsdet);
  expect_linalg("cholesky", linalg::cholesky(matmul(a, golden_turned(a)) + eye(4, 4, f64)));
  expect_linalg("solve_triangular", linalg::solve_triangular(a[0], b));
  expect_linalg("solve_triangular/unit",
                linalg::solve_triangular(a[0], b, {.upper = true, .unitriangular = true}));
  const NDArray t = formula_numbers({2, 3, 6}) + eye(6, 6, f64).reshape({2, 3, 6});
  expect_linalg("tensorsolve", linalg::tensorsolve(t, formula_numbers({2, 3})));
  expect_linalg("tensorinv", linalg::tensorinv(t));
}

TEST(LinalgGolden, Decompositions) {
  for (const bool wide : {false, true}) {
    const NDArray x = wide ? golden_turned(golden_tall()) : golden_tall();
    const std::string name = wide ? "wide" : "tall";
    const auto [q, r] = linalg::qr(x);
    expect_linalg("qr/" + name + "/q", q);
    expect_linalg("qr/" + name + "/r", r);
    const auto [u, s, vh] = linalg::svd(x, false);
    expect_linalg("svd/" + name + "/u", u);
    expect_linalg("svd/" + name + "/s", s);
    expect_linalg("svd/" + name + "/vh", vh);
    expect_linalg("svd/" + name + "/s", linalg::svdvals(x));
    expect_linalg("pinv/" + name, linalg::pinv(x));
    expect_linalg("matrix_rank/" + name, linalg::matrix_rank(x));
    expect_linalg("lstsq/" + name, linalg::lstsq(x, formula_numbers({x.size(-2), 2})).solution);
    expect_linalg("cond/" + name, linalg::cond(x));
  }
  const auto [w, v] = linalg::eigh(golden_symmetric());
  expect_linalg("eigh/w", w);
  expect_linalg("eigh/v", v);
  expect_linalg("eigvalsh/upper", linalg::eigvalsh(formula_numbers({4, 4}), true));
  const std::pair<const char*, NDArray> matrices[] = {
      {"square", golden_square()[0]}, {"tall", golden_tall()[0]}, {"wide", golden_turned(golden_tall())[0]}};
  for (const auto& [name, x] : matrices) {
    const std::string prefix = std::string("lu/") + name;
    const auto [p, l, u] = linalg::lu(x);
    expect_linalg(prefix + "/p", p);
    expect_linalg(prefix + "/l", l);
    expect_linalg(prefix + "/u", u);
    expect_linalg(prefix, linalg::lu_factor(x).lu);
    expect_linalg(prefix + "/pivots", linalg::lu_factor(x).pivots);
  }
}

TEST(LinalgGolden, Norms) {
  for (const bool wide : {false, true}) {
    const NDArray x = wide ? golden_turned(golden_tall()) : golden_tall();
    const std::string name = wide ? "norm/wide/" : "norm/tall/";
    for (const char* kind : {"fro", "nuc"}) expect_linalg(name + kind, linalg::matrix_norm(x, kind));
    for (const int p : {1, -1, 2, -2}) expect_linalg(name + std::to_string(p), linalg::matrix_norm(x, p));
    expect_linalg(name + "inf", linalg::matrix_norm(x, kInfinity));
    expect_linalg(name + "-inf", linalg::norm(x, -kInfinity, {1, 2}));
    // The axes in the other order are the transposed matrices.
    expect_linalg(name + "1", linalg::norm(golden_turned(x), 1, {2, 1}));
    EXPECT_EQ((Shape{2, 1, 1}), linalg::norm(x, "nuc", {1, 2}, true).shape());
  }
  expect_linalg("norm/all", linalg::norm(golden_tall()));
  expect_linalg("norm/vector/3", linalg::norm(golden_tall(), 3, 1));
  expect_linalg("cond/1", linalg::cond(golden_square(), 1));
}

TEST(LinalgGolden, Products) {
  const NDArray a = golden_square();
  for (const int n : {-3, 0, 1, 5})
    expect_linalg("matrix_power/" + std::to_string(n), linalg::matrix_power(a / 4, n));
  expect_linalg("multi_dot", linalg::multi_dot({formula_numbers({3}), formula_numbers({3, 7}),
                                                formula_numbers({7, 2}), formula_numbers({2, 5})}));
  expect_linalg("vecdot", linalg::vecdot(golden_tall(), formula_numbers({5, 3})));
  expect_linalg("matrix_exp", linalg::matrix_exp(a));
}

}  // namespace
}  // namespace mx
