// QR decompositions, and eigenvalues and eigenvectors of symmetric matrices: operators/kernels/linalg.h. A
// block computes one matrix. QR is that of Householder; eigenvalues are found by rotations (Jacobi; Golub and
// van Loan, "Matrix Computations", 8.5). A rotation needs only its pair of rows and columns, so all pairs of
// a round are rotated at once.
#include "operators/cuda/linalg_rotate.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"
#include "operators/linalg_records.h"

namespace mx::cuda {
namespace {

/// x (m, columns) minus factor * v (v' x), for the rows from `first` on. v is 1 at `first`, and column
/// `first` of `a` (m, n) below it. `products` is memory for `columns` numbers.
template <class A>
__device__ inline void reflect(const A* a, int64_t m, int64_t n, int64_t first, A factor, A* x,
                               int64_t columns, int64_t first_column, A* products) {
  const auto part = [&](int64_t i) -> A { return i == first ? A{1} : a[i * n + first]; };
  for (int64_t j = first_column + threadIdx.x; j < columns; j += kBlock) {
    A sum = 0;
    for (int64_t i = first; i < m; ++i) sum += part(i) * x[i * columns + j];
    products[j] = factor * sum;
  }
  barrier();
  const int64_t width = columns - first_column;
  for (int64_t at = threadIdx.x; at < (m - first) * width; at += kBlock) {
    const int64_t i = first + at / width, j = first_column + at % width;
    x[i * columns + j] -= part(i) * products[j];
  }
  barrier();
}

/// a (m, n) is replaced by its reflections; q is (m, k), r is (k, n).
template <class A>
__global__ void __launch_bounds__(kBlock)
    factor_qr(A* matrices, A* qs, A* rs, A* memory, int64_t m, int64_t n, int64_t k) {
  const int64_t item = blockIdx.x, least = m < n ? m : n, most = n > k ? n : k;
  A* const a = matrices + item * m * n;
  A* const q = qs + item * m * k;
  A* const r = rs + item * k * n;
  A *const factors = memory + item * (least + most), *const products = factors + least;
  A scale = 1;
  if (!scale_finite(a, m * n, scale)) {
    fill_with_nan(q, m * k);
    fill_with_nan(r, k * n);
    return;
  }
  for (int64_t step = 0; step < least; ++step) {
    barrier();
    A squares = 0;
    for (int64_t i = step + 1 + threadIdx.x; i < m; i += kBlock) squares += a[i * n + step] * a[i * n + step];
    squares = Group<kBlock>::all(squares, Add());
    const A top = a[step * n + step];
    barrier();  // all have read it
    const A size = sqrt(top * top + squares), end = top > 0 ? -size : size;
    const A factor = squares == 0 ? A{0} : (end - top) / end;
    if (squares != 0)
      for (int64_t i = step + 1 + threadIdx.x; i < m; i += kBlock) a[i * n + step] /= top - end;
    if (threadIdx.x == 0) {
      factors[step] = factor;
      if (squares != 0) a[step * n + step] = end;
    }
    barrier();
    if (factor != 0) reflect(a, m, n, step, factor, a, n, step + 1, products);
  }
  for (int64_t at = threadIdx.x; at < m * k; at += kBlock) q[at] = at / k == at % k ? A{1} : A{0};
  barrier();
  for (int64_t step = least - 1; step >= 0; --step)
    if (factors[step] != 0) reflect(a, m, n, step, factors[step], q, k, 0, products);
  // The diagonal of r is not negative.
  for (int64_t at = threadIdx.x; at < k * n; at += kBlock) {
    const int64_t i = at / n, j = at % n;
    const A value = j >= i ? scale * a[i * n + j] : A{0};
    r[at] = i < least && a[i * n + i] < 0 ? -value : value;
  }
  for (int64_t at = threadIdx.x; at < m * k; at += kBlock)
    if (const int64_t j = at % k; j < least && a[j * n + j] < 0) q[at] = -q[at];
}

/// a (n, n), of which the lower triangle is read. Its diagonal becomes the eigenvalues, in any order, divided
/// by `scale`, and the columns of v, unless it is null, the vectors. `rotations`: memory for n + 1
/// numbers. Returns false to all threads if a number of the triangle is NaN or infinite.
template <class A>
__device__ inline bool diagonalise(A* a, A* v, A* rotations, int64_t n, A& scale) {
  for (int64_t at = threadIdx.x; at < n * n; at += kBlock) {
    const int64_t i = at / n, j = at % n;
    if (j > i) a[at] = a[j * n + i];
    if (v != nullptr) v[at] = i == j ? A{1} : A{0};
  }
  barrier();
  if (!scale_finite(a, n * n, scale)) return false;
  const int64_t even = n + n % 2, pairs = even / 2;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    A outside = 0, all = 0;
    for (int64_t at = threadIdx.x; at < n * n; at += kBlock) {
      all += a[at] * a[at];
      if (at / n != at % n) outside += a[at] * a[at];
    }
    outside = Group<kBlock>::all(outside, Add());
    all = Group<kBlock>::all(all, Add());
    const A limit = epsilon_of<A>() / 8;
    if (!(outside > limit * limit * all)) break;
    for (int64_t round = 0; round + 1 < even; ++round) {
      const auto members = [&](int64_t pair, int64_t& p, int64_t& q) {
        pair_of_round(even, round, pair, p, q);
        return q < n;
      };
      int64_t p, q;
      for (int64_t pair = threadIdx.x; pair < pairs; pair += kBlock)
        if (members(pair, p, q))
          rotation_of(a[p * n + p], a[q * n + q], a[p * n + q], rotations[2 * pair], rotations[2 * pair + 1]);
      barrier();
      for (int64_t at = threadIdx.x; at < pairs * n; at += kBlock) {
        const int64_t pair = at / n, j = at % n;
        if (!members(pair, p, q)) continue;
        const A c = rotations[2 * pair], s = rotations[2 * pair + 1], x = a[p * n + j], y = a[q * n + j];
        a[p * n + j] = c * x - s * y;
        a[q * n + j] = s * x + c * y;
      }
      barrier();
      for (int64_t at = threadIdx.x; at < pairs * n; at += kBlock) {
        const int64_t pair = at % pairs, i = at / pairs;
        if (!members(pair, p, q)) continue;
        const A c = rotations[2 * pair], s = rotations[2 * pair + 1], x = a[i * n + p], y = a[i * n + q];
        a[i * n + p] = c * x - s * y;
        a[i * n + q] = s * x + c * y;
        if (v == nullptr) continue;
        const A left = v[i * n + p], right = v[i * n + q];
        v[i * n + p] = c * left - s * right;
        v[i * n + q] = s * left + c * right;
      }
      barrier();
    }
  }
  return true;
}

/// values (n), ascending; vectors (n, n), unless null: their columns, in the same order.
template <class A>
__global__ void __launch_bounds__(kBlock)
    find_eigenvalues(A* matrices, A* memory, A* turned, A* values, A* vectors, int64_t n) {
  const int64_t item = blockIdx.x;
  A* const a = matrices + item * n * n;
  A* const v = vectors == nullptr ? nullptr : turned + item * n * n;
  A scale = 1;
  if (!diagonalise(a, v, memory + item * (n + 1), n, scale)) {
    fill_with_nan(values + item * n, n);
    if (v != nullptr) fill_with_nan(vectors + item * n * n, n * n);
    return;
  }
  for (int64_t i = threadIdx.x; i < n; i += kBlock) {
    const int64_t rank = rank_of(a, n + 1, n, i, false);
    values[item * n + rank] = scale * a[i * n + i];
    if (v == nullptr) continue;
    // The first element with at least half of the largest magnitude is positive.
    A largest = 0;
    for (int64_t k = 0; k < n; ++k) largest = Larger()(largest, std::fabs(v[k * n + i]));
    int64_t leading = 0;
    while (leading + 1 < n && std::fabs(v[leading * n + i]) < largest / 2) ++leading;
    const bool negative = v[leading * n + i] < 0;
    for (int64_t k = 0; k < n; ++k)
      vectors[item * n * n + k * n + rank] = negative ? -v[k * n + i] : v[k * n + i];
  }
}

void run_eigenvalues(const KernelArgs& args, const Tensor* vectors) {
  const Tensor &a = args.in[0], &values = args.out[0];
  if (a.numel() == 0) return;
  const int64_t n = a.shape[a.rank() - 1], count = matrices_of(a);
  // The upper triangle is the lower one of the transpose.
  const bool upper = args.attr<mx::detail::SymmetricAttrs>().upper;
  const Operand matrices(args, upper ? with_turned_matrices(a) : a, a.dtype, true);
  const Operand turned(args, a.dtype, vectors ? a.shape : Shape{0});
  const Result sorted(args, values, a.dtype), columns(args, vectors ? *vectors : values, a.dtype);
  const Operand memory(args, a.dtype, {count, n + 1});
  visit_real(a.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(count), kBlock, 0, find_eigenvalues<A>, matrices->as<A>(),
           memory->as<A>(), turned->as<A>(), sorted->as<A>(), vectors ? columns->as<A>() : nullptr, n);
  });
  sorted.store(args);
  if (vectors) columns.store(args);
}

}  // namespace

void linalg_qr(const KernelArgs& args) {
  const Tensor &a = args.in[0], &q = args.out[0], &r = args.out[1];
  const int64_t m = a.shape[a.rank() - 2], n = a.shape[a.rank() - 1], k = q.shape[q.rank() - 1],
                count = matrices_of(a);
  if (count == 0 || m == 0 || k == 0) return;
  const Operand matrices(args, a, a.dtype, true);
  const Operand memory(args, a.dtype, {count, (m < n ? m : n) + (n > k ? n : k)});
  const Result left(args, q, a.dtype), right(args, r, a.dtype);
  visit_real(a.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(count), kBlock, 0, factor_qr<A>, matrices->as<A>(), left->as<A>(),
           right->as<A>(), memory->as<A>(), m, n, k);
  });
  left.store(args);
  right.store(args);
}

void linalg_eigh(const KernelArgs& args) { run_eigenvalues(args, &args.out[1]); }
void linalg_eigvalsh(const KernelArgs& args) { run_eigenvalues(args, nullptr); }

}  // namespace mx::cuda
