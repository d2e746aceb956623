// The registry of devices: finds a Device for a Context, and lets a backend join, from inside the tree or
// from outside it.
//
// Thread-safe. Devices start on first use and live until the process ends (they are never destroyed by
// static destructors, because arrays with static lifetime may still free memory then).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/device/device.h"

namespace mx {

/// The description with which a backend registers.
struct Backend {
  std::string name;            ///< "cpu", "gpu", "virt", or the outside backend's own
  std::function<int()> count;  ///< returns the number of devices; must not throw
  std::function<std::unique_ptr<Device>(int id)> open;  ///< starts device id; throws DeviceError
};

/// Adds a backend and returns its kind. Throws InvalidArgument if the name is taken or a function is null.
DeviceKind register_backend(Backend backend);

/// Returns the device and starts it if necessary. Throws InvalidArgument if the kind or the number does not
/// exist; the message says which devices there are.
Device& get_device(Context context);

/// Returns the number of devices of the kind; 0 if the kind is not built in or has no hardware.
int num_devices(DeviceKind kind);

/// Returns the number of usable GPUs; 0 without hardware, driver or CUDA support. Never throws.
int num_gpus();

/// The versions of CUDA in this process, and why there is no GPU. Found without starting one.
struct CudaSupport {
  std::string toolkit;  ///< "13.0": of the build; empty if it has no CUDA
  std::string driver;   ///< "13.0": the newest CUDA that the driver supports; empty if there is no driver
  std::string problem;  ///< why there is no GPU, in CUDA's words; empty if there is one
};
/// Never throws.
CudaSupport cuda_support();

}  // namespace mx
