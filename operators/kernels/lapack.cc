#include "operators/kernels/lapack.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <type_traits>

#include "engine/base/check.h"

// The functions of LAPACK, as Fortran compilers name and call them. The lengths of character arguments follow
// the other arguments.
extern "C" {
void sgeqrf_(const int* m, const int* n, float* a, const int* lda, float* tau, float* work, const int* lwork,
             int* info);
void dgeqrf_(const int* m, const int* n, double* a, const int* lda, double* tau, double* work,
             const int* lwork, int* info);
void sorgqr_(const int* m, const int* n, const int* k, float* a, const int* lda, const float* tau,
             float* work, const int* lwork, int* info);
void dorgqr_(const int* m, const int* n, const int* k, double* a, const int* lda, const double* tau,
             double* work, const int* lwork, int* info);
void sgesdd_(const char* jobz, const int* m, const int* n, float* a, const int* lda, float* s, float* u,
             const int* ldu, float* vt, const int* ldvt, float* work, const int* lwork, int* iwork, int* info,
             size_t);
void dgesdd_(const char* jobz, const int* m, const int* n, double* a, const int* lda, double* s, double* u,
             const int* ldu, double* vt, const int* ldvt, double* work, const int* lwork, int* iwork,
             int* info, size_t);
void sgesvd_(const char* jobu, const char* jobvt, const int* m, const int* n, float* a, const int* lda,
             float* s, float* u, const int* ldu, float* vt, const int* ldvt, float* work, const int* lwork,
             int* info, size_t, size_t);
void dgesvd_(const char* jobu, const char* jobvt, const int* m, const int* n, double* a, const int* lda,
             double* s, double* u, const int* ldu, double* vt, const int* ldvt, double* work,
             const int* lwork, int* info, size_t, size_t);
void ssyevd_(const char* jobz, const char* uplo, const int* n, float* a, const int* lda, float* w,
             float* work, const int* lwork, int* iwork, const int* liwork, int* info, size_t, size_t);
void dsyevd_(const char* jobz, const char* uplo, const int* n, double* a, const int* lda, double* w,
             double* work, const int* lwork, int* iwork, const int* liwork, int* info, size_t, size_t);
void sgeev_(const char* jobvl, const char* jobvr, const int* n, float* a, const int* lda, float* wr,
            float* wi, float* vl, const int* ldvl, float* vr, const int* ldvr, float* work, const int* lwork,
            int* info, size_t, size_t);
void dgeev_(const char* jobvl, const char* jobvr, const int* n, double* a, const int* lda, double* wr,
            double* wi, double* vl, const int* ldvl, double* vr, const int* ldvr, double* work,
            const int* lwork, int* info, size_t, size_t);
}

namespace mx::kernels {
namespace {

template <class T>
struct Lapack;
template <>
struct Lapack<float> {
  static constexpr auto geqrf = sgeqrf_;
  static constexpr auto orgqr = sorgqr_;
  static constexpr auto gesdd = sgesdd_;
  static constexpr auto gesvd = sgesvd_;
  static constexpr auto syevd = ssyevd_;
  static constexpr auto geev = sgeev_;
};
template <>
struct Lapack<double> {
  static constexpr auto geqrf = dgeqrf_;
  static constexpr auto orgqr = dorgqr_;
  static constexpr auto gesdd = dgesdd_;
  static constexpr auto gesvd = dgesvd_;
  static constexpr auto syevd = dsyevd_;
  static constexpr auto geev = dgeev_;
};

void keep_to_one_thread() {
  static const bool done = [] {
    if (void* const set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))
      reinterpret_cast<void (*)(int)>(set)(1);
    return true;
  }();
  static_cast<void>(done);
}

int as_int(double n) {
  MX_CHECK(n <= std::numeric_limits<int>::max(), InvalidArgument,
           "[lapack] expected a matrix whose workspace has fewer than 2^31 elements, got ", n);
  return static_cast<int>(n);
}

/// Returns the size of a workspace from the answer of a query, which T may have rounded down.
template <class T>
int workspace(T answer) {
  return as_int(std::ceil(static_cast<double>(answer) * (1 + 2. * std::numeric_limits<T>::epsilon())));
}

/// Makes at least n elements, and at least one, so that there is an address.
template <class V>
auto* room_for(V& list, int64_t n) {
  if (static_cast<int64_t>(list.size()) < std::max<int64_t>(n, 1))
    list.resize(static_cast<size_t>(std::max<int64_t>(n, 1)));
  return list.data();
}

/// Copies a into contiguous rows. Returns false if an element is infinite or NaN.
template <class T>
bool load_rows(const MatrixBlock<const T>& a, T* to) {
  bool finite = true;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) {
      const T x = a(i, j);
      finite = finite && std::isfinite(x);
      to[i * a.columns + j] = x;
    }
  return finite;
}

