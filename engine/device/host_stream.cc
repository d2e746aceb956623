#include "engine/device/host_stream.h"

#include <pthread.h>

#include <chrono>

#include "engine/base/check.h"
#include "engine/base/threads.h"
#include "engine/device/pool.h"

namespace mx {

namespace {

constexpr auto kSpin = std::chrono::microseconds(20);

thread_local const HostStream* current_stream = nullptr;

std::atomic<uint64_t> forks{0};

// Counts forks in the child, so that "made in this process" is one load instead of a system call.
uint64_t current_process() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

HostStream::HostStream(Device& device, HostStreamOwner& owner, StreamKind kind)
    : device_(device), owner_(owner), kind_(kind), process_(current_process()) {}

HostStream::~HostStream() {
  if (process_ != current_process()) {
    // The thread stayed in the parent, perhaps holding the lock: nothing here may be touched.
    new std::shared_ptr<Waker>(waker_);
    new std::thread(std::move(thread_));
    new std::deque<Item>(std::move(queue_));
    new std::deque<Item>(std::move(batch_));
    return;
  }
  forget_stream(*this);
  {
    std::lock_guard lock(waker_->mutex);
    stopping_ = true;
  }
  waker_->condition.notify_all();
  if (thread_.joinable()) {
    // A task that owns the last reference to its own stream ends here, on the stream's thread.
    MX_ASSERT(thread_.get_id() != std::this_thread::get_id());
    thread_.join();
  }
  owner_.closed(*this);
}

const HostStream* HostStream::current() { return current_stream; }

bool HostStream::idle() const {
  std::lock_guard lock(waker_->mutex);
  return queue_.empty() && !busy_;
}

void HostStream::poke() {
  { std::lock_guard lock(waker_->mutex); }
  waker_->condition.notify_all();
}

void HostStream::check_process() const {
  MX_CHECK(process_ == current_process(), InvalidState,
           "[stream] expected a stream of this process, got one of ", to_string(device_.context()),
           " made before fork()");
}

void HostStream::enqueue(Item item, std::unique_lock<std::mutex>& lock) {
  if (!thread_.joinable()) thread_ = start_thread("stream", [this] { thread_main(); });
  if (item.kind != Item::Kind::record && item.kind != Item::Kind::mark) last_mark_ = nullptr;
  queue_.push_back(std::move(item));
  queued_.store(queue_.size(), std::memory_order_relaxed);
  const bool wake = sleeping_;
  sleeping_ = false;
  lock.unlock();
  if (wake) waker_->condition.notify_all();
}

void HostStream::append(HostWork work) {
  check_process();
  if (work.kind != HostWork::Kind::internal) owner_.admit(*this, work);
  std::unique_lock lock(waker_->mutex);
  enqueue({.kind = Item::Kind::work, .work = std::move(work), .point = {}, .callback = {}}, lock);
}

void HostStream::submit(Task task) {
  MX_CHECK(task, InvalidArgument, "[submit] expected a task, got an empty function");
  append({.kind = HostWork::Kind::kernel, .bytes = 0, .injected = {}, .task = std::move(task)});
}

void HostStream::record(Event& event) {
  check_process();
  std::unique_lock lock(waker_->mutex);
  if (queue_.empty() && !busy_) {
    std::exception_ptr error = take_event_error();
    lock.unlock();
    event.set_latest(HostPoint::reached(std::move(error)));
    return;
  }
  auto point = std::make_shared<HostPoint>();
  enqueue({.kind = Item::Kind::record, .work = {}, .point = point, .callback = {}}, lock);
  event.set_latest(std::move(point));
}

std::shared_ptr<EventPoint> HostStream::mark() {
  static const std::shared_ptr<HostPoint>& reached = *new auto(HostPoint::reached());
  check_process();
  std::unique_lock lock(waker_->mutex);
  if (queue_.empty() && !busy_) return reached;
  if (last_mark_ != nullptr) return last_mark_;
  auto point = std::make_shared<HostPoint>();
  last_mark_ = point;
  enqueue({.kind = Item::Kind::mark, .work = {}, .point = point, .callback = {}}, lock);
  return point;
}

void HostStream::wait_point(std::shared_ptr<EventPoint> point) {
  check_process();
  MX_CHECK(point != nullptr, InvalidArgument,
           "[wait_point] expected a point of a stream, got a null pointer");
  if (point->query() != EventStatus::pending) return;
  std::unique_lock lock(waker_->mutex);
  enqueue({.kind = Item::Kind::wait, .work = {}, .point = std::move(point), .callback = {}}, lock);
}

void HostStream::notify(std::function<void(std::exception_ptr)> callback) {
  check_process();
  MX_CHECK(callback, InvalidArgument, "[notify] expected a callback, got an empty function");
  std::unique_lock lock(waker_->mutex);
  enqueue({.kind = Item::Kind::notify, .work = {}, .point = {}, .callback = std::move(callback)}, lock);
}

void HostStream::synchronize() {
  check_process();
  MX_CHECK(current_stream != this, InvalidState,
           "[synchronize] expected a call from outside the stream, got one from a task of the stream, which "
           "would wait for itself");
  std::exception_ptr error;
  std::unique_lock lock(waker_->mutex);
  if (queue_.empty() && !busy_) {
    error = std::exchange(sync_error_, nullptr);
    lock.unlock();
  } else {
    std::mutex mutex;
    std::condition_variable condition;
    bool done = false;
    enqueue({.kind = Item::Kind::sync,
             .work = {},
             .point = {},
             .callback =
                 [&](std::exception_ptr first) {
                   std::lock_guard guard(mutex);
                   error = std::move(first);
                   done = true;
                   condition.notify_one();
                 }},
            lock);
    std::unique_lock done_lock(mutex);
    condition.wait(done_lock, [&] { return done; });
  }
  if (error == nullptr) error = device_.lost();
  if (error != nullptr) std::rethrow_exception(error);
}

void HostStream::thread_main() {
  pthread_setname_np(pthread_self(), to_string(device_.context()).substr(0, 15).c_str());
  current_stream = this;
  std::unique_lock lock(waker_->mutex);
  while (true) {
    if (queue_.empty()) {
      busy_ = false;
      if (stopping_) return;
      wait_for_work(lock);
      continue;
    }
    busy_ = true;
    batch_.swap(queue_);
    queued_.store(0, std::memory_order_relaxed);
    lock.unlock();
    while (!batch_.empty()) {
      process(batch_.front());
      batch_.pop_front();  // destroys the work's closure before the next work starts
    }
    lock.lock();
  }
}

void HostStream::wait_for_work(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (queued_.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  lock.lock();
  while (queue_.empty() && !stopping_) {
    sleeping_ = true;
    waker_->condition.wait(lock);
  }
  sleeping_ = false;
}

void HostStream::process(Item& item) {
  switch (item.kind) {
    case Item::Kind::work:
      run_work(item.work);
      break;
    case Item::Kind::record: {
      std::unique_lock lock(waker_->mutex);
      std::exception_ptr error = take_event_error();
      lock.unlock();
      static_cast<HostPoint&>(*item.point).reach(std::move(error));
      break;
    }
    case Item::Kind::mark:
      static_cast<HostPoint&>(*item.point).reach();
      break;
    case Item::Kind::wait:
      wait_until_reached(*item.point);
      break;
    case Item::Kind::notify:
    case Item::Kind::sync: {
      std::unique_lock lock(waker_->mutex);
      std::exception_ptr error = sync_error_;
      if (item.kind == Item::Kind::sync) sync_error_ = nullptr;
      lock.unlock();
      if (error == nullptr) error = device_.lost();
      item.callback(std::move(error));
      break;
    }
  }
}

void HostStream::run_work(HostWork& work) {
  if (std::exception_ptr lost = device_.lost()) {
    note_error(std::move(lost));
    return;
  }
  try {
    KernelContext context(device_, nullptr, owner_.alias_offset());
    if (work.kind == HostWork::Kind::internal) {
      work.task(context);
    } else {
      owner_.run(*this, work, context);
    }
  } catch (...) {
    note_error(std::current_exception());
  }
}

void HostStream::wait_until_reached(EventPoint& point) {
  if (point.query() != EventStatus::pending) return;
  point.when_reached([waker = waker_] {
    { std::lock_guard lock(waker->mutex); }
    waker->condition.notify_all();
  });
  std::unique_lock lock(waker_->mutex);
  // A lost device does not wait: the work behind the wait is not run anyway.
  waker_->condition.wait(lock,
                         [&] { return point.query() != EventStatus::pending || device_.lost() != nullptr; });
}

std::exception_ptr HostStream::take_event_error() {
  std::exception_ptr error = std::exchange(event_error_, nullptr);
  return error != nullptr ? error : device_.lost();
}

void HostStream::note_error(std::exception_ptr error) {
  std::lock_guard lock(waker_->mutex);
  if (event_error_ == nullptr) event_error_ = error;
  if (sync_error_ == nullptr) sync_error_ = std::move(error);
}

}  // namespace mx
