// Graphs of devices whose streams are HostStreams: the captured tasks and copies, appended to a stream in
// some legal order by each launch.
//
// Thread-safety: as device.h says of builders and graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/capture.h"
#include "engine/device/host_stream.h"

namespace mx {

/// Records the work of the node that is being captured.
class HostCapture final : public CapturingStream {
 public:
  using CapturingStream::CapturingStream;
  void submit(Task task) override;
  void append(HostWork work);

  /// Returns and clears the work appended since the last call.
  std::vector<HostWork> take() { return std::exchange(work_, {}); }

 private:
  std::vector<HostWork> work_;
};

class HostGraph final : public DeviceGraph {
 public:
  struct Node {
    std::vector<HostWork> work;
    std::vector<uint32_t> successors;
    uint32_t predecessors = 0;
  };

  /// `draw` returns the seed of each launch's order. If it is empty, every launch uses the capture order.
  HostGraph(Device& device, std::vector<Node> nodes, std::unique_ptr<GraphMemory> memory,
            std::function<uint64_t()> draw);
  void launch(Stream& stream) override;
  size_t nodes() const override { return nodes_.size(); }

 private:
  std::vector<uint32_t> order();

  Device& device_;
  const std::vector<Node> nodes_;
  const std::unique_ptr<GraphMemory> memory_;
  const std::function<uint64_t()> draw_;
};

class HostGraphBuilder final : public CapturingBuilder {
 public:
  /// `draw`: see HostGraph.
  explicit HostGraphBuilder(Device& device, std::function<uint64_t()> draw = {})
      : CapturingBuilder(device), stream_(device, *memory_), draw_(std::move(draw)) {}

 private:
  void add_node(std::span<const NodeId> after, const std::function<void(Stream&)>& enqueue) override;
  std::unique_ptr<DeviceGraph> make_graph() override;

  HostCapture stream_;
  std::vector<HostGraph::Node> nodes_;
  const std::function<uint64_t()> draw_;
};

}  // namespace mx
