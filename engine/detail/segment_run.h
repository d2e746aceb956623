// SegmentRun: one replay of a segment of plain operations, on one or more workers. Internal.
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
  /// Runs the segment on this thread and on other workers that join. Returns when no node is left for this
  /// thread. The last participant to leave calls `done`.
  static void start(const std::shared_ptr<SegmentImpl>& segment, Completion done);

  /// Takes part in the run on another worker, as long as nodes are offered. Called without locks.
  void join();
  /// Returns true if nodes are offered to other workers.
  bool wants_company() const { return offered_.load(std::memory_order_relaxed) > 0; }

  /// Takes the nodes that a participant has not started and offers them to other workers, if the participant
  /// is inside a node and its look_at is still 0. Returns whether there were any. Preconditions: the caller
  /// has set look_at to 0, and holds the registry's lock, so that the participant is not destroyed meanwhile.
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
  std::atomic<size_t> left_;                // participants, and nodes not yet run by one that has left
  std::atomic<Failure*> failure_{nullptr};  // the first failure of a node
  std::unique_ptr<std::atomic<uint8_t>[]>
      spoilt_;  // written before failure_: per node, whether a predecessor has failed or was skipped
  std::atomic<size_t> offered_{0};
  std::mutex mutex_;
  // ---- under the mutex ----
  std::vector<uint32_t> pool_;  // nodes offered to other workers,
  std::vector<Range> ranges_;   // and ranges of roots
  bool shared_ = false;         // it is in EngineImpl::shared_runs_, and counters are decremented atomically
  // ---- under the engine's lock, while it is in EngineImpl::shared_runs_ ----
  SegmentRun* next_shared_ = nullptr;
  std::shared_ptr<SegmentRun> self_;
};

}  // namespace mx::detail
