#include "comm/queued_communicator.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/threads.h"

namespace mx::comm {

namespace {

// How long the end of the process waits for the end of a call that has been interrupted.
constexpr std::chrono::seconds kLeavesWithin{1};

}  // namespace

struct QueuedCommunicator::Queue {
  mutable std::mutex mutex;
  std::condition_variable changed;
  // All guarded by the mutex. The calls are calls[first] and those behind it; the vector keeps its memory.
  std::vector<Request> calls;
  size_t first = 0;
  bool busy = false;     // a thread is executing calls
  bool stopped = false;  // no more calls are taken
  bool leaving = false;  // leave_at_exit() waits for the end of the running call
  std::exception_ptr failure;
  std::thread thread;

  bool empty() const { return first == calls.size(); }
  void push(Request request) {
    if (first > 0 && calls.size() == calls.capacity()) {
      calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(first));
      first = 0;
    }
    calls.push_back(std::move(request));
  }
  Request pop() {
    Request request = std::move(calls[first++]);
    if (empty()) {
      calls.clear();
      first = 0;
    }
    return request;
  }
};

QueuedCommunicator::QueuedCommunicator() : queue_(std::make_shared<Queue>()) {}

QueuedCommunicator::~QueuedCommunicator() { finish_calls(); }

void QueuedCommunicator::check_process(const char* op) const {
  MX_CHECK(process_.is_here(), InvalidState, "[", op,
           "] expected the process that made the communicator, got a child that it forked");
}

void QueuedCommunicator::check_call(const Request& request) const {
  MX_CHECK(process_.is_here(), InvalidState, "[", to_string(request.collective),
           "] expected the process that made the communicator, got a child that it forked, for ",
           describe(request));
  check_request(request, rank(), size());
  check(request);
}

void QueuedCommunicator::start(Request request) {
  check_call(request);
  MX_CHECK(request.done != nullptr, InvalidArgument, "[start] expected a callback for ", describe(request),
           ", got none");
  std::lock_guard lock(queue_->mutex);
  MX_CHECK(!queue_->stopped, InvalidState, "[", to_string(request.collective),
           "] expected a living communicator, ", "got one that is being destroyed, for ", describe(request));
  if (!queue_->thread.joinable())
    queue_->thread = start_thread("comm", [this, queue = queue_] { thread_main(this, queue); });
  queue_->push(std::move(request));
  if (!queue_->busy) queue_->changed.notify_all();
}

void QueuedCommunicator::run(Request request) {
  check_call(request);
  {
    std::unique_lock lock(queue_->mutex);
    MX_CHECK(!queue_->stopped, InvalidState, "[", to_string(request.collective),
             "] expected a living communicator, got one that is being destroyed, for ", describe(request));
    if (queue_->busy || !queue_->empty()) {
      lock.unlock();
      return Communicator::run(std::move(request));
    }
    if (queue_->failure) std::rethrow_exception(queue_->failure);
    queue_->busy = true;
  }
  const std::exception_ptr error = execute_call(request);
  {
    std::lock_guard lock(queue_->mutex);
    queue_->busy = false;
    // Calls that were started meanwhile belong to the thread. finish_calls() and leave_at_exit() wait for the
    // end of this one.
    if (!queue_->empty() || queue_->stopped || queue_->leaving) queue_->changed.notify_all();
  }
  if (error) std::rethrow_exception(error);
}

void QueuedCommunicator::abort(std::exception_ptr reason) {
  MX_CHECK(reason != nullptr, InvalidArgument, "[abort] expected a reason, got a null pointer");
  check_process("abort");  // it would end the parent's calls, where the ranks share memory
  {
    std::lock_guard lock(queue_->mutex);
    if (queue_->failure) return;
    queue_->failure = reason;
  }
  interrupt(std::move(reason));
}

