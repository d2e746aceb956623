#include "operators/kernels/workspace.h"

#include <cstdlib>

#include "engine/base/check.h"
#include "engine/base/thread_kept.h"

namespace mx::kernels {
namespace {

constexpr size_t kAlignment = 64;

struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;

  ~Buffer() { std::free(data); }
};

}  // namespace

void* thread_workspace(size_t bytes) {
  Buffer& buffer = mx::detail::thread_kept<Buffer, Buffer>();
  if (bytes > buffer.bytes) {
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    std::free(buffer.data);  // first, so that both buffers are never held together
    buffer.bytes = 0;
    buffer.data = std::aligned_alloc(kAlignment, rounded);
    MX_CHECK(buffer.data != nullptr, OutOfMemory, "[workspace] expected ", rounded,
             " bytes of scratch memory, got none");
    buffer.bytes = rounded;
  }
  return buffer.data;
}

}  // namespace mx::kernels
