// The device interface, which a CPU, a simulated accelerator or a GPU implements for the engine.
//
// A backend implements Device, Stream and Event and registers a factory (registry.h); the conformance suite
// (tests/conformance/device_suite.h) says what each must do. The engine's stream-ordered scheduling is
// written once against this interface.
//
// Memory model. `Device::allocate` returns a device address. On the virtual device and on a GPU the host
// must not dereference it; a task that runs on a stream may, through KernelContext::ptr().
//
// Errors. A task that throws, or that the hardware fails, does not throw at submit(): the failure is
// carried by the next event recorded on that stream (Event::query() == failed, Event::error()), given to
// notify() callbacks that follow, and rethrown by synchronize(). Work after the failed task still runs
// unless the device is lost. A lost device (Device::lost() != nullptr) fails everything from then on,
// quickly and without blocking; nothing on it ever hangs.
//
// Thread-safety: Device is safe from any thread. Stream and Event calls on *one* object need outside
// ordering, except Event::query(), error() and latest(), EventPoint's functions, and Stream::id(), kind(),
// device() and mark(), which are safe from any thread at any time. Device::allocate, free and copy_async
// with a stream count as calls on that stream.
// Source of the design: CUDA's stream and event model, reduced to what a scheduler needs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/device/context.h"

namespace mx {

class Device;
class GraphMemory;
class Stream;

/// Handles available to a task while it runs on a stream.
class KernelContext {
 public:
  KernelContext(Device& device, void* native_stream, std::ptrdiff_t alias_offset)
      : device_(device), native_stream_(native_stream), alias_offset_(alias_offset) {}

  Device& device() const { return device_; }

  /// The backend's own stream (cudaStream_t for a GPU), or null.
  void* native_stream() const { return native_stream_; }

  /// The address under which this task may use device memory. For a GPU it is the same device address, to
  /// be handed to kernels; for the virtual device it is the kernels' alias of the same bytes.
  template <class T>
  T* ptr(T* device_address) const {
    if (device_address == nullptr) return nullptr;
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(device_address) +
                                static_cast<std::uintptr_t>(alias_offset_));
  }

 private:
  Device& device_;
  void* native_stream_;
  std::ptrdiff_t alias_offset_;
};

using Task = std::function<void(KernelContext&)>;

enum class EventStatus {
  unrecorded,  ///< never recorded
  pending,     ///< the work before the latest record has not ended
  complete,    ///< it has ended without an error
  failed,      ///< it has ended, and some of it failed: see Event::error()
};

/// One generation of an event: a fixed point in one stream's order, reached once. Any stream of any device
/// can wait for it; streams of different backends are ordered in this way.
class EventPoint {
 public:
  virtual ~EventPoint() = default;
  /// pending, complete or failed. Never blocks.
  virtual EventStatus query() const noexcept = 0;
  /// Returns the error of the work before the point; null unless query() == failed.
  virtual std::exception_ptr error() const noexcept = 0;
  /// Calls back once when the point is reached, with or without an error: at once on the calling thread if it
  /// is already reached, otherwise from a thread of the backend. The callback must neither block nor throw.
  virtual void when_reached(std::function<void()> callback) = 0;
};

/// Holds the latest point recorded into it. Recording again starts a new generation: a wait() submitted
/// earlier keeps waiting for the generation that was latest when it was submitted.
class Event {
 public:
  virtual ~Event() = default;
  /// State of the latest generation. Never blocks.
  virtual EventStatus query() const noexcept = 0;
  /// The first error of the work between the record before this one on the same stream and this one; null
  /// unless query() == failed.
  virtual std::exception_ptr error() const noexcept = 0;
  /// The latest generation; null if never recorded.
  virtual std::shared_ptr<EventPoint> latest() const = 0;
  /// For backends: Stream::record() stores the new generation with it.
  virtual void set_latest(std::shared_ptr<EventPoint> point) = 0;
};

/// The purpose of a stream. Copies have their own queues so that both directions overlap with compute.
enum class StreamKind : uint8_t { compute, copy_in, copy_out, comm };

