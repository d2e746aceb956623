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
  static thread_local std::vector<Op*> kept;
  std::vector<Op*> stack = std::move(kept);
  stack.clear();
  size_t root = 0;
  if (run->participate<false>(stack, root)) {
    run->left_.store(segment->ops_.size() - run->ran_, std::memory_order_relaxed);
    run->offer(stack, root);
    segment->engine_.offer_run(run);
    run->ran_ = 0;
    run->participate<true>(stack, root);
  } else {
    run->leave(run->ran_);
  }
  kept = std::move(stack);
}

void SegmentRun::join() {
  std::vector<Op*> stack;
  size_t no_roots = segment_->roots_.size();
  if (take_offered(stack)) participate<true>(stack, no_roots);
}

inline void SegmentRun::run_node(Op* op) {
  if (failure_.load(std::memory_order_relaxed) != nullptr) [[unlikely]] return;
  tls.running = op;
  RunContext context;
  context.op_ = op;
  try {
    op->type->run(op, context, nullptr);
  } catch (...) {
    Failure* failure = failure_of_current_exception(op->cold().name, op->cold().where);
    Failure* none = nullptr;
    if (!failure_.compare_exchange_strong(none, failure)) failure->release();
  }
}

// kShared: others take part, so counters are decremented atomically. Otherwise returns true when it is time
// to share, with the state left in `stack` and `root`.
template <bool kShared>
bool SegmentRun::participate(std::vector<Op*>& stack, size_t& root) {
  EngineImpl& engine = segment_->engine_;
  Op* const outer = tls.running;
  const std::vector<Op*>& roots = segment_->roots_;
  const bool tracing = engine.profiler().tracing();
  size_t ran = 0;
  size_t check_at = 1;
  const uint64_t begin = ticks();
  bool share = false;
  for (;;) {
    Op* op = nullptr;
    if (!stack.empty()) {
      op = stack.back();
      stack.pop_back();
    } else if (root < roots.size()) {
      op = roots[root++];
      if (root + 4 < roots.size()) __builtin_prefetch(roots[root + 4], 1);
    } else if (!kShared || !take_offered(stack)) {
      break;
    } else {
      continue;
    }
    while (op != nullptr) {
      Node& node = node_of(op);
      for (uint32_t i = 0; i < node.successor_count; ++i) __builtin_prefetch(node.successors[i], 1);
      if (tracing) [[unlikely]] {
        const int64_t begin_ns = now_ns();
        run_node(op);
        engine.profiler().span(concat("thread ", gettid()), op->cold().name, begin_ns, now_ns());
      } else {
        run_node(op);
      }
      ++ran;
      node.waiting.store(node.predecessors, std::memory_order_relaxed);  // for the next replay
      Op* next = nullptr;
      for (uint32_t i = 0; i < node.successor_count; ++i) {
        Op* successor = node.successors[i];
        Node& other = node_of(successor);
        if (other.predecessors != 1) {
          if constexpr (kShared) {
            if (other.waiting.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
          } else {
            const uint32_t waiting = other.waiting.load(std::memory_order_relaxed) - 1;
            other.waiting.store(waiting, std::memory_order_relaxed);
            if (waiting != 0) continue;
          }
        }
        if (next == nullptr) {
          next = successor;
        } else {
          stack.push_back(successor);
        }
      }
      op = next;
      if (kShared ? engine.attention() && offered_.load(std::memory_order_relaxed) == 0
                  : engine.attention() || ran == check_at) [[unlikely]] {
        const size_t spare = stack.size() + (roots.size() - root);
        if constexpr (kShared) {
          if (spare > 1) offer(stack, root);
        } else {
          if (ran == check_at) {
            check_at *= 2;
            share = (ticks() - begin) / ran > kWorthSharing && engine.worker_limit() > 1 && !engine.inline_mode();
          }
          share |= engine.attention() && (ticks() - begin) / ran > kWorthSharing / 4;
          if (share && spare > 0) {
            if (op != nullptr) stack.push_back(op);
            ran_ = ran;
            tls.running = outer;
            return true;
          }
        }
      }
    }
  }
  tls.running = outer;
  if constexpr (kShared) {
    leave(ran);
  } else {
    left_.store(ran, std::memory_order_relaxed);
    ran_ = ran;
  }
  return false;
}

// Half of what this participant has goes to the others.
void SegmentRun::offer(std::vector<Op*>& stack, size_t& root) {
  const std::vector<Op*>& roots = segment_->roots_;
  {
    std::lock_guard lock(mutex_);
    size_t give = (stack.size() + 1) / 2;
    pool_.insert(pool_.end(), stack.begin(), stack.begin() + static_cast<std::ptrdiff_t>(give));
    stack.erase(stack.begin(), stack.begin() + static_cast<std::ptrdiff_t>(give));
    give = (roots.size() - root) / 2;
    pool_.insert(pool_.end(), roots.begin() + static_cast<std::ptrdiff_t>(root),
                 roots.begin() + static_cast<std::ptrdiff_t>(root + give));
    root += give;
    offered_.store(pool_.size(), std::memory_order_relaxed);
  }
  segment_->engine_.call_company();
}

bool SegmentRun::take_offered(std::vector<Op*>& stack) {
  if (offered_.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(mutex_);
  const size_t n = (pool_.size() + 1) / 2;
  stack.insert(stack.end(), pool_.end() - static_cast<std::ptrdiff_t>(n), pool_.end());
  pool_.resize(pool_.size() - n);
  offered_.store(pool_.size(), std::memory_order_relaxed);
  return n > 0;
}

void SegmentRun::leave(size_t ran) {
  if (left_.fetch_sub(ran, std::memory_order_acq_rel) != ran) return;
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
