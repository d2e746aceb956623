// DeviceGate: lets a communicator's calls wait for work that the engine has given to a device. Internal.
//
//   request.work_ahead = gate->after(stream.mark());   // in the operation, on the thread that issues it
//
// The engine enqueues an operation behind the work that it depends on, and goes on. The communicator starts
// the call later, when its turn has come. The gate has a stream of its own, which then waits for the point in
// the engine's stream. So the device orders the two, and no thread waits.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "engine/device/device.h"

namespace mx::detail {

class DeviceGate : public std::enable_shared_from_this<DeviceGate> {
 public:
  /// For points of this device's streams. Starts the device with the first call of after().
  explicit DeviceGate(Context context) : context_(context) {}

  Context context() const { return context_; }
  /// Returns a function for Request::work_ahead. It keeps the gate alive.
  std::function<void*()> after(std::shared_ptr<EventPoint> point);

 private:
  void* pass(std::shared_ptr<EventPoint> point);

  const Context context_;
  std::mutex mutex_;
  // Guarded by the mutex.
  std::unique_ptr<Stream> stream_;
  void* native_ = nullptr;
};

}  // namespace mx::detail
