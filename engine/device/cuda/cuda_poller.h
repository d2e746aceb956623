// Polls points and calls back when they are reached. One thread serves the whole process.
//
// Completion is polled because CUDA does not call host functions after a context error. The thread starts
// with the first callback. While a point is pending it spins briefly (yielding), then polls every 20 to 50
// us. It sleeps while no point is pending. Like the devices, it is never stopped: it ends with the process.
//
// Thread-safety: safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/device/device.h"

namespace mx {

/// Calls `callback` on the poller's thread once `point` is reached. Callbacks of one stream run in the order
/// of these calls; `stream` is its id.
void call_when_reached(std::shared_ptr<EventPoint> point, uint64_t stream, std::function<void()> callback);

}  // namespace mx
