// Singular values and vectors, and what comes from them: operators/kernels/linalg.h. A block computes one
// matrix. Its columns are rotated until they are orthogonal (Jacobi; Golub and van Loan, "Matrix
// Computations", 8.6); a warp rotates one pair. A matrix with more columns than rows is transposed.
#include <algorithm>

#include "ndarray/tensor_copy.h"
#include "operators/cuda/linalg_rotate.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"
#include "operators/linalg_records.h"

namespace mx::cuda {
namespace {

/// Rotates the columns of a (m, n), m >= n, and those of v (n, n), unless it is null. `sizes` gets the norms.
template <class A>
__device__ inline void make_orthogonal(A* a, A* v, A* sizes, int64_t m, int64_t n) {
  using G = Group<kWarp>;
  const int64_t even = n + n % 2, warp = threadIdx.x / kWarp;
  if (v != nullptr)
    for (int64_t at = threadIdx.x; at < n * n; at += kBlock) v[at] = at / n == at % n ? A{1} : A{0};
  barrier();
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    int64_t rotated = 0;
    for (int64_t round = 0; round + 1 < even; ++round) {
      for (int64_t pair = warp; pair < even / 2; pair += kBlock / kWarp) {
        int64_t p, q;
        pair_of_round(even, round, pair, p, q);
        if (q >= n) continue;
        A x = 0, y = 0, between = 0;
        for (int64_t i = G::lane(); i < m; i += kWarp) {
          const A left = a[i * n + p], right = a[i * n + q];
          x += left * left;
          y += right * right;
          between += left * right;
        }
        x = G::all(x, Add());
        y = G::all(y, Add());
        between = G::all(between, Add());
        if (!(std::fabs(between) > epsilon_of<A>() * sqrt(x) * sqrt(y))) continue;
        rotated = 1;
        A c, s;
        rotation_of(x, y, between, c, s);
        const auto rotate = [&](A* columns, int64_t rows) {
          for (int64_t i = G::lane(); i < rows; i += kWarp) {
            const A left = columns[i * n + p], right = columns[i * n + q];
            columns[i * n + p] = c * left - s * right;
            columns[i * n + q] = s * left + c * right;
          }
        };
        rotate(a, m);
        if (v != nullptr) rotate(v, n);
      }
      barrier();
    }
    if (Group<kBlock>::all(rotated, Larger()) == 0) break;
  }
  barrier();
  for (int64_t j = warp; j < n; j += kBlock / kWarp) {
    A sum = 0;
    for (int64_t i = G::lane(); i < m; i += kWarp) sum += a[i * n + j] * a[i * n + j];
    sum = G::all(sum, Add());
    if (G::lane() == 0) sizes[j] = sqrt(sum);
  }
  barrier();
}

template <class A>
__global__ void __launch_bounds__(kBlock)
    find_singular_values(A* matrices, A* memory, A* values, int64_t m, int64_t n) {
  const int64_t item = blockIdx.x;
  A* const sizes = memory + item * n;
  A scale = 1;
  if (!scale_finite(matrices + item * m * n, m * n, scale)) return fill_with_nan(values + item * n, n);
  make_orthogonal<A>(matrices + item * m * n, nullptr, sizes, m, n);
  for (int64_t j = threadIdx.x; j < n; j += kBlock)
    values[item * n + rank_of(sizes, 1, n, j, true)] = scale * sizes[j];
}

/// Replaces the columns of u (m, k) that are 0 by orthonormal ones: each is the row of the identity that the
/// other columns say least about, without its part in them. `memory`: m + k numbers.
template <class A>
__device__ inline void complete_columns(A* u, A* memory, int64_t m, int64_t k) {
  A *const v = memory, *const parts = memory + m;
  barrier();
  for (int64_t r = 0; r < k; ++r) {
    A squares = 0;
    for (int64_t i = threadIdx.x; i < m; i += kBlock) squares += u[i * k + r] * u[i * k + r];
    squares = Group<kBlock>::all(squares, Add());
    if (squares != 0) continue;  // NaN stays, too
    Largest<A> best{A{-1}, m};
    for (int64_t i = threadIdx.x; i < m; i += kBlock) {
      A rest = 2;
      for (int64_t c = 0; c < k; ++c) rest -= u[i * k + c] * u[i * k + c];
      best = LargerPlace()(best, Largest<A>{rest, i});
    }
    best = Group<kBlock>::all(best, LargerPlace());
    for (int64_t i = threadIdx.x; i < m; i += kBlock) v[i] = i == best.at ? A{1} : A{0};
    for (int pass = 0; pass < 2; ++pass) {  // the second one removes what rounding has left
      barrier();
      for (int64_t c = threadIdx.x; c < k; c += kBlock) {
        A sum = 0;
        for (int64_t i = 0; i < m; ++i) sum += u[i * k + c] * v[i];
        parts[c] = sum;
      }
      barrier();
      for (int64_t i = threadIdx.x; i < m; i += kBlock)
        for (int64_t c = 0; c < k; ++c) v[i] -= u[i * k + c] * parts[c];
    }
    barrier();
    A length = 0;
    for (int64_t i = threadIdx.x; i < m; i += kBlock) length += v[i] * v[i];
    length = sqrt(Group<kBlock>::all(length, Add()));
    for (int64_t i = threadIdx.x; i < m; i += kBlock) u[i * k + r] = v[i] / length;
    barrier();
  }
}

/// The first element with at least half of the largest magnitude is negative.
template <class A>
__device__ inline bool has_negative_leader(const A* x, int64_t step, int64_t n) {
  A largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = Larger()(largest, std::fabs(x[i * step]));
  int64_t leading = 0;
  while (leading + 1 < n && std::fabs(x[leading * step]) < largest / 2) ++leading;
  return x[leading * step] < 0;
}

/// a (m, n), m >= n, becomes u (m, k) diag(values) vh (n, n), k >= n. `turned`: the signs are those of the
/// rows of vh, not of the columns of u.
template <class A>
__global__ void __launch_bounds__(kBlock)
    find_singular_vectors(A* matrices, A* vs, A* memory, A* us, A* values, A* vhs, int64_t m, int64_t n,
                          int64_t k, bool turned) {
  const int64_t item = blockIdx.x;
  A *const a = matrices + item * m * n, *const v = vs + item * n * n;
  A *const sizes = memory + item * (n + m + k), *const u = us + item * m * k, *const vh = vhs + item * n * n;
  A scale = 1;
  if (!scale_finite(a, m * n, scale)) {
    fill_with_nan(u, m * k);
    fill_with_nan(values + item * n, n);
    fill_with_nan(vh, n * n);
    return;
  }
  make_orthogonal(a, v, sizes, m, n);
  A largest = 0;
  for (int64_t j = 0; j < n; ++j) largest = Larger()(largest, sizes[j]);
  // The direction of a smaller column is rounding.
  const A limit = largest * epsilon_of<A>() * static_cast<A>(m);
  for (int64_t at = threadIdx.x; at < m * k; at += kBlock) u[at] = A{0};
  barrier();
  for (int64_t j = threadIdx.x; j < n; j += kBlock) {
    const int64_t rank = rank_of(sizes, 1, n, j, true);
    const A size = sizes[j];
    values[item * n + rank] = scale * size;
    for (int64_t i = 0; i < n; ++i) vh[rank * n + i] = v[i * n + j];
    if (size <= limit) continue;
    for (int64_t i = 0; i < m; ++i) u[i * k + rank] = a[i * n + j] / size;
  }
  complete_columns(u, sizes + n, m, k);
  barrier();
  for (int64_t r = threadIdx.x; r < k; r += kBlock) {
    if (turned && r >= n) continue;
    if (!(turned ? has_negative_leader(vh + r * n, 1, n) : has_negative_leader(u + r, k, m))) continue;
    for (int64_t i = 0; i < m; ++i) u[i * k + r] = -u[i * k + r];
    for (int64_t i = 0; i < n && r < n; ++i) vh[r * n + i] = -vh[r * n + i];
  }
}

/// Singular values above the tolerance count.
template <class A>
__device__ inline int64_t counted(const A* values, int64_t n, double tolerance) {
  const double bound = tolerance * static_cast<double>(values[0]);
  int64_t rank = 0;
  for (int64_t i = 0; i < n; ++i) rank += !(static_cast<double>(values[i]) <= bound) ? 1 : 0;
  return rank;
}

/// y (n, m) = v diag(1 / values) u' for the values that count; u is (m, n).
template <class A>
__global__ void __launch_bounds__(kBlock) invert_spectra(const A* us, const A* values, const A* vhs, A* ys,
                                                         int64_t m, int64_t n, double tolerance) {
  const int64_t item = blockIdx.x;
  const A *const u = us + item * m * n, *const vh = vhs + item * n * n, *const s = values + item * n;
  const int64_t rank = counted(s, n, tolerance);
  for (int64_t at = threadIdx.x; at < n * m; at += kBlock) {
    const int64_t i = at / m, j = at % m;
    A sum = 0;
    for (int64_t r = 0; r < rank; ++r) sum += vh[r * n + i] / s[r] * u[j * n + r];
    ys[item * n * m + at] = sum;
  }
}

/// A factor u or v of the decompositions a = u diag(values) v'. Element i of its column r is at i * step + r
/// * hop.
template <class A>
struct Factor {
  const A* data;
  int64_t size, step, hop;  // size: of one matrix

