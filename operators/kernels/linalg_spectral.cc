// Decompositions by LAPACK, for stacks of matrices, and what is computed from them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "operators/kernels/linalg.h"
#include "operators/kernels/linalg_support.h"
#include "operators/kernels/matrix_exp_formulas.h"

namespace mx::kernels {

using detail::each_item;
using detail::FirstFailure;
using detail::Stack;

namespace detail {

void refuse_divergent(const FirstFailure& failure, const Shape& batch, const char* op) {
  MX_CHECK(!failure.any(), NumericError, "[", op,
           "] expected the iteration for every matrix to converge, got one for which it did not",
           at_item(failure.item(), batch));
}

}  // namespace detail

namespace {

/// The singular value decomposition of one matrix, in memory that is reused, and the tolerance for its rank.
template <class T>
struct Spectrum {
  std::vector<T> left, right, values;
  LapackScratch<T> scratch;
  MatrixBlock<T> u, vh;

  bool operator()(const MatrixBlock<const T>& a) {
    const int64_t k = std::min(a.rows, a.columns);
    u = detail::contiguous(left, a.rows, k);
    vh = detail::contiguous(right, k, a.columns);
    values.resize(static_cast<size_t>(k));
    return kernels::svd(a, values.data(), &u, &vh, scratch);
  }
  /// Returns the number of singular values that count, at most `tolerance` times the largest one; all of them
  /// if they are NaN.
  int64_t rank(double tolerance) const {
    if (values.empty()) return 0;
    if (tolerance < 0)
      tolerance = static_cast<double>(std::max(u.rows, vh.columns)) *
                  static_cast<double>(std::numeric_limits<T>::epsilon());
    const double bound = tolerance * static_cast<double>(values[0]);
    return std::count_if(values.begin(), values.end(),
                         [bound](T s) { return !(static_cast<double>(s) <= bound); });
  }
};

double svd_work(const Tensor& a) {
  const auto m = static_cast<double>(a.shape[-2]), n = static_cast<double>(a.shape[-1]);
  return 10 * m * n * std::min(m, n);
}

using SquareMatrix = MatrixBlock<double>;

void add_scaled(const SquareMatrix& to, double factor, const SquareMatrix& from) {
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.columns; ++j) to(i, j) += factor * from(i, j);
}
void add_diagonal(const SquareMatrix& to, double value) {
  for (int64_t i = 0; i < to.rows; ++i) to(i, i) += value;
}

class Exponential {
 public:
  explicit Exponential(int64_t n) : n_(n) {
    for (size_t i = 0; i < 7; ++i) part_[i] = detail::contiguous(memory_[i], n, n);
    pivots_.resize(static_cast<size_t>(n));
  }

  /// Replaces the matrix in argument() by its exponential.
  void operator()() {
    const auto& [a, a2, a4, a6, u, v, sum] = part_;
    const auto b = formulas::matrix_exp_coefficient;
    const int halvings = scale();
    square(a, a2);
    square(a2, a4);
    times(a4, a2, a6);
    // The odd powers, u = a (a6 (b13 a6 + b11 a4 + b9 a2) + b7 a6 + b5 a4 + b3 a2 + b1).
    combine(sum, {0, b(9), b(11), b(13)});
    times(a6, sum, v);
    combine(sum, {b(1), b(3), b(5), b(7)});
    add_scaled(sum, 1, v);
    times(a, sum, u);
    // The even powers, v = a6 (b12 a6 + b10 a4 + b8 a2) + b6 a6 + b4 a4 + b2 a2 + b0.
    combine(sum, {0, b(8), b(10), b(12)});
    times(a6, sum, v);
    combine(sum, {b(0), b(2), b(4), b(6)});
    add_scaled(v, 1, sum);
    // (v - u) y = v + u
    detail::assign(a, constant(v));
    add_scaled(a, 1, u);
    add_scaled(v, -1, u);
    lu_factor(v, pivots_.data());
    exchange_rows(a, pivots_.data(), n_);
    solve_lower<double>(constant(v), a, true);
    solve_upper<double>(constant(v), a, false);
    for (int k = 0; k < halvings; ++k) {
      square(a, sum);
      detail::assign(a, constant(sum));
    }
  }
  const SquareMatrix& argument() const { return part_[0]; }

