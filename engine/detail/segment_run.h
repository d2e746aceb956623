// SegmentRun: one replay of a segment on one worker or more. Internal.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

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

 private:
  SegmentRun(std::shared_ptr<SegmentImpl> segment, Completion done)
      : segment_(std::move(segment)), done_(std::move(done)) {}

  template <bool kShared>
  bool participate(std::vector<uint32_t>& stack, size_t& root);
  void fail(uint32_t index);
  void offer(std::vector<uint32_t>& stack, size_t& root);
  bool take_offered(std::vector<uint32_t>& stack);
  void leave(size_t ran);

  std::shared_ptr<SegmentImpl> segment_;
  Completion done_;
  std::atomic<size_t> left_{0};  // nodes not yet ended; used once the run is shared
  std::atomic<Failure*> failure_{nullptr};
  std::atomic<size_t> offered_{0};
  std::mutex mutex_;
  std::vector<uint32_t> pool_;  // offered to others
  size_t ran_ = 0;              // by the first participant before it shared
};

}  // namespace mx::detail
