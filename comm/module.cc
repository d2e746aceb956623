#include "comm/module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>

#include "engine/base/check.h"
#include "engine/base/process_mark.h"

namespace mx::comm {
namespace {

std::string folder_of_program() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return ".";
  const std::string text(path, static_cast<size_t>(length));
  return text.substr(0, text.rfind('/'));
}

// What to install for a module that is not there.
const char* advice(const std::string& name) {
  if (name == "mpi") return "build mx with the package libopenmpi-dev (or libmpich-dev) installed";
  return "build mx with CUDA and NCCL installed";
}

Module& open_module(const std::string& name) {
  const std::string file = "libmx_comm_" + name + ".so";
  std::vector<std::string> paths;
  for (const std::string& folder : module_folders()) paths.push_back(folder + "/" + file);
  paths.push_back(file);
  std::string tried;
  for (const std::string& path : paths) {
    const bool searched = path == file;  // by the dynamic linker
    tried += "\n  " + path + (searched ? " in the run path of the program: " : ": ");
    if (!searched && access(path.c_str(), R_OK) != 0) {
      tried += "not there";
      continue;
    }
    // Open MPI loads parts of itself that look for its symbols among the global ones. The module is never
    // closed, because its threads may still run.
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (library == nullptr) {
      tried += dlerror();
      continue;
    }
    void* const function = dlsym(library, kModuleFunction);
    if (function == nullptr) {
      tried += "does not export mx_comm_module";
      continue;
    }
    Module* const module = reinterpret_cast<Module* (*)()>(function)();
    if (module->interface_version() == kModuleInterface) return *module;
    tried += "has interface " + std::to_string(module->interface_version()) + ", this program needs " +
             std::to_string(kModuleInterface);
  }
  throw InvalidState(mx::detail::concat("[comm] expected the module ", file, ", got none; ", advice(name),
                                        ", or set MX_MODULE_PATH. Looked for:", tried));
}

struct Loaded {
  const ProcessMark process;
  std::mutex mutex;
  std::map<std::string, Module*> modules;
};
Loaded& loaded() {
  static Loaded& all = *new Loaded;  // never destroyed: used when the process ends
  return all;
}

bool (*leave_groups)(int status) = nullptr;

// Handlers run in the opposite order of their registration. That of the default engine, which drains it, is
// registered on the engine's first use, normally by main(). This one is registered before main(), and so runs
// later: operations that communicate have ended by then. on_exit() tells the status, which decides whether
// the process ended as it should. After a failure the other processes may not come, so nothing waits for
// them.
[[maybe_unused]] const int finishes_at_exit = ::on_exit(
    [](int status, void*) {
      const bool failed = leave_groups != nullptr && leave_groups(status);
      if (status == 0) finish_modules(failed);
    },
    nullptr);

}  // namespace

void finish_modules(bool after_failure) noexcept {
  if (!loaded().process.is_here()) return;  // a forked child has none of the modules' threads
  std::lock_guard lock(loaded().mutex);
  for (auto& [name, module] : loaded().modules) module->finish(after_failure);
}

void call_before_modules_finish(bool (*function)(int status)) noexcept { leave_groups = function; }

std::vector<std::string> module_folders() {
  std::vector<std::string> folders;
  if (const char* list = std::getenv("MX_MODULE_PATH"); list != nullptr) {
    std::string rest = list;
    while (!rest.empty()) {
      const size_t colon = rest.find(':');
      if (colon != 0) folders.push_back(rest.substr(0, colon));
      rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    }
  }
  const std::string here = folder_of_program();
  folders.push_back(here + "/../modules");
  folders.push_back(here + "/../lib/mx");
  folders.push_back(MX_MODULE_FOLDER);
  return folders;
}

Module& load_module(const std::string& name) {
  MX_CHECK(name == "mpi" || name == "nccl", InvalidArgument, "[comm] expected the module mpi or nccl, got \"",
           name, '"');
  std::lock_guard lock(loaded().mutex);
  const auto found = loaded().modules.find(name);
  if (found != loaded().modules.end()) return *found->second;
  Module& module = open_module(name);
  loaded().modules.emplace(name, &module);
  return module;
}

}  // namespace mx::comm
