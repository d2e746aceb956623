#include "engine/detail/segment_graph.h"

#include <utility>

#include "engine/base/log.h"
#include "engine/detail/engine_impl.h"
#include "engine/detail/failure.h"
#include "engine/detail/segment_impl.h"
#include "engine/device/capture.h"
#include "engine/device/registry.h"

namespace mx::detail {

namespace {

struct GraphReplayFunction {
  std::shared_ptr<SegmentImpl> segment;
  void operator()(RunContext context) const { segment->run_graph(context); }
};

// While it lives, the thread counts as inside a recorded operation: calls that are not allowed there throw
// errors with the operation's name.
class InsideNode {
 public:
  InsideNode(const SegmentImpl& segment, uint32_t index)
      : segment_(std::exchange(current_task.segment, &segment)),
        node_(std::exchange(current_task.node, index)) {}
  ~InsideNode() {
    current_task.segment = segment_;
    current_task.node = node_;
  }
  InsideNode(const InsideNode&) = delete;

 private:
  const SegmentImpl* const segment_;
  const uint32_t node_;
};

[[noreturn]] void rethrow_named(Op* op) {
  Failure* failure = failure_of_current_exception(op->cold().name, op->cold().where);
  const std::exception_ptr error = failure->error;
  failure->release();
  std::rethrow_exception(error);
}

}  // namespace

std::unique_ptr<SegmentGraph> SegmentGraph::make(const SegmentImpl& segment) {
  EngineImpl& engine = segment.engine_;
  // Mode naive is the reference that tests compare with: every replay calls every function there.
  if (segment.ops_.empty() || engine.options().mode == EngineMode::naive) return nullptr;
  const Context context = engine.lanes_[segment.ops_.front()->device].context;
  for (const Op* op : segment.ops_) {
    const Lane& lane = engine.lanes_[op->device];
    if (op->type->async || !lane.accelerator || lane.context != context) return nullptr;
  }
  try {
    return std::make_unique<SegmentGraph>(get_device(context),
                                          engine.lane_index(context, StreamKind::compute));
  } catch (const InvalidArgument&) {  // there is no compute lane yet, and no room for one more lane
    return nullptr;
  }
}

bool SegmentGraph::wanted() {
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::untried) return state == State::wanted;
  std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_relaxed) == State::untried) {
    try {
      builder_ = device_.new_graph_builder();
    } catch (const Error&) {
      return false;  // each operation will report the device's error itself
    }
    state_.store(builder_ != nullptr ? State::wanted : State::refused, std::memory_order_release);
  }
  return state_.load(std::memory_order_relaxed) == State::wanted;
}

void SegmentGraph::run(const SegmentImpl& segment, const RunContext& context) {
  Stream& stream = *context.stream();
  // If the stream is capturing another graph, this segment becomes a part of that one.
  if (!stream.capturing() && has_run_ && graph_ == nullptr && state_.load() != State::refused)
    capture(segment, context);
  if (!stream.capturing() && graph_ != nullptr) {
    graph_->launch(stream);
    return;
  }
  for (uint32_t i = 0; i < segment.ops_.size(); ++i) {
    try {
      run_node(segment, i, context, stream);
    } catch (...) {
      rethrow_named(segment.ops_[i]);
    }
  }
  has_run_ = true;
}

void SegmentGraph::run_node(const SegmentImpl& segment, uint32_t index, const RunContext& context,
                            Stream& stream) {
  const InsideNode inside(segment, index);
  Op* op = segment.ops_[index];
  RunContext own = context;
  own.op_ = op;
  own.stream_ = &stream;
  op->type->run(op->closure(), own, nullptr);
}

void SegmentGraph::capture(const SegmentImpl& segment, const RunContext& context) {
  std::unique_ptr<GraphBuilder> builder;
  {
    std::lock_guard lock(mutex_);
    builder = std::move(builder_);
  }
  if (builder == nullptr) builder = device_.new_graph_builder();
  auto* const with_kinds = dynamic_cast<CapturingBuilder*>(builder.get());
  std::vector<std::vector<GraphBuilder::NodeId>> after(segment.ops_.size());
  for (uint32_t from = 0; from < segment.ops_.size(); ++from) {
    segment.nodes_.for_each_successor(from, [&](uint32_t successor) { after[successor].push_back(from); });
  }
  for (uint32_t i = 0; i < segment.ops_.size(); ++i) {
    Op* op = segment.ops_[i];
    if (with_kinds != nullptr) with_kinds->use_kind(segment.engine_.lanes_[op->device].kind);
    try {
      builder->add(after[i], [&](Stream& stream) { run_node(segment, i, context, stream); });
    } catch (const InvalidState& e) {
      return refuse(op->cold().name, e.what());
    } catch (...) {
      rethrow_named(op);
    }
  }
  try {
    graph_ = builder->finish();
  } catch (const Error& e) {
    if (device_.lost() != nullptr) throw;
    refuse("replay", e.what());
  }
}

void SegmentGraph::refuse(const char* name, const char* why) {
  state_.store(State::refused, std::memory_order_release);
  log(LogLevel::warning, "[", name_or_default(name),
      "] expected an operation that can be captured in a graph of ", device_.context(),
      "; its segment is replayed without a graph: ", why);
}

bool SegmentImpl::replay_as_graph(int priority) {
  if (graph_ == nullptr || !graph_->wanted()) return false;
  GraphReplayFunction fn{shared_from_this()};
  engine_.push_links(
      &kOpType<GraphReplayFunction, false>, outside_, priority, graph_->lane(), "replay",
      ops_[0]->cold().where,
      [](Op* op, void* argument) {
        construct_closure<GraphReplayFunction>(op, std::move(*static_cast<GraphReplayFunction*>(argument)));
      },
      &fn);
  return true;
}

void SegmentImpl::run_graph(const RunContext& context) const { graph_->run(*this, context); }

}  // namespace mx::detail