template <class T, class F>
void fill_block(const MatrixBlock<T>& a, const F& element) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) a(i, j) = element(i, j);
}
template <class T>
void fill_nan(const MatrixBlock<T>& a) {
  fill_block(a, [](int64_t, int64_t) { return std::numeric_limits<T>::quiet_NaN(); });
}
template <class T>
void fill_identity(const MatrixBlock<T>& a) {
  fill_block(a, [](int64_t i, int64_t j) { return i == j ? T(1) : T(0); });
}

/// Returns -1 if the leading element is negative, else 1. That is the first one with at least half of the
/// largest magnitude. The largest one itself would not do: vectors such as (1, -1) / sqrt(2) are frequent,
/// and there rounding would decide.
template <class T>
T sign_of_leading(const T* x, int64_t n, int64_t stride) {
  T largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i * stride]));
  for (int64_t i = 0; i < n; ++i)
    if (std::abs(x[i * stride]) >= largest / 2) return x[i * stride] < 0 ? T(-1) : T(1);
  return T(1);
}

/// Calls gesdd, and if its iteration fails, gesvd, for the transposed matrix: contiguous rows are columns for
/// LAPACK. The answer's left vectors are the rows of vh, its right ones those of u.
template <class T>
bool call_svd(const MatrixBlock<const T>& a, char job, T* s, T* vh, T* u, int64_t u_columns,
              LapackScratch<T>& scratch) {
  const int m = as_int(static_cast<double>(a.columns)), n = as_int(static_cast<double>(a.rows));
  const int ldu = std::max(1, m), ldvt = std::max(1, static_cast<int>(u_columns));
  int info = 0, query = -1;
  int* const integers = room_for(scratch.integers, 8 * std::min<int64_t>(m, n));
  T answer = 0;
  Lapack<T>::gesdd(&job, &m, &n, scratch.matrix.data(), &m, s, vh, &ldu, u, &ldvt, &answer, &query, integers,
                   &info, 1);
  int size = workspace(answer);
  Lapack<T>::gesdd(&job, &m, &n, scratch.matrix.data(), &m, s, vh, &ldu, u, &ldvt,
                   room_for(scratch.work, size), &size, integers, &info, 1);
  if (info == 0) return true;
  load_rows(a, scratch.matrix.data());
  Lapack<T>::gesvd(&job, &job, &m, &n, scratch.matrix.data(), &m, s, vh, &ldu, u, &ldvt, &answer, &query,
                   &info, 1, 1);
  size = workspace(answer);
  Lapack<T>::gesvd(&job, &job, &m, &n, scratch.matrix.data(), &m, s, vh, &ldu, u, &ldvt,
                   room_for(scratch.work, size), &size, &info, 1, 1);
  return info == 0;
}

}  // namespace

template <class T>
void qr(const MatrixBlock<const T>& a, const MatrixBlock<T>& q, const MatrixBlock<T>& r,
        LapackScratch<T>& scratch) {
  keep_to_one_thread();
  const int64_t m = a.rows, n = a.columns, columns = q.columns, k = std::min(m, n);
  // LAPACK makes q in the memory of a, so there must be room for all of its columns. Both are stored by
  // columns, which are the rows of the transposed matrix.
  T* const matrix = room_for(scratch.matrix, m * std::max(n, columns));
  if (!load_rows(a.transposed(), matrix)) {
    fill_nan(q);
    return fill_nan(r);
  }
  if (k == 0) {
    fill_identity(q);
    return fill_block(r, [](int64_t, int64_t) { return T(0); });
  }
  const int rows = as_int(static_cast<double>(m)), all = as_int(static_cast<double>(n)),
            wanted = as_int(static_cast<double>(columns)), few = static_cast<int>(k);
  T* const tau = room_for(scratch.reflections, k);
  int info = 0, query = -1;
  T answer = 0;
  Lapack<T>::geqrf(&rows, &all, matrix, &rows, tau, &answer, &query, &info);
  int size = workspace(answer);
  Lapack<T>::geqrf(&rows, &all, matrix, &rows, tau, room_for(scratch.work, size), &size, &info);
  const auto is_negative = [&](int64_t i) { return i < k && scratch.left[static_cast<size_t>(i)] < 0; };
  room_for(scratch.left, k);
  for (int64_t i = 0; i < k; ++i) scratch.left[static_cast<size_t>(i)] = matrix[i * m + i];
  fill_block(r, [&](int64_t i, int64_t j) {
    return j < i ? T(0) : is_negative(i) ? -matrix[j * m + i] : matrix[j * m + i];
  });
  Lapack<T>::orgqr(&rows, &wanted, &few, matrix, &rows, tau, &answer, &query, &info);
  size = workspace(answer);
  Lapack<T>::orgqr(&rows, &wanted, &few, matrix, &rows, tau, room_for(scratch.work, size), &size, &info);
  fill_block(q,
             [&](int64_t i, int64_t j) { return is_negative(j) ? -matrix[j * m + i] : matrix[j * m + i]; });
}