void QueuedCommunicator::leave_at_exit(std::exception_ptr reason) noexcept try {
  if (!process_.is_here()) return;
  {
    std::unique_lock lock(queue_->mutex);
    if (std::exchange(queue_->leaving, true)) return;
    if (!queue_->failure) {
      queue_->failure = reason;
      const bool busy = queue_->busy;
      lock.unlock();
      if (busy) interrupt(std::move(reason));
      lock.lock();
    }
    // A callback may have ended the process: then its own call does not end.
    if (!queue_->changed.wait_for(lock, kLeavesWithin, [this] { return !queue_->busy; })) return;
  }
  disconnect();
} catch (...) {
  // The others learn of the end of the process.
}

// The ranks that share memory count their allocations there, so a child would take the place of its parent.
std::shared_ptr<void> QueuedCommunicator::allocate(size_t bytes) {
  check_process("allocate");
  try {
    return allocate_here(bytes);
  } catch (const OutOfMemory&) {
    throw;
  } catch (...) {
    std::rethrow_exception(fail(std::current_exception()));
  }
}

std::exception_ptr QueuedCommunicator::failure() const {
  try {
    check_process("failure");  // another thread may have held the mutex at the fork
  } catch (...) {
    return std::current_exception();
  }
  std::lock_guard lock(queue_->mutex);
  return queue_->failure;
}

std::exception_ptr QueuedCommunicator::fail(std::exception_ptr error) {
  std::lock_guard lock(queue_->mutex);
  // After abort() the call has thrown its reason, perhaps within another text.
  if (!queue_->failure) queue_->failure = std::move(error);
  return queue_->failure;
}

std::exception_ptr QueuedCommunicator::execute_call(const Request& request) {
  try {
    const int64_t timeout_ms = request.options.timeout_ms;
    const Deadline deadline = Deadline::after_ms(timeout_ms > 0 ? timeout_ms : default_timeout_ms());
    const DeferredLimit* const deferred = request.deferred_limit.get();
    execute(request, deferred == nullptr ? deadline : deadline.or_after(*deferred));
    return nullptr;
  } catch (...) {
    return fail(std::current_exception());
  }
}

void QueuedCommunicator::run_queued(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  while (!queue.empty()) {
    // Destroyed before the lock is taken again, because what `done` has captured may call this communicator.
    // It may also be its last owner: then the destructor, on this thread, has run the rest of the queue.
    {
      Request request = queue.pop();
      std::exception_ptr error = queue.failure;
      lock.unlock();
      if (!error) error = execute_call(request);
      request.done(std::move(error));
    }
    lock.lock();
  }
}

void QueuedCommunicator::thread_main(QueuedCommunicator* communicator, std::shared_ptr<Queue> queue) {
  pthread_setname_np(pthread_self(), "mx-comm");
  // The other ranks wait for this one, and here threads compute.
  prefer_quick_wakeup();
  std::unique_lock lock(queue->mutex);
  for (;;) {
    queue->changed.wait(lock, [&] { return !queue->busy && (!queue->empty() || queue->stopped); });
    if (queue->empty()) return;
    queue->busy = true;
    lock.unlock();
    communicator->run_queued(*queue);
    lock.lock();
    queue->busy = false;
    queue->changed.notify_all();
  }
}

void QueuedCommunicator::finish_calls() noexcept {
  Queue& queue = *queue_;
  if (!process_.is_here()) {
    // The thread exists only in the parent, and its lock may be held here for ever. So the queue stays.
    static_cast<void>(new std::shared_ptr<Queue>(queue_));
    return;
  }
  std::unique_lock lock(queue.mutex);
  queue.stopped = true;
  if (!queue.thread.joinable()) return;
  if (queue.thread.get_id() == std::this_thread::get_id()) {
    // A callback holds the last reference. Its thread runs the rest here and ends when the callback returns.
    queue.thread.detach();
    lock.unlock();
    run_queued(queue);
    return;
  }
  std::thread thread = std::move(queue.thread);
  queue.changed.notify_all();
  lock.unlock();
  thread.join();
}

}  // namespace mx::comm
