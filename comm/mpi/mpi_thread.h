// The one thread of the process that calls MPI. Internal to the module.
//
// MPI is initialised, used and finalised by this thread alone, so every thread level of MPI is enough. The
// calls of all groups run here one after the other.
//
// The time of a job begins when the thread begins with it, not when it is queued.
//
// A job that waits looks at its deadline itself, because it knows what it waits for. One that is blocked in
// MPI cannot; the class aborts it a little after its deadline.
//
// When a job misses its deadline, or a group is aborted, the queued jobs are reported as failed at once. From
// then on every call of every group fails, and the process ends without finalising MPI. A job that waits
// calls check_failure() now and then, so that it ends. It is reported as failed when it has ended, because
// until then it uses the buffers of its caller. A blocking call of MPI cannot be interrupted: a job that is
// still in one after a second is reported as failed, too, and stays behind.
//
// Thread-safety: any thread may call any function. In a child that the process forks, which lacks the thread,
// only failure() may be called; get() and run() throw InvalidState there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "comm/deadline.h"
#include "engine/base/process_mark.h"

namespace mx::comm {

class MpiThread {
 public:
  struct Job {
    std::function<void()> run;                     ///< called on the thread; may throw
    std::function<void(std::exception_ptr)> done;  ///< called exactly once, on some thread
    int64_t limit_ms = 0;                          ///< counted from the moment at which it begins
    std::string what;                              ///< names the job in the message of a missed deadline
    std::string cause{};                           ///< the end of that message; empty: a general one
    std::shared_ptr<const DeferredLimit> deferred_limit{};  ///< a second limit; may be null
    Deadline deadline = Deadline::after_ms(0);              ///< set when the job begins
  };

  /// Returns the thread of the process. The first call starts it and initialises MPI, unless the program has
  /// done so. MPI may wait there for the other processes: throws Timeout if they do not come within
  /// `timeout_ms` and the time that MPI itself may need, and CommunicationError if MPI fails.
  static MpiThread& get(int64_t timeout_ms);
  /// Returns the thread, which a call of the function above has started.
  static MpiThread& get();
  /// Returns the thread if get() has succeeded, else null.
  static MpiThread* if_used();

  void add(Job job);
  /// Runs the jobs that are queued, finalises MPI if this thread initialised it, and ends the thread. Later
  /// jobs fail. Waits for that. MPI waits for all processes, which may still work, so the wait has no limit:
  /// if a process is lost meanwhile, mpirun or srun ends the job. With `after_failure` (of the job, over
  /// another transport perhaps) it waits 30 s: a process may be stuck. After a failure here it waits a
  /// second.
  void finalise(bool after_failure);
  /// Runs the function on the thread and waits for it. Throws its error.
  void run(std::function<void()> function, int64_t limit_ms, const std::string& what,
           const std::string& cause = "");
  /// Fails the running job and all others, now and later. The first reason counts. Does not wait.
  void abort(std::exception_ptr reason);
  std::exception_ptr failure() const;
  /// Throws the reason of abort().
  void check_failure() const {
    if (failed_.load(std::memory_order_relaxed)) std::rethrow_exception(failure());
  }
  /// Returns whether finalise() has been called: no more jobs are taken.
  bool is_closing() const { return closing_.load(std::memory_order_relaxed); }
  /// Returns whether the running job has missed its deadline. Only for that job, on this thread.
  bool job_is_late() const { return current_.deadline.passed(); }
  /// Sets a function that the thread calls with the text of the reason, once after abort(). Before that, the
  /// running job ends.
  void on_failure(std::function<void(const std::string& reason)> function);

 private:
  MpiThread();
  void initialise();
  void serve();
  void run_current();
  void watch();
  void tell_failure(const std::exception_ptr& reason);

  const ProcessMark process_;
  std::atomic<bool> failed_{false};  // failure_ is set
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool running_ = false;  // the thread is in current_.run
  Job current_;           // its `done` is empty once it has been called
  std::exception_ptr failure_;
  Deadline ends_until_ = Deadline::after_ms(0);  // after a failure: how long the running job has to end
  std::function<void(const std::string&)> on_failure_;
  std::atomic<bool> closing_{false};  // the process is ending: no more jobs
  bool closed_ = false;               // the thread has ended
  bool own_ = false;                  // this thread initialised MPI
};

/// Returns whether MPI has been finalised, by the program itself perhaps. Any call of MPI would then end the
/// process.
bool mpi_finalised();

/// Throws CommunicationError with MPI's text if `code` is not MPI_SUCCESS, and ProtocolError if a message was
/// longer than expected, which happens when processes make different calls.
void check_mpi(int code, const char* call);

}  // namespace mx::comm
