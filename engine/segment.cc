#include "engine/segment.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "engine/base/clock.h"
#include "engine/base/make_room.h"
#include "engine/detail/at_replay.h"
#include "engine/detail/engine_impl.h"
#include "engine/detail/hold.h"
#include "engine/detail/segment_group.h"
#include "engine/detail/segment_impl.h"
#include "engine/detail/segment_run.h"

namespace mx {
namespace detail {

namespace {

// The function of the operation that a replay is for the engine.
struct ReplayFunction {
  std::shared_ptr<SegmentImpl> segment;
  void operator()(RunContext, Completion done) const { SegmentRun::start(segment, std::move(done)); }
};

template <class Fn>
void construct_in(Op* op, void* argument) {
  construct_closure<Fn>(op, std::move(*static_cast<Fn*>(argument)));
}

}  // namespace

SegmentImpl::SegmentImpl(EngineImpl& engine)
    : engine_(engine), engine_id_(engine.id()), memory_(engine.op_memory_) {}

SegmentImpl::~SegmentImpl() {
  if (replays_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) ReplayCount::destroy(replays_);
  for (Op* op : ops_) destroy_function(op);
  with_engine(engine_id_, [&](EngineImpl& engine) {
    if (finished_) {
      outside_.pop_back();
      if (hold_ != nullptr) {
        engine.end_hold(*hold_);  // unpins once no replay is pending
      } else {
        engine.unpin(outside_);
      }
    } else {
      engine.unpin(pinned_);
    }
    try {
      engine.delete_var(own_);  // does nothing if finish() has not made it
    } catch (const Error&) {    // without memory the variable stays until the engine ends
    }
    Op* chain = nullptr;
    for (Op* op : ops_) prepend_blocks(op, chain);
    if (group_ != nullptr) group_->give_back(chain);
    engine.give_ops(chain);
  });
}

void SegmentImpl::add(Op* op) {
  try {
    // Pinned now, because the program may delete a variable right after this push.
    std::vector<Link> links;
    for_each_link(op, [&](Link& link) { links.push_back(link); });
    make_room(pinned_, links.size());
    make_room(ops_);
    engine_.pin(links);
    for_each_link(op, [&](Link& link) { link.generation = Link::kAnyGeneration; });
    pinned_.insert(pinned_.end(), links.begin(), links.end());
    ops_.push_back(op);
  } catch (...) {
    destroy_function(op);
    engine_.abandon_push(op);
    throw;
  }
  engine_.forget_bytes(op);  // a recorded operation is not in flight, and a replay has no bytes of its own
  if (op->device != 0 || op->type->async || op->priority != 0) plain_ = false;
}

// Not in push.cc, because it would be inlined there and add instructions to every push.
bool EngineImpl::record(Op* op) {
  if (op->device == kInternalLane) return false;
  current_task.recording->add(op);
  return true;
}

void SegmentImpl::finish(bool device_graph) {
  // The segment's access to each variable: an update if an operation uses the variable's old value and an
  // operation changes it, a write if the first operation on the variable replaces it.
  std::unordered_map<VarBlock*, size_t> place;
  for (Op* op : ops_) {
    for_each_link(op, [&](Link& link) {
      const auto [found, fresh] = place.try_emplace(link.var(), outside_.size());
      if (fresh) {
        outside_.push_back(link);
      } else if (Link& before = outside_[found->second];
                 before.access() == Access::read && link.exclusive()) {
        before.set(link.var(), Access::update);
      }
    });
  }
  if (device_graph) graph_ = SegmentGraph::make(*this);
  build_nodes();
  if (!plain_) group_ = std::make_unique<SegmentGroup>(engine_, *this);
  // From here to finished_ nothing throws: the destructor relies on it.
  make_room(outside_);
  own_ = engine_.new_var();
  engine_.pin(outside_);
  engine_.unpin(pinned_);
  pinned_.clear();
  counted_ = {};
  // A write: with an update, a failed replay would poison the next one.
  outside_.emplace_back().set(own_.block, Access::write);
  finished_ = true;
  if (!plain_) return;
  auto hold = std::make_unique<Hold>();
  hold->own = own_.block;
  for (const Link& link : outside_) {
    if (link.var() != own_.block) (link.exclusive() ? hold->vars : hold->reads).push_back(link);
  }
  hold->missing.resize(hold->vars.size());
  std::iota(hold->missing.begin(), hold->missing.end(), 0u);
  hold->lost.reserve(hold->vars.size());
  for (Link& link : hold->vars) link.hold = hold.get();
  hold_ = engine_.add_hold(std::move(hold));
}

void SegmentImpl::build_nodes() {
  MX_CHECK(ops_.size() < Node::kIndirect, InvalidArgument, "[record] expected fewer than ", Node::kIndirect,
           " recorded operations, got ", ops_.size());
  struct History {
    int64_t writer = -1;
    std::vector<uint32_t> readers;
  };
  std::unordered_map<VarBlock*, History> vars;
  std::vector<std::pair<uint32_t, uint32_t>> edges;  // from, to
  nodes_.nodes.resize(ops_.size() + 1);
  std::vector<uint32_t> before;
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    before.clear();
    for_each_link(ops_[i], [&](Link& link) {
      History& var = vars[link.var()];
      if (!link.exclusive() || var.readers.empty()) {
        if (var.writer >= 0) before.push_back(static_cast<uint32_t>(var.writer));
      }
      if (!link.exclusive()) {
        var.readers.push_back(i);
        return;
      }
      before.insert(before.end(), var.readers.begin(), var.readers.end());
      var.readers.clear();
      var.writer = i;
    });
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const uint32_t from : before) edges.emplace_back(from, i);

