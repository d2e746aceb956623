// The functions of cuBLASLt, loaded from its shared library at the first product on a GPU.
//
// Programs are not linked with the library: it has 500 MB, and a machine without a GPU does not need it.
//
// Thread-safety: any thread may call.
#pragma once

#include <cublasLt.h>

namespace mx::cuda {

struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

/// Returns the functions. Throws DeviceError with the linker's message if the library cannot be loaded; it is
/// found like any shared library, or in a folder that MX_CUDA_LIBRARIES names.
const CublasLt& cublaslt();

/// Replaces create(), heuristic() and matmul(), which need a GPU, for tests. Call it before the first
/// product.
void replace_cublaslt_device(decltype(&cublasLtCreate) create,
                             decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic,
                             decltype(&cublasLtMatmul) matmul);

/// Throws DeviceError, naming the call, unless `status` is success.
void check_cublas(cublasStatus_t status, const char* call);

}  // namespace mx::cuda
