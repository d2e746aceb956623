// Epochs: which operations a wait_all() waits for. Internal; used under the engine's lock.
//
// Every operation belongs to the epoch that was open when it was linked. wait_all() closes the open epoch and
// waits until that one and all older ones are empty; later operations belong to a new epoch, so a wait never
// waits for an operation that was pushed after it began.
//
//   pushed:   a b c | d | e f ...        epochs in their order; the last one is open
//                   ^   ^
//                   a wait_all() closed an epoch here
//
// An epoch is named by a tag that fits into an operation. The tag is used again when the epoch is closed and
// empty, so there are never more tags in use than epochs with operations in flight, and the open one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mx::detail {

class Epochs {
 public:
  using Tag = uint16_t;
  struct Entry {
    uint32_t in_flight = 0;  // operations of the epoch that have not ended
    Tag next = kNone;        // the next younger epoch; of a free entry, the next free one
    Tag previous = kNone;    // the next older one
    uint64_t order = 0;
  };
  static constexpr size_t kMost = 1 << 16;  // entries; the last one is never used

  Epochs() : entries_(16) {
    entries_[0].order = 1;
    free_from(1);
  }

  /// Returns the open epoch.
  Tag open() const { return open_; }
  void add(Tag epoch, uint32_t operations = 1) { entries_[epoch].in_flight += operations; }
  /// Removes an operation that has ended. Returns true if a wait may be over now.
  bool remove(Tag epoch) { return --entries_[epoch].in_flight == 0 && epoch != open_ && retire(epoch); }

  /// Closes the open epoch and returns the end of a wait for all operations added so far; see over().
  /// Operations added later do not belong to that wait. Precondition: has_room().
  uint64_t close() {
    const uint64_t order = entries_[open_].order;
    if (entries_[open_].in_flight == 0) return order - 1;  // only older epochs have operations
    const Tag fresh = free_;
    free_ = entries_[fresh].next;
    entries_[fresh] = {0, kNone, open_, order + 1};
    entries_[open_].next = fresh;
    open_ = fresh;
    return order;
  }
  /// Returns true if all operations have ended that belong to the wait for which close() returned `end`.
  bool over(uint64_t end) const { return entries_[oldest_].order > end; }
  bool none_in_flight() const { return oldest_ == open_ && entries_[open_].in_flight == 0; }

  /// Returns true if there is a tag for one more epoch. If not, the caller makes a vector of more entries,
  /// without the lock, and calls grow().
  bool has_room() const { return free_ != kNone; }
  size_t size() const { return entries_.size(); }
  /// Moves the entries into the memory of `larger`, and leaves the old memory in it. Does nothing if it is
  /// not larger than the present one.
  void grow(std::vector<Entry>& larger) {
    if (larger.size() <= entries_.size()) return;
    const size_t before = entries_.size();
    for (size_t i = 0; i < before; ++i) larger[i] = entries_[i];
    entries_.swap(larger);
    free_from(before);
  }

 private:
  static constexpr Tag kNone = UINT16_MAX;

  void free_from(size_t first) {
    for (size_t i = entries_.size(); i-- > first;) {
      if (i == kNone) continue;
      entries_[i].next = free_;
      free_ = static_cast<Tag>(i);
    }
  }

  // Frees the tag of a closed epoch that has become empty. Returns whether it was the oldest epoch.
  bool retire(Tag epoch) {
    const Entry& gone = entries_[epoch];
    const bool was_oldest = epoch == oldest_;
    (was_oldest ? oldest_ : entries_[gone.previous].next) = gone.next;
    entries_[gone.next].previous = gone.previous;  // `next` exists, because the open epoch is younger
    entries_[epoch].next = free_;
    free_ = epoch;
    return was_oldest;
  }

  std::vector<Entry> entries_;
  Tag open_ = 0;
  Tag oldest_ = 0;
  Tag free_ = kNone;
};

}  // namespace mx::detail
