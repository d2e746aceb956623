// Ranges by NVTX 3, which is a header only. It loads the tool's library itself.
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <string_view>

#include "engine/device/tool_range.h"

namespace mx {

namespace {

// Null if no tool listens. Never destroyed: the tool may be gone when the process ends.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = [] {
    const char* const wanted = std::getenv("MX_NVTX");
    const bool refused = wanted != nullptr && std::string_view(wanted) == "0";
    return refused ? nullptr : nvtxDomainCreateA("mxrun");
  }();
  return made;
}

}  // namespace

bool tool_listens() noexcept { return domain() != nullptr; }

void begin_tool_range(const char* name) noexcept {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name != nullptr ? name : "operation";
  (void)nvtxDomainRangePushEx(domain(), &range);
}

void end_tool_range() noexcept { (void)nvtxDomainRangePop(domain()); }

}  // namespace mx