template <class T>
bool svd(const MatrixBlock<const T>& a, T* s, const MatrixBlock<T>* u, const MatrixBlock<T>* vh,
         LapackScratch<T>& scratch) {
  keep_to_one_thread();
  const int64_t m = a.rows, n = a.columns, k = std::min(m, n);
  if (!load_rows(a, room_for(scratch.matrix, m * n))) {
    std::fill(s, s + k, std::numeric_limits<T>::quiet_NaN());
    if (u != nullptr) fill_nan(*u);
    if (vh != nullptr) fill_nan(*vh);
    return true;
  }
  if (k == 0) {
    if (u != nullptr) fill_identity(*u);
    if (vh != nullptr) fill_identity(*vh);
    return true;
  }
  if (u == nullptr) {
    T none = 0;
    return call_svd(a, 'N', s, &none, &none, 1, scratch);
  }
  const int64_t columns = u->columns, rows = vh->rows;
  T* const left = room_for(scratch.left, m * columns);
  T* const right = room_for(scratch.right, rows * n);
  if (!call_svd(a, columns == m && rows == n ? 'A' : 'S', s, right, left, columns, scratch)) return false;
  std::vector<T>& signs = scratch.reflections;
  room_for(signs, std::max(columns, rows));
  for (int64_t j = 0; j < columns; ++j) {
    const T sign = sign_of_leading(left + j, m, columns);
    signs[static_cast<size_t>(j)] = sign;
    for (int64_t i = 0; i < m; ++i) (*u)(i, j) = sign * left[i * columns + j];
  }
  for (int64_t i = 0; i < rows; ++i) {
    const T sign = i < k ? signs[static_cast<size_t>(i)] : sign_of_leading(right + i * n, n, 1);
    for (int64_t j = 0; j < n; ++j) (*vh)(i, j) = sign * right[i * n + j];
  }
  return true;
}

template <class T>
bool eigh(const MatrixBlock<const T>& a, bool upper, T* w, const MatrixBlock<T>* v,
          LapackScratch<T>& scratch) {
  keep_to_one_thread();
  const int64_t n = a.rows;
  T* const matrix = room_for(scratch.matrix, n * n);
  bool finite = true;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      // The other triangle is not read, so it may hold anything.
      const T x = (upper ? j >= i : j <= i) ? a(i, j) : T(0);
      finite = finite && std::isfinite(x);
      matrix[i * n + j] = x;
    }
  if (!finite) {
    std::fill(w, w + n, std::numeric_limits<T>::quiet_NaN());
    if (v != nullptr) fill_nan(*v);
    return true;
  }
  if (n == 0) return true;
  // The upper triangle of contiguous rows is the lower one of columns.
  const char job = v == nullptr ? 'N' : 'V', triangle = upper ? 'L' : 'U';
  const int size = as_int(static_cast<double>(n));
  int info = 0, query = -1, integer_answer = 0;
  T answer = 0;
  Lapack<T>::syevd(&job, &triangle, &size, matrix, &size, w, &answer, &query, &integer_answer, &query, &info,
                   1, 1);
  const int work = workspace(answer);
  int* const integers = room_for(scratch.integers, integer_answer);
  Lapack<T>::syevd(&job, &triangle, &size, matrix, &size, w, room_for(scratch.work, work), &work, integers,
                   &integer_answer, &info, 1, 1);
  if (info != 0) return false;
  if (v == nullptr) return true;
  for (int64_t j = 0; j < n; ++j) {
    const T sign = sign_of_leading(matrix + j * n, n, 1);
    for (int64_t i = 0; i < n; ++i) (*v)(i, j) = sign * matrix[j * n + i];
  }
  return true;
}

