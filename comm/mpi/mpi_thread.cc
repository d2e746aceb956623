#include "comm/mpi/mpi_thread.h"

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"

namespace mx::comm {

namespace {

// How long a job that looks for failures may take to end after one.
constexpr int64_t kEndsWithinMs = 1000;
// How long a job that looks at its deadline may take to find out which processes have not come.
constexpr std::chrono::milliseconds kLooksWithin{1500};
// How long MPI_Init_thread itself may take on a busy machine, when all processes have come.
constexpr int64_t kInitialisesWithinMs = 10000;

std::atomic<MpiThread*> used_thread{nullptr};

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  int error_class = MPI_ERR_OTHER;
  MPI_Error_class(code, &error_class);
  MPI_Error_string(code, text, &length);
  const std::string message = mx::detail::concat(
      "[mpi] expected ", call, " to succeed, got: ", std::string(text, static_cast<size_t>(length)));
  if (error_class == MPI_ERR_TRUNCATE)
    throw ProtocolError(message + "; another process makes a different call");
  throw CommunicationError(message);
}

bool mpi_finalised() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return finalised != 0;
}

MpiThread& MpiThread::get(int64_t timeout_ms) {
  // Never destroyed: the thread may be blocked in MPI when the process ends.
  static MpiThread& thread = *new MpiThread;
  // Not in the constructor: if it fails, the threads still use the object.
  static std::once_flag once;
  MX_CHECK(thread.process_.is_here(), InvalidState,
           "[mpi] expected the process that uses MPI, got a child that it forked");
  std::call_once(once, [timeout_ms] {
    thread.run([] { thread.initialise(); }, timeout_ms + kInitialisesWithinMs, "MPI_Init_thread",
               mx::detail::concat("within the time limit of ", timeout_ms, " ms and ", kInitialisesWithinMs,
                                  " ms for MPI itself; it waits for all processes that mpirun has started, "
                                  "and at least one has not called it: has one ended, or does it not make "
                                  "the group or the store?"));
    used_thread.store(&thread);
  });
  return thread;
}

MpiThread& MpiThread::get() {
  MpiThread* const thread = used_thread.load();
  MX_CHECK(thread != nullptr && thread->process_.is_here(), InvalidState,
           "[mpi] expected a process that has started MPI, got one that has not");
  return *thread;
}

MpiThread* MpiThread::if_used() { return used_thread.load(); }

MpiThread::MpiThread() {
  start_thread("MPI", [this] { serve(); }).detach();
  start_thread("MPI", [this] { watch(); }).detach();
}

void MpiThread::initialise() {
  int there = 0;
  MX_CHECK(!mpi_finalised(), InvalidState, "[mpi] expected MPI to be usable, but it has been finalised");
  MPI_Initialized(&there);
  int level = MPI_THREAD_SINGLE;
  if (there) {
    MPI_Query_thread(&level);
    MX_CHECK(level >= MPI_THREAD_SERIALIZED, InvalidState,
             "[mpi] expected the program to have called MPI_Init_thread with MPI_THREAD_SERIALIZED or more, "
             "because a thread of mx makes the calls; got a lower level");
    return;
  }
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  own_ = true;
}

void MpiThread::add(Job job) {
  std::exception_ptr error;
  {
    std::lock_guard lock(mutex_);
    error = failure_;
    if (!error && closing_)
      error = std::make_exception_ptr(InvalidState("[mpi] the process is ending; MPI has been finalised"));
    if (!error) {
      jobs_.push_back(std::move(job));
      changed_.notify_all();
      return;
    }
  }
  job.done(error);
}

void MpiThread::run(std::function<void()> function, int64_t limit_ms, const std::string& what,
                    const std::string& cause) {
  struct Result {
    std::mutex mutex;
    std::condition_variable ended;
    bool over = false;
    std::exception_ptr error;
  };
  // Shared, because the job may stay behind.
  auto result = std::make_shared<Result>();
  add({std::move(function),
       [result](std::exception_ptr error) {
         std::lock_guard lock(result->mutex);
         result->error = std::move(error);
         result->over = true;
         result->ended.notify_one();
       },
       limit_ms, what, cause});
  std::unique_lock lock(result->mutex);
  result->ended.wait(lock, [&] { return result->over; });
  if (result->error) std::rethrow_exception(result->error);
}

