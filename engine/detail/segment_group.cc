#include "engine/detail/segment_group.h"

#include <algorithm>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/segment_impl.h"

namespace mx::detail {

namespace {

using End = ReplayClosure::End;

void run_node(void* closure, const RunContext& context, Completion* done) {
  Op* op = static_cast<NodeClosure*>(closure)->recorded;
  op->type->run(op->closure(), context, done);
}

// A node destroys nothing: the recorded function is needed for the next replay.
constexpr OpType kNodeType = {&run_node, nullptr, false, 0};
constexpr OpType kAsyncNodeType = {&run_node, nullptr, true, 0};

// The function of one operation of a segment that is replayed while another segment is recorded: then the
// operations are recorded one by one.
struct NodeFunction {
  std::shared_ptr<SegmentImpl> segment;
  Op* node;
  void operator()(RunContext context) const { node->type->run(node->closure(), context, nullptr); }
};
struct AsyncNodeFunction {
  std::shared_ptr<SegmentImpl> segment;
  Op* node;
  void operator()(RunContext context, Completion done) const {
    node->type->run(node->closure(), context, &done);
  }
};

template <class Fn>
void construct_in(Op* op, void* argument) {
  construct_closure<Fn>(op, std::move(*static_cast<Fn*>(argument)));
}

}  // namespace

SegmentGroup::SegmentGroup(EngineImpl& engine, SegmentImpl& segment) : engine_(engine), segment_(segment) {
  const size_t nodes = segment.ops_.size();
  shells_.reserve(nodes);
  doomed_.resize(nodes);
  std::unordered_set<const VarBlock*> made;
  try {
    for (uint32_t i = 0; i < nodes; ++i) {
      make_shell(i, segment.ops_[i]);
      for_each_link(shells_[i], [&](Link& link) {
        if (!made.contains(link.var())) link.grant();
        if (link.exclusive()) made.insert(link.var());
      });
    }
  } catch (...) {
    Op* chain = nullptr;
    give_back(chain);
    engine_.give_ops(chain);
    throw;
  }
}

void SegmentGroup::make_shell(uint32_t index, Op* recorded) {
  Op* op = engine_.allocate();
  op->type = recorded->type->async ? &kAsyncNodeType : &kNodeType;
  op->set_header(static_cast<uint8_t>(kOpNode | (recorded->type->async ? kOpAsync : 0)), 0, recorded->device);
  op->cold() = {recorded->cold().name, recorded->cold().where, {nullptr}};
  node_of(op) = {nullptr, this, recorded, index};
  shells_.push_back(op);
  op->links = recorded->links;
  for (size_t i = 0; i < op->links; ++i) op->link(i).set(recorded->link(i).var(), recorded->link(i).access());
  if ((recorded->flags & kOpWide) == 0) return;
  ExtBlock** place = &op->cold().ext;
  for (const ExtBlock* from = recorded->cold().ext; from != nullptr; from = from->next_block) {
    auto* block = reinterpret_cast<ExtBlock*>(engine_.allocate());
    block->owner = op;
    block->count = from->count;
    block->flags = kOpExt;
    block->pending = 0;
    block->next_block = nullptr;
    for (size_t i = 0; i < block->count; ++i)
      block->links[i].set(from->links[i].var(), from->links[i].access());
    *place = block;
    place = &block->next_block;
    op->flags |= kOpWide;  // only now, so that give_back() can return an unfinished shell
  }
}

void SegmentGroup::give_back(Op*& chain) noexcept {
  for (Op* op : shells_) prepend_blocks(op, chain);
  shells_.clear();
}

void SegmentGroup::replay(const std::shared_ptr<SegmentImpl>& segment, int priority) {
  const OpCold& first = segment->ops_[0]->cold();
  if (current_task.recording_engine != &engine_) {
    struct Argument {
      SegmentGroup* group;
      const std::shared_ptr<SegmentImpl>& segment;
    } argument{this, segment};
    const auto construct = [](Op* op, void* from) {
      auto* closure = ::new (op->closure()) ReplayClosure;
      closure->group = static_cast<Argument*>(from)->group;
      closure->segment = static_cast<Argument*>(from)->segment;
    };
    engine_.push_links(&kReplayGroupType, segment->outside_, priority, kInternalLane, "replay", first.where,
                       construct, &argument);
    return;
  }
  for (Op* op : segment->ops_) {
    std::vector<Link> links;
    for_each_link(op, [&](Link& link) { links.push_back(link); });
    const OpCold& cold = op->cold();
    const int own = op->priority != 0 ? op->priority : priority;
    if (op->type->async) {
      AsyncNodeFunction fn{segment, op};
      engine_.push_links(&kOpType<AsyncNodeFunction, true>, links, own, op->device, cold.name, cold.where,
                         &construct_in<AsyncNodeFunction>, &fn);
    } else {
      NodeFunction fn{segment, op};
      engine_.push_links(&kOpType<NodeFunction, false>, links, own, op->device, cold.name, cold.where,
                         &construct_in<NodeFunction>, &fn);
    }
  }
}

ReplayRef SegmentGroup::replay_ref() const {
  const VarBlock* own = segment_.own_.block;
  return {replay_, own, own->writes_done + 1};
}

bool SegmentGroup::touches_marked(uint32_t walk) {
  if (walk_ != walk) {
    walk_ = walk;
    marked_ = std::any_of(segment_.outside_.begin(), segment_.outside_.end(),
                          [walk](const Link& link) { return link.var()->mark == walk; });
  }
  return marked_;
}

void SegmentGroup::linked(Profiler& profiler, const Op* replay) {
  profiler.linked(replay, replay_of(const_cast<Op*>(replay)).group->shells_);
}

void SegmentGroup::start(Op* replay) {
  replay_ = replay;
  stopped_.store(false, std::memory_order_relaxed);
  next_ = engine_.groups_;
  if (next_ != nullptr) next_->previous_ = this;
  previous_ = nullptr;
  engine_.groups_ = this;
  if (engine_.profiler_.tracking()) engine_.profiler_.replay_begins(replay, shells_);
  replay_of(replay).end = End::done;
  for (const uint32_t root : segment_.nodes_.roots) give(root, false);
}

// Puts a node into the ready queues. Precondition: all nodes before it in the graph have ended.
void SegmentGroup::give(uint32_t index, bool released) {
  Op* op = shells_[index];
  const int16_t priority = node_of(op).recorded->priority;
  op->pending = 0;
  op->flags &= kOpNode | kOpAsync | kOpWide;
  if (doomed_[index]) op->flags |= kOpSkip;
  doomed_[index] = false;
  op->epoch = replay_->epoch;
  op->priority = priority != 0 ? priority : replay_->priority;
  ++replay_of(replay_).outstanding;
  engine_.ready(op, released);
}

void SegmentGroup::ended(Op* op) {
  ReplayClosure& state = replay_of(replay_);
  NodeClosure& node = node_of(op);
  if (op->flags & kOpFailed) {
    state.ran = true;
    fail(replay_, node.failure, End::failed);
    node.failure->release_later();
  } else if (op->flags & (kOpSkip | kOpCancelled)) {
    state.skipped = true;
    if (Failure* cause = DependencyState<EngineImpl>::cause_of(op)) fail(replay_, cause, End::inherited);
  } else {
    state.ran = true;
  }
  // Only the nodes that depend on this one are skipped, each when its turn comes. All others still run,
  // because nodes that run may wait for them.
  if (op->flags & (kOpFailed | kOpSkip | kOpCancelled))
    segment_.nodes_.for_each_successor(node.index, [this](uint32_t successor) { doomed_[successor] = true; });
  const NodeSource source = segment_.nodes_.source();
  source.ended<false>(source.nodes[node.index].successors, source.nodes[node.index + 1].successors,
                      [this](uint32_t successor) { give(successor, true); });
  if (--state.outstanding == 0) finish();
}

void SegmentGroup::fail(Op* replay, Failure* failure, ReplayClosure::End end) {
  ReplayClosure& state = replay_of(replay);
  if (state.failure != nullptr) return;
  failure->retain();
  state.failure = failure;
  state.end = end;
}

void SegmentGroup::cancel_all(SegmentGroup* first) {
  for (SegmentGroup* group = first; group != nullptr; group = group->next_) {
    replay_of(group->replay_).cancelled = true;
    group->stopped_.store(true, std::memory_order_relaxed);
  }
}

// Called when all nodes that have started have ended and no other one will start. The replay ends after the
// lock is released: it may hold the last reference to the segment, and then destroys the user's functions.
void SegmentGroup::finish() {
  ReplayClosure& state = replay_of(replay_);
  if (state.failure == nullptr && state.cancelled && state.skipped) state.end = End::cancelled;
  if (engine_.profiler_.tracking()) {
    for (const Op* op : shells_) engine_.profiler_.released(op);
  }
  (previous_ != nullptr ? previous_->next_ : engine_.groups_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  state.group = nullptr;
  replay_->next() = engine_.after_.replays;
  engine_.after_.replays = replay_;
  replay_ = nullptr;
}

void EngineImpl::start_replay(Op* replay) {
  // A device may have failed after the replay was granted the variables that it reads.
  if (deps_.cause_of(replay) != nullptr) replay->flags |= kOpSkip;
  ReplayClosure& state = replay_of(replay);
  if ((replay->flags & (kOpSkip | kOpCancelled)) == 0) {
    state.group->start(replay);
    return;
  }
  state.group = nullptr;
  replay->next() = after_.replays;
  after_.replays = replay;
}

void EngineImpl::end_node(Op* op) { node_of(op).group->ended(op); }

void EngineImpl::node_failed(Op* replay, Failure* failure, bool inherited) {
  ReplayClosure& state = replay_of(replay);
  state.ran = true;
  SegmentGroup::fail(replay, failure, inherited ? End::inherited : End::counted);
  // The nodes that depend on it have been put into the queues as after a success, so the group has to stop.
  // If the last node has ended and only the end of the replay itself is missing, there is no group any more.
  if (state.group != nullptr) state.group->stop();
}

void EngineImpl::end_replay(Op* replay) {
  const ReplayClosure& state = replay_of(replay);
  Failure* failure = state.failure;
  const Outcome unless_ran = state.ran ? Outcome::failed : Outcome::skipped;
  switch (state.end) {
    case End::flagged:
      complete(replay);
      return;
    case End::done:
      finish_op(replay, Outcome::done, nullptr);
      return;
    case End::failed:
      ++failed_ops_;
      count_error(failure);
      finish_op(replay, Outcome::failed, failure);
      break;
    case End::counted:
      finish_op(replay, Outcome::failed, failure);
      break;
    case End::cancelled:
      count_error(failure);
      [[fallthrough]];
    case End::inherited:
      ++skipped_ops_;
      finish_op(replay, unless_ran, failure);
      break;
  }
  failure->release_later();
}

// Called without the lock.
void EngineImpl::end_replays(Op* replays) {
  while (replays != nullptr) {
    {
      InsideOperations inside(this);  // destructors of functions run inside their operation
      for (Op* op = replays; op != nullptr; op = op->next()) {
        inside.enter(op);
        ReplayClosure& state = replay_of(op);
        state.segment.reset();
        const OpCold& cold = op->cold();
        if (state.end == End::flagged && (op->flags & kOpCancelled)) {
          state.failure = failure_of_cancelled(cold.name, cold.where);
        } else if (state.end == End::cancelled) {
          const auto error = std::make_exception_ptr(
              Cancelled("cancelled before all operations of the segment had started"));
          state.failure = failure_of(error, cold.name, cold.where);
          state.failure->observed.store(true, std::memory_order_relaxed);  // shutdown() need not log it
        }
      }
    }
    lock_.lock();
    while (replays != nullptr) {
      Op* op = replays;
      replays = op->next();
      end_replay(op);
    }
    if (internal_ != nullptr) settle_internal();
    // Taken here, because unlock() would call this function recursively, once for each replay in a long row.
    replays = std::exchange(after_.replays, nullptr);
    unlock();
  }
  if (inline_mode_) {
    inline_again_.store(true);
  } else {
    rouse();
  }
}

}  // namespace mx::detail
