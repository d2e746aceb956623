#include "comm/mpi/mpi_communicator.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include "comm/check_rank.h"
#include "comm/mpi/mpi_group.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {

// The calls that have not ended. Shared with their callbacks, of which one may destroy the communicator.
class MpiCommunicator::Calls {
 public:
  void begin() {
    std::lock_guard lock(mutex_);
    ++running_;
  }
  void end(std::function<void(std::exception_ptr)> done, std::exception_ptr error) {
    ++callbacks_of_thread_;
    if (done) done(std::move(error));
    done = nullptr;  // may hold the last reference to the communicator
    --callbacks_of_thread_;
    std::lock_guard lock(mutex_);
    if (--running_ == 0) ended_.notify_all();
  }
  // A callback cannot wait for its own end.
  void wait_unless_in_callback() {
    if (callbacks_of_thread_ > 0) return;
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  static thread_local int callbacks_of_thread_;  // of all communicators
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t running_ = 0;
};

thread_local int MpiCommunicator::Calls::callbacks_of_thread_ = 0;

MpiCommunicator::MpiCommunicator(int64_t timeout_ms)
    : thread_(MpiThread::get(timeout_ms)), timeout_ms_(timeout_ms), calls_(std::make_shared<Calls>()) {
  // Shared, because the job goes on after its deadline, and this object does not exist then.
  const auto made = std::make_shared<std::shared_ptr<MpiGroup>>();
  thread_.run(
      [made, &thread = thread_] {
        *made = MpiGroup::make();
        thread.on_failure(MpiGroup::fail);
      },
      timeout_ms, "the making of a group");
  group_ = std::move(*made);
}

MpiCommunicator::~MpiCommunicator() {
  if (!process_.is_here()) return;  // the thread is in the parent, and so is the group
  // Runs after the calls that are queued. All processes destroy their groups in the same order. It is waited
  // for, too: the program may finalise MPI next.
  calls_->begin();
  thread_.add({[group = group_] { group->leave(); },
               [calls = calls_](std::exception_ptr error) { calls->end(nullptr, std::move(error)); },
               timeout_ms_, "the end of a group"});
  calls_->wait_unless_in_callback();
}

void MpiCommunicator::check_process(const char* op) const {
  MX_CHECK(process_.is_here(), InvalidState, "[", op,
           "] expected the process that made the communicator, got a child that it forked");
}

const std::string& MpiCommunicator::type() const {
  static const std::string name = "mpi";
  return name;
}

int MpiCommunicator::rank() const { return group_->rank(); }
int MpiCommunicator::size() const { return group_->size(); }

std::string MpiCommunicator::host(int rank) const {
  check_rank("host", rank, size());
  return group_->hosts()[static_cast<size_t>(rank)];
}

void MpiCommunicator::abort(std::exception_ptr reason) {
  check_process("abort");
  thread_.abort(std::move(reason));
}

std::exception_ptr MpiCommunicator::failure() const {
  try {
    check_process("failure");  // another thread may have held the mutex of the thread at the fork
  } catch (...) {
    return std::current_exception();
  }
  return thread_.failure();
}

std::shared_ptr<void> MpiCommunicator::allocate(size_t bytes) {
  check_process("allocate");
  return Communicator::allocate(bytes);
}

void MpiCommunicator::start(Request request) {
  check_process(to_string(request.collective));
  check_request(request, rank(), size());
  const int64_t limit = request.options.timeout_ms > 0 ? request.options.timeout_ms : timeout_ms_;
  auto done = std::exchange(request.done, nullptr);
  calls_->begin();
  group_->call_begins();
  std::string what = describe(request);
  auto deferred_limit = request.deferred_limit;
  thread_.add({[&thread = thread_, group = group_, request = std::move(request)] {
                 try {
                   group->execute(request);
                 } catch (...) {
                   // Messages of the failed call may be left in the group, so no other call may follow. The
                   // others are told first, because this process may end when it learns of the error.
                   const std::exception_ptr error = std::current_exception();
                   MpiGroup::fail(current_exception_text());
                   thread.abort(error);
                   throw;
                 }
               },
               [calls = calls_, group = group_, done = std::move(done)](std::exception_ptr error) mutable {
                 group->call_ended();
                 calls->end(std::move(done), std::move(error));
               },
               limit, std::move(what), "", std::move(deferred_limit)});
}

}  // namespace mx::comm
