#include "operators/cuda/nvrtc.h"

#include <cuda.h>
#include <nvrtc.h>

#include <atomic>
#include <memory>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "operators/cuda/cuda_library.h"

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
  decltype(&nvrtcGetPTXSize) ptx_size;
  decltype(&nvrtcGetPTX) ptx;
  decltype(&nvrtcGetErrorString) error_string;
};

const Nvrtc& nvrtc() {
  static const Nvrtc all = [] {
    const CudaLibrary library("nvrtc", "libnvrtc.so." + std::to_string(CUDA_VERSION / 1000));
    Nvrtc f{};
    library.load(f.version, "nvrtcVersion");
    library.load(f.create, "nvrtcCreateProgram");
    library.load(f.destroy, "nvrtcDestroyProgram");
    library.load(f.compile, "nvrtcCompileProgram");
    library.load(f.log_size, "nvrtcGetProgramLogSize");
    library.load(f.log, "nvrtcGetProgramLog");
    library.load(f.cubin_size, "nvrtcGetCUBINSize");
    library.load(f.cubin, "nvrtcGetCUBIN");
    library.load(f.ptx_size, "nvrtcGetPTXSize");
    library.load(f.ptx, "nvrtcGetPTX");
    library.load(f.error_string, "nvrtcGetErrorString");
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

class Program {
 public:
  Program(const std::string& source, int architecture) {
    const Nvrtc& f = nvrtc();
    check(f.create(&program_, source.c_str(), "fused.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
    const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
    const char* const options[] = {target.c_str(), kOptions[0], kOptions[1]};
    if (const nvrtcResult result = f.compile(program_, 3, options); result != NVRTC_SUCCESS) {
      const std::string messages = log();
      (void)f.destroy(&program_);
      throw DeviceError(mx::detail::concat("[nvrtc] expected a text that compiles for sm_", architecture,
                                           ", got ", f.error_string(result), ":\n", messages));
    }
  }
  ~Program() { (void)nvrtc().destroy(&program_); }
  Program(const Program&) = delete;

  std::string image() const {
    size_t bytes = 0;
    check(nvrtc().cubin_size(program_, &bytes), "nvrtcGetCUBINSize");
    std::string image(bytes, '\0');
    check(nvrtc().cubin(program_, image.data()), "nvrtcGetCUBIN");
    return image;
  }
  std::string assembly() const {
    size_t bytes = 0;
    check(nvrtc().ptx_size(program_, &bytes), "nvrtcGetPTXSize");
    std::string text(bytes, '\0');
    check(nvrtc().ptx(program_, text.data()), "nvrtcGetPTX");
    return text.c_str();
  }

 private:
  std::string log() const {
    size_t bytes = 0;
    if (nvrtc().log_size(program_, &bytes) != NVRTC_SUCCESS) return "";
    std::string text(bytes, '\0');
    return nvrtc().log(program_, text.data()) == NVRTC_SUCCESS ? text.c_str() : "";
  }

  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::string compile(const std::string& source, int architecture) {
  if (const CompileFn other = replacement.load()) return other(source, architecture);
  return Program(source, architecture).image();
}

std::string assembly(const std::string& source, int architecture) {
  return Program(source, architecture).assembly();
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
