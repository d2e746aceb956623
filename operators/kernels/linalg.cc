#include "operators/kernels/linalg.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/base/check.h"
#include "operators/kernels/dense.h"
#include "operators/kernels/linalg_support.h"
#include "operators/kernels/matrix_stack.h"

namespace mx::kernels {

using detail::each_item;
using detail::FirstFailure;
using detail::Stack;

namespace {

/// Returns the sign of the row exchanges.
int exchange_sign(const std::vector<int64_t>& pivots) {
  int sign = 1;
  for (size_t k = 0; k < pivots.size(); ++k)
    if (pivots[k] != static_cast<int64_t>(k)) sign = -sign;
  return sign;
}

/// The LU factors of a matrix, in memory that is reused.
template <class T>
struct Factored {
  std::vector<T> memory;
  std::vector<int64_t> pivots;
  MatrixBlock<T> factors;

  /// Returns the index of the first pivot that is 0, or -1.
  int64_t operator()(const MatrixBlock<const T>& a) {
    factors = detail::contiguous(memory, a.rows, a.columns);
    detail::assign(factors, a);
    pivots.resize(static_cast<size_t>(std::min(a.rows, a.columns)));
    return lu_factor(factors, pivots.data());
  }
  void solve(const MatrixBlock<T>& x) const {
    exchange_rows(x, pivots.data(), static_cast<int64_t>(pivots.size()));
    solve_lower<T>(constant(factors), x, true);
    solve_upper<T>(constant(factors), x, false);
  }
  /// The product of the pivots with the sign of the exchanges.
  double determinant() const {
    double product = exchange_sign(pivots);
    for (int64_t k = 0; k < factors.rows; ++k) product *= static_cast<double>(factors(k, k));
    return product;
  }
};

double cube(double n) { return n * n * n; }

template <class T>
void set_identity(const MatrixBlock<T>& x) {
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) x(i, j) = i == j ? T(1) : T(0);
}

/// The cofactors of a singular matrix from its singular values: of a = u s v', they are u c v' times the
/// determinants of u and v, where c has on its diagonal the products of all singular values but one.
template <class T>
bool singular_cofactors(const MatrixBlock<const T>& a, const MatrixBlock<T>& y, Factored<T>& factored,
                        LapackScratch<T>& scratch) {
  const int64_t n = a.rows;
  std::vector<T> left, right, s(static_cast<size_t>(n));
  const MatrixBlock<T> u = detail::contiguous(left, n, n), vh = detail::contiguous(right, n, n);
  if (!svd(a, s.data(), &u, &vh, scratch)) return false;
  double sign = 1;
  for (const MatrixBlock<T>& orthogonal : {u, vh}) {
    factored(constant(orthogonal));
    sign *= factored.determinant() < 0 ? -1 : 1;
  }
  for (int64_t i = 0; i < n; ++i) {
    double others = sign;
    for (int64_t k = 0; k < n; ++k)
      if (k != i) others *= static_cast<double>(s[static_cast<size_t>(k)]);
    for (int64_t j = 0; j < n; ++j) vh(i, j) = static_cast<T>(others * static_cast<double>(vh(i, j)));
  }
  product<T>(constant(u), constant(vh), y, true);
  return true;
}

void refuse_singular(const FirstFailure& failure, const Shape& batch, const char* op,
                     const char* what = "pivot") {
  if (failure.any())
    throw InvalidArgument(detail::bad_pivot(op, what, failure.detail(), failure.item(), batch));
}

}  // namespace

void solve(const Tensor& x, const Tensor& a, const Tensor& b, const char* op) {
  const Shape batch = detail::leading(x.shape, 2);
  const auto n = static_cast<double>(x.shape[-2]), k = static_cast<double>(x.shape[-1]);
  FirstFailure failure;
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> xs(x, 2, batch);
    const Stack<const T> as(a, 2, batch), bs(b, 2, batch);
    each_item(batch, cube(n) + n * n * k, [&](int64_t begin, int64_t end) {
      Factored<T> factored;
      std::vector<T> memory;
      const MatrixBlock<T> solution = detail::contiguous(memory, x.shape[-2], x.shape[-1]);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t pivot = factored(as[i]);
        if (pivot >= 0) {
          failure.note(i, pivot);
          continue;
        }
        detail::assign(solution, bs[i]);
        factored.solve(solution);
        detail::assign(xs[i], constant(solution));
      }
    });
  });
  refuse_singular(failure, batch, op);
}

void solve_triangular(const Tensor& x, const Tensor& a, const Tensor& b, bool upper, bool unit,
                      const char* op) {
  const Shape batch = detail::leading(x.shape, 2);
  const auto n = static_cast<double>(x.shape[-2]), k = static_cast<double>(x.shape[-1]);
  FirstFailure failure;
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> xs(x, 2, batch);
    const Stack<const T> as(a, 2, batch), bs(b, 2, batch);
    each_item(batch, n * n * (k + 1), [&](int64_t begin, int64_t end) {
      std::vector<T> triangle_memory, memory;
      const MatrixBlock<T> triangle = detail::contiguous(triangle_memory, x.shape[-2], x.shape[-2]),
                           solution = detail::contiguous(memory, x.shape[-2], x.shape[-1]);
      for (int64_t i = begin; i < end; ++i) {
        detail::assign(triangle, as[i]);
        for (int64_t j = 0; !unit && j < triangle.rows; ++j)
          if (triangle(j, j) == 0) failure.note(i, j);
        detail::assign(solution, bs[i]);
        if (upper) {
          solve_upper<T>(constant(triangle), solution, unit);
        } else {
          solve_lower<T>(constant(triangle), solution, unit);
        }
        detail::assign(xs[i], constant(solution));
      }
    });
  });
  refuse_singular(failure, batch, op, "diagonal element");
}

