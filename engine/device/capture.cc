#include "engine/device/capture.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/log.h"

namespace mx {

GraphMemory::Blocks::~Blocks() {
  for (const auto& [block, pool] : pools) pool->free(block, nullptr);
}

GraphMemory::~GraphMemory() try {
  for (auto& [stream, end] : ends_) {
    if (end->query() != EventStatus::pending) continue;
    // The callback of the last point that is reached drops the last reference.
    end->when_reached([blocks = blocks_]() mutable { blocks = nullptr; });
  }
} catch (...) {
  log(LogLevel::error, "[graph] freed memory while work that uses it may still have been in flight: ",
      current_exception_text());
}

void* GraphMemory::allocate(Pool& pool, size_t bytes) {
  void* block = pool.allocate(bytes, nullptr);
  try {
    hold(pool, block);
  } catch (...) {
    pool.free(block, nullptr);
    throw;
  }
  return block;
}

void GraphMemory::hold(Pool& pool, void* block) { blocks_->pools.try_emplace(block, &pool); }

void GraphMemory::launched(Stream& stream) {
  if (blocks_->pools.empty()) return;
  std::erase_if(ends_, [&](const auto& end) {
    return end.first == stream.id() || end.second->query() != EventStatus::pending;
  });
  ends_.emplace_back(stream.id(), stream.mark());
}

void CapturingStream::refuse(const char* call) const {
  throw InvalidState(detail::concat("[", call, "] expected a stream that executes its work, got a stream of ",
                                    device_.context(), " that is capturing a graph"));
}

void CapturingBuilder::check_usable(const char* call) const {
  MX_CHECK(usable_, InvalidState, "[", call, "] expected a graph builder in use, got one of ",
           device_.context(), " that has failed, has finished or is already adding a node");
}

GraphBuilder::NodeId CapturingBuilder::add(std::span<const NodeId> after,
                                           const std::function<void(Stream&)>& enqueue) {
  check_usable("add");
  MX_CHECK(enqueue, InvalidArgument,
           "[add] expected a function that enqueues the work of the node, got an empty one");
  for (const NodeId id : after) {
    MX_CHECK(id < nodes_, InvalidArgument, "[add] expected dependencies among the ", nodes_,
             " nodes added before, got node ", id);
  }
  if (std::exception_ptr lost = device_.lost()) std::rethrow_exception(lost);
  usable_ = false;
  add_node(after, enqueue);
  usable_ = true;
  return nodes_++;
}

std::unique_ptr<DeviceGraph> CapturingBuilder::finish() {
  check_usable("finish");
  usable_ = false;
  return make_graph();
}

void check_launch(const Device& device, Stream& stream) {
  MX_CHECK(!stream.capturing(), InvalidState,
           "[launch] expected a stream that executes its work, got one that is capturing a graph");
  MX_CHECK(&stream.device() == &device, InvalidArgument, "[launch] expected a stream of ", device.context(),
           ", got one of ", stream.device().context());
}

}  // namespace mx
