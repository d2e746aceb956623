#include "operators/cuda/cublaslt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::cuda {
namespace {

void* open_library() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  std::string tried;
  const char* const folder = std::getenv("MX_CUDA_LIBRARIES");
  for (const std::string& path : {folder == nullptr ? name : std::string(folder) + "/" + name, name}) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
    const char* const reason = dlerror();
    tried += std::string("\n  ") + (reason == nullptr ? path.c_str() : reason);
  }
  throw DeviceError("[cublasLt] expected the library " + name +
                    " where the dynamic linker finds it or in the folder MX_CUDA_LIBRARIES, got:" + tried);
}

template <class F>
void load(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr)
    throw DeviceError(std::string("[cublasLt] expected a library that has ") + name + ", got one without");
}

CublasLt load_all() {
  void* const library = open_library();
  CublasLt f{};
  load(library, f.create, "cublasLtCreate");
  load(library, f.matmul, "cublasLtMatmul");
  load(library, f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  load(library, f.desc_create, "cublasLtMatmulDescCreate");
  load(library, f.desc_destroy, "cublasLtMatmulDescDestroy");
  load(library, f.desc_set, "cublasLtMatmulDescSetAttribute");
  load(library, f.layout_create, "cublasLtMatrixLayoutCreate");
  load(library, f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  load(library, f.layout_set, "cublasLtMatrixLayoutSetAttribute");
  load(library, f.preference_create, "cublasLtMatmulPreferenceCreate");
  load(library, f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  load(library, f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
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
