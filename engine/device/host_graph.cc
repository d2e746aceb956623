#include "engine/device/host_graph.h"

#include <algorithm>
#include <random>

#include "engine/base/check.h"

namespace mx {

void HostCapture::submit(Task task) {
  MX_CHECK(task, InvalidArgument, "[submit] expected a task, got an empty function");
  append({.kind = HostWork::Kind::kernel, .bytes = 0, .injected = {}, .task = std::move(task)});
}

void HostCapture::append(HostWork work) { work_.push_back(std::move(work)); }

HostGraph::HostGraph(Device& device, std::vector<Node> nodes, std::unique_ptr<GraphMemory> memory,
                     std::function<uint64_t()> draw)
    : device_(device), nodes_(std::move(nodes)), memory_(std::move(memory)), draw_(std::move(draw)) {}

// Returns a topological order of the nodes. A device may execute a graph in any such order.
std::vector<uint32_t> HostGraph::order() {
  std::vector<uint32_t> order;
  order.reserve(nodes_.size());
  if (!draw_) {
    for (uint32_t i = 0; i < nodes_.size(); ++i) order.push_back(i);
    return order;
  }
  std::mt19937_64 random(draw_());
  std::vector<uint32_t> waiting(nodes_.size()), ready;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    waiting[i] = nodes_[i].predecessors;
    if (waiting[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const uint32_t next = ready.back();
    ready.pop_back();
    order.push_back(next);
    for (const uint32_t successor : nodes_[next].successors) {
      if (--waiting[successor] == 0) ready.push_back(successor);
    }
  }
  return order;
}

void HostGraph::launch(Stream& stream) {
  check_launch(device_, stream);
  auto& host_stream = dynamic_cast<HostStream&>(stream);
  for (const uint32_t node : order()) {
    for (const HostWork& work : nodes_[node].work) host_stream.append(work);
  }
  memory_->launched(stream);
}

void HostGraphBuilder::add_node(std::span<const NodeId> after, const std::function<void(Stream&)>& enqueue) {
  enqueue(stream_);
  const auto id = static_cast<uint32_t>(nodes_.size());
  HostGraph::Node& node = nodes_.emplace_back();
  node.work = stream_.take();
  for (const NodeId before : after) {
    std::vector<uint32_t>& successors = nodes_[before].successors;
    if (!successors.empty() && successors.back() == id) continue;  // listed twice
    successors.push_back(id);
    ++node.predecessors;
  }
}

std::unique_ptr<DeviceGraph> HostGraphBuilder::make_graph() {
  return std::make_unique<HostGraph>(device_, std::move(nodes_), std::move(memory_), draw_);
}

}  // namespace mx