  __device__ A at(int64_t item, int64_t i, int64_t r) const { return data[item * size + i * step + r * hop]; }
};

/// x (n, columns) = right diag(1 / values) left' b, for the values that count, of which `ranks` gets the
/// number; b is (m, columns). `parts`: least * columns numbers of memory for each matrix.
template <class A>
__global__ void __launch_bounds__(kBlock)
    solve_least_squares(Factor<A> left, const A* values, Factor<A> right, const A* bs, A* parts, A* xs,
                        int64_t* ranks, int64_t m, int64_t n, int64_t least, int64_t columns,
                        double tolerance) {
  const int64_t item = blockIdx.x;
  const A *const b = bs + item * m * columns, *const s = values + item * least;
  A *const part = parts + item * least * columns, *const x = xs + item * n * columns;
  const int64_t rank = counted(s, least, tolerance);
  for (int64_t at = threadIdx.x; at < rank * columns; at += kBlock) {
    const int64_t r = at / columns, c = at % columns;
    A sum = 0;
    for (int64_t i = 0; i < m; ++i) sum += left.at(item, i, r) * b[i * columns + c];
    part[at] = sum / s[r];
  }
  barrier();
  for (int64_t at = threadIdx.x; at < n * columns; at += kBlock) {
    const int64_t j = at / columns, c = at % columns;
    A sum = 0;
    for (int64_t r = 0; r < rank; ++r) sum += right.at(item, j, r) * part[r * columns + c];
    x[at] = sum;
  }
  if (threadIdx.x == 0) ranks[item] = rank;
}

/// The cofactors are u c vh times the determinants of u and vh, where c has on its diagonal the products of
/// all singular values but one. u and vh are replaced by their factors.
template <class A>
__global__ void __launch_bounds__(kBlock) find_cofactors(A* us, const A* values, A* vhs, A* ys, int64_t n) {
  const int64_t item = blockIdx.x;
  A *const u = us + item * n * n, *const vh = vhs + item * n * n, *const y = ys + item * n * n;
  const A* const s = values + item * n;
  for (int64_t at = threadIdx.x; at < n * n; at += kBlock) {
    const int64_t i = at / n, j = at % n;
    double sum = 0;
    for (int64_t r = 0; r < n; ++r) {
      double others = 1;
      for (int64_t k = 0; k < n; ++k)
        if (k != r) others *= static_cast<double>(s[k]);
      sum += others * static_cast<double>(u[i * n + r]) * static_cast<double>(vh[r * n + j]);
    }
    y[at] = static_cast<A>(sum);
  }
  int64_t exchanges = factor_lu<A>(u, n, n, nullptr, nullptr);
  exchanges += factor_lu<A>(vh, n, n, nullptr, nullptr);
  int64_t negative = exchanges;
  for (int64_t k = 0; k < n; ++k) negative += (u[k * n + k] < 0 ? 1 : 0) + (vh[k * n + k] < 0 ? 1 : 0);
  if (negative % 2 != 0)
    for (int64_t at = threadIdx.x; at < n * n; at += kBlock) y[at] = -y[at];
}

/// The decomposition of a stack, transposed if it has more columns than rows.
struct Spectra {
  Spectra(const KernelArgs& args, const Tensor& given, bool full)
      : turned(given.shape[given.rank() - 2] < given.shape[given.rank() - 1]),
        m(std::max(given.shape[given.rank() - 2], given.shape[given.rank() - 1])),
        n(std::min(given.shape[given.rank() - 2], given.shape[given.rank() - 1])),
        k(full ? m : n),
        count(matrices_of(given)),
        u(args, given.dtype, {count, m, k}),
        values(args, given.dtype, {count, n}),
        vh(args, given.dtype, {count, n, n}) {
    const Tensor a = turned ? with_turned_matrices(given) : given;
    const Operand matrices(args, a, a.dtype, true), v(args, a.dtype, {count, n, n}),
        memory(args, a.dtype, {count, n + m + k});
    visit_real(a.dtype, [&]<class A>() {
      launch(stream_of(args), whole_grid(count), kBlock, 0, find_singular_vectors<A>, matrices->as<A>(),
             v->as<A>(), memory->as<A>(), u->as<A>(), values->as<A>(), vh->as<A>(), m, n, k, turned);
    });
  }
  bool turned;
  int64_t m, n, k, count;  ///< m >= n
  Operand u, values, vh;
};

/// Copies contiguous matrices to an array that has more dimensions before them.
void copy_stack(const KernelArgs& args, const Tensor& to, const Tensor& from) {
  copy_elements(stream_of(args), to, {from.data, from.dtype, to.shape, contiguous_strides(to.shape)});
}

__global__ void __launch_bounds__(kBlock)
    store_identity(Elements to, Dims<1> dims, int64_t rows, int64_t columns, int64_t n) {
  for (int64_t i = global_index(); i < n; i += global_size())
    store(to, dims.offset(0, i), int64_t{i % columns == i / columns % rows});
}

/// The singular vectors of matrices without elements.
void store_identities(const KernelArgs& args, const Tensor& to) {
  const int64_t n = to.numel();
  if (n == 0) return;
  launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, store_identity, elements_of(to),
         dims_of<1>({&to}), to.shape[to.rank() - 2], to.shape[to.rank() - 1], n);
}

