#include "operators/scratch.h"

#include "engine/device/registry.h"

namespace mx {

Scratch::Scratch(const KernelArgs& args, size_t bytes)
    : device_(args.stream != nullptr ? args.stream->device() : get_device(cpu())),
      stream_(args.stream),
      data_(bytes == 0 ? nullptr : device_.allocate(bytes, stream_)) {}

Scratch::~Scratch() {
  if (data_ != nullptr) device_.free(data_, stream_);
}

}  // namespace mx
