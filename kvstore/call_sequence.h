// CallSequence: starts the collective calls of a store in the order in which the program made them.
//
// All ranks must start the calls of a communicator in the same order. But a call is an operation of the
// engine, and operations become ready in another order on every rank. So each call takes a ticket when it is
// pushed. Programs make the same calls on all ranks, so the tickets are equal everywhere. A call that is
// ready waits for its turn:
//
//   pushed      0  1  2  3
//   ready       2  0  1  3      (rank 0)
//   started     -  0  1 2  3
//
// A call depends only on operations that were pushed before it, so the order cannot deadlock.
//
// Credit: a call starts when the bytes of the calls in flight leave room for it, or when none is in flight.
//
// Errors. The first error of a call fails all later ones, because this rank and the others may no longer
// agree on what comes next. A call whose operation was skipped, because its value has failed, counts as an
// error. When its turn comes, this rank starts a barrier in its place, whose name contains the error. Ranks
// compare their calls before data moves, so the others do not wait: they get a ProtocolError that contains
// this rank, its host, the key and the error.
//
// Thread-safety: any thread may call any function. Callbacks run on a thread of the communicator or on the
// thread that made a call ready.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace mx::detail {

class CallSequence : public std::enable_shared_from_this<CallSequence> {
 public:
  using Done = std::function<void(std::exception_ptr)>;

  /// What a ticket starts.
  struct Call {
    std::vector<comm::Request> requests{};  ///< started together; their `done` is set by the sequence
    /// Instead of the requests: starts calls of its own, one after the other, and calls `done` at the end.
    /// No other call runs meanwhile.
    std::function<void(comm::Communicator&, Done done)> start{};
    size_t bytes = 0;
    /// Called after a call that has succeeded. Returns an error of this operation alone: the calls that
    /// follow go on.
    std::function<std::exception_ptr()> verdict{};
    Done done{};
  };

  /// A place in the order. Either start() is called, once, or the destructor reports the call as skipped.
  class Ticket {
   public:
    Ticket(std::shared_ptr<CallSequence> sequence, uint64_t number, std::string what)
        : sequence_(std::move(sequence)), number_(number), what_(std::move(what)) {}
    Ticket(Ticket&& other) noexcept = default;
    ~Ticket() {
      if (sequence_ != nullptr) sequence_->skip(number_, what_);
    }
    /// Starts the call when its turn comes. Never blocks.
    void start(Call call) { std::exchange(sequence_, nullptr)->ready(number_, std::move(call)); }

   private:
    std::shared_ptr<CallSequence> sequence_;  // null after start()
    uint64_t number_;
    std::string what_;
  };

  CallSequence(std::shared_ptr<comm::Communicator> group, int64_t bytes_in_flight)
      : group_(std::move(group)), credit_(bytes_in_flight > 0 ? static_cast<size_t>(bytes_in_flight) : 0) {}

  comm::Communicator& group() const { return *group_; }
  /// Takes the next place. The caller holds the lock under which it also pushes the operation, so that the
  /// tickets are in the order of the operations. `what` names the call in errors.
  Ticket take(std::string what);

  /// Takes the next place, starts the call and blocks until it has ended. Throws its error.
  void run(const std::string& what, Call call);
  /// Blocks until all calls whose tickets have been taken have ended. Ignores their errors.
  void drain();

 private:
  void ready(uint64_t number, Call call);
  void skip(uint64_t number, const std::string& what);
  void start_ready(std::unique_lock<std::mutex>& lock);
  void start_one(Call call);
  void ended(size_t bytes, bool alone, const std::exception_ptr& error);

  const std::shared_ptr<comm::Communicator> group_;
  const size_t credit_;
  std::mutex mutex_;
  std::map<uint64_t, Call> ready_;  // calls that wait for their turn
  uint64_t taken_ = 0, next_ = 0;   // tickets given out; the next ticket to start
  size_t in_flight_ = 0, bytes_in_flight_ = 0;
  bool alone_ = false;     // a call that excludes others is in flight
  bool starting_ = false;  // a thread is in start_ready()
  std::exception_ptr failure_;
};

}  // namespace mx::detail
