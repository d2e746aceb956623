// The virtual device: a simulated accelerator, for running and testing multi-device programs anywhere.
//
// To the scheduler it behaves like a GPU: its streams run asynchronously, its memory faults if the host
// accesses it, and it can be slow, full, fail or be lost. Tasks are host code and access its memory through
// KernelContext::ptr(). The speed of copies can be simulated; by default it is not.
//
// Thread-safety: the controls are safe from any thread. "From now" counts submissions in their order. So with
// one pusher, an injected failure hits the same piece of work in every run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/host_stream.h"
#include "engine/device/virtual/virtual_memory.h"

namespace mx {

/// Options of the virtual devices that start after set_virtual_options().
struct VirtualOptions {
  int devices = 8;                          ///< how many there are; default from MX_VIRTUAL_DEVICES
  size_t capacity_bytes = size_t{4} << 30;  ///< memory of each
  uint64_t seed = 0;                        ///< of the delays
  uint32_t min_delay_us = 0;                ///< before each kernel and copy, drawn from this range
  uint32_t max_delay_us = 0;
  double copy_bytes_per_second = std::numeric_limits<double>::infinity();
};

VirtualOptions virtual_options();
/// Sets the options. Devices that have already started keep their options. Throws InvalidArgument.
void set_virtual_options(const VirtualOptions& options);

/// One kernel or copy, as it ran.
struct VirtualTraceEntry {
  Context device;
  uint64_t stream = 0;  ///< Stream::id()
  HostWork::Kind kind = HostWork::Kind::kernel;
  size_t bytes = 0;  ///< of a copy
  uint32_t delay_us = 0;
  int64_t begin_ns = 0;  ///< of the steady clock, after the delay
  int64_t end_ns = 0;
};

class VirtualDevice final : public Device, private HostStreamOwner {
 public:
  VirtualDevice(int id, const VirtualOptions& options);

  Context context() const override { return virt(id_); }
  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t bytes, Stream* stream) override;
  void free(void* pointer, Stream* stream) noexcept override { pool_.free(pointer, stream); }
  void note_use(void* pointer, Stream& stream) override { pool_.note_use(pointer, stream); }
  void copy_async(void* target, Context target_context, const void* source, Context source_context,
                  size_t bytes, Stream& stream) override;
  std::unique_ptr<Stream> new_stream(StreamKind kind) override;
  std::unique_ptr<Event> new_event() override;
  /// Each launch of a graph runs the nodes in another legal order, drawn from the seed of the delays.
  std::unique_ptr<GraphBuilder> new_graph_builder() override;
  std::exception_ptr lost() const noexcept override;
  MemoryStats memory_stats() const override { return pool_.stats(); }
  void reset_peak_memory() override { pool_.reset_peak(); }
  size_t trim_memory() override { return pool_.trim(); }
  void set_memory_watermark(size_t bytes) override { pool_.set_watermark(bytes); }

  /// The n-th allocation from now (1 is the next) throws OutOfMemory; 0 cancels this.
  void fail_next_allocation(uint64_t n);
  /// The n-th copy or kernel submitted from now fails with DeviceError instead of running.
  void fail_next_copy(uint64_t n);
  void fail_next_kernel(uint64_t n);

  /// Makes the device lost: running work ends, queued work does not run, and all of it fails with
  /// DeviceError. Neither this device nor streams of other devices that wait for it block.
  void lose();
  /// Makes a lost device work again; the content of its memory is undefined. Precondition: its streams have
  /// drained.
  void restore();

  /// Sets the delays from now on; 0, 0 ends them. A delay is a function of the seed, the position of the
  /// stream among the device's live streams, and the number of the work on that stream since this call. The
  /// order of the nodes of graphs is a function of the seed and of the number of the launch.
  void set_delay(uint64_t seed, uint32_t min_us, uint32_t max_us);

  /// Sets the memory that all allocations together can use from now on. Existing blocks stay, and
  /// properties() does not change.
  void set_capacity(size_t bytes) { memory_.set_capacity(bytes); }

  void start_trace();
  /// Returns the work that has ended since start_trace(), in the order of its end.
  std::vector<VirtualTraceEntry> stop_trace();

  /// Returns the address of the kernels' alias, for tests that read memory without a stream.
  const void* alias(const void* device_address) const {
    return static_cast<const char*>(device_address) + memory_.alias_offset();
  }

 private:
  struct Slot {  // the position of a live stream, which determines its delays
    HostStream* stream = nullptr;
    uint64_t work = 0;
  };

  std::ptrdiff_t alias_offset() const noexcept override { return memory_.alias_offset(); }
  void admit(HostStream& stream, HostWork& work) override;
  void run(HostStream& stream, HostWork& work, KernelContext& context) override;
  void closed(HostStream& stream) noexcept override;

  char* reach(const void* address, Context context, size_t bytes) const;
  bool count_down(uint64_t& left);
  uint32_t next_delay_us(const HostStream& stream);
  uint64_t draw_order();

  const int id_;
  const DeviceProperties properties_;
  const double copy_bytes_per_second_;
  VirtualMemory memory_;
  Pool pool_;

  std::atomic<bool> is_lost_{false};
  std::atomic<bool> tracing_{false};
  std::mutex streams_mutex_;  // taken before mutex_ to change which streams slots_ holds
  // Guards the members below. No other lock is taken under it, because streams call lost() under their own.
  mutable std::mutex mutex_;
  std::exception_ptr lost_error_;
  uint64_t fail_allocation_ = 0;  // 0 is never, n the n-th from now
  uint64_t fail_copy_ = 0;
  uint64_t fail_kernel_ = 0;
  uint64_t seed_;
  uint32_t min_delay_us_;
  uint32_t max_delay_us_;
  uint64_t graph_launches_ = 0;  // since set_delay()
  std::vector<Slot> slots_;
  std::vector<VirtualTraceEntry> trace_;
};

/// Returns the device and starts it if necessary. Throws InvalidArgument if there is no device of this
/// number.
VirtualDevice& virtual_device(int id);

}  // namespace mx