namespace {

/// Writes eigenvector k of LAPACK's real result, whose eigenvalue has the imaginary part wi[k], as column j
/// of v, turned such that the leading element is real and positive. Two eigenvalues that are conjugate to
/// each other share two columns: the real and the imaginary part of the first one's vector.
template <class T>
void store_eigenvector(const T* vectors, const T* wi, int64_t k, const ComplexBlock<T>& v, int64_t j) {
  const int64_t n = v.re.rows;
  const bool second = wi[k] < 0, paired = wi[k] != 0;
  const T* const re = vectors + (second ? k - 1 : k) * n;
  const T* const im = re + n;
  const auto imaginary = [&](int64_t i) { return !paired ? T(0) : second ? -im[i] : im[i]; };
  T largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::hypot(re[i], imaginary(i)));
  int64_t lead = 0;
  while (lead + 1 < n && std::hypot(re[lead], imaginary(lead)) < largest / 2) ++lead;
  const T size = std::hypot(re[lead], imaginary(lead)), c = re[lead] / size, s = -imaginary(lead) / size;
  for (int64_t i = 0; i < n; ++i) {
    v.re(i, j) = i == lead ? size : c * re[i] - s * imaginary(i);
    v.im(i, j) = i == lead ? T(0) : c * imaginary(i) + s * re[i];
  }
}

}  // namespace

template <class T>
bool eig(const MatrixBlock<const T>& a, const MatrixBlock<T>& w, const ComplexBlock<T>* v,
         LapackScratch<T>& scratch) {
  keep_to_one_thread();
  const int64_t n = a.rows;
  T* const matrix = room_for(scratch.matrix, n * n);
  if (!load_rows(a.transposed(), matrix)) {
    fill_nan(w);
    if (v == nullptr) return true;
    fill_nan(v->re);
    fill_nan(v->im);
    return true;
  }
  if (n == 0) return true;
  const char no = 'N', job = v == nullptr ? 'N' : 'V';
  const int size = as_int(static_cast<double>(n)), one = 1;
  T* const values = room_for(scratch.left, 2 * n);
  T* const vectors = room_for(scratch.right, v == nullptr ? 1 : n * n);
  int info = 0, query = -1;
  T answer = 0, none = 0;
  Lapack<T>::geev(&no, &job, &size, matrix, &size, values, values + n, &none, &one, vectors, &size, &answer,
                  &query, &info, 1, 1);
  const int work = workspace(answer);
  Lapack<T>::geev(&no, &job, &size, matrix, &size, values, values + n, &none, &one, vectors, &size,
                  room_for(scratch.work, work), &work, &info, 1, 1);
  if (info != 0) return false;
  const T *const wr = values, *const wi = values + n;
  std::vector<int>& order = scratch.integers;
  room_for(order, n);
  std::iota(order.begin(), order.begin() + n, 0);
  std::stable_sort(order.begin(), order.begin() + n,
                   [&](int i, int j) { return wr[i] != wr[j] ? wr[i] < wr[j] : wi[i] < wi[j]; });
  for (int64_t j = 0; j < n; ++j) {
    const int k = order[static_cast<size_t>(j)];
    w(j, 0) = wr[k];
    w(j, 1) = wi[k];
    if (v != nullptr) store_eigenvector(vectors, wi, k, *v, j);
  }
  return true;
}

template bool eig(const MatrixBlock<const float>&, const MatrixBlock<float>&, const ComplexBlock<float>*,
                  LapackScratch<float>&);
template bool eig(const MatrixBlock<const double>&, const MatrixBlock<double>&, const ComplexBlock<double>*,
                  LapackScratch<double>&);
template void qr(const MatrixBlock<const float>&, const MatrixBlock<float>&, const MatrixBlock<float>&,
                 LapackScratch<float>&);
template void qr(const MatrixBlock<const double>&, const MatrixBlock<double>&, const MatrixBlock<double>&,
                 LapackScratch<double>&);
template bool svd(const MatrixBlock<const float>&, float*, const MatrixBlock<float>*,
                  const MatrixBlock<float>*, LapackScratch<float>&);
template bool svd(const MatrixBlock<const double>&, double*, const MatrixBlock<double>*,
                  const MatrixBlock<double>*, LapackScratch<double>&);
template bool eigh(const MatrixBlock<const float>&, bool, float*, const MatrixBlock<float>*,
                   LapackScratch<float>&);
template bool eigh(const MatrixBlock<const double>&, bool, double*, const MatrixBlock<double>*,
                   LapackScratch<double>&);

}  // namespace mx::kernels
