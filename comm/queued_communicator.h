// QueuedCommunicator: the base of communicators whose calls block. It runs them one after the other.
//
// A derived class writes execute(), which does one call and blocks, and interrupt(), which makes a blocked
// execute() throw. This class queues the calls, runs them in the order in which they were started, and
// remembers the first error.
//
//   class MyCommunicator final : public QueuedCommunicator {
//    public:
//     ~MyCommunicator() override { finish_calls(); }   // first: the calls use members of this class
//     ...
//    protected:
//     void execute(const Request& request, Deadline deadline) override { ... }
//     void interrupt(std::exception_ptr reason) override { ... }
//   };
//
// Threads. One thread, "mx-comm", runs the calls. It starts with the first call and sleeps while there is
// none. A blocking call, run(), is executed by the calling thread itself if no other call is running or
// queued, which saves two changes of thread.
//
// Time. The deadline of a call is counted from the moment at which it begins to run, not from its place in
// the queue.
//
// Errors. The first error of a call, or the first reason of abort(), makes the communicator unusable: calls
// that are queued or started later fail with the same exception object. An InvalidArgument that start() or
// run() throws for a wrong request is no such error. An error of allocate() is one, because the ranks make
// allocations together, except OutOfMemory, which concerns this rank only.
//
// Forks. A child that the process forks has no thread for the calls, and it shares memory and connections
// with the parent. So calls, abort() and allocate() throw InvalidState there, which failure() returns, and
// the child may destroy its copy of the communicator without harm to the parent.
//
// Thread-safety: any thread may call any public function. execute() is called by one thread at a time, not
// always by the same one.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

#include "comm/communicator.h"
#include "comm/deadline.h"
#include "engine/base/process_mark.h"

namespace mx::comm {

class QueuedCommunicator : public Communicator {
 public:
  ~QueuedCommunicator() override;

  void start(Request request) final;
  void run(Request request) final;
  void abort(std::exception_ptr reason) final;
  std::exception_ptr failure() const final;
  void leave_at_exit(std::exception_ptr reason) noexcept final;
  std::shared_ptr<void> allocate(size_t bytes) final;

 protected:
  QueuedCommunicator();

  /// Does one call, which has been checked with check_request(). Throws if it fails. After that no buffer of
  /// the request may be touched, not even by other ranks, except an output in memory of allocate().
  virtual void execute(const Request& request, Deadline deadline) = 0;
  /// Called once, by abort(). Makes the running execute(), and a later one, throw `reason` soon. Any
  /// thread, while execute() may run. Must not block for long.
  virtual void interrupt(std::exception_ptr reason) = 0;
  /// Tells the other ranks that this one makes no more calls. Called once, by leave_at_exit(): execute() does
  /// not run and will not be called again.
  virtual void disconnect() noexcept {}
  /// Does one allocate(), in the process that made the communicator. The default is plain memory. After it
  /// has thrown something else than OutOfMemory, the communicator is unusable.
  virtual std::shared_ptr<void> allocate_here(size_t bytes) { return Communicator::allocate(bytes); }
  /// Checks that belong to one kind of communicator. Called by start() and run() after check_request(); what
  /// it throws is thrown to the caller.
  virtual void check(const Request&) const {}

  /// False in a child that the process has forked since the communicator was made.
  bool in_own_process() const { return process_.is_here(); }

  /// Waits until all queued calls have run, each until its deadline at most, and ends the thread. To end
  /// them early, call abort() before. The destructor of every final class calls it first, because afterwards
  /// execute() cannot run any more. Later calls throw InvalidState. May be called twice, and by a callback.
  void finish_calls() noexcept;

 private:
  struct Queue;

  void check_process(const char* op) const;
  void check_call(const Request& request) const;
  // Executes a call and returns its error, which is that of the communicator.
  std::exception_ptr execute_call(const Request& request);
  std::exception_ptr fail(std::exception_ptr error);
  // Runs queued calls until none is left. Precondition: the caller has set Queue::busy.
  void run_queued(Queue& queue);
  static void thread_main(QueuedCommunicator* communicator, std::shared_ptr<Queue> queue);

  const ProcessMark process_;
  // Shared with the thread, which may outlive the communicator by a moment if a callback destroys it.
  const std::shared_ptr<Queue> queue_;
};

}  // namespace mx::comm