void MpiThread::serve() {
  prefer_quick_wakeup();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !jobs_.empty() || closing_ || failure_; });
    if (failure_) {
      const std::exception_ptr reason = failure_;
      lock.unlock();
      tell_failure(reason);
      lock.lock();
      break;
    }
    if (jobs_.empty()) {  // closing
      lock.unlock();
      if (!mpi_finalised()) MPI_Finalize();
      lock.lock();
      break;
    }
    current_ = std::move(jobs_.front());
    jobs_.pop_front();
    current_.deadline = Deadline::after_ms(current_.limit_ms);
    if (current_.deferred_limit) current_.deadline = current_.deadline.or_after(*current_.deferred_limit);
    running_ = true;
    lock.unlock();
    run_current();
    lock.lock();
  }
  closed_ = true;
  changed_.notify_all();
}

void MpiThread::on_failure(std::function<void(const std::string& reason)> function) {
  std::lock_guard lock(mutex_);
  on_failure_ = std::move(function);
}

void MpiThread::tell_failure(const std::exception_ptr& reason) {
  std::function<void(const std::string&)> tell;
  {
    std::lock_guard lock(mutex_);
    tell = std::exchange(on_failure_, nullptr);
  }
  if (!tell) return;
  try {
    std::rethrow_exception(reason);
  } catch (...) {
    tell(current_exception_text());
  }
}

// Runs current_. Its functions may hold the last reference to a communicator, whose destructor adds a job, so
// they must be destroyed while the mutex is free.
void MpiThread::run_current() {
  std::exception_ptr error;
  {
    const std::function<void()> function = std::move(current_.run);  // only this thread uses `run`
    try {
      function();
    } catch (...) {
      error = std::current_exception();
    }
  }
  std::function<void(std::exception_ptr)> done;
  {
    std::lock_guard lock(mutex_);
    running_ = false;
    done = std::exchange(current_.done, nullptr);
    if (failure_) error = failure_;
  }
  if (done) done(std::move(error));
}

// Fails the running job when it misses its deadline. After a failure, reports it if it does not end. Polls,
// so that jobs pay nothing for it.
void MpiThread::watch() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (failure_ && !running_) return;  // no other job begins
    if (failure_ && ends_until_.passed()) {
      const auto done = std::exchange(current_.done, nullptr);
      const std::exception_ptr reason = failure_;
      lock.unlock();
      if (done) done(reason);
      return;
    }
    if (!failure_ && !running_ && jobs_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (!failure_ && running_ && Deadline(current_.deadline.at() + kLooksWithin).passed()) {
      auto reason = std::make_exception_ptr(
          Timeout(mx::detail::concat("[mpi] ", current_.what, " did not end ",
                                     current_.cause.empty() ? "in time; another process is lost, "
                                                              "stuck, or makes other calls"
                                                            : current_.cause)));
      lock.unlock();
      abort(std::move(reason));
    } else {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    lock.lock();
  }
}

void MpiThread::abort(std::exception_ptr reason) {
  MX_CHECK(reason != nullptr, InvalidArgument, "[abort] expected a reason, got a null pointer");
  std::deque<Job> jobs;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = reason;
    failed_ = true;
    ends_until_ = Deadline::after_ms(kEndsWithinMs);
    jobs.swap(jobs_);
    changed_.notify_all();
  }
  for (Job& job : jobs) job.done(reason);
}

std::exception_ptr MpiThread::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

// After a failure MPI is not finalised: that would wait for the other processes. But the thread has a moment
// to tell them.
void MpiThread::finalise(bool after_failure) {
  std::unique_lock lock(mutex_);
  if (!own_) return;
  closing_ = true;
  changed_.notify_all();
  const auto ended = [&] { return closed_ || failure_; };
  if (after_failure)
    changed_.wait_for(lock, std::chrono::seconds(30), ended);
  else
    changed_.wait(lock, ended);
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return closed_; });
}

}  // namespace mx::comm
