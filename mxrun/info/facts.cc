#include "mxrun/info/facts.h"

#include <dlfcn.h>
#include <link.h>
#include <openssl/crypto.h>
#include <tbb/version.h>
#include <unistd.h>
#include <zlib.h>

#include <hwy/base.h>
#include <hwy/targets.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "comm/module.h"
#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "engine/base/error.h"
#include "engine/device/registry.h"
#include "engine/options.h"
#include "operators/operator.h"

extern char** environ;

namespace mx::info {
namespace {

using detail::concat;

std::string gibibytes(double bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << bytes / (1 << 30) << " GiB";
  return out.str();
}

std::string version_of(int major, int minor) { return concat(major, '.', minor); }

Section build() {
  const std::vector<const Operator*> operators = all_operators();
  const auto with_cuda = std::count_if(operators.begin(), operators.end(),
                                       [](const Operator* op) { return op->kernel.cuda != nullptr; });
  const CudaSupport cuda = cuda_support();
  return {"build",
          {{"version", MX_VERSION},
           {"compiler", MX_COMPILER},
           {"type", MX_BUILD_TYPE},
           {"sanitizers", *MX_SANITIZERS == '\0' ? "none" : MX_SANITIZERS},
           {"CUDA", cuda.toolkit.empty() ? "none" : concat(cuda.toolkit, ", compiled for ", MX_CUDA_TARGETS)},
           {"operators",
            concat(operators.size(), ", ", with_cuda, " of them with a kernel of their own for GPUs")}}};
}

Section processor() {
  const int64_t supported = hwy::SupportedTargets();
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return {"processor",
          {{"name", get_device(cpu()).properties().name},
           {"processors", concat(processors(), ", of which this process uses ", usable_cpus())},
           // Better targets have lower bits.
           {"vectors", hwy::TargetName(supported & -supported)},
           {"memory", gibibytes(memory)}}};
}

std::string engine_mode() {
  try {
    const EngineOptions options = EngineOptions::from_environment();
    switch (options.mode) {
      case EngineMode::threaded:
        return "threaded";
      case EngineMode::naive:
        return "naive";
      case EngineMode::check:
        return "check";
      case EngineMode::fuzz:
        return concat("fuzz:", options.seed);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "unknown";
}

std::string describe(const Device& device) {
  const DeviceProperties& found = device.properties();
  return concat(found.name, ", ", gibibytes(static_cast<double>(found.total_bytes)), ", ",
                found.compute_units, " multiprocessors", found.architecture.empty() ? "" : ", ",
                found.architecture);
}

Section devices() {
  const CudaSupport cuda = cuda_support();
  Section section{"devices", {{"engine", engine_mode()}}};
  section.facts.emplace_back("driver",
                             cuda.driver.empty() ? "none" : "for CUDA " + cuda.driver + " or older");
  const int count = num_gpus();
  if (count == 0) section.facts.emplace_back("GPUs", cuda.problem.empty() ? "none" : "none: " + cuda.problem);
  for (int id = 0; id < count; ++id) {
    const std::string name = concat("gpu(", id, ")");
    try {
      section.facts.emplace_back(name, describe(get_device(gpu(id))));
    } catch (const Error& error) {
      section.facts.emplace_back(name, concat("cannot be used: ", error.what()));
    }
  }
  section.facts.emplace_back("virtual devices", std::to_string(num_devices(DeviceKind::virt)));
  return section;
}

/// Where a shared library is found. Looks where CudaLibrary (operators/cuda/cuda_library.h) does.
std::string place_of(const std::string& file) {
  const char* const folders = std::getenv("MX_CUDA_LIBRARIES");
  std::string problem;
  std::vector<std::string> paths;
  std::istringstream list(folders == nullptr ? "" : folders);
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty()) paths.push_back(concat(folder, "/", file));
  paths.push_back(file);
  for (const std::string& path : paths) {
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const reason = dlerror();
      problem = reason == nullptr ? path : reason;
      continue;
    }
    link_map* map = nullptr;
    std::string found = path;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && *map->l_name != '\0')
      found = map->l_name;
    dlclose(library);
    return found;
  }
  return "none: " + problem;
}

std::string module_state(const std::string& name) {
  try {
    comm::load_module(name);
    return "found";
  } catch (const std::exception& error) {
    return concat("none: ", error.what());
  }
}

Section libraries() {
  Section section{"libraries",
                  {{"oneTBB", concat(TBB_runtime_version(), ", built with ",
                                     version_of(TBB_VERSION_MAJOR, TBB_VERSION_MINOR))},
                   {"Highway", MX_HIGHWAY},
                   {"OpenSSL", OpenSSL_version(OPENSSL_VERSION)},
                   {"zlib", zlibVersion()},
                   {"module mpi", module_state("mpi")},
                   {"module nccl", module_state("nccl")}}};
  const std::string toolkit = cuda_support().toolkit;
  if (!toolkit.empty()) {
    section.facts.emplace_back("cuBLASLt",
                               place_of("libcublasLt.so." + toolkit.substr(0, toolkit.find('.'))));
    section.facts.emplace_back("cuDNN", place_of("libcudnn_graph.so.9"));
  }
  return section;
}

/// The variables that mx reads. A secret is in a file, and the file's name is no secret.
Section environment() {
  Section section{"environment", {}};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (equals == std::string_view::npos ||
        !(name.starts_with("MX_") || name == "CUDA_VISIBLE_DEVICES" || name == "CUDA_MODULE_LOADING"))
      continue;
    section.facts.emplace_back(name, text.substr(equals + 1));
  }
  std::sort(section.facts.begin(), section.facts.end());
  return section;
}

/// Returns the section, or one that says why there is none: a setting of the environment is wrong, for
/// example.
Section found(const char* name, Section (*section)()) {
  try {
    return section();
  } catch (const Error& error) {
    return {name, {{"problem", error.what()}}};
  }
}

}  // namespace

std::vector<Section> collect() {
  return {found("build", build), found("processor", processor), found("devices", devices),
          found("libraries", libraries), found("environment", environment)};
}

}  // namespace mx::info
