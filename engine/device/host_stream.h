// A stream whose tasks run on a host thread of its own: the streams of the cpu and the virtual devices, and
// of any backend outside the tree that computes on the host.
//
// Each stream has one FIFO queue and one thread. The thread starts with the first work that cannot be
// answered at once. An idle thread polls for at most 20 us, yielding between polls, and then sleeps.
//
// Thread-safety: beyond what device.h promises, every call is safe from any thread; calls from several
// threads are ordered as they take the stream's lock.
//
// Process end. If a stream still exists when the process exits, its thread runs until then. A task that uses
// objects with static lifetime must end before they are destroyed. In a forked child the thread does not
// exist: calls throw InvalidState, and the destructor leaks the stream silently.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/device/device.h"
#include "engine/device/event.h"

namespace mx {

class HostStream;

/// One piece of work, as the owner of the stream sees it.
struct HostWork {
  enum class Kind : uint8_t {
    kernel,    ///< submit()
    copy,      ///< Device::copy_async
    internal,  ///< work of the backend itself, such as poisoning; not counted, delayed or traced
  };
  Kind kind = Kind::kernel;
  size_t bytes = 0;             ///< of a copy
  std::exception_ptr injected;  ///< set by HostStreamOwner::admit: fail with this instead of running
  Task task;
};

/// Hooks by which a backend extends its streams. The owner outlives the streams.
class HostStreamOwner {
 public:
  virtual ~HostStreamOwner() = default;

  /// The offset that KernelContext::ptr() adds.
  virtual std::ptrdiff_t alias_offset() const noexcept { return 0; }

  /// Called on the submitting thread, in the order of submission. May set work.injected.
  virtual void admit(HostStream& stream, HostWork& work) { (void)stream, (void)work; }

  /// Called on the stream's thread. Runs a kernel or a copy; an exception is the error of that work.
  virtual void run(HostStream& stream, HostWork& work, KernelContext& context) {
    (void)stream;
    work.task(context);
  }

  /// Called when the stream has drained and is about to be destroyed.
  virtual void closed(HostStream& stream) noexcept { (void)stream; }
};

class HostStream final : public Stream {
 public:
  HostStream(Device& device, HostStreamOwner& owner, StreamKind kind);
  ~HostStream() override;

  Device& device() const override { return device_; }
  StreamKind kind() const override { return kind_; }
  void submit(Task task) override;
  void record(Event& event) override;
  void wait_point(std::shared_ptr<EventPoint> point) override;
  std::shared_ptr<EventPoint> mark() override;
  void notify(std::function<void(std::exception_ptr)> callback) override;
  void synchronize() override;

  /// Appends work of any kind.
  void append(HostWork work);

  /// Returns true if nothing is queued or running.
  bool idle() const;

  /// Checks again whether the device is lost. The owner calls this after Device::lost() has changed.
  void poke();

  /// The stream whose task the calling thread runs, or null.
  static const HostStream* current();

 private:
  struct Item {
    enum class Kind : uint8_t { work, record, mark, wait, notify, sync } kind;
    HostWork work;
    std::shared_ptr<EventPoint> point;  // HostPoint for record and mark
    std::function<void(std::exception_ptr)> callback;
  };
  // Outlives the stream if a point is reached after the stream has stopped waiting for it.
  struct Waker {
    std::mutex mutex;
    std::condition_variable condition;
  };

  void enqueue(Item item, std::unique_lock<std::mutex>& lock);
  void check_process() const;
  void thread_main();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void process(Item& item);
  void run_work(HostWork& work);
  void wait_until_reached(EventPoint& point);
  std::exception_ptr take_event_error();
  void note_error(std::exception_ptr error);

  Device& device_;
  HostStreamOwner& owner_;
  const StreamKind kind_;
  const std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  const uint64_t process_;  // identifies the process that made the stream; a forked child has another number

  // Guarded by waker_->mutex.
  std::deque<Item> queue_;
  std::deque<Item> batch_;  // the items that the thread is processing; only the thread touches them
  bool busy_ = false;
  bool sleeping_ = false;
  bool stopping_ = false;
  std::shared_ptr<EventPoint> last_mark_;  // reusable while no work was appended after it
  std::exception_ptr event_error_;         // for the next record
  std::exception_ptr sync_error_;          // for notify and the next synchronize

  std::atomic<size_t> queued_{0};  // lets the polling thread look for work without the lock
  std::thread thread_;
};

}  // namespace mx
