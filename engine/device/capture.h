// Common parts of backends that have graphs: the memory that a graph owns, the calls that a capturing stream
// refuses, and the checks of a builder. device.h (GraphBuilder) is the contract.
//
// Not thread-safe, as the builders and graphs that use it: one thread at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/pool.h"

namespace mx {

/// The blocks of a graph, from its capture until the end of its last launch.
class GraphMemory {
 public:
  GraphMemory() = default;
  /// Returns the blocks to their pools once the launches so far have ended. Does not wait.
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;

  /// Allocates a block that no stream uses. Throws like Pool::allocate.
  void* allocate(Pool& pool, size_t bytes);
  /// Takes ownership of a block. Does nothing if the graph owns the block already.
  void hold(Pool& pool, void* block);
  /// Notes a launch of the graph on the stream.
  void launched(Stream& stream);

 private:
  // Frees on destruction.
  struct Blocks {
    std::unordered_map<void*, Pool*> pools;
    ~Blocks();
  };
  std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();
  std::vector<std::pair<uint64_t, std::shared_ptr<EventPoint>>> ends_;  // of the launches, by stream
};

/// A capturing stream. The backend implements submit(); calls that a graph cannot contain throw InvalidState.
class CapturingStream : public Stream {
 public:
  CapturingStream(Device& device, GraphMemory& memory, StreamKind kind = StreamKind::compute)
      : device_(device), memory_(memory), kind_(kind) {}

  Device& device() const final { return device_; }
  StreamKind kind() const final { return kind_; }
  GraphMemory* graph_memory() noexcept final { return &memory_; }

  void record(Event&) final { refuse("record"); }
  void wait(const Event&) final { refuse("wait"); }
  void wait_point(std::shared_ptr<EventPoint>) final { refuse("wait_point"); }
  std::shared_ptr<EventPoint> mark() final { refuse("mark"); }
  void notify(std::function<void(std::exception_ptr)>) final { refuse("notify"); }
  void synchronize() final { refuse("synchronize"); }

 protected:
  Device& device_;

 private:
  [[noreturn]] void refuse(const char* call) const;

  GraphMemory& memory_;
  const StreamKind kind_;
};

/// A builder that checks its arguments and state; the backend captures the nodes and makes the graph.
class CapturingBuilder : public GraphBuilder {
 public:
  explicit CapturingBuilder(Device& device) : device_(device) {}
  NodeId add(std::span<const NodeId> after, const std::function<void(Stream&)>& enqueue) final;
  std::unique_ptr<DeviceGraph> finish() final;
  /// The purpose of the nodes that are added from now on; `compute` at first. A backend may give them the
  /// priority of a stream of this kind.
  void use_kind(StreamKind kind) { kind_ = kind; }

 protected:
  StreamKind node_kind() const { return kind_; }
  /// Adds the next node. If it throws, the builder is used up.
  virtual void add_node(std::span<const NodeId> after, const std::function<void(Stream&)>& enqueue) = 0;
  virtual std::unique_ptr<DeviceGraph> make_graph() = 0;

  Device& device_;
  std::unique_ptr<GraphMemory> memory_ = std::make_unique<GraphMemory>();

 private:
  void check_usable(const char* call) const;

  StreamKind kind_ = StreamKind::compute;
  NodeId nodes_ = 0;
  bool usable_ = true;
};

/// Throws unless a graph of `device` can be launched on the stream.
void check_launch(const Device& device, Stream& stream);

}  // namespace mx