 private:
  /// Halves the argument until its norm is small enough. Returns how often.
  int scale() const {
    double norm = 0;
    for (int64_t j = 0; j < n_; ++j) {
      double column = 0;
      for (int64_t i = 0; i < n_; ++i) column += std::abs(argument()(i, j));
      norm = std::max(norm, column);
    }
    const int halvings = formulas::matrix_exp_halvings(norm);
    if (halvings == 0) return 0;
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < n_; ++j) argument()(i, j) = std::ldexp(argument()(i, j), -halvings);
    return halvings;
  }
  void times(const SquareMatrix& a, const SquareMatrix& b, const SquareMatrix& c) const {
    product<double>(constant(a), constant(b), c, true);
  }
  void square(const SquareMatrix& a, const SquareMatrix& c) const { times(a, a, c); }
  /// to = factors[0] + factors[1] a2 + factors[2] a4 + factors[3] a6
  void combine(const SquareMatrix& to, const double (&factors)[4]) const {
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < n_; ++j) to(i, j) = 0;
    add_diagonal(to, factors[0]);
    for (size_t k = 1; k < 4; ++k) add_scaled(to, factors[k], part_[k]);
  }

  int64_t n_;
  std::vector<double> memory_[7];
  SquareMatrix part_[7];
  std::vector<int64_t> pivots_;
};

}  // namespace

void qr(const Tensor& q, const Tensor& r, const Tensor& a) {
  const Shape batch = detail::leading(a.shape, 2);
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> qs(q, 2, batch), rs(r, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, svd_work(a), [&](int64_t begin, int64_t end) {
      LapackScratch<T> scratch;
      for (int64_t i = begin; i < end; ++i) kernels::qr(as[i], qs[i], rs[i], scratch);
    });
  });
}

void svd(const Tensor* u, const Tensor& s, const Tensor* vh, const Tensor& a, const char* op) {
  const Shape batch = detail::leading(a.shape, 2);
  FirstFailure failure;
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> us(u != nullptr ? *u : a, 2, batch), ss(s, 1, batch),
        vs(vh != nullptr ? *vh : a, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, svd_work(a), [&](int64_t begin, int64_t end) {
      LapackScratch<T> scratch;
      std::vector<T> values(static_cast<size_t>(s.shape[-1]));
      for (int64_t i = begin; i < end; ++i) {
        const MatrixBlock<T> left = us[i], right = vs[i], to = ss[i];
        if (!kernels::svd(as[i], values.data(), u != nullptr ? &left : nullptr,
                          vh != nullptr ? &right : nullptr, scratch))
          failure.note(i, 0);
        for (int64_t k = 0; k < to.rows; ++k) to(k, 0) = values[static_cast<size_t>(k)];
      }
    });
  });
  detail::refuse_divergent(failure, batch, op);
}

void eigh(const Tensor& w, const Tensor* v, const Tensor& a, bool upper, const char* op) {
  const Shape batch = detail::leading(a.shape, 2);
  FirstFailure failure;
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ws(w, 1, batch), vs(v != nullptr ? *v : a, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, svd_work(a), [&](int64_t begin, int64_t end) {
      LapackScratch<T> scratch;
      std::vector<T> values(static_cast<size_t>(w.shape[-1]));
      for (int64_t i = begin; i < end; ++i) {
        const MatrixBlock<T> vectors = vs[i], to = ws[i];
        if (!kernels::eigh(as[i], upper, values.data(), v != nullptr ? &vectors : nullptr, scratch))
          failure.note(i, 0);
        for (int64_t k = 0; k < to.rows; ++k) to(k, 0) = values[static_cast<size_t>(k)];
      }
    });
  });
  detail::refuse_divergent(failure, batch, op);
}

namespace {

/// The real (0) or the imaginary (1) parts of an array of pairs.
Tensor part_of_pairs(const Tensor& x, int part) {
  Tensor made = x.narrowed(x.rank() - 1, part, 1);
  made.shape.erase(made.rank() - 1);
  made.strides.erase(made.strides.rank() - 1);
  return made;
}

}  // namespace

void eig(const Tensor& w, const Tensor* v, const Tensor& a, const char* op) {
  const Shape batch = detail::leading(a.shape, 2);
  FirstFailure failure;
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ws(w, 2, batch), re(v != nullptr ? part_of_pairs(*v, 0) : a, 2, batch),
        im(v != nullptr ? part_of_pairs(*v, 1) : a, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, 3 * svd_work(a), [&](int64_t begin, int64_t end) {
      LapackScratch<T> scratch;
      for (int64_t i = begin; i < end; ++i) {
        const ComplexBlock<T> vectors{re[i], im[i]};
        if (!kernels::eig(as[i], ws[i], v != nullptr ? &vectors : nullptr, scratch)) failure.note(i, 0);
      }
    });
  });
  detail::refuse_divergent(failure, batch, op);
}

