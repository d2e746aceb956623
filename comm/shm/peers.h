// Peers: how a rank announces its progress to the other ranks of the host, waits for theirs, and learns that
// one of them is lost. Internal.
//
// A waiting thread polls for some microseconds, then yields its processor between polls, and at last sleeps.
// If the ranks outnumber the processors that they may use, it yields at once. A sleeping thread wakes 20
// times a second to see whether a process that it waits for has ended; that costs well below 1% of a
// processor. A rank counts as ended only if that is certain: a process that cannot find out, for instance
// because it has no descriptor left, goes on waiting. Ranks in other PID namespaces cannot be watched at all;
// their losses come through the rendezvous, which calls interrupt().
//
// Thread-safety: one thread for calls and one for allocations (see `bed`), except interrupt() and leave(),
// which any thread may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/deadline.h"
#include "comm/shm/region.h"
#include "engine/base/process_mark.h"

namespace mx::comm::shm {

/// The counters of another rank for which a thread can wait.
enum class Counter : uint8_t {
  joined,
  entry,  ///< the call with this number has begun
  phase,  ///< steps inside of calls
  allocation,
  sending,    ///< of the channel from that rank to this one
  receiving,  ///< of the channel from this rank to that one
  sent,       ///< of the channel from that rank to this one
  taken,      ///< of the channel from this rank to that one
};

/// What a thread waits in, for its errors, and until when.
struct Context {
  const char* op = "";               ///< "allreduce", ...
  const Request* request = nullptr;  ///< the call; null if it is none
  Deadline deadline;
  int bed = 0;  ///< 0: calls, 1: allocations
};

/// Functions that are called with the rank that an error will name, before it is thrown; may be empty.
struct Notices {
  std::function<void(int rank)> loss = {};     ///< before PeerLost
  std::function<void(int rank)> timeout = {};  ///< before Timeout
  /// Instead of `loss`, if the rank has left the group after an abort: perhaps because another one is lost.
  /// Returns what is known of that; empty: nothing.
  std::function<std::string(int rank)> explain = {};
  /// Now and then while the ranks wait for each other in join(). What it throws ends the wait.
  std::function<void()> check = {};
  /// Before each step of a call, for tests: ranks then meet in ever different orders.
  std::function<void()> pause = {};
};

class Peers {
 public:
  /// Called when a wait takes long, and then 20 times a second. What it throws ends the wait.
  using LongWait = std::function<void(int peer, Counter counter, const Context& context)>;

  /// Neither the region nor the ranks are accessed before join().
  Peers(Region& region, int rank, Notices notices = {}, LongWait long_wait = {});
  ~Peers();

  /// Announces this rank and waits for all others. Throws Timeout, which names the ranks that have not come.
  void join(const std::string& host, Deadline deadline);

  /// Stores a counter of this rank and wakes the threads that wait for this rank.
  void publish(std::atomic<uint64_t>& counter, uint64_t value) {
    if (notices_.pause) [[unlikely]]
      notices_.pause();
    // Sequentially consistent, like the announcement of a sleeper: either this thread sees the sleeper, or
    // the sleeper sees the value.
    counter.store(value, std::memory_order_seq_cst);
    if (region_.sleepers().load(std::memory_order_seq_cst) != 0) wake();
  }

  /// Waits until a counter of rank `peer` is at least `target`. Throws PeerLost, Timeout or the reason of
  /// interrupt().
  void wait(int peer, Counter counter, uint64_t target, const Context& context) {
    if (notices_.pause) [[unlikely]]
      notices_.pause();
    if (value(peer, counter, target).load(std::memory_order_acquire) < target)
      wait_long(peer, counter, target, context);
  }
  /// Waits for all other ranks.
  void wait_all(Counter counter, uint64_t target, const Context& context) {
    for (int peer = 0; peer < region_.size(); ++peer)
      if (peer != rank_) wait(peer, counter, target, context);
  }

  /// Makes the running and every later wait throw `reason`.
  void interrupt(std::exception_ptr reason);
  bool interrupted() const { return interrupted_.load(std::memory_order_acquire); }
  /// Marks this rank as gone, so that ranks that wait for it throw PeerLost. An empty reason means that it
  /// left in peace. `lost_rank` is the rank because of which it failed, or -1. Only the first call counts.
  void leave(const std::string& reason, int lost_rank) noexcept;
  /// Marks this rank as gone, as the destructor does: in peace, or because of the reason of interrupt().
  void leave_by_itself() noexcept;

  /// "rank 2 on host a (process 123)"
  std::string name(int peer) const;
  /// The rank that a PeerLost of this object named last; -1 if there is none.
  int lost_rank() const { return lost_rank_.load(); }

 private:
  std::atomic<uint64_t>& value(int peer, Counter counter, uint64_t target) const;
  void wait_long(int peer, Counter counter, uint64_t target, const Context& context);
  // One nap in the bed, until the peer's counter changes or 50 ms have passed.
  void sleep(int peer, Counter counter, uint64_t target, const Context& context);
  void wake();
  void check_interrupt();
  // Throws PeerLost if a rank that has not reached the target has ended or left.
  void check_lost(int peer, Counter counter, uint64_t target, const Context& context);
  [[noreturn]] void throw_timeout(int peer, Counter counter, uint64_t target, const Context& context) const;
  // Whether the process of a rank has certainly ended.
  bool ended(int peer) const;
  // Whether process ids mean the same to this process and to that of the rank.
  bool shares_process_ids(int peer) const;

  const ProcessMark process_;  // a forked child must not leave the group in the name of its parent
  Region& region_;
  const int rank_;
  const Notices notices_;
  const LongWait long_wait_;
  std::vector<Fd> processes_;  // pidfds; empty ones where the kernel has none
  bool crowded_ = true;
  std::atomic<bool> interrupted_{false}, left_{false};
  std::atomic<int> lost_rank_{-1};
  std::mutex mutex_;
  std::exception_ptr reason_;  // guarded by the mutex
};

}  // namespace mx::comm::shm
