#include "operators/cuda/cublaslt.h"

#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "operators/cuda/cuda_library.h"

namespace mx::cuda {
namespace {

CublasLt load_all() {
  const CudaLibrary library("cublasLt", "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
  CublasLt f{};
  library.load(f.create, "cublasLtCreate");
  library.load(f.matmul, "cublasLtMatmul");
  library.load(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.load(f.desc_create, "cublasLtMatmulDescCreate");
  library.load(f.desc_destroy, "cublasLtMatmulDescDestroy");
  library.load(f.desc_set, "cublasLtMatmulDescSetAttribute");
  library.load(f.layout_create, "cublasLtMatrixLayoutCreate");
  library.load(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.load(f.layout_set, "cublasLtMatrixLayoutSetAttribute");
  library.load(f.preference_create, "cublasLtMatmulPreferenceCreate");
  library.load(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.load(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return f;
}

CublasLt& functions() {
  static CublasLt all = load_all();
  return all;
}

}  // namespace

const CublasLt& cublaslt() { return functions(); }

void replace_cublaslt_device(decltype(&cublasLtCreate) create,
                             decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic,
                             decltype(&cublasLtMatmul) matmul) {
  functions().create = create;
  functions().heuristic = heuristic;
  functions().matmul = matmul;
}

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw DeviceError(
        detail::concat("[cublasLt] expected success of ", call, ", got status ", static_cast<int>(status)));
}

}  // namespace mx::cuda