double tolerance_of(double given, const Spectra& s, DType type) {
  return given >= 0 ? given : static_cast<double>(s.m) * (type == DType::f64 ? 0x1p-52 : 0x1p-23);
}

/// The pseudoinverses (count, n, m) of the matrices that were decomposed.
void invert(const KernelArgs& args, const Spectra& s, double tolerance, const Tensor& to) {
  visit_real(to.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(s.count), kBlock, 0, invert_spectra<A>,
           static_cast<const A*>(s.u->as<A>()), static_cast<const A*>(s.values->as<A>()),
           static_cast<const A*>(s.vh->as<A>()), to.as<A>(), s.m, s.n, tolerance);
  });
}

}  // namespace

void linalg_svd(const KernelArgs& args) {
  const Tensor &a = args.in[0], &u = args.out[0], &vh = args.out[2];
  if (a.numel() == 0) {
    store_identities(args, u);
    return store_identities(args, vh);
  }
  const Spectra s(args, a, args.attr<mx::detail::SvdAttrs>().full_matrices);
  copy_stack(args, args.out[1], *s.values);
  copy_stack(args, s.turned ? with_turned_matrices(vh) : u, *s.u);
  copy_stack(args, s.turned ? with_turned_matrices(u) : vh, *s.vh);
}

void linalg_svdvals(const KernelArgs& args) {
  const Tensor &given = args.in[0], &values = args.out[0];
  if (given.numel() == 0) return;
  const bool wide = given.shape[given.rank() - 2] < given.shape[given.rank() - 1];
  const Tensor a = wide ? with_turned_matrices(given) : given;
  const int64_t m = a.shape[a.rank() - 2], n = a.shape[a.rank() - 1], count = matrices_of(a);
  const Operand matrices(args, a, a.dtype, true), memory(args, a.dtype, {count, n});
  const Result sorted(args, values, a.dtype);
  visit_real(a.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(count), kBlock, 0, find_singular_values<A>, matrices->as<A>(),
           memory->as<A>(), sorted->as<A>(), m, n);
  });
  sorted.store(args);
}