    Op* op = ops_[i];
    Node& node = nodes_.nodes[i];
    node.run = op->type->run;
    node.predecessors = static_cast<uint32_t>(before.size());
    if (op->type->copy_bytes > 0 && op->type->copy_bytes <= Node::kCopy) {
      std::memcpy(node.closure, op->closure(), op->type->copy_bytes);
    } else {
      node.closure_address = op->closure();
      node.predecessors |= Node::kIndirect;
    }
    if (before.empty()) nodes_.roots.push_back(i);
  }
  MX_CHECK(edges.size() <= UINT32_MAX, InvalidArgument, "[record] expected at most ", UINT32_MAX,
           " dependencies between recorded operations, got ", edges.size());
  // Sorts the edges by the node where they start; the edges of one node stay in program order.
  std::vector<uint32_t> next(ops_.size() + 1, 0);
  for (const auto& [from, to] : edges) ++next[from + 1];
  for (size_t i = 0; i < ops_.size(); ++i) next[i + 1] += next[i];
  for (size_t i = 0; i <= ops_.size(); ++i) nodes_.nodes[i].successors = next[i];
  nodes_.edges.resize(edges.size());
  for (const auto& [from, to] : edges) nodes_.edges[next[from]++] = to;
  nodes_.waiting = std::make_unique<std::atomic<uint32_t>[]>(ops_.size());
  for (size_t i = 0; i < ops_.size(); ++i)
    nodes_.waiting[i].store(nodes_.nodes[i].predecessor_count(), std::memory_order_relaxed);
}

void SegmentImpl::at_replay(const void* key, std::function<void()> changed) {
  if (counted_.insert(key).second) changed_.push_back(std::move(changed));
}

// Calls the functions given to at_replay(). If this replay is itself being recorded into another segment,
// they are called again at each replay of that segment.
void SegmentImpl::count_changes() const {
  const bool makes_memory = replays_->refs.load(std::memory_order_relaxed) > 1;
  if (!makes_memory && changed_.empty()) return;
  if (makes_memory) replays_->replays.fetch_add(1, std::memory_order_relaxed);
  for (const auto& changed : changed_) changed();
  if (current_task.recording != nullptr && current_task.recording_engine == &engine_)
    current_task.recording->at_replay(replays_, [self = shared_from_this()] { self->count_changes(); });
}

void SegmentImpl::replay(int priority) {
  engine_.check_usable("replay");
  if (ops_.empty()) return;
  count_changes();
  if (replay_as_graph(priority)) return;
  if (group_ != nullptr) return group_->replay(shared_from_this(), priority);
  ReplayFunction fn{shared_from_this()};
  const bool recorded = current_task.recording_engine == &engine_;
  if (!recorded && engine_.replay_keeping(*hold_, &kOpType<ReplayFunction, true>, priority,
                                          ops_[0]->cold().where, &construct_in<ReplayFunction>, &fn)) {
    return;
  }
  engine_.push_links(&kOpType<ReplayFunction, true>, outside_, priority, 0, "replay", ops_[0]->cold().where,
                     &construct_in<ReplayFunction>, &fn);
}

void at_replay(const void* key, std::function<void()> changed) {
  current_task.recording->at_replay(key, std::move(changed));
}

ReplayCount* replays_of_recording() {
  return current_task.recording != nullptr ? current_task.recording->replays() : nullptr;
}

bool recording_repeats(const ReplayCount& maker) { return current_task.recording->repeats(maker); }

}  // namespace detail

void Segment::replay(int priority) {
  MX_CHECK(impl_ != nullptr, InvalidState, "[replay] expected a recorded segment, got an empty one");
  MX_CHECK(!impl_->engine_gone(), InvalidState,
           "[replay] expected a segment of an engine that exists, got one whose engine was destroyed");
  impl_->replay(priority);
}

size_t Segment::operations() const { return impl_ ? impl_->operations() : 0; }
size_t Segment::edges() const { return impl_ ? impl_->edges() : 0; }

}  // namespace mx
