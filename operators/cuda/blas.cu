// First: the executor of tests gives names in CUDA's headers another meaning afterwards.
#include "operators/cuda/cublaslt.h"

#include "operators/cuda/blas.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_error.h"
#include "ndarray/cuda/kernel.cuh"
#include "operators/matmul.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

constexpr size_t kMostWorkspace = size_t{32} << 20;  // NVIDIA's recommendation for compute capability 9.0
constexpr size_t kWorkspaceAlignment = 256;
constexpr size_t kMostChoices = 4096;

/// A matrix as cuBLASLt sees it: columns of `rows` contiguous elements, `leading` elements apart.
struct ColumnMajor {
  bool transposed = false;  // the operand is the transpose of this matrix
  int64_t leading = 1;
};

/// Returns how cuBLASLt can read a matrix; none if it cannot.
std::optional<ColumnMajor> column_major(int64_t rows, int64_t columns, int64_t row_stride,
                                        int64_t col_stride) {
  // A stride along a dimension of one element says nothing.
  if ((rows == 1 || row_stride == 1) && (columns == 1 || col_stride >= std::max<int64_t>(rows, 1)))
    return ColumnMajor{false, columns == 1 ? std::max<int64_t>(rows, 1) : col_stride};
  if ((columns == 1 || col_stride == 1) && (rows == 1 || row_stride >= std::max<int64_t>(columns, 1)))
    return ColumnMajor{true, rows == 1 ? std::max<int64_t>(columns, 1) : row_stride};
  return std::nullopt;
}

cudaDataType_t cuda_type(DType type) {
  switch (type) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

/// Everything on which the choice of an algorithm depends.
struct Problem {
  int32_t device = 0, in = 0, out = 0, tf32 = 0, epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t a_transposed = 0, b_transposed = 0, batch = 1;
  int32_t a_alignment = 0, b_alignment = 0, d_alignment = 0, bias_alignment = 0;
  int64_t rows = 0, columns = 0, k = 0;  // of the column-major result
  int64_t a_leading = 0, b_leading = 0, d_leading = 0;
  int64_t a_stride = 0, b_stride = 0, d_stride = 0;  // of the batch
  auto operator<=>(const Problem&) const = default;
};

struct Choice {
  bool found = false;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
};

int32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  int32_t alignment = 256;
  while (address % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

/// The library's descriptors of one product.
class Descriptors {
 public:
  Descriptors(const Problem& p, const void* bias) : Descriptors() {  // if a call fails, the destructor runs
    const bool wide = p.in == CUDA_R_64F;
    const cublasComputeType_t compute = wide          ? CUBLAS_COMPUTE_64F
                                        : p.tf32 != 0 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                      : CUBLAS_COMPUTE_32F;
    check_cublas(lt_.desc_create(&product, compute, wide ? CUDA_R_64F : CUDA_R_32F), "MatmulDescCreate");
    const cublasOperation_t a = p.a_transposed != 0 ? CUBLAS_OP_T : CUBLAS_OP_N,
                            b = p.b_transposed != 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, b);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    layout(left, p.in, p.a_transposed != 0 ? p.k : p.rows, p.a_transposed != 0 ? p.rows : p.k, p.a_leading,
           p.batch, p.a_stride);
    layout(right, p.in, p.b_transposed != 0 ? p.columns : p.k, p.b_transposed != 0 ? p.k : p.columns,
           p.b_leading, p.batch, p.b_stride);
    layout(result, p.out, p.rows, p.columns, p.d_leading, p.batch, p.d_stride);
  }
  ~Descriptors() {
    if (result != nullptr) (void)lt_.layout_destroy(result);
    if (right != nullptr) (void)lt_.layout_destroy(right);
    if (left != nullptr) (void)lt_.layout_destroy(left);
    if (product != nullptr) (void)lt_.desc_destroy(product);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;

 private:
  Descriptors() : lt_(cublaslt()) {}

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_cublas(lt_.desc_set(product, attribute, &value, sizeof value), "MatmulDescSetAttribute");
  }
  void layout(cublasLtMatrixLayout_t& to, int32_t type, int64_t rows, int64_t columns, int64_t leading,
              int32_t batch, int64_t stride) {
    check_cublas(lt_.layout_create(&to, static_cast<cudaDataType_t>(type), static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(columns), leading),
                 "MatrixLayoutCreate");
    if (batch == 1) return;
    check_cublas(lt_.layout_set(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
                 "MatrixLayoutSetAttribute");
    check_cublas(lt_.layout_set(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
                 "MatrixLayoutSetAttribute");
  }

  const CublasLt& lt_;
};

cublasLtHandle_t handle_of(int device) {
  // Never destroyed: the library may be gone when the process ends. A handle of cuBLASLt may be used by
  // several threads and streams at once.
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, cublasLtHandle_t>& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) {
    const CaptureExempt exempt;
    check_cublas(cublaslt().create(&handle), "Create");
  }
  return handle;
}

Choice ask(const Problem& p, const Descriptors& d) {
  const CublasLt& lt = cublaslt();
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(lt.preference_create(&preference), "MatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_cublas(lt.preference_set(preference, attribute, &value, sizeof value),
                 "MatmulPreferenceSetAttribute");
  };
  Choice choice;
  try {
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kMostWorkspace});
    // Partial sums must not be rounded to f16, and their order must not depend on timing.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(p.a_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(p.b_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(p.d_alignment));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(p.d_alignment));
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const CaptureExempt exempt;
    const cublasStatus_t status = lt.heuristic(handle_of(p.device), d.product, d.left, d.right, d.result,
                                               d.result, preference, 1, &best, &count);
    // The library says "not supported" or "invalid value" for problems that it does not compute.
    choice.found = status == CUBLAS_STATUS_SUCCESS && count > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED &&
        status != CUBLAS_STATUS_INVALID_VALUE)
      check_cublas(status, "MatmulAlgoGetHeuristic");
    choice.algorithm = best.algo;
    choice.workspace = best.workspaceSize;
  } catch (...) {
    (void)lt.preference_destroy(preference);
    throw;
  }
  (void)lt.preference_destroy(preference);
  return choice;
}