void pseudo_inverse(const Tensor& y, const Tensor& a, double tolerance, const char* op) {
  const Shape batch = detail::leading(a.shape, 2);
  FirstFailure failure;
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ys(y, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, svd_work(a), [&](int64_t begin, int64_t end) {
      Spectrum<T> spectrum;
      std::vector<T> memory;
      const MatrixBlock<T> result = detail::contiguous(memory, y.shape[-2], y.shape[-1]);
      for (int64_t i = begin; i < end; ++i) {
        if (!spectrum(as[i])) {
          failure.note(i, 0);
          continue;
        }
        const int64_t rank = spectrum.rank(tolerance);
        const MatrixBlock<T>&u = spectrum.u, &vh = spectrum.vh;
        for (int64_t k = 0; k < rank; ++k)
          for (int64_t j = 0; j < vh.columns; ++j) vh(k, j) /= spectrum.values[static_cast<size_t>(k)];
        product<T>(constant(vh.part(0, 0, rank, vh.columns).transposed()),
                   constant(u.part(0, 0, u.rows, rank).transposed()), result, true);
        detail::assign(ys[i], constant(result));
      }
    });
  });
  detail::refuse_divergent(failure, batch, op);
}

void least_squares(const Tensor& x, const Tensor& rank, const Tensor& s, const Tensor& a, const Tensor& b,
                   double tolerance, const char* op) {
  const Shape batch = detail::leading(x.shape, 2);
  FirstFailure failure;
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> xs(x, 2, batch), ss(s, 1, batch);
    const Stack<int64_t> ranks(rank, 0, batch);
    const Stack<const T> as(a, 2, batch), bs(b, 2, batch);
    each_item(batch, svd_work(a), [&](int64_t begin, int64_t end) {
      Spectrum<T> spectrum;
      std::vector<T> right_memory, middle_memory, memory;
      const int64_t columns = x.shape[-1];
      const MatrixBlock<T> right = detail::contiguous(right_memory, b.shape[-2], columns),
                           middle = detail::contiguous(middle_memory, s.shape[-1], columns),
                           result = detail::contiguous(memory, x.shape[-2], columns);
      for (int64_t i = begin; i < end; ++i) {
        if (!spectrum(as[i])) {
          failure.note(i, 0);
          continue;
        }
        const int64_t count = spectrum.rank(tolerance);
        const MatrixBlock<T>&u = spectrum.u, &vh = spectrum.vh;
        detail::assign(right, bs[i]);
        const MatrixBlock<T> used = middle.part(0, 0, count, columns);
        product<T>(constant(u.part(0, 0, u.rows, count).transposed()), constant(right), used, true);
        for (int64_t k = 0; k < count; ++k)
          for (int64_t j = 0; j < columns; ++j) used(k, j) /= spectrum.values[static_cast<size_t>(k)];
        product<T>(constant(vh.part(0, 0, count, vh.columns).transposed()), constant(used), result, true);
        detail::assign(xs[i], constant(result));
        *ranks[i].data = count;
        const MatrixBlock<T> to = ss[i];
        for (int64_t k = 0; k < to.rows; ++k) to(k, 0) = spectrum.values[static_cast<size_t>(k)];
      }
    });
  });
  detail::refuse_divergent(failure, batch, op);
}

void matrix_exp(const Tensor& y, const Tensor& a) {
  const Shape batch = detail::leading(a.shape, 2);
  const auto n = static_cast<double>(a.shape[-1]);
  detail::visit_real(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stack<T> ys(y, 2, batch);
    const Stack<const T> as(a, 2, batch);
    each_item(batch, 10 * n * n * n, [&](int64_t begin, int64_t end) {
      Exponential exponential(a.shape[-1]);
      const MatrixBlock<double>& work = exponential.argument();
      for (int64_t i = begin; i < end; ++i) {
        const MatrixBlock<const T> from = as[i];
        const MatrixBlock<T> to = ys[i];
        for (int64_t r = 0; r < work.rows; ++r)
          for (int64_t c = 0; c < work.columns; ++c) work(r, c) = static_cast<double>(from(r, c));
        exponential();
        for (int64_t r = 0; r < work.rows; ++r)
          for (int64_t c = 0; c < work.columns; ++c) to(r, c) = static_cast<T>(work(r, c));
      }
    });
  });
}

}  // namespace mx::kernels
