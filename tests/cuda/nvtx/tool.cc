// A tool that NVTX loads into a process: it counts the ranges of the domain "mxrun" by their names.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, int> begun;
  int ended = 0;
};
Counts& counts() {
  static Counts* const only = new Counts;
  return *only;
}

char our_domain;  // its address is the handle
nvtxDomainHandle_t handle() { return reinterpret_cast<nvtxDomainHandle_t>(&our_domain); }

thread_local int depth = 0;

nvtxDomainHandle_t NVTX_API create(const char* name) {
  return std::strcmp(name, "mxrun") == 0 ? handle() : nullptr;
}
int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  if (domain != handle()) return NVTX_NO_PUSH_POP_TRACKING;
  const std::lock_guard lock(counts().mutex);
  ++counts().begun[range->message.ascii];
  return depth++;
}
int NVTX_API pop(nvtxDomainHandle_t domain) {
  if (domain != handle()) return NVTX_NO_PUSH_POP_TRACKING;
  const std::lock_guard lock(counts().mutex);
  ++counts().ended;
  return --depth;
}

template <class F>
void set(NvtxFunctionTable table, unsigned id, F function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" {

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  set(table, NVTX_CBID_CORE2_DomainCreateA, create);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

/// The number of ranges with this name that have begun; null: of all that have ended.
int mx_counted_ranges(const char* name) {
  const std::lock_guard lock(counts().mutex);
  return name == nullptr ? counts().ended : counts().begun[name];
}
}
