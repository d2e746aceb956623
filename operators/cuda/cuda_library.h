// CudaLibrary: a library of the CUDA toolkit that is loaded when it is first needed, so that programs start
// without it. Internal.
//
//   const CudaLibrary library("nvrtc", "libnvrtc.so.13");
//   library.load(version, "nvrtcVersion");      // sets a pointer to a function
//
// It is looked for in the folders that MX_CUDA_LIBRARIES lists, separated by ':', and then where the dynamic
// linker finds it. It is never unloaded. Errors are DeviceErrors.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace mx::cuda {

class CudaLibrary {
 public:
  /// `what` names the library in errors, `file` is the name of its file.
  CudaLibrary(const char* what, const std::string& file) : what_(what) {
    std::string tried;
    std::vector<std::string> paths;
    const char* const folders = std::getenv("MX_CUDA_LIBRARIES");
    std::istringstream list(folders == nullptr ? "" : folders);
    for (std::string folder; std::getline(list, folder, ':');)
      if (!folder.empty()) paths.push_back(folder + "/" + file);
    paths.push_back(file);
    for (const std::string& path : paths) {
      handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      if (handle_ != nullptr) return;
      const char* const reason = dlerror();
      tried += std::string("\n  ") + (reason == nullptr ? path.c_str() : reason);
    }
    throw DeviceError("[" + what_ + "] expected the library " + file +
                      " where the dynamic linker finds it or in a folder of MX_CUDA_LIBRARIES, got:" + tried);
  }

  template <class F>
  void load(F& function, const char* name) const {
    function = reinterpret_cast<F>(dlsym(handle_, name));
    if (function == nullptr)
      throw DeviceError("[" + what_ + "] expected a library that has " + name + ", got one without");
  }

 private:
  const std::string what_;
  void* handle_ = nullptr;
};

}  // namespace mx::cuda
