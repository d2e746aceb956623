#include "engine/detail/segment_run.h"

#include <algorithm>
#include <new>

#include "engine/base/clock.h"
#include "engine/base/make_room.h"
#include "engine/base/thread_kept.h"
#include "engine/detail/engine_impl.h"

namespace mx::detail {

namespace {

// Nodes longer than this (ticks, about a third of a microsecond) are worth a second worker.
constexpr uint64_t kWorthSharing = 1000;
constexpr uint32_t kNone = UINT32_MAX;

// Called when a node has ended. Returns a successor that may run now, or kNone; pushes the others on the
// stack.
template <bool kShared>
inline uint32_t release(const NodeSource& graph, std::vector<uint32_t>& stack, uint32_t begin_edge,
                        uint32_t end_edge) {
  uint32_t next = kNone;
  graph.ended<kShared>(begin_edge, end_edge, [&](uint32_t successor) {
    if (next == kNone) {
      next = successor;
    } else {
      stack.push_back(successor);
    }
  });
  return next;
}

// Publishes where the owner is, see participant.h. A thread that reads the value also sees everything that
// the owner did before.
template <bool kFenced>
inline void tell(std::atomic<uint64_t>& inside, uint64_t value) {
  if constexpr (kFenced) {
    inside.exchange(value, std::memory_order_seq_cst);
  } else {
    inside.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

}  // namespace

void SegmentRun::start(const std::shared_ptr<SegmentImpl>& segment, Completion done) {
  const auto run = std::shared_ptr<SegmentRun>(new SegmentRun(segment, std::move(done)));
  // The thread keeps this memory between replays. It is moved out while in use, because a node may start
  // another replay on this thread.
  struct Tag;
  std::vector<uint32_t>& kept = thread_kept<std::vector<uint32_t>, Tag>();
  Participant me(*run);
  me.stack = std::move(kept);
  me.stack.clear();
  me.root_end = segment->nodes_.roots.size();
  run->take_part(me, false);
  kept = std::move(me.stack);
  run->leave(me.ran);
}

void SegmentRun::join() {
  if (!wants_company()) return;
  // If the last participant has left, there is nothing to run, and the segment may have been destroyed.
  size_t left = left_.load(std::memory_order_relaxed);
  do {
    if (left == 0) return;
  } while (
      !left_.compare_exchange_weak(left, left + 1, std::memory_order_acquire, std::memory_order_relaxed));
  Participant me(*this);
  take_part(me, true);
  leave(me.ran);
}

void SegmentRun::take_part(Participant& me, bool shared) {
  EngineImpl& engine = segment_->engine_;
  engine.begin_part(me);
  struct End {
    EngineImpl& engine;
    Participant& me;
    ~End() { engine.end_part(me); }
  } const end{engine, me};
  // Template arguments, because an iteration of the loop takes only a few nanoseconds.
  if (AsymmetricFence::light_is_free()) {
    if (shared || participate<false, false>(me)) participate<true, false>(me);
  } else {
    if (shared || participate<false, true>(me)) participate<true, true>(me);
  }
}

void SegmentRun::fail(uint32_t index) {
  const OpCold& cold = segment_->ops_[index]->cold();
  Failure* failure = failure_of_current_exception(cold.name, cold.where);
  std::lock_guard lock(mutex_);
  if (failure_.load(std::memory_order_relaxed) != nullptr) {
    failure->release();
    return;
  }
  // If there is no memory for it, all nodes that have not started are skipped.
  const size_t nodes = segment_->ops_.size();
  spoilt_.reset(new (std::nothrow) std::atomic<uint8_t>[nodes]());
  failure_.store(failure, std::memory_order_release);
}

// Returns true if the node is to be skipped, because it depends on one that failed. The other nodes run even
// after a failure, because a running operation may wait for them.
bool SegmentRun::skips(uint32_t index) const {
  if (failure_.load(std::memory_order_acquire) == nullptr) return false;
  return spoilt_ == nullptr || spoilt_[index].load(std::memory_order_relaxed) != 0;
}

// Marks the successors of a node that has failed or was skipped. Called before the node releases them.
void SegmentRun::spoil_successors(uint32_t index) {
  if (spoilt_ == nullptr) return;
  segment_->nodes_.for_each_successor(
      index, [this](uint32_t successor) { spoilt_[successor].store(1, std::memory_order_relaxed); });
}

// Runs nodes until this thread finds none. With kShared, other threads take part, so counters are decremented
// atomically. Without it, returns true as soon as other threads take part; the caller then goes on with
// kShared and with the state in `me`. kFenced: the owner publishes where it is by an exchange, see
// participant.h.
template <bool kShared, bool kFenced>
bool SegmentRun::participate(Participant& me) {
  EngineImpl& engine = segment_->engine_;
  const SegmentImpl* const outer = std::exchange(current_task.segment, segment_.get());
  const bool check = engine.options().mode == EngineMode::check;
  RunContext context;
  context.check_ = check;
  const uint32_t* const roots = segment_->nodes_.roots.data();
  const bool tracing = engine.profiler().tracing();
  const bool ranges = engine.makes_ranges();
  const bool unusual = tracing || check || ranges;
  const NodeSource graph = segment_->nodes_.source();
  size_t ran = me.ran;
  if constexpr (kShared) look_up(me, UINT64_MAX);
  const uint64_t begin = ticks();
  bool share_it = false;
  bool converted = false;
  while (!converted) {
    uint32_t index = kNone;
    if (!me.stack.empty()) {
      index = me.stack.back();
      me.stack.pop_back();
    } else if (me.root < me.root_end) {
      index = roots[me.root++];
      if (me.root + 16 < me.root_end) __builtin_prefetch(&graph.nodes[roots[me.root + 16]]);
    } else if (!kShared || !take_offered(me)) {
      break;
    } else {
      continue;
    }
    while (index != kNone) {
      const uint32_t begin_edge = graph.nodes[index].successors;
      const uint32_t end_edge = graph.nodes[index + 1].successors;
      for (uint32_t i = begin_edge; i < end_edge && i < begin_edge + 8; ++i) {
        __builtin_prefetch(&graph.counters[graph.edges[i]], 1);
        __builtin_prefetch(&graph.nodes[graph.edges[i]]);
      }
      ++ran;
      tell<kFenced>(me.inside, ran);
      if (failure_.load(std::memory_order_relaxed) != nullptr && skips(index)) [[unlikely]] {
        spoil_successors(index);
      } else {
        current_task.node = index;
        const int64_t begin_ns = unusual && tracing ? now_ns() : 0;
        if (unusual) context.op_ = segment_->ops_[index];
        try {
          const ToolRange range(ranges, ranges ? segment_->ops_[index]->cold().name : nullptr);
          graph.nodes[index].run(graph.nodes[index].closure_place(), context, nullptr);
        } catch (...) {
          fail(index);
          spoil_successors(index);
        }
        if (unusual && tracing) {
          engine.profiler().span(concat("thread ", gettid()), segment_->ops_[index]->cold().name, begin_ns,
                                 now_ns());
        }
      }
      tell<kFenced>(me.inside, 0);
      const bool look =
          ran >= me.look_at.load(kFenced ? std::memory_order_seq_cst : std::memory_order_relaxed);
      if (look) [[unlikely]] {
        if (look_up(me, kShared ? UINT64_MAX : 2 * ran) && !kShared) {
          index = release<true>(graph, me.stack, begin_edge, end_edge);
          if (index != kNone) me.stack.push_back(index);
          converted = true;
          break;
        }
      }
      index = release<kShared>(graph, me.stack, begin_edge, end_edge);
      if (kShared ? offered_.load(std::memory_order_relaxed) == 0 : look || engine.attention()) [[unlikely]] {
        const bool spare = !me.stack.empty() || me.root < me.root_end;
        if constexpr (kShared) {
          if (spare) offer(me);
        } else {
          const uint64_t each = (ticks() - begin) / ran;
          if (look) share_it = each > kWorthSharing && engine.worker_limit() > 1 && !engine.inline_mode();
          share_it |= engine.attention() && each > kWorthSharing / 4;
          if (share_it && spare) {
            if (index != kNone) me.stack.push_back(index);
            offer(me);
            converted = true;
            break;
          }
        }
      }
    }
  }
  current_task.segment = outer;
  me.ran = ran;
  return converted;
}

// Called by the participant when it has run me.look_at nodes. It looks up again after `look_at` nodes. If
// another thread has asked for its work (me.look_at is 0), waits until that thread has taken it, and returns
// whether the run is shared; otherwise returns false.
bool SegmentRun::look_up(Participant& me, uint64_t look_at) {
  uint64_t expected = me.look_at.load(std::memory_order_relaxed);
  if (expected != 0 && me.look_at.compare_exchange_strong(expected, look_at)) return false;
  std::lock_guard lock(mutex_);
  me.look_at.store(look_at, std::memory_order_relaxed);
  return shared_;
}

// Precondition: the mutex is held and something is offered, so the run cannot have ended.
void SegmentRun::share() {
  if (shared_) return;
  shared_ = true;
  segment_->engine_.offer_run(shared_from_this());
}

// Offers half of this participant's nodes and roots to other threads.
void SegmentRun::offer(Participant& me) {
  {
    std::lock_guard lock(mutex_);
    const auto give = static_cast<std::ptrdiff_t>((me.stack.size() + 1) / 2);
    pool_.insert(pool_.end(), me.stack.begin(), me.stack.begin() + give);
    me.stack.erase(me.stack.begin(), me.stack.begin() + give);
    if (const size_t roots = (me.root_end - me.root + 1) / 2; roots > 0) {
      ranges_.emplace_back(me.root, me.root + roots);
      me.root += roots;
    }
    count_offered();
    share();
  }
  segment_->engine_.call_company();
}

bool SegmentRun::rob(Participant& participant) {
  std::lock_guard lock(mutex_);
  if (participant.look_at.load(std::memory_order_relaxed) != 0) return false;  // it has looked up since
  if (participant.inside.load(std::memory_order_seq_cst) == 0) return false;
  if (participant.stack.empty() && participant.root == participant.root_end) return false;
  make_room(pool_, participant.stack.size());
  make_room(ranges_);
  pool_.insert(pool_.end(), participant.stack.begin(), participant.stack.end());
  participant.stack.clear();
  if (participant.root != participant.root_end) {
    ranges_.emplace_back(participant.root, participant.root_end);
    participant.root = participant.root_end;
  }
  count_offered();
  share();
  return true;
}

bool SegmentRun::take_offered(Participant& me) {
  if (offered_.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(mutex_);
  const size_t n = (pool_.size() + 1) / 2;
  me.stack.insert(me.stack.end(), pool_.end() - static_cast<std::ptrdiff_t>(n), pool_.end());
  pool_.resize(pool_.size() - n);
  bool taken = n > 0;
  if (!ranges_.empty()) {
    Range& range = ranges_.back();
    me.root_end = range.second;
    me.root = range.second -= (range.second - range.first + 1) / 2;
    if (range.first == range.second) ranges_.pop_back();
    taken = true;
  }
  count_offered();
  return taken;
}

void SegmentRun::count_offered() { offered_.store(pool_.size() + ranges_.size(), std::memory_order_relaxed); }

void SegmentRun::leave(size_t ran) {
  const size_t mine = ran + 1;  // its nodes and the participant itself
  if (left_.fetch_sub(mine, std::memory_order_acq_rel) != mine) return;
  EngineImpl& engine = segment_->engine_;
  if (shared_) engine.withdraw_run(this);
  // If the program has dropped the segment, its functions are destroyed here, so that the objects that they
  // own are destroyed when the replay has ended. The run itself may live longer: a worker that wanted to join
  // it may still hold a reference.
  engine.let_go(segment_, done_);
  Failure* failure = failure_.load(std::memory_order_acquire);
  if (failure == nullptr) {
    done_.done();
    return;
  }
  const std::exception_ptr error = failure->error;
  failure->release();
  done_.fail(error);
}

void EngineImpl::let_go(std::shared_ptr<SegmentImpl>& segment, const Completion& token) {
  InsideOperations inside(this);
  inside.enter(token.op_);
  segment.reset();
}

bool ParticipantRegistry::rescue() {
  bool any = false;
  bool found = false;
  lock_.lock();
  for (Participant* p = first_; p != nullptr; p = p->next) {
    const uint64_t inside = p->inside.load(std::memory_order_relaxed);
    if (inside != 0 && inside == p->seen && inside != p->left) {
      p->look_at.store(0, std::memory_order_seq_cst);
      p->left = inside;
      any = true;
    }
    p->seen = inside;
  }
  if (any) AsymmetricFence::heavy();
  if (any) {
    for (Participant* p = first_; p != nullptr; p = p->next) {
      if (p->left == 0 || p->left != p->seen) continue;
      try {
        found |= p->run.rob(*p);
      } catch (const std::bad_alloc&) {
        p->left = 0;  // no memory: the next call tries again
      }
    }
  }
  lock_.unlock();
  return found;
}

}  // namespace mx::detail
