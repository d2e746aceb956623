// The second derivative of determinants, also of singular matrices, by expansion along rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/operators/values.h"

namespace mx {
namespace {

/// The determinant by expansion along the first row.
double expansion(const std::vector<test::Values>& a) {
  if (a.empty()) return 1;
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    std::vector<test::Values> minor;
    for (size_t i = 1; i < a.size(); ++i) {
      minor.push_back(a[i]);
      minor.back().erase(minor.back().begin() + static_cast<std::ptrdiff_t>(k));
    }
    sum += (k % 2 == 0 ? 1 : -1) * a[0][k] * expansion(minor);
  }
  return sum;
}
std::vector<test::Values> rows_of(const NDArray& a) {
  std::vector<test::Values> rows;
  for (int64_t i = 0; i < a.size(0); ++i) rows.push_back(test::values(a[i]));
  return rows;
}

std::vector<test::Values> without(std::vector<test::Values> rows, size_t i, size_t j) {
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(i));
  for (test::Values& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(j));
  return rows;
}

/// The gradient of sum(v * cofactors of a), by expansion.
test::Values gradient_of_cofactors(const std::vector<test::Values>& a, const std::vector<test::Values>& v) {
  const size_t n = a.size();
  test::Values gradient(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      const std::vector<test::Values> minor = without(a, i, j);
      for (size_t k = 0; k + 1 < n; ++k)
        for (size_t l = 0; l + 1 < n; ++l)
          gradient[(k < i ? k : k + 1) * n + (l < j ? l : l + 1)] +=
              ((i + j + k + l) % 2 == 0 ? 1 : -1) * v[i][j] * expansion(without(minor, k, l));
    }
  return gradient;
}

TEST(Determinants, TheSecondDerivativeOfADeterminantNeedsNoInverse) {
  for (int64_t n = 1; n <= 5; ++n) {
    const NDArray regular = test::numbers({n, n}, f64, 5), v = test::numbers({n, n}, f64, 3);
    std::vector<NDArray> cases = {regular, zeros({n, n}, f64), regular * 1e-9};
    NDArray fewer = regular.clone();
    for (int64_t row = n - 1; row > 0; --row) {
      fewer[row] = fewer[0] * (0.1 * static_cast<double>(row));  // a rank of `row`, but for rounding
      cases.push_back(fewer.clone());
    }
    for (const NDArray& a : cases) {
      NDArray x = a.clone().requires_grad_();
      const NDArray first = gradients({linalg::det(x)}, {x}, {.create_graph = true})[0];
      const test::Values got = test::values(gradients({sum(first * v)}, {x})[0]);
      const test::Values want = gradient_of_cofactors(rows_of(a), rows_of(v));
      // The size of a product of the elements of a minor: where minors are 0, its rounding error remains.
      const double size = max(abs(a)).item<double>() + 1e-30;
      const double scale = 10 * std::pow(size, static_cast<double>(std::max<int64_t>(n - 2, 0)));
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(want[i], got[i], 1e-12 * scale) << n << ": " << a << " element " << i;
    }
  }
}

}  // namespace
}  // namespace mx