Choice choice_for(const Problem& p, const Descriptors& d) {
  static std::mutex& mutex = *new std::mutex;
  static std::map<Problem, Choice>& choices = *new std::map<Problem, Choice>;
  {
    const std::lock_guard lock(mutex);
    if (const auto at = choices.find(p); at != choices.end()) return at->second;
  }
  const Choice choice = ask(p, d);
  const std::lock_guard lock(mutex);
  if (choices.size() >= kMostChoices) choices.clear();
  return choices.emplace(p, choice).first->second;
}

/// Enqueues one batch. Returns false if the library has no algorithm for it.
bool run_one(const KernelArgs& args, const Product& product, const Problem& problem, const void* a,
             const void* b, void* c, const void* bias, double beta) {
  const Descriptors d(problem, bias);
  const Choice choice = choice_for(problem, d);
  if (!choice.found) return false;
  const Scratch scratch(args, choice.workspace == 0 ? 0 : choice.workspace + kWorkspaceAlignment);
  auto workspace = reinterpret_cast<uintptr_t>(scratch.data());
  workspace = (workspace + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  const float narrow[] = {static_cast<float>(product.alpha), static_cast<float>(beta)};
  const double wide[] = {product.alpha, beta};
  const bool in_double = problem.in == CUDA_R_64F;
  const auto factor = [&](int i) { return in_double ? static_cast<const void*>(wide + i) : narrow + i; };
  auto* const stream = static_cast<cudaStream_t>(stream_of(args));
  cublasLtHandle_t const handle = handle_of(problem.device);
  // The library may load the code of its kernels here. Launches are captured in this mode, too.
  const CaptureExempt exempt;
  check_cublas(cublaslt().matmul(handle, d.product, factor(0), a, d.left, b, d.right, factor(1), c, d.result,
                                 c, d.result, &choice.algorithm, reinterpret_cast<void*>(workspace),
                                 choice.workspace, stream),
               "Matmul");
  return true;
}

/// Joins dimensions of the batch that follow each other in all three operands.
size_t join(std::array<kernels::BatchDim, kMaxRank>& dims, std::span<const kernels::BatchDim> batch) {
  size_t count = 0;
  for (const kernels::BatchDim& dim : batch) {
    if (count > 0) {
      kernels::BatchDim& last = dims[count - 1];
      if (last.a_stride == dim.size * dim.a_stride && last.b_stride == dim.size * dim.b_stride &&
          last.c_stride == dim.size * dim.c_stride) {
        last = {last.size * dim.size, dim.a_stride, dim.b_stride, dim.c_stride};
        continue;
      }
    }
    dims[count++] = dim;
  }
  return count;
}

bool fits_blas(const Product& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return is_floating(p.in) && p.k > 0 && p.alpha != 0 && p.m <= kMost && p.n <= kMost && p.k <= kMost &&
         (p.n == 1 || p.c_col_stride == 1) && (p.m == 1 || p.c_row_stride >= p.n) &&
         is_blas_matrix(p.m, p.k, p.a.row_stride, p.a.col_stride) &&
         is_blas_matrix(p.k, p.n, p.b.row_stride, p.b.col_stride);
}

Problem problem_of(const KernelArgs& args, const Product& p) {
  // In columns, the row-major C (m, n) is its transpose: C' (n, m) = B' (n, k) A' (k, m).
  const ColumnMajor left = *column_major(p.n, p.k, p.b.col_stride, p.b.row_stride),
                    right = *column_major(p.k, p.m, p.a.col_stride, p.a.row_stride);
  Problem problem;
  problem.device = args.device == nullptr ? 0 : args.device->device().context().id;
  problem.in = cuda_type(p.in);
  problem.out = cuda_type(p.out);
  problem.tf32 = p.in == DType::f32 && tf32() ? 1 : 0;
  problem.a_transposed = left.transposed ? 1 : 0;
  problem.b_transposed = right.transposed ? 1 : 0;
  problem.rows = p.n;
  problem.columns = p.m;
  problem.k = p.k;
  problem.a_leading = left.leading;
  problem.b_leading = right.leading;
  problem.d_leading = p.m == 1 ? p.n : p.c_row_stride;
  return problem;
}

}  // namespace

