// WorkerPolicy: how many workers an engine has at this moment, how many it should call, and how many
// operations one of them takes at once. Internal.
//
// Linking and completing an operation under the lock takes about 60 ns. So empty operations occupy only one
// worker: a second one would only contend for the lock. Operations of one microsecond occupy a dozen.
//
// Locks: none; any thread may call any member. The counters of workers are changed with sequential
// consistency where their order matters: a worker that leaves decrements active_ and then reads the ring once
// more; a pusher fills the ring and then calls none_active(). So one of the two sees the other. The length of
// operations is an estimate, so several threads may write it without harm.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace mx::detail {

class alignas(64) WorkerPolicy {
 public:
  /// An operation this short (in ticks, about a third of a microsecond) costs no more than handing it to
  /// another core.
  static constexpr int64_t kShortTicks = 1000;

  /// Returns how many workers operations of this length can occupy.
  static int wanted(int64_t body_ticks, int threads) {
    return static_cast<int>(std::min<int64_t>(threads, 1 + body_ticks / 150));
  }

  /// Returns how many workers to call at once if the running operations have turned out to be long and
  /// `ready` others wait for a worker: one for each of these, limited by the free threads. At least one,
  /// because the engine may have no worker at all.
  static int to_call(size_t ready, int active, int threads) {
    const auto free = static_cast<size_t>(std::max(0, threads - active));
    return std::max(1, static_cast<int>(std::min(ready, free)));
  }

  /// `batch_ticks` is the amount of work that a worker takes at once if there is more than enough.
  WorkerPolicy(int threads, int64_t batch_ticks) : threads_(threads), batch_ticks_(batch_ticks) {
    set_body_ticks(0);
  }

  // ---- the estimated length of operations ----
  int64_t body_ticks() const { return body_ticks_.load(std::memory_order_relaxed); }
  void set_body_ticks(int64_t ticks) {
    body_ticks_.store(ticks, std::memory_order_relaxed);
    wanted_.store(wanted(ticks, threads_), std::memory_order_relaxed);
  }
  /// Updates the estimate after operations that took `each` on average; `typical` was body_ticks() before
  /// they ran. The estimate rises at once and falls slowly, because a long operation that is taken for a
  /// short one delays the operations behind it in its batch.
  void observe(int64_t typical, int64_t each) {
    const int64_t next = each > typical ? each : (typical * 7 + each) / 8;
    if (next != typical) set_body_ticks(next);
  }
  /// Returns true if a worker may take several operations of this length at once.
  bool worth_batching(int64_t each) const { return each < batch_ticks_; }
  /// Returns how many of the `ready` operations a worker takes, so that enough remain for others while
  /// `running` threads run operations. At most `most`.
  size_t share(int64_t each, size_t ready, int running, size_t most) const {
    if (each >= kShortTicks) most = std::min(most, static_cast<size_t>(batch_ticks_ / each));
    return std::min((ready + 1) / static_cast<size_t>(running + 2), most);
  }

  // ---- the number of workers, and of those wanted ----
  int active() const { return active_.load(std::memory_order_relaxed); }
  bool none_active() const { return active_.load(std::memory_order_seq_cst) == 0; }
  bool any_searching() const { return searching_.load(std::memory_order_relaxed) > 0; }
  bool on_its_way() const { return called_.load(std::memory_order_relaxed) > 0; }
  bool more_wanted() const { return active() < wanted_.load(std::memory_order_relaxed); }
  bool too_many() const { return active() > wanted_.load(std::memory_order_relaxed); }

  /// Counts one more worker, which the caller must call now. Returns false if there are already as many as
  /// may be: one more than threads.
  bool begin_call() {
    int32_t active = active_.load(std::memory_order_relaxed);
    do {
      if (active >= threads_ + 1) return false;
    } while (!active_.compare_exchange_weak(active, active + 1, std::memory_order_seq_cst));
    called_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void call_failed() {
    called_.fetch_sub(1, std::memory_order_relaxed);
    leave();
  }
  /// Called by a worker that begins to run.
  void arrive() { called_.fetch_sub(1, std::memory_order_relaxed); }
  void leave() { active_.fetch_sub(1, std::memory_order_seq_cst); }
  /// Called after leave(). Returns true if there are enough other workers. If false and there is work, the
  /// worker that has left must come_back().
  bool enough_others() const {
    return active_.load(std::memory_order_seq_cst) >= std::max(1, wanted_.load(std::memory_order_relaxed));
  }
  void come_back() { active_.fetch_add(1, std::memory_order_seq_cst); }
  void begin_search() { searching_.fetch_add(1, std::memory_order_seq_cst); }
  void end_search() { searching_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  // Read at every push or search; written when a worker arrives, leaves or searches, or when the estimated
  // length changes. Always 0 <= called_ <= active_ <= threads_ + 1, and searching_ <= active_ - called_.
  std::atomic<int32_t> active_{0};     // workers that have been called and have not left
  std::atomic<int32_t> called_{0};     // of these, those that do not run yet
  std::atomic<int32_t> searching_{0};  // of the active ones, those spinning for work
  std::atomic<int64_t> body_ticks_;    // the estimated length of operations
  std::atomic<int32_t> wanted_;        // wanted() of that length; from 1 to threads_
  const int threads_;
  const int64_t batch_ticks_;
};

}  // namespace mx::detail
