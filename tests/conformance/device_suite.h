// The conformance suite of devices: properties that every backend must have because the engine relies on
// them.
//
// A backend joins with one line in a test program that compiles device_*_suite.cc into itself:
//
//   MX_DEVICE_CONFORMANCE(virt, mx::virt(0), mx::virt(1));
//
// The second device is the peer of copies (the first device again if there is only one). The tests are
// skipped if the device does not exist. Tasks touch device memory only through DeviceOps. A backend whose
// tasks cannot access device memory from host code passes its own DeviceOps as a third argument.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/device/registry.h"

namespace mx::conformance {

/// Blocks a stream until open() is called or the gate is destroyed.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void open() = 0;
};

/// Work on device memory. The defaults run host code through KernelContext::ptr().
class DeviceOps {
 public:
  virtual ~DeviceOps() = default;

  /// Called before each test; sets up what the backend needs (for instance, delays).
  virtual void prepare(Device& device) { (void)device; }
  /// Returns true if a submitted task runs on another thread than the submitter's.
  virtual bool tasks_run_on_own_threads() const { return true; }

  virtual void fill(Stream& stream, uint32_t* p, size_t n, uint32_t value);
  virtual void add(Stream& stream, uint32_t* p, size_t n, uint32_t delta);
  /// Adds the number of elements p[i] != expected to *mismatches, which is in device memory as well.
  virtual void check(Stream& stream, const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches);
  /// Blocks the stream: work submitted to it after this call starts only when the gate opens.
  virtual std::unique_ptr<Gate> hold(Stream& stream);
};

DeviceOps& host_ops();

struct DeviceParam {
  Context first;
  Context second;
  DeviceOps* ops;
};

inline void PrintTo(const DeviceParam& param, std::ostream* out) { *out << param.first; }

inline DeviceParam device_param(Context first, Context second, DeviceOps& ops = host_ops()) {
  return {first, second, &ops};
}

/// A block of device memory. It is freed without a stream, so nothing may use it any more at that time.
template <class T>
class Block {
 public:
  Block(Device& device, size_t n, Stream* stream = nullptr)
      : device_(device), data_(static_cast<T*>(device.allocate(n * sizeof(T), stream))), size_(n) {}
  ~Block() { device_.free(data_, nullptr); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  T* get() const { return data_; }
  size_t size() const { return size_; }

 private:
  Device& device_;
  T* data_;
  size_t size_;
};

class DeviceSuite : public ::testing::TestWithParam<DeviceParam> {
 protected:
  void SetUp() override;

  Device& device() { return get_device(GetParam().first); }
  /// Returns the other device, or the same device if there is only one.
  Context peer() const;
  DeviceOps& ops() { return *GetParam().ops; }

  std::unique_ptr<Stream> stream(StreamKind kind = StreamKind::compute) { return device().new_stream(kind); }
  std::unique_ptr<Event> event() { return device().new_event(); }

  /// Copy host data to a device or back. Each copy has finished on return.
  void upload(Device& to, void* target, const void* source, size_t bytes);
  void download(Device& from, void* target, const void* source, size_t bytes);
  uint32_t read(const uint32_t* p);

  /// Returns false, and skips the test, if submitted tasks run on the calling thread.
  bool tasks_overlap() { return ops().tasks_run_on_own_threads(); }
};

/// Returns the message of the exception; empty for null.
std::string text_of(std::exception_ptr error);

}  // namespace mx::conformance

#define MX_DEVICE_CONFORMANCE(name, ...)                                                    \
  using DeviceSuite = ::mx::conformance::DeviceSuite;                                       \
  INSTANTIATE_TEST_SUITE_P(name, DeviceSuite,                                               \
                           ::testing::Values(::mx::conformance::device_param(__VA_ARGS__)), \
                           [](const auto&) { return std::string("device"); })
