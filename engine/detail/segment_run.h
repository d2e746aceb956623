// SegmentRun: one replay of a segment on one worker or more. Internal.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/detail/participant.h"
#include "engine/detail/segment_impl.h"
#include "engine/run_context.h"

namespace mx::detail {

struct Failure;

class SegmentRun : public std::enable_shared_from_this<SegmentRun> {
 public:
  /// Runs the segment on this thread, and on others that join. Returns when there is nothing left for this
  /// thread; `done` is called by the last participant.
  static void start(const std::shared_ptr<SegmentImpl>& segment, Completion done);

  /// Another worker takes part as long as there is something to take. No lock held.
  void join();
  /// Is there anything a newcomer could take?
  bool wants_company() const { return offered_.load(std::memory_order_relaxed) > 0; }

  /// Offers to others all that a participant has, whose look_at is 0, if it is inside a node. Returns whether
  /// there was anything. The participant cannot go meanwhile: the registry's lock is held.
  bool rob(Participant& participant);

 private:
  friend class EngineImpl;
  using Range = std::pair<size_t, size_t>;

  SegmentRun(std::shared_ptr<SegmentImpl> segment, Completion done)
      : segment_(std::move(segment)), done_(std::move(done)), left_(segment_->ops_.size() + 1) {}

  void take_part(Participant& me, bool shared);
  template <bool kShared, bool kFenced>
  bool participate(Participant& me);
  void fail(uint32_t index);
  bool skips(uint32_t index) const;
  void spoil_successors(uint32_t index);
  bool look_up(Participant& me, uint64_t look_at);
  void share();
  void offer(Participant& me);
  bool take_offered(Participant& me);
  void count_offered();
  void leave(size_t ran);

  std::shared_ptr<SegmentImpl> segment_;  // until the last participant leaves
  Completion done_;
  std::atomic<size_t> left_;                // participants, and nodes of which no participant has yet left
  std::atomic<Failure*> failure_{nullptr};  // the first
  std::unique_ptr<std::atomic<uint8_t>[]>
      spoilt_;  // written before failure_: per node, whether it comes behind one that failed
  std::atomic<size_t> offered_{0};
  std::mutex mutex_;
  // ---- under the mutex ----
  std::vector<uint32_t> pool_;  // offered to others: nodes,
  std::vector<Range> ranges_;   // and roots
  bool shared_ = false;         // the engine knows of it, and counters are decremented atomically
  // ---- under the engine's lock, while it knows of it ----
  SegmentRun* next_shared_ = nullptr;
  std::shared_ptr<SegmentRun> self_;
};

}  // namespace mx::detail