/// An in-order queue of work on one device. Calls return at once; none waits for the device except
/// synchronize(). Destroying a stream first drains it (without throwing).
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() const = 0;
  virtual StreamKind kind() const = 0;

  /// Unique in the process and never reused, so a new stream at the address of a destroyed one is
  /// distinguished from it.
  uint64_t id() const { return id_; }

  /// Appends a task. For a GPU the task runs at once on the calling thread and launches kernels on
  /// native_stream(); elsewhere it runs later on the stream's own thread.
  virtual void submit(Task task) = 0;

  /// Appends a mark: the event's new generation completes when all work submitted before it has ended.
  virtual void record(Event& event) = 0;

  /// Later work of this stream starts only after the event's latest generation *as of now*. An unrecorded
  /// event is complete. The event may belong to another device of the same kind, or of another kind.
  virtual void wait(const Event& event) {
    if (std::shared_ptr<EventPoint> point = event.latest()) wait_point(std::move(point));
  }

  /// The same for one generation.
  virtual void wait_point(std::shared_ptr<EventPoint> point) = 0;

  /// Returns a point after everything submitted so far. Unlike record(), it does not consume the stream's
  /// pending error, so the memory pool can mark the end of a block's use without hiding that error from the
  /// next event. The point is also reached when the work failed or the device is lost.
  virtual std::shared_ptr<EventPoint> mark() = 0;

  /// Calls back once, from a thread of the backend, when everything submitted before has ended; the argument
  /// is null or the stream's first error since the last synchronize(). Always fires, also after a device
  /// error. The callback must not block and must not call into the stream.
  virtual void notify(std::function<void(std::exception_ptr)> callback) = 0;

  /// Blocks until everything submitted has ended; rethrows the first error since the last synchronize().
  /// On a lost device it throws the loss every time. Throws InvalidState from a task of the stream itself.
  virtual void synchronize() = 0;

  /// True if the stream captures work for a graph instead of running it. See GraphBuilder.
  bool capturing() noexcept { return graph_memory() != nullptr; }

  /// For pools: the owner of memory that is allocated or freed on a capturing stream. Null if the stream does
  /// not capture.
  virtual GraphMemory* graph_memory() noexcept { return nullptr; }

 protected:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

 private:
  static inline std::atomic<uint64_t> next_id_{1};
  const uint64_t id_ = next_id_.fetch_add(1, std::memory_order_relaxed);
};

/// Recorded work of one device that is launched as a whole, any number of times.
///
/// The destructor never waits: pending launches run to their end, and the graph's memory returns to its pool
/// when the last launch has ended.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// Appends one execution of every node to the stream, which may be any of the device that is not capturing
  /// (InvalidState; InvalidArgument for a stream of another device). Each execution repeats the captured
  /// tasks with the arguments they had at capture. Errors are carried by the stream's next event, as for
  /// tasks. The caller orders launches of one graph, on the host and on the device: a launch may begin on the
  /// device only after the launch before it has ended there.
  virtual void launch(Stream& stream) = 0;

  virtual size_t nodes() const = 0;
};

/// Makes a graph, node by node. Used by one thread at a time.
///
/// The work of a node is captured: `enqueue` is called once, on the calling thread, with a *capturing*
/// stream, which records what is submitted to it. On such a stream, until `enqueue` returns:
///   - submit() and Device::copy_async() append to the node, in order. On a GPU the task runs at once, as
///     always, and the kernels that it launches are recorded; on other backends the task itself is recorded,
///     and a copy of it runs with each launch. If a task that runs at once throws, add() throws the
///     exception.
///   - Device::allocate() returns memory that the graph owns. The pool does not reuse it as long as the graph
///     exists. Nodes share it: a node may use memory that a node before it allocated. Device::free() has no
///     effect until the graph is destroyed; this includes memory that was allocated elsewhere, which the
///     graph then owns. Memory that the graph owns must not be freed with another stream or without a stream.
///     Device::note_use() does nothing: the caller of launch() must keep memory from elsewhere alive until
///     the launch has ended.
///   - record(), wait(), wait_point(), mark(), notify(), synchronize() and DeviceGraph::launch() throw
///     InvalidState.
/// Host memory that captured copies read or write must outlive the launches.
class GraphBuilder {
 public:
  using NodeId = uint32_t;
  virtual ~GraphBuilder() = default;

  /// Adds a node that is ordered after exactly the listed nodes and their predecessors. Nodes are numbered
  /// from 0. Throws InvalidArgument if a listed node does not exist, DeviceError if the device is lost,
  /// InvalidState if the work cannot be captured or the builder is used up, and any exception of `enqueue`.
  /// After an exception from `enqueue` the builder is used up; the device and its streams are unchanged.
  virtual NodeId add(std::span<const NodeId> after, const std::function<void(Stream&)>& enqueue) = 0;