bool is_blas_matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t col_stride) {
  return column_major(rows, columns, row_stride, col_stride).has_value();
}

void multiply(const KernelArgs& args, const Product& p) {
  if (p.m == 0 || p.n == 0) return;
  for (const kernels::BatchDim& dim : p.batch)
    if (dim.size == 0) return;
  if (!fits_blas(p)) return multiply_plainly(args, p);

  std::array<kernels::BatchDim, kMaxRank> dims{};
  size_t count = join(dims, p.batch);
  // The library takes one dimension of a batch, and the others are a loop here: it takes the longest one.
  kernels::BatchDim inner;
  size_t longest = count;
  for (size_t i = 0; i < count; ++i) {
    const kernels::BatchDim& dim = dims[i];
    const bool allowed = dim.a_stride >= 0 && dim.b_stride >= 0 && dim.c_stride > 0 &&
                         dim.size <= std::numeric_limits<int32_t>::max();
    if (allowed && (longest == count || dim.size > dims[longest].size)) longest = i;
  }
  if (longest < count) {
    inner = dims[longest];
    std::copy(dims.begin() + longest + 1, dims.begin() + count, dims.begin() + longest);
    --count;
  }

  Problem problem = problem_of(args, p);
  problem.batch = static_cast<int32_t>(inner.size);
  problem.a_stride = inner.b_stride;
  problem.b_stride = inner.a_stride;
  problem.d_stride = inner.c_stride;
  bool fused = p.bias != nullptr && p.bias_stride == 1 && p.beta == 0 && inner.size == 1 && count == 0;
  bool filled = false;
  const auto fill = [&] {  // C = beta * C + bias, to which the product is added
    Product rest = p;
    rest.k = 0;
    multiply_plainly(args, rest);
    filled = true;
  };
  if (p.bias != nullptr && !fused) fill();

  std::array<int64_t, kMaxRank> at{};
  for (bool more = true; more;) {
    int64_t a = 0, b = 0, c = 0;
    for (size_t i = 0; i < count; ++i) {
      a += at[i] * dims[i].a_stride;
      b += at[i] * dims[i].b_stride;
      c += at[i] * dims[i].c_stride;
    }
    const void* const left = element_at(p.b.data, p.in, b);
    const void* const right = element_at(p.a.data, p.in, a);
    void* const result = element_at(p.c, p.out, c);
    problem.a_alignment = alignment_of(left);
    problem.b_alignment = alignment_of(right);
    problem.d_alignment = alignment_of(result);
    const auto run_as = [&](bool with_bias) {
      problem.epilogue = with_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
      problem.bias_alignment = with_bias ? alignment_of(p.bias) : 0;
      return run_one(args, p, problem, left, right, result, with_bias ? p.bias : nullptr,
                     filled ? 1 : p.beta);
    };
    bool done = run_as(fused);
    if (!done && fused) {  // there is no algorithm that adds the bias for this type or size
      fused = false;
      fill();
      done = run_as(false);
    }
    if (!done) {
      // No algorithm at all: the plain kernel computes the whole. It computes elements that are finished once
      // more, which is possible only if C is not an operand too.
      MX_CHECK(p.beta == 0 || count == 0, DeviceError,
               "[cublasLt] expected an algorithm for every product of a batch, got none for one of them");
      Product whole = p;
      if (filled && p.beta != 0) {
        whole.beta = 1;
        whole.bias = nullptr;
      }
      return multiply_plainly(args, whole);
    }
    more = false;
    for (size_t i = count; i-- > 0;) {
      if (++at[i] < dims[i].size) {
        more = true;
        break;
      }
      at[i] = 0;
    }
  }
}

}  // namespace mx::cuda
