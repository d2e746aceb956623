// Systems of equations, inverses, determinants and triangular factors of stacks of matrices:
// operators/kernels/linalg.h. A block computes one matrix, in the type of the operands. This suits many small
// matrices; a large one occupies a single block.
//
// A matrix that is singular, or not positive definite where it must be, is noted as an error; its results are
// NaN.
#include "operators/cuda/linalg.cuh"

#include <utility>

#include "ndarray/cuda/kernel_errors.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/matrix_stack.h"
#include "operators/linalg_records.h"

namespace mx::cuda {
namespace {

/// For a matrix that the kernel refuses because of what is at `pivot`: x becomes NaN, and the block's number
/// is noted.
template <class A>
__device__ inline void refuse(A* x, int64_t count, int64_t pivot, KernelError* bad) {
  if (threadIdx.x == 0) note_error(bad, static_cast<int64_t>(blockIdx.x), pivot);
  barrier();
  for (int64_t i = threadIdx.x; i < count; i += kBlock) x[i] = static_cast<A>(NAN);
  barrier();
}

/// x = a^-1 x; a becomes its factors.
template <class A>
__global__ void __launch_bounds__(kBlock)
    solve_systems(A* factors, A* solutions, int64_t* pivots, int64_t n, int64_t columns, KernelError* bad) {
  A* const a = factors + static_cast<int64_t>(blockIdx.x) * n * n;
  A* const x = solutions + static_cast<int64_t>(blockIdx.x) * n * columns;
  int64_t* const exchanged = pivots + static_cast<int64_t>(blockIdx.x) * n;
  factor_lu(a, n, n, exchanged, nullptr);
  if (const int64_t zero = first_zero_pivot(a, n); zero < n) return refuse(x, n * columns, zero, bad);
  for (int64_t k = 0; k < n; ++k) {
    if (exchanged[k] != k) swap_rows(x, columns, k, exchanged[k]);
    barrier();
  }
  solve_triangle(a, n, x, columns, false, true);
  solve_triangle(a, n, x, columns, true, false);
}

template <class A>
__global__ void __launch_bounds__(kBlock) set_identities(A* x, int64_t n, int64_t total) {
  for (int64_t i = global_index(); i < total; i += global_size())
    x[i] = i % (n * n) / n == i % n ? A{1} : A{0};
}

template <class A>
__global__ void __launch_bounds__(kBlock)
    solve_triangles(const A* triangles, A* solutions, int64_t n, int64_t columns, bool upper, bool unit,
                    KernelError* bad) {
  const A* const a = triangles + static_cast<int64_t>(blockIdx.x) * n * n;
  A* const x = solutions + static_cast<int64_t>(blockIdx.x) * n * columns;
  if (!unit)
    if (const int64_t zero = first_zero_pivot(a, n); zero < n) return refuse(x, n * columns, zero, bad);
  solve_triangle(a, n, x, columns, upper, unit);
}

template <class A>
__global__ void __launch_bounds__(kBlock)
    factor_systems(A* factors, int64_t* pivots, int64_t* rows, int64_t m, int64_t n) {
  const int64_t item = blockIdx.x, least = m < n ? m : n;
  int64_t* const order = rows + item * m;
  for (int64_t i = threadIdx.x; i < m; i += kBlock) order[i] = i;
  barrier();
  factor_lu(factors + item * m * n, m, n, pivots + item * least, order);
}

/// The determinant; or with a logarithm its sign and the logarithm of its magnitude.
template <class A>
__global__ void __launch_bounds__(kBlock)
    find_determinants(A* factors, int64_t n, Elements result, Dims<1> result_dims, Elements logarithm,
                      Dims<1> logarithm_dims) {
  const int64_t item = blockIdx.x;
  A* const a = factors + item * n * n;
  const int64_t exchanges = factor_lu<A>(a, n, n, nullptr, nullptr);
  if (threadIdx.x != 0) return;
  A sign = exchanges % 2 == 0 ? A{1} : A{-1}, sum = 0, product = sign;
  for (int64_t k = 0; k < n; ++k) {
    const A pivot = a[k * n + k];
    product *= pivot;
    sum += std::log(std::fabs(pivot));
    sign = pivot != pivot ? pivot : pivot == 0 ? A{0} : pivot < 0 ? -sign : sign;
  }
  if (logarithm.data == nullptr) return store(result, result_dims.offset(0, item), product);
  store(result, result_dims.offset(0, item), sign);
  store(logarithm, logarithm_dims.offset(0, item), sum);
}

/// The lower triangle l of a = l l' in its place, with zeros above it.
template <class A>
__global__ void __launch_bounds__(kBlock) factor_symmetric(A* factors, int64_t n, KernelError* bad) {
  A* const a = factors + static_cast<int64_t>(blockIdx.x) * n * n;
  for (int64_t k = 0; k < n; ++k) {
    barrier();
    const A pivot = a[k * n + k];
    barrier();
    if (pivot <= 0) return refuse(a, n * n, k, bad);  // every thread has read the same number
    const A root = sqrt(pivot);
    for (int64_t i = k + threadIdx.x; i < n; i += kBlock) a[i * n + k] = i == k ? root : a[i * n + k] / root;
    barrier();
    const int64_t rest = n - k - 1;
    for (int64_t at = threadIdx.x; at < rest * rest; at += kBlock) {
      const int64_t i = k + 1 + at / rest, j = k + 1 + at % rest;
      if (j <= i) a[i * n + j] -= a[i * n + k] * a[j * n + k];
    }
  }
  for (int64_t at = threadIdx.x; at < n * n; at += kBlock)
    if (at % n > at / n) a[at] = A{0};
}

/// The errors of singular matrices of a stack like `x`.
BadValues::Text bad_pivots(const char* op, const Tensor& x, const char* what = "pivot") {
  return [op, what, batch = kernels::detail::leading(x.shape, 2)](const KernelError& e) {
    return kernels::detail::bad_pivot(op, what, e.value, e.place, batch);
  };
}

}  // namespace

void linalg_solve(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  const int64_t n = out.shape[out.rank() - 2], columns = out.shape[out.rank() - 1], items = matrices_of(out);
  const Operand factors(args, in_stack(args.in[0], out.shape), out.dtype, true);
  const Result x(args, out, out.dtype);
  copy_elements(stream_of(args), *x, in_stack(args.in[1], out.shape));
  const Scratch pivots(args, static_cast<size_t>(items * n) * sizeof(int64_t));
  BadValues bad(args, bad_pivots("linalg_solve", out));
  visit_real(out.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(items), kBlock, 0, solve_systems<A>, factors->as<A>(), x->as<A>(),
           pivots.as<int64_t>(), n, columns, bad.word());
  });
  bad.check();
  x.store(args);
}

