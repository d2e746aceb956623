#include "kvstore/device_gate.h"

#include <utility>

#include "engine/device/registry.h"

namespace mx::detail {

std::function<void*()> DeviceGate::after(std::shared_ptr<EventPoint> point) {
  return [gate = shared_from_this(), point = std::move(point)] { return gate->pass(point); };
}

void* DeviceGate::pass(std::shared_ptr<EventPoint> point) {
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr) {
    stream_ = get_device(context_).new_stream(StreamKind::comm);
    // On a device with native streams, a task runs at once.
    stream_->submit([this](KernelContext& context) { native_ = context.native_stream(); });
  }
  stream_->wait_point(std::move(point));
  return native_;
}

}  // namespace mx::detail
