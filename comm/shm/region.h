// Region: the memory through which the ranks of one host coordinate their calls and stage their data.
// Internal.
//
// It is an anonymous file (memfd) that every rank maps. It has no name in the file system, so nothing remains
// when all ranks are gone, however they ended. Each rank writes only its own part, except the futex words:
//
//   header | control of rank 0, 1, ... | channels, sender by sender | slots and staging of rank 0, 1, ...
//
// Every counter only grows. A rank writes its data first and its counter last (release), and the others read
// the counter first (acquire).
//
// Thread-safety: the addresses never change; the atomics are made for access by several processes.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/net/fd.h"

namespace mx::comm::shm {

inline constexpr size_t kLine = 64;
inline constexpr size_t kPage = 4096;
constexpr size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
/// Calls whose input has at most so many bytes put it into a slot before they announce themselves.
inline constexpr size_t kSlotBytes = 16 * 1024;
/// Of buffers in the arena, an allreduce of more bytes does not use slots: a slot is copied to all ranks,
/// while each rank reads only its part of the arena.
inline constexpr size_t kArenaSlotBytes = 1024;
/// Bytes of one staging buffer. The second-level cache of a processor holds some of them.
inline constexpr size_t kStageBytes = 128 * 1024;
/// Bytes of one buffer of a channel between two ranks.
inline constexpr size_t kChannelBytes = 128 * 1024;
/// Shown bytes of a call's name, which may contain the error of a value.
inline constexpr size_t kWhatBytes = 192;
inline constexpr size_t kHostBytes = 64;
inline constexpr uint64_t kNowhere = ~uint64_t{0};

/// What a rank announces when it begins a call. The first line is all that the others read if they agree.
struct alignas(kLine) Entry {
  std::atomic<uint64_t> number{0};  ///< of the call, counted from 1; stored last
  uint64_t count = 0, what_hash = 0;
  uint64_t in_offset = 0, out_offset = 0;  ///< in the arena; kNowhere if the buffer is elsewhere
  int32_t peer = 0;
  uint32_t what_bytes = 0;
  uint8_t collective = 0, type = 0, order = 0, reduction = 0;
  uint8_t overlaps = 0;  ///< `in` overlaps `out` such that no other rank may read or write them directly
  uint8_t slot = 0;      ///< this rank's input is in its slot
  uint8_t arena = 0;     ///< this rank has mapped the arena
  alignas(kLine) char what[kWhatBytes] = {};  ///< the first bytes of the call's name
};

/// Where a thread of a rank sleeps. A rank has one for its calls and one for allocate().
struct alignas(kLine) Bed {
  std::atomic<uint32_t> bell{0};       ///< the futex word
  std::atomic<int32_t> waits_for{-1};  ///< the rank that wakes it; -1 if the thread does not sleep
};
inline constexpr int kBeds = 2;

enum class State : uint32_t { absent, present, left, failed };

/// An allocation that a rank takes part in.
struct alignas(kLine) Allocation {
  std::atomic<uint64_t> number{0};
  uint64_t bytes = 0;
  bool reserved = false;  ///< valid in the second step
};

struct alignas(2 * kLine) Control {
  Entry entries[2];                               ///< of calls with even and odd numbers
  alignas(kLine) std::atomic<uint64_t> phase{0};  ///< steps inside of calls
  Bed beds[kBeds];
  Allocation allocations[2];
  alignas(kLine) std::atomic<uint64_t> joined{0};
  int64_t process = 0;  ///< process id, in its own namespace
  int64_t started = 0;  ///< start time of the process, in ticks since the start of the host; 0: unknown
  uint64_t pid_namespace = 0;  ///< inode of the namespace of the process id; 0: unknown
  cpu_set_t cpus = {};
  char host[kHostBytes] = {};
  alignas(kLine) std::atomic<State> state{State::absent};
  int32_t lost_rank = -1;  ///< the lost rank because of which this one failed; negative if there was none
  char reason[240] = {};   ///< why it failed; valid from State::failed on
};

/// Messages from one rank to another.
struct alignas(2 * kLine) Channel {
  Entry sending, receiving;
  alignas(kLine) std::atomic<uint64_t> sent{0};   ///< parts that the sender has put into its buffers
  alignas(kLine) std::atomic<uint64_t> taken{0};  ///< parts that the receiver has copied out
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// Returns whether this process may make files of so many bytes. Beyond its limit the kernel would not only
/// refuse: it would send SIGXFSZ.
bool within_file_limit(uint64_t bytes);
/// Makes shared memory without a name that only this user may open (mode 0600); empty with errno if that
/// fails. Without the mode, whoever may look into /proc/PID/fd could open it.
Fd new_shared_memory(const char* label);

/// Reserves pages of a file in memory. Returns whether the kernel has them; otherwise errno says why not.
bool reserve_pages(int fd, uint64_t offset, uint64_t bytes);

class Region {
 public:
  /// Makes the memory for a group. Throws CommunicationError if the kernel refuses.
  static Fd create(int size);
  /// Maps the memory that create() has made. Throws ProtocolError if it was made for another group, and
  /// CommunicationError if the kernel refuses.
  Region(int fd, int size);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int size() const { return size_; }
  Control& control(int rank) const { return controls_[rank]; }
  Channel& channel(int from, int to) const { return channels_[from * size_ + to]; }
  /// The number of sleeping threads of all ranks; nobody needs to be woken while it is 0.
  std::atomic<uint32_t>& sleepers() const;

  /// Buffer `which` (0 or 1) of a rank. Each is aligned to a page.
  char* slot(int rank, uint64_t which) const { return data(rank) + (which & 1) * kSlotBytes; }
  char* stage(int rank, uint64_t which) const {
    return slot(rank, 0) + 2 * kSlotBytes + (which & 1) * kStageBytes;
  }
  /// Where stage() and result() are not used together: three buffers, the third is a result.
  char* staging(int rank, uint64_t which) const {
    return which % 3 == 2 ? result(rank, 0) : stage(rank, which % 3);
  }
  char* result(int rank, uint64_t which) const {
    return stage(rank, 0) + 2 * kStageBytes + (which & 1) * kStageBytes;
  }
  char* channel_buffer(int rank, uint64_t which) const {
    return result(rank, 0) + 2 * kStageBytes + (which & 1) * kChannelBytes;
  }

 private:
  char* data(int rank) const { return data_ + static_cast<size_t>(rank) * kRankBytes; }
  static constexpr size_t kRankBytes = 2 * (kSlotBytes + 2 * kStageBytes + kChannelBytes);

  int size_;
  size_t bytes_;
  char* base_ = nullptr;
  Control* controls_ = nullptr;
  Channel* channels_ = nullptr;
  char* data_ = nullptr;
};

}  // namespace mx::comm::shm
