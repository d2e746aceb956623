#include "operators/kernels/workspace.h"

#include <cstdlib>

#include "engine/base/check.h"

namespace mx::kernels {
namespace {

constexpr size_t kAlignment = 64;

struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
};

// A plain value, which can be used when the destructors of the thread have run: kernels run after them on the
// thread that ends the process, where the engine finishes what is left.
thread_local constinit Buffer buffer{};

void release() {
  std::free(buffer.data);
  buffer = {};
}

struct Janitor {
  ~Janitor() { release(); }
};

}  // namespace

void* thread_workspace(size_t bytes) {
  if (bytes > buffer.bytes) {
    // What is allocated after the janitor has gone stays until the process ends.
    static thread_local const Janitor janitor;
    (void)janitor;
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    release();  // first, so that the two are never held together
    void* const data = std::aligned_alloc(kAlignment, rounded);
    MX_CHECK(data != nullptr, OutOfMemory, "[workspace] expected ", rounded, " bytes of memory, got none");
    buffer = {data, rounded};
  }
  return buffer.data;
}

}  // namespace mx::kernels
