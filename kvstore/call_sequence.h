// CallSequence: starts the collective calls of a store in one order on all ranks.
//
// All ranks must start the calls of a communicator in the same order. But a call is an operation of the
// engine, and operations become ready in another order on every rank. So each call takes a ticket when it is
// pushed. Programs make the same calls on all ranks, so the tickets are equal everywhere. A call that is
// ready waits for its turn.
//
// CallOrder::program starts the calls in the order of the tickets, without a word between the ranks:
//
//   pushed      0  1  2  3
//   ready       2  0  1  3      (rank 0)
//   started     -  0  1 2  3
//
// A call depends only on operations that were pushed before it, so the order cannot deadlock.
//
// Credit: a call starts when the bytes of the calls in flight leave room for it, or when none is in flight.
//
// CallOrder::priority lets a call of higher priority overtake calls that wait. Before each call, the ranks
// agree which one is next: a small allgather, whose records call_choice.h defines. One call at a time is in
// flight, so that the next one is chosen as late as possible. A call of several requests starts them one by
// one, each with a choice of its own, so a large value can be overtaken in its middle. Calls without a
// priority, such as barriers, are fences: they start in the order of the tickets, without a choice.
//
//   pushed      0  1  2  3           priorities 1, 1, 2, 3
//   ready       0  1 2 3             on all ranks, 1 to 3 while 0 is in flight
//   started     0        3  2  1
//
// The choice cannot deadlock. It is either a call that is ready on all ranks, or the first one in the order
// of the program, which becomes ready everywhere for the reason above. It would not be enough that a call is
// ready on one rank, even if that rank decides for all: another rank may wait for an earlier call before its
// program makes this one, because it prints a value, or because the engine limits what is pushed ahead. A
// rank takes part in a choice as soon as it has a ready call, and waits there for the others as it would in
// the call: until the time limit. The limit of a choice is that of the rank's first call in the order of the
// program, from the moment at which this call is ready. Before that, the rank waits for a value of its own.
//
// Errors. The first error of a call fails all later ones, because this rank and the others may no longer
// agree on what comes next. A call whose operation was skipped, because its value has failed, counts as an
// error. When its turn comes, this rank starts a barrier in its place, whose name contains the error. Ranks
// compare their calls before data moves, so the others do not wait: they get a ProtocolError that contains
// this rank, its host, the key and the error. After an error nothing is chosen any more: calls end in the
// order of the tickets.
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
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/deadline.h"
#include "engine/skip_cause.h"
#include "kvstore/call_choice.h"

namespace mx::detail {

/// In which order the calls of a sequence start; see above. All ranks must use the same.
enum class CallOrder : uint8_t { program, priority };

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

  /// A place in the order. Either start() or fail() is called, once, or the destructor reports the call as
  /// skipped.
  class Ticket {
   public:
    Ticket(std::shared_ptr<CallSequence> sequence, uint64_t number, int priority, std::string what)
        : sequence_(std::move(sequence)), number_(number), priority_(priority), what_(std::move(what)) {}
    Ticket(Ticket&& other) noexcept = default;
    ~Ticket() {
      if (sequence_ != nullptr) sequence_->skip(number_, priority_, what_, skip_cause());
    }
    /// Reports the call as skipped because of the error.
    void fail(const std::exception_ptr& error) {
      std::exchange(sequence_, nullptr)->skip(number_, priority_, what_, error);
    }
    /// Starts the call when its turn comes. Never blocks.
    void start(Call call) { std::exchange(sequence_, nullptr)->ready(number_, priority_, std::move(call)); }

   private:
    std::shared_ptr<CallSequence> sequence_;  // null after start() and fail()
    uint64_t number_;
    int priority_;
    std::string what_;
  };

  CallSequence(std::shared_ptr<comm::Communicator> group, int64_t bytes_in_flight,
               CallOrder order = CallOrder::program);

  comm::Communicator& group() const { return *group_; }
  /// Takes the next place. The caller holds the lock under which it also pushes the operation, so that the
  /// tickets are in the order of the operations. `what` names the call in errors. Without a priority, the
  /// call starts after all earlier and before all later ones in either order; all ranks must agree on that.
  Ticket take(std::string what, std::optional<int> priority = std::nullopt);

  /// Says what the calls in flight wait for, as the end of a message; empty if none is.
  std::string what_waits();

  /// Takes the next place, starts the call and blocks until it has ended. Throws its error.
  void run(const std::string& what, Call call);

 private:
  /// A ticket whose call is ready. In the order of priorities, each request is a part of its own.
  struct Waiting {
    Call next;
    std::vector<Call> later;  // the other parts, the last one first
    int priority;
  };

  void ready(uint64_t number, int priority, Call call);
  void skip(uint64_t number, int priority, const std::string& what, const std::exception_ptr& cause);
  bool chooses() const;
  std::optional<uint64_t> next_to_start() const;
  bool first_is_ready() const;
  int64_t first_limit_ms() const;
  int64_t limit_or_default_ms() const;
  std::optional<CallChoice> waiting_calls(int64_t& timeout_ms) const;
  void start_ready(std::unique_lock<std::mutex>& lock);
  Call take_part(uint64_t number);
  void start_choice(std::unique_lock<std::mutex>& lock, const CallChoice& own, int64_t timeout_ms);
  std::string name_others() const;
  void limit_choice();
  std::exception_ptr name_limit(const std::exception_ptr& error) const;
  void chose(std::optional<uint64_t> number, const std::exception_ptr& error);
  void start_one(Call call);
  void ended(size_t bytes, bool alone, const std::exception_ptr& error);

  const std::shared_ptr<comm::Communicator> group_;
  const size_t credit_;
  const CallOrder order_;
  std::mutex mutex_;
  std::map<uint64_t, Waiting> ready_;  // calls that wait for their turn
  uint64_t taken_ = 0, next_ = 0;      // tickets given out; the first ticket that has not been started
  std::set<uint64_t> overtook_;        // tickets behind next_ that have been started
  std::set<uint64_t> fences_;          // in the order of priorities: tickets that have not been started
  bool choosing_ = false;              // the ranks are agreeing on the next call
  /// The limit of an agreement that began before this rank's first call was ready; it is set when the call
  /// is. Null if no such agreement is under way.
  std::shared_ptr<comm::DeferredLimit> choice_limit_;
  std::optional<uint64_t> chosen_;  // the ticket on which they have agreed; it may not be ready yet
  size_t in_flight_ = 0, bytes_in_flight_ = 0;
  bool alone_ = false;     // a call that excludes others is in flight
  bool starting_ = false;  // a thread is in start_ready()
  std::exception_ptr failure_;
};

}  // namespace mx::detail