void inverse(const Tensor& y, const Tensor& a, const char* op) {
  const Shape batch = detail::leading(y.shape, 2);
  const int64_t n = y.shape[-1];
  FirstFailure failure;
  detail::visit_real(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ys(y, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, 2 * cube(static_cast<double>(n)), [&](int64_t begin, int64_t end) {
      Factored<T> factored;
      std::vector<T> memory;
      const MatrixBlock<T> solution = detail::contiguous(memory, n, n);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t pivot = factored(as[i]);
        if (pivot >= 0) {
          failure.note(i, pivot);
          continue;
        }
        set_identity(solution);
        factored.solve(solution);
        detail::assign(ys[i], constant(solution));
      }
    });
  });
  refuse_singular(failure, batch, op);
}

void lu(const Tensor& factors, const Tensor& pivots, const Tensor& permutation, const Tensor& a) {
  const Shape batch = detail::leading(a.shape, 2);
  const auto m = static_cast<double>(a.shape[-2]), n = static_cast<double>(a.shape[-1]);
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> outs(factors, 2, batch);
    const Stack<const T> as(a, 2, batch);
    const Stack<int64_t> exchanges(pivots, 1, batch), orders(permutation, 1, batch);
    each_item(batch, m * n * std::min(m, n), [&](int64_t begin, int64_t end) {
      Factored<T> factored;
      std::vector<int64_t> order(static_cast<size_t>(a.shape[-2]));
      for (int64_t i = begin; i < end; ++i) {
        factored(as[i]);
        detail::assign(outs[i], constant(factored.factors));
        std::iota(order.begin(), order.end(), int64_t{0});
        for (size_t k = 0; k < factored.pivots.size(); ++k) {
          exchanges[i](static_cast<int64_t>(k), 0) = factored.pivots[k];
          std::swap(order[k], order[static_cast<size_t>(factored.pivots[k])]);
        }
        for (size_t k = 0; k < order.size(); ++k) orders[i](static_cast<int64_t>(k), 0) = order[k];
      }
    });
  });
}

void determinant(const Tensor& y, const Tensor& a) {
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ys(y, 0, y.shape);
    const Stack<const T> as(a, 2, y.shape);
    each_item(y.shape, cube(static_cast<double>(a.shape[-1])), [&](int64_t begin, int64_t end) {
      Factored<T> factored;
      for (int64_t i = begin; i < end; ++i) {
        factored(as[i]);
        *ys[i].data = static_cast<T>(factored.determinant());
      }
    });
  });
}

void log_determinant(const Tensor& sign, const Tensor& logarithm, const Tensor& a) {
  const Shape& batch = sign.shape;
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> signs(sign, 0, batch), logarithms(logarithm, 0, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, cube(static_cast<double>(a.shape[-1])), [&](int64_t begin, int64_t end) {
      Factored<T> factored;
      for (int64_t i = begin; i < end; ++i) {
        factored(as[i]);
        double positive = exchange_sign(factored.pivots), sum = 0;
        for (int64_t k = 0; k < factored.factors.rows; ++k) {
          const auto pivot = static_cast<double>(factored.factors(k, k));
          positive *= pivot > 0 ? 1 : pivot < 0 ? -1 : pivot;  // a NaN stays one
          sum += std::log(std::abs(pivot));
        }
        *signs[i].data = static_cast<T>(positive);
        *logarithms[i].data = static_cast<T>(sum);
      }
    });
  });
}

void cofactors(const Tensor& y, const Tensor& a, const char* op) {
  const Shape batch = detail::leading(y.shape, 2);
  const int64_t n = y.shape[-1];
  FirstFailure failure;
  detail::visit_real(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ys(y, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, 2 * cube(static_cast<double>(n)), [&](int64_t begin, int64_t end) {
      Factored<T> factored;
      LapackScratch<T> scratch;
      std::vector<T> memory;
      const MatrixBlock<T> result = detail::contiguous(memory, n, n);
      for (int64_t i = begin; i < end; ++i) {
        if (factored(as[i]) < 0) {
          const double scale = factored.determinant();
          set_identity(result);
          factored.solve(result);
          for (T& x : memory) x = static_cast<T>(scale * static_cast<double>(x));
          detail::assign(ys[i], constant(result.transposed()));
        } else if (singular_cofactors(as[i], result, factored, scratch)) {
          detail::assign(ys[i], constant(result));
        } else {
          failure.note(i, 0);
        }
      }
    });
  });
  detail::refuse_divergent(failure, batch, op);
}

void cholesky(const Tensor& l, const Tensor& a, bool upper, const char* op) {
  const Shape batch = detail::leading(l.shape, 2);
  const int64_t n = l.shape[-1];
  FirstFailure failure;
  detail::visit_real(l.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ls(l, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, cube(static_cast<double>(n)) / 3, [&](int64_t begin, int64_t end) {
      std::vector<T> memory;
      const MatrixBlock<T> factor = detail::contiguous(memory, n, n);
      for (int64_t i = begin; i < end; ++i) {
        const MatrixBlock<const T> source = upper ? as[i].transposed() : as[i];
        for (int64_t r = 0; r < n; ++r)
          for (int64_t c = 0; c < n; ++c) factor(r, c) = c <= r ? source(r, c) : T(0);
        const int64_t pivot = kernels::cholesky(factor);
        if (pivot >= 0) failure.note(i, pivot);
        detail::assign(upper ? ls[i].transposed() : ls[i], constant(factor));
      }
    });
  });
  if (failure.any())
    throw InvalidArgument(detail::bad_leading_part(op, failure.detail(), failure.item(), batch));
}

}  // namespace mx::kernels
