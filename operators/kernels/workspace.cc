#include "operators/kernels/workspace.h"

#include <cstdlib>
#include <memory>

#include "engine/base/check.h"

namespace mx::kernels {
namespace {

constexpr size_t kAlignment = 64;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

struct Buffer {
  std::unique_ptr<void, Free> data;
  size_t bytes = 0;
};

}  // namespace

void* thread_workspace(size_t bytes) {
  thread_local Buffer buffer;
  if (bytes > buffer.bytes) {
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    buffer = {};  // first, so that the two are never held together
    void* const data = std::aligned_alloc(kAlignment, rounded);
    MX_CHECK(data != nullptr, OutOfMemory, "[workspace] expected ", rounded, " bytes of memory, got none");
    buffer.data.reset(data);
    buffer.bytes = rounded;
  }
  return buffer.data.get();
}

}  // namespace mx::kernels