void linalg_inv(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  const int64_t n = out.shape[out.rank() - 1], items = matrices_of(out);
  const Operand factors(args, args.in[0], out.dtype, true);
  const Result x(args, out, out.dtype);
  const Scratch pivots(args, static_cast<size_t>(items * n) * sizeof(int64_t));
  BadValues bad(args, bad_pivots("linalg_inv", out));
  visit_real(out.dtype, [&]<class A>() {
    launch(stream_of(args), blocks_for(out.numel(), kBlock, 1 << 16), kBlock, 0, set_identities<A>,
           x->as<A>(), n, out.numel());
    launch(stream_of(args), whole_grid(items), kBlock, 0, solve_systems<A>, factors->as<A>(), x->as<A>(),
           pivots.as<int64_t>(), n, n, bad.word());
  });
  bad.check();
  x.store(args);
}

void linalg_solve_triangular(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::TriangularAttrs>();
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  const int64_t n = out.shape[out.rank() - 2], columns = out.shape[out.rank() - 1];
  const Operand a = contiguous_operand(args, in_stack(args.in[0], out.shape), out.dtype);
  const Result x(args, out, out.dtype);
  copy_elements(stream_of(args), *x, in_stack(args.in[1], out.shape));
  BadValues bad(args, bad_pivots("linalg_solve_triangular", out, "diagonal element"));
  visit_real(out.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(matrices_of(out)), kBlock, 0, solve_triangles<A>,
           static_cast<const A*>(a->as<A>()), x->as<A>(), n, columns, attrs.upper, attrs.unitriangular,
           bad.word());
  });
  bad.check();
  x.store(args);
}

void linalg_lu_factor(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const int64_t m = out.shape[out.rank() - 2], n = out.shape[out.rank() - 1], items = matrices_of(out);
  if (items == 0 || m == 0) return;
  const Operand factors(args, args.in[0], out.dtype, true);
  const Result pivots(args, args.out[1], DType::i64), rows(args, args.out[2], DType::i64);
  visit_real(out.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(items), kBlock, 0, factor_systems<A>, factors->as<A>(),
           pivots->as<int64_t>(), rows->as<int64_t>(), m, n);
  });
  copy_elements(stream_of(args), out, *factors);
  pivots.store(args);
  rows.store(args);
}

namespace {

void determinants(const KernelArgs& args, const Tensor* logarithm) {
  const Tensor &a = args.in[0], &result = args.out[0];
  const int64_t n = a.shape[a.rank() - 1], items = matrices_of(a);
  if (items == 0) return;
  const Operand factors(args, a, a.dtype, true);
  const Elements none{nullptr, a.dtype};
  visit_real(a.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(items), kBlock, 0, find_determinants<A>, factors->as<A>(), n,
           elements_of(result), dims_of<1>({&result}), logarithm ? elements_of(*logarithm) : none,
           dims_of<1>({logarithm ? logarithm : &result}));
  });
}

}  // namespace

void linalg_det(const KernelArgs& args) { determinants(args, nullptr); }
void linalg_slogdet(const KernelArgs& args) { determinants(args, &args.out[1]); }

void linalg_cholesky(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  // The upper triangle of a is the lower one of its transpose, and so are the factors.
  const bool upper = args.attr<mx::detail::SymmetricAttrs>().upper;
  const Operand factors(args, upper ? with_turned_matrices(args.in[0]) : args.in[0], out.dtype, true);
  BadValues bad(args, [batch = kernels::detail::leading(out.shape, 2)](const KernelError& e) {
    return kernels::detail::bad_leading_part("linalg_cholesky", e.value, e.place, batch);
  });
  visit_real(out.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(matrices_of(out)), kBlock, 0, factor_symmetric<A>, factors->as<A>(),
           out.shape[out.rank() - 1], bad.word());
  });
  bad.check();
  copy_elements(stream_of(args), upper ? with_turned_matrices(out) : out, *factors);
}

}  // namespace mx::cuda
