// Streams and points of a GPU. Private to engine/device/cuda/.
//
// submit() runs the task at once on the calling thread; the kernels that it launches run in the order of the
// stream. Calls from several threads need outside ordering, except those that device.h names.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/cuda_watch.h"
#include "engine/device/kernel_error.h"

namespace mx {

/// How far a stream is known to have come. If one of its points is reached, all points with smaller numbers
/// are too, so CUDA need not be asked about those.
struct CudaProgress {
  std::atomic<uint64_t> taken{0};    ///< the number of the latest point
  std::atomic<uint64_t> reached{0};  ///< the largest number of a point that is known to be reached
};

/// A recorded CUDA event. Safe from any thread.
class CudaPoint final : public EventPoint, public std::enable_shared_from_this<CudaPoint> {
 public:
  /// `number` was taken from `progress` before the event was recorded. `error` is the failure of the work
  /// before the point, if that work failed at submission. `launches`: whose errors the point carries.
  CudaPoint(CudaDevice& device, uint64_t stream, std::shared_ptr<CudaProgress> progress, uint64_t number,
            cudaEvent_t event, std::exception_ptr error, WatchedLaunches launches)
      : device_(device),
        stream_(stream),
        progress_(std::move(progress)),
        number_(number),
        event_(event),
        carried_(std::move(error)),
        launches_(std::move(launches)) {}
  ~CudaPoint() override { device_.give_event(event_); }

  EventStatus query() const noexcept override;
  std::exception_ptr error() const noexcept override;
  void when_reached(std::function<void()> callback) override;

  CudaDevice& device() const { return device_; }
  cudaEvent_t event() const { return event_; }

 private:
  CudaDevice& device_;
  const uint64_t stream_;
  const std::shared_ptr<CudaProgress> progress_;
  const uint64_t number_;
  const cudaEvent_t event_;
  const std::exception_ptr carried_;
  const WatchedLaunches launches_;
  mutable std::atomic<EventStatus> status_{EventStatus::pending};  // final once it is not pending
};

/// Makes a stream of the current device. Communication is short and other ranks wait for it, so it gets the
/// highest priority, other work the lowest. Throws CudaError.
cudaStream_t make_cuda_stream(StreamKind kind);

class CudaStream final : public Stream, public KernelErrors {
 public:
  CudaStream(CudaDevice& device, StreamKind kind);
  ~CudaStream() override;

  Device& device() const override { return device_; }
  StreamKind kind() const override { return kind_; }
  void submit(Task task) override;
  void record(Event& event) override;
  void wait_point(std::shared_ptr<EventPoint> point) override;
  std::shared_ptr<EventPoint> mark() override;
  void notify(std::function<void(std::exception_ptr)> callback) override;
  void synchronize() override;
  KernelError* watch(Describe describe) override;
  /// Notes that the running task launches the kernels that have this word.
  void launches(std::shared_ptr<WatchedWord> word);

 private:
  std::shared_ptr<EventPoint> point_here(std::exception_ptr carried, WatchedLaunches launches);
  std::shared_ptr<EventPoint> point_after_waiting(cudaError_t code, const char* call,
                                                  const std::exception_ptr& carried,
                                                  const WatchedLaunches& launches);
  uint64_t take_number();
  void drop_settled();
  void enqueue_wait(std::shared_ptr<EventPoint> point);
  void wait_for_host(std::shared_ptr<EventPoint> point);
  void note_error(std::exception_ptr error);
  void begin_append(int tasks);

  CudaDevice& device_;
  const StreamKind kind_;
  cudaStream_t stream_ = nullptr;
  const std::shared_ptr<CudaProgress> progress_ = std::make_shared<CudaProgress>();

  std::mutex mutex_;  // guards the members below: any thread may call mark()
  int in_task_ = 0;   // running tasks. A running task may append work at any time, so marks cannot be shared.
  uint64_t appended_ = 0;
  std::shared_ptr<EventPoint> last_mark_;  // reusable while nothing was appended after it
  std::exception_ptr event_error_;
  std::exception_ptr sync_error_;
  WatchedLaunches event_launches_;  // since the last record()
  WatchedLaunches sync_launches_;   // since the last synchronize(), and not known to have succeeded
};

}  // namespace mx
