// The one thread of the process that calls MPI. Internal to the module.
//
// MPI is initialised, used and finalised by this thread alone, so every thread level of MPI is enough. The
// calls of all groups run here one after the other.
//
// A blocking MPI call cannot be interrupted. When a call misses its deadline, or a group is aborted, the call
// is reported as failed at once, and the thread stays behind in it: from then on every call of every group
// fails, and the process ends without finalising MPI.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

#include "comm/deadline.h"

namespace mx::comm {

class MpiThread {
 public:
  struct Job {
    std::function<void()> run;                     ///< called on the thread; may throw
    std::function<void(std::exception_ptr)> done;  ///< called exactly once, on some thread
    Deadline deadline = Deadline::after_ms(0);
    std::string what;  ///< names the job in the message of a missed deadline
  };

  /// Returns the thread of the process. The first call starts it and initialises MPI, unless the program has
  /// done so. Throws CommunicationError if that fails.
  static MpiThread& get();

  void add(Job job);
  /// Runs the jobs that are queued, finalises MPI if this thread initialised it, and ends the thread. Waits
  /// for that, 30 s at most. Later jobs fail.
  void finalise();
  /// Runs the function on the thread and waits for it. Throws its error.
  void run(std::function<void()> function, Deadline deadline, const std::string& what);
  /// Fails the running job and all others, now and later. The first reason counts.
  void abort(std::exception_ptr reason);
  std::exception_ptr failure() const;

 private:
  MpiThread();
  void initialise();
  void serve();
  void run_current();
  void watch();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool running_ = false;  // the thread is in current_.run
  Job current_;           // its `done` is empty once it has been called
  std::exception_ptr failure_;
  bool closing_ = false;  // the process is ending: no more jobs
  bool closed_ = false;   // the thread has ended
  bool own_ = false;      // this thread initialised MPI
};

/// Returns whether MPI has been finalised, by the program itself perhaps. Any call of MPI would then end the
/// process.
bool mpi_finalised();

/// Throws CommunicationError with MPI's text if `code` is not MPI_SUCCESS, and ProtocolError if a message was
/// longer than expected, which happens when processes make different calls.
void check_mpi(int code, const char* call);

}  // namespace mx::comm