  /// The graph, which may be empty. Uses the builder up.
  virtual std::unique_ptr<DeviceGraph> finish() = 0;
};

struct DeviceProperties {
  std::string name;              ///< "NVIDIA H200", "virtual accelerator 0", the processor's name
  size_t total_bytes = 0;        ///< memory that all allocations together can use
  int compute_units = 0;         ///< processors, or multiprocessors
  bool host_accessible = false;  ///< the host may dereference its memory
  int compute_streams = 1;       ///< how many compute streams a scheduler should use at once
  std::string architecture{};    ///< of a GPU: "compute capability 9.0"
};

struct MemoryStats {
  size_t in_use_bytes = 0;       ///< allocated and not yet freed, as requested
  size_t reserved_bytes = 0;     ///< obtained from the backend: in use or cached
  size_t peak_in_use_bytes = 0;  ///< the maximum of in_use_bytes since start or reset_peak()
  size_t peak_reserved_bytes = 0;
  size_t in_flight_bytes = 0;        ///< freed, but work that uses the memory has not ended
  size_t cached_bytes = 0;           ///< reserved, and neither in use nor in flight
  size_t watermark_bytes = 0;        ///< the upper limit of cached_bytes; SIZE_MAX: no limit
  uint64_t allocations = 0;          ///< successful calls of allocate()
  uint64_t cache_hits = 0;           ///< allocations served without the backend
  uint64_t backend_allocations = 0;  ///< segments obtained from the backend
  uint64_t backend_frees = 0;        ///< segments returned to the backend
  uint64_t watermark_frees = 0;      ///< segments returned because more than the watermark was cached
  uint64_t stream_waits = 0;         ///< reuses that ordered one stream after another
};

/// One device. Made and owned by the registry; lives until the process ends.
class Device {
 public:
  virtual ~Device() = default;
  virtual Context context() const = 0;
  virtual const DeviceProperties& properties() const = 0;

  /// Stream-ordered memory through the caching pool (pool.h): work on `stream` submitted after this call may
  /// use it. A null stream means that any stream, and the host where properties().host_accessible, may use it
  /// at once. Inside a task, naming the task's own stream gives memory that this task may use.
  /// 0 bytes give null. Aligned to 64 bytes at least (256 on a GPU).
  /// Throws OutOfMemory (after trimming the cache) and DeviceError when lost.
  virtual void* allocate(size_t bytes, Stream* stream = nullptr) = 0;

  /// Frees memory after the work submitted to `stream` so far. A null stream means that nothing uses the
  /// memory any more. The block is not given to another stream before that work has ended. If work of another
  /// stream uses the block and is not already ordered before this call, call note_use() first. Never throws;
  /// a null pointer is ignored.
  virtual void free(void* pointer, Stream* stream = nullptr) noexcept = 0;

  /// Tells the pool that `stream` too uses the block, so that a later free() waits for its work as well.
  virtual void note_use(void* pointer, Stream& stream) = 0;

  /// Copies bytes on `stream` (of either device) in its order. Either context may be the host, cpu(); between
  /// two devices it is a peer copy, staged through the host where the hardware has no direct path. The ranges
  /// must not overlap. Throws InvalidArgument for addresses or devices that it cannot copy between.
  virtual void copy_async(void* target, Context target_context, const void* source, Context source_context,
                          size_t bytes, Stream& stream) = 0;

  virtual std::unique_ptr<Stream> new_stream(StreamKind kind = StreamKind::compute) = 0;
  virtual std::unique_ptr<Event> new_event() = 0;

  /// Returns null if the backend has no graphs. Throws DeviceError.
  virtual std::unique_ptr<GraphBuilder> new_graph_builder() { return nullptr; }

  /// Returns null while the device works, and the reason once it is lost. Never blocks.
  virtual std::exception_ptr lost() const noexcept = 0;

  virtual MemoryStats memory_stats() const = 0;
  virtual void reset_peak_memory() = 0;
  /// Releases cached blocks that no work uses to the backend. Returns the number of bytes released.
  virtual size_t trim_memory() = 0;
  /// Sets the upper limit of cached bytes (MemoryStats::watermark_bytes). Memory above it returns to the
  /// backend as soon as no work uses it; on a GPU, at the next allocate(). The initial value is
  /// MX_POOL_WATERMARK.
  virtual void set_memory_watermark(size_t bytes) = 0;
};

}  // namespace mx
