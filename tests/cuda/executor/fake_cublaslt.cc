#include "tests/cuda/executor/fake_cublaslt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "engine/base/half.h"
#include "operators/cuda/cublaslt.h"

namespace mx::test {
namespace {

constexpr uint64_t kFakeWorkspace = 1000;

template <class T>
T attribute_of(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name) {
  T value{};
  size_t written = 0;
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS,
            cublasLtMatrixLayoutGetAttribute(layout, name, &value, sizeof value, &written));
  return value;
}
template <class T>
T attribute_of(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name) {
  T value{};
  size_t written = 0;
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS,
            cublasLtMatmulDescGetAttribute(product, name, &value, sizeof value, &written));
  return value;
}

/// A matrix of columns in memory, and a batch of them.
struct FakeMatrix {
  cudaDataType_t type;
  int64_t rows, columns, leading, step;
  int32_t batch;

  explicit FakeMatrix(cublasLtMatrixLayout_t layout)
      : type(static_cast<cudaDataType_t>(attribute_of<uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE))),
        rows(static_cast<int64_t>(attribute_of<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS))),
        columns(static_cast<int64_t>(attribute_of<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS))),
        leading(attribute_of<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD)),
        step(attribute_of<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)),
        batch(attribute_of<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)) {}

  int64_t at(int64_t row, int64_t column, int64_t member) const {
    return member * step + column * leading + row;
  }
};

double read(const void* data, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    case CUDA_R_16F:
      return static_cast<const float16*>(data)[i];
    case CUDA_R_16BF:
      return static_cast<const bfloat16*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}
void write(void* data, cudaDataType_t type, int64_t i, double x) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[i] = x;
      return;
    case CUDA_R_16F:
      static_cast<float16*>(data)[i] = static_cast<float>(x);
      return;
    case CUDA_R_16BF:
      static_cast<bfloat16*>(data)[i] = static_cast<float>(x);
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(x);
  }
}

cublasStatus_t refused(const std::string& why) {
  ADD_FAILURE() << "[fake cuBLASLt] " << why;
  return CUBLAS_STATUS_INVALID_VALUE;
}

/// Allocates memory, as the library may do in any call. Returns false if that fails, because the thread
/// captures a graph and is not exempt from the rules of captures.
bool may_allocate() {
  if (!fake_cublaslt().enqueue) return true;
  void* memory = nullptr;
  return cudaMalloc(&memory, 256) == cudaSuccess && cudaFree(memory) == cudaSuccess;
}

cublasStatus_t fake_create(cublasLtHandle_t* handle) {
  if (!may_allocate()) return refused("expected a thread that may allocate, got one that captures");
  static int object = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&object);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t,
                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                              cublasLtMatmulPreference_t preference, int wanted,
                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  ++fake_cublaslt().heuristics;
  if (!may_allocate()) return refused("expected a thread that may allocate, got one that captures");
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted < 1) return refused("expected room for a result, got none");
  uint64_t most = 0;
  size_t written = 0;
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS,
            cublasLtMatmulPreferenceGetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                                 sizeof most, &written));
  const auto epilogue = attribute_of<uint32_t>(product, CUBLASLT_MATMUL_DESC_EPILOGUE);
  const bool refuses =
      fake_cublaslt().refuse_all || (fake_cublaslt().refuse_bias && (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0);
  *count = refuses ? 0 : 1;
  if (refuses) return CUBLAS_STATUS_NOT_SUPPORTED;
  *results = {};
  results->state = CUBLAS_STATUS_SUCCESS;
  results->workspaceSize = most < kFakeWorkspace ? most : kFakeWorkspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t fake_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                           const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                           cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                           cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                           const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                           cudaStream_t stream) {
  ++fake_cublaslt().products;
  if (!may_allocate()) return refused("expected a thread that may allocate, got one that captures");
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const FakeMatrix left(a_layout), right(b_layout), added(c_layout), result(d_layout);
  const auto transposed = [&](cublasLtMatmulDescAttributes_t name) {
    return attribute_of<int32_t>(product, name) != CUBLAS_OP_N;
  };
  const bool ta = transposed(CUBLASLT_MATMUL_DESC_TRANSA), tb = transposed(CUBLASLT_MATMUL_DESC_TRANSB);
  const int64_t m = ta ? left.columns : left.rows, k = ta ? left.rows : left.columns;
  const int64_t other_k = tb ? right.columns : right.rows, n = tb ? right.rows : right.columns;
  for (const FakeMatrix* x : {&left, &right, &added, &result}) {
    if (x->leading < x->rows)
      return refused("expected a leading dimension of at least " + std::to_string(x->rows) + " rows, got " +
                     std::to_string(x->leading));
    if (x->batch != result.batch) return refused("expected batches of one size");
    if (x->rows < 1 || x->columns < 1) return refused("expected matrices with elements");
  }
  if (k != other_k) return refused("expected operands that agree in k");
  if (result.rows != m || result.columns != n || added.rows != m || added.columns != n)
    return refused("expected C and D of m x n");
  if (c == d && (added.leading != result.leading || added.step != result.step))
    return refused("expected one layout of C and D in place");
  if (result.batch > 1 && result.step < result.leading * (result.columns - 1) + result.rows &&
      result.leading < result.step * (result.batch - 1) + result.rows)
    return refused("expected members of D that do not overlap");
  if (left.type != right.type) return refused("expected A and B of one type");
  if (algorithm == nullptr) return refused("expected an algorithm");
  if (workspace_bytes > 0) {
    if (workspace == nullptr || reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
      return refused("expected a workspace aligned to 256 bytes");
  }
  const auto scale = attribute_of<int32_t>(product, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
  if ((scale == CUDA_R_64F) != (left.type == CUDA_R_64F))
    return refused("expected factors in double exactly for matrices in double");
  const double times = read(alpha, static_cast<cudaDataType_t>(scale), 0),
               plus = read(beta, static_cast<cudaDataType_t>(scale), 0);
  const auto epilogue = attribute_of<uint32_t>(product, CUBLASLT_MATMUL_DESC_EPILOGUE);
  const void* const bias = attribute_of<const void*>(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  const bool with_bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (with_bias && bias == nullptr) return refused("expected the address of a bias");
  const auto compute = [=] {
    if (workspace_bytes > 0) std::memset(workspace, 0x7f, workspace_bytes);
    for (int64_t member = 0; member < result.batch; ++member)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < m; ++i) {
          double sum = 0;
          for (int64_t q = 0; q < k; ++q)
            sum += read(a, left.type, ta ? left.at(q, i, member) : left.at(i, q, member)) *
                   read(b, right.type, tb ? right.at(j, q, member) : right.at(q, j, member));
          sum *= times;
          if (plus != 0) sum += plus * read(c, added.type, added.at(i, j, member));
          if (with_bias) sum += read(bias, result.type, i);
          write(d, result.type, result.at(i, j, member), sum);
        }
  };
  if (fake_cublaslt().enqueue)
    fake_cublaslt().enqueue(stream, compute);
  else
    compute();
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeCublasLt& fake_cublaslt() {
  static FakeCublasLt fake;
  return fake;
}

void install_fake_cublaslt() { cuda::replace_cublaslt_device(fake_create, fake_heuristic, fake_matmul); }

}  // namespace mx::test