void linalg_pinv(const KernelArgs& args) {
  const Tensor &a = args.in[0], &y = args.out[0];
  if (a.numel() == 0) return;
  const Spectra s(args, a, false);
  const Operand inverse(args, a.dtype, {s.count, s.n, s.m});
  invert(args, s, tolerance_of(args.attr<mx::detail::RankAttrs>().rtol, s, a.dtype), *inverse);
  copy_stack(args, s.turned ? with_turned_matrices(y) : y, *inverse);
}

void linalg_lstsq(const KernelArgs& args) {
  const Tensor &x = args.out[0], &rank = args.out[1], &s = args.out[2];
  const int64_t m = args.in[0].shape[args.in[0].rank() - 2], n = x.shape[x.rank() - 2],
                columns = x.shape[x.rank() - 1];
  if (rank.numel() == 0) return;
  if (m == 0 || n == 0) {
    mx::detail::fill_tensor(args, x, 0);
    return mx::detail::fill_tensor(args, rank, 0);
  }
  const Operand a(args, in_stack(args.in[0], x.shape), x.dtype, true),
      b(args, in_stack(args.in[1], x.shape), x.dtype, true);
  const Spectra spectra(args, *a, false);
  const int64_t least = spectra.n;
  const Operand parts(args, x.dtype, {spectra.count, least, columns});
  const Result solution(args, x, x.dtype), counts(args, rank, DType::i64);
  const double tolerance = tolerance_of(args.attr<mx::detail::RankAttrs>().rtol, spectra, x.dtype);
  visit_real(x.dtype, [&]<class A>() {
    const Factor<A> u{spectra.u->as<A>(), spectra.m * least, least, 1},
        v{spectra.vh->as<A>(), least * least, 1, least};
    launch(stream_of(args), whole_grid(spectra.count), kBlock, 0, solve_least_squares<A>,
           spectra.turned ? v : u, static_cast<const A*>(spectra.values->as<A>()), spectra.turned ? u : v,
           static_cast<const A*>(b->as<A>()), parts->as<A>(), solution->as<A>(), counts->as<int64_t>(), m, n,
           least, columns, tolerance);
  });
  solution.store(args);
  counts.store(args);
  copy_stack(args, s, *spectra.values);
}

void linalg_cofactor(const KernelArgs& args) {
  const Tensor &a = args.in[0], &y = args.out[0];
  if (a.numel() == 0) return;
  const Spectra s(args, a, false);
  const Operand cofactors(args, a.dtype, {s.count, s.n, s.n});
  visit_real(a.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(s.count), kBlock, 0, find_cofactors<A>, s.u->as<A>(),
           static_cast<const A*>(s.values->as<A>()), s.vh->as<A>(), cofactors->as<A>(), s.n);
  });
  copy_stack(args, y, *cofactors);
}

}  // namespace mx::cuda
