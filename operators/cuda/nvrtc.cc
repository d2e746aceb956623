#include "operators/cuda/nvrtc.h"

#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::cuda {
namespace {

// As nvcc is called for the kernels that exist already, which joins products and sums within a formula.
constexpr const char* kOptions[] = {"--std=c++17", "--device-as-default-execution-space"};

struct Nvrtc {
  decltype(&nvrtcVersion) version;
  decltype(&nvrtcCreateProgram) create;
  decltype(&nvrtcDestroyProgram) destroy;
  decltype(&nvrtcCompileProgram) compile;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcGetErrorString) error_string;
};

void* open_library() {
  const std::string name = "libnvrtc.so." + std::to_string(CUDA_VERSION / 1000);
  std::string tried;
  const char* const folder = std::getenv("MX_CUDA_LIBRARIES");
  for (const std::string& path : {folder == nullptr ? name : std::string(folder) + "/" + name, name}) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
    const char* const reason = dlerror();
    tried += std::string("\n  ") + (reason == nullptr ? path.c_str() : reason);
  }
  throw DeviceError("[nvrtc] expected the library " + name +
                    " where the dynamic linker finds it or in the folder MX_CUDA_LIBRARIES, got:" + tried);
}

template <class F>
void load(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr)
    throw DeviceError(std::string("[nvrtc] expected a library that has ") + name + ", got one without");
}

const Nvrtc& nvrtc() {
  static const Nvrtc all = [] {
    void* const library = open_library();
    Nvrtc f{};
    load(library, f.version, "nvrtcVersion");
    load(library, f.create, "nvrtcCreateProgram");
    load(library, f.destroy, "nvrtcDestroyProgram");
    load(library, f.compile, "nvrtcCompileProgram");
    load(library, f.log_size, "nvrtcGetProgramLogSize");
    load(library, f.log, "nvrtcGetProgramLog");
    load(library, f.cubin_size, "nvrtcGetCUBINSize");
    load(library, f.cubin, "nvrtcGetCUBIN");
    load(library, f.error_string, "nvrtcGetErrorString");
    return f;
  }();
  return all;
}

void check(nvrtcResult result, const char* call) {
  if (result != NVRTC_SUCCESS)
    throw DeviceError(
        mx::detail::concat("[nvrtc] expected success of ", call, ", got ", nvrtc().error_string(result)));
}

std::atomic<CompileFn> replacement{nullptr};

}  // namespace

std::string compile(const std::string& source, int architecture) {
  if (const CompileFn other = replacement.load()) return other(source, architecture);
  const Nvrtc& f = nvrtc();
  struct Program {
    nvrtcProgram program = nullptr;
    ~Program() {
      if (program != nullptr) (void)nvrtc().destroy(&program);
    }
  } made;
  check(f.create(&made.program, source.c_str(), "fused.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  const char* const options[] = {target.c_str(), kOptions[0], kOptions[1]};
  const nvrtcResult result = f.compile(made.program, 3, options);
  if (result != NVRTC_SUCCESS) {
    size_t bytes = 0;
    std::string log;
    if (f.log_size(made.program, &bytes) == NVRTC_SUCCESS && bytes > 0) {
      log.resize(bytes);
      if (f.log(made.program, log.data()) != NVRTC_SUCCESS) log.clear();
    }
    throw DeviceError(mx::detail::concat("[nvrtc] expected a text that compiles for sm_", architecture,
                                         ", got ", f.error_string(result), ":\n", log.c_str()));
  }
  size_t bytes = 0;
  check(f.cubin_size(made.program, &bytes), "nvrtcGetCUBINSize");
  std::string image(bytes, '\0');
  check(f.cubin(made.program, image.data()), "nvrtcGetCUBIN");
  return image;
}

const std::string& compiler_identity() {
  static const std::string replaced = "another compiler";
  if (replacement.load() != nullptr) return replaced;
  static const std::string identity = [] {
    int major = 0, minor = 0;
    check(nvrtc().version(&major, &minor), "nvrtcVersion");
    std::string text = mx::detail::concat("nvrtc ", major, '.', minor);
    for (const char* option : kOptions) text += std::string(" ") + option;
    return text;
  }();
  return identity;
}

void replace_compiler(CompileFn compile) { replacement.store(compile); }

}  // namespace mx::cuda
