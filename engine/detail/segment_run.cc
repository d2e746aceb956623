#include "engine/detail/segment_run.h"

#include <algorithm>
#include <bit>

#include "engine/base/clock.h"
#include "engine/detail/engine_impl.h"

namespace mx::detail {

namespace {

// Nodes longer than this (ticks, about a third of a microsecond) are worth a second worker.
constexpr uint64_t kWorthSharing = 1000;

}  // namespace

void SegmentRun::start(const std::shared_ptr<SegmentImpl>& segment, Completion done) {
  auto run = std::shared_ptr<SegmentRun>(new SegmentRun(segment, std::move(done)));
  // Kept between replays, and taken while in use, since a node may lead to another replay on this thread.
  static thread_local std::vector<uint32_t> kept;
  std::vector<uint32_t> stack = std::move(kept);
  stack.clear();
  size_t root = 0;
  if (run->participate<false>(stack, root)) {
    run->left_.store(segment->ops_.size() - run->ran_, std::memory_order_relaxed);
    segment->engine_.offer_run(run);
    run->offer(stack, root);
    run->ran_ = 0;
    run->participate<true>(stack, root);
  } else {
    run->leave(run->ran_);
  }
  kept = std::move(stack);
}

void SegmentRun::join() {
  std::vector<uint32_t> stack;
  size_t no_roots = segment_->roots_.size();
  if (take_offered(stack)) participate<true>(stack, no_roots);
}

void SegmentRun::fail(uint32_t index) {
  const OpCold& cold = segment_->ops_[index]->cold();
  Failure* failure = failure_of_current_exception(cold.name, cold.where);
  Failure* none = nullptr;
  if (!failure_.compare_exchange_strong(none, failure)) failure->release();
}

// kShared: others take part, so counters are decremented atomically. Otherwise returns true when it is time
// to share, with the state left in `stack` and `root`.
template <bool kShared>
bool SegmentRun::participate(std::vector<uint32_t>& stack, size_t& root) {
  EngineImpl& engine = segment_->engine_;
  const SegmentImpl* const outer = std::exchange(tls.segment, segment_.get());
  const bool check = engine.options().mode == EngineMode::check;
  RunContext context;
  context.check_ = check;
  const std::vector<uint32_t>& roots = segment_->roots_;
  const bool tracing = engine.profiler().tracing();
  const bool unusual = tracing || check;
  size_t ran = 0;
  size_t check_at = 1;
  const uint64_t begin = ticks();
  bool share = false;
  constexpr uint32_t kNone = UINT32_MAX;
  Node* const nodes = segment_->nodes_.data();
  const uint32_t* const edges = segment_->edges_.data();
  std::atomic<uint32_t>* const counters = segment_->waiting_.get();
  for (;;) {
    uint32_t index = kNone;
    if (!stack.empty()) {
      index = stack.back();
      stack.pop_back();
    } else if (root < roots.size()) {
      index = roots[root++];
      if (root + 16 < roots.size()) __builtin_prefetch(&nodes[roots[root + 16]]);
    } else if (!kShared || !take_offered(stack)) {
      break;
    } else {
      continue;
    }
    while (index != kNone) {
      const uint32_t begin_edge = nodes[index].successors;
      const uint32_t end_edge = nodes[index + 1].successors;
      for (uint32_t i = begin_edge; i < end_edge && i < begin_edge + 8; ++i) {
        __builtin_prefetch(&counters[edges[i]], 1);
        __builtin_prefetch(&nodes[edges[i]]);
      }
      if (failure_.load(std::memory_order_relaxed) == nullptr) [[likely]] {
        tls.node = index;
        const int64_t begin_ns = unusual && tracing ? now_ns() : 0;
        if (unusual) context.op_ = segment_->ops_[index];
        try {
          nodes[index].run(nodes[index].closure_place(), context, nullptr);
        } catch (...) {
          fail(index);
        }
        if (unusual && tracing) {
          engine.profiler().span(concat("thread ", gettid()), segment_->ops_[index]->cold().name, begin_ns,
                                 now_ns());
        }
      }
      ++ran;
      uint32_t next = kNone;
      for (uint32_t i = begin_edge; i < end_edge; ++i) {
        const uint32_t successor = edges[i];
        const uint32_t predecessors = nodes[successor].predecessor_count();
        if (predecessors != 1) {
          std::atomic<uint32_t>& counter = counters[successor];
          uint32_t waiting = 0;
          if constexpr (kShared) {
            waiting = counter.fetch_sub(1, std::memory_order_acq_rel) - 1;
          } else {
            waiting = counter.load(std::memory_order_relaxed) - 1;
            counter.store(waiting, std::memory_order_relaxed);
          }
          if (waiting != 0) continue;
          counter.store(predecessors, std::memory_order_relaxed);  // for the next replay
        }
        if (next == kNone) {
          next = successor;
        } else {
          stack.push_back(successor);
        }
      }
      index = next;
      if (kShared ? offered_.load(std::memory_order_relaxed) == 0 : engine.attention() || ran == check_at)
          [[unlikely]] {
        const size_t spare = stack.size() + (roots.size() - root);
        if constexpr (kShared) {
          if (spare > 0) offer(stack, root);
        } else {
          if (ran == check_at) {
            check_at *= 2;
            share =
                (ticks() - begin) / ran > kWorthSharing && engine.worker_limit() > 1 && !engine.inline_mode();
          }
          share |= engine.attention() && (ticks() - begin) / ran > kWorthSharing / 4;
          if (share && spare > 0) {
            if (index != kNone) stack.push_back(index);
            ran_ = ran;
            tls.segment = outer;
            return true;
          }
        }
      }
    }
  }
  tls.segment = outer;
  if constexpr (kShared) {
    leave(ran);
  } else {
    left_.store(ran, std::memory_order_relaxed);
    ran_ = ran;
  }
  return false;
}

// Half of what this participant has goes to the others.
void SegmentRun::offer(std::vector<uint32_t>& stack, size_t& root) {
  const std::vector<uint32_t>& roots = segment_->roots_;
  {
    std::lock_guard lock(mutex_);
    size_t give = (stack.size() + 1) / 2;
    pool_.insert(pool_.end(), stack.begin(), stack.begin() + static_cast<std::ptrdiff_t>(give));
    stack.erase(stack.begin(), stack.begin() + static_cast<std::ptrdiff_t>(give));
    give = (roots.size() - root + 1) / 2;
    pool_.insert(pool_.end(), roots.begin() + static_cast<std::ptrdiff_t>(root),
                 roots.begin() + static_cast<std::ptrdiff_t>(root + give));
    root += give;
    offered_.store(pool_.size(), std::memory_order_relaxed);
  }
  segment_->engine_.call_company();
}

bool SegmentRun::take_offered(std::vector<uint32_t>& stack) {
  if (offered_.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(mutex_);
  const size_t n = (pool_.size() + 1) / 2;
  stack.insert(stack.end(), pool_.end() - static_cast<std::ptrdiff_t>(n), pool_.end());
  pool_.resize(pool_.size() - n);
  offered_.store(pool_.size(), std::memory_order_relaxed);
  return n > 0;
}

void SegmentRun::leave(size_t ran) {
  // (Who has run nothing cannot be the last, and may come when all has ended.)
  if (ran == 0 || left_.fetch_sub(ran, std::memory_order_acq_rel) != ran) return;
  EngineImpl& engine = segment_->engine_;
  engine.withdraw_run(this);
  Failure* failure = failure_.load(std::memory_order_acquire);
  if (failure == nullptr) {
    done_.done();
    return;
  }
  const std::exception_ptr error = failure->error;
  failure->release();
  done_.fail(error);
}

}  // namespace mx::detail
