#include "nn/detail/orthonormal.h"

#include <algorithm>
#include <cmath>

#include "operators/kernels/gemm.h"

namespace mx::nn::detail {
namespace {

constexpr int64_t kPanel = 32;

/// Returns the dot product. The order of additions is fixed, so results are reproducible. Eight independent
/// sums let the additions overlap.
double dot(const double* a, const double* b, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// The part of a column-major matrix of `rows` rows that begins at (row, column).
struct Part {
  double* data;
  int64_t rows, row, column;

  double* begin() const { return data + column * rows + row; }
  kernels::Matrix plain() const { return {begin(), 1, rows}; }
  kernels::Matrix transposed() const { return {begin(), rows, 1}; }
};

class Householder {
 public:
  Householder(std::vector<double>& matrix, int64_t rows, int64_t columns)
      : a_(matrix),
        v_(matrix.size()),
        signs_(static_cast<size_t>(columns)),
        t_(static_cast<size_t>((columns + kPanel - 1) / kPanel * kPanel * kPanel)),
        rows_(rows),
        columns_(columns) {}

  void run() {
    for (int64_t first = 0; first < columns_; first += kPanel) {
      factor_panel(first);
      apply(first, first + width(first), true);
    }
    std::fill(a_.begin(), a_.end(), 0.0);
    for (int64_t k = 0; k < columns_; ++k) *at(a_, k, k) = signs_[static_cast<size_t>(k)];
    for (int64_t first = (columns_ - 1) / kPanel * kPanel; first >= 0; first -= kPanel)
      apply(first, first, false);
  }

 private:
  int64_t width(int64_t first) const { return std::min(kPanel, columns_ - first); }
  double* at(std::vector<double>& matrix, int64_t row, int64_t column) const {
    return matrix.data() + column * rows_ + row;
  }

  /// Computes the reflections of the panel's columns, and T, so that the product of the reflections is I - V
  /// T V'.
  void factor_panel(int64_t first) {
    const int64_t last = first + width(first);
    double* const t = t_.data() + first * kPanel;  // column-major, with kPanel rows
    for (int64_t k = first; k < last; ++k) {
      const int64_t n = rows_ - k;
      const double* const x = at(a_, k, k);
      double* const v = at(v_, k, k);
      const double length = std::sqrt(dot(x, x, n));
      std::copy(x, x + n, v);
      // The diagonal of R becomes -sign(x[0]) length. With this sign the sum in v[0] has no cancellation.
      signs_[static_cast<size_t>(k)] = std::signbit(x[0]) ? 1 : -1;
      v[0] += std::copysign(length, x[0]);
      const double norm = std::sqrt(dot(v, v, n));
      for (int64_t i = 0; i < n; ++i) v[i] = norm > 0 ? v[i] / norm : 0;
      for (int64_t c = k + 1; c < last; ++c) {
        double* const y = at(a_, k, c);
        const double twice = 2 * dot(v, y, n);
        for (int64_t i = 0; i < n; ++i) y[i] -= twice * v[i];
      }
      // Column i of T is -2 T (V' v), with 2 on the diagonal.
      const int64_t i = k - first;
      double products[kPanel];
      for (int64_t j = 0; j < i; ++j) products[j] = dot(at(v_, k, first + j), v, n);
      for (int64_t row = 0; row < i; ++row) {
        double sum = 0;
        for (int64_t j = row; j < i; ++j) sum += t[j * kPanel + row] * products[j];
        t[i * kPanel + row] = -2 * sum;
      }
      t[i * kPanel + i] = 2;
    }
  }

  /// Multiplies the columns of a_ from `column` on by the panel's product of reflections, or by its
  /// transpose.
  void apply(int64_t first, int64_t column, bool transposed) {
    const int64_t b = width(first), n = rows_ - first, c = columns_ - column;
    if (c == 0) return;
    const Part v{v_.data(), rows_, first, first}, a{a_.data(), rows_, first, column},
        t{t_.data() + first * kPanel, kPanel, 0, 0};
    product_.resize(static_cast<size_t>(b * c));
    scaled_.resize(static_cast<size_t>(b * c));
    kernels::gemm(f64, b, c, n, v.transposed(), a.plain(), product_.data(), c, 1);
    kernels::gemm(f64, b, c, b, transposed ? t.transposed() : t.plain(), {product_.data(), c, 1},
                  scaled_.data(), c, 1);
    kernels::gemm(f64, n, c, b, v.plain(), {scaled_.data(), c, 1}, a.begin(), 1, rows_,
                  {.alpha = -1, .beta = 1});
  }

  std::vector<double>& a_;
  std::vector<double> v_;  // column k, from row k on: the unit vector of reflection k
  std::vector<double> signs_;
  std::vector<double> t_;
  std::vector<double> product_, scaled_;
  const int64_t rows_, columns_;
};

}  // namespace

void orthonormalise(std::vector<double>& matrix, int64_t rows, int64_t columns) {
  Householder(matrix, rows, columns).run();
}

}  // namespace mx::nn::detail
