#include "engine/device/cuda/cuda_stream.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_driver.h"
#include "engine/device/cuda/cuda_poller.h"
#include "engine/device/event.h"

namespace mx {

namespace {

thread_local const CudaStream* current_stream = nullptr;

}  // namespace

EventStatus CudaPoint::query() const noexcept {
  const EventStatus known = status_.load(std::memory_order_acquire);
  if (known != EventStatus::pending) return known;
  const bool passed = progress_->reached.load(std::memory_order_acquire) >= number_;
  const cudaError_t code = passed ? cudaSuccess : query_event(device_.id(), event_);
  if (code == cudaErrorNotReady || is_capture_error(code)) return EventStatus::pending;
  if (code == cudaSuccess && !passed) {
    uint64_t reached = progress_->reached.load(std::memory_order_relaxed);
    while (reached < number_ &&
           !progress_->reached.compare_exchange_weak(reached, number_, std::memory_order_acq_rel)) {
    }
  }
  EventStatus now = carried_ != nullptr ? EventStatus::failed : EventStatus::complete;
  if (code == cudaSuccess) {
    if (settle_all(launches_) != nullptr) now = EventStatus::failed;
  } else {
    // Any other error code counts as failed: an event that cannot be queried can never be seen to complete.
    device_.failed(is_sticky(code) ? code : cudaErrorUnknown, "cudaEventQuery(event)", __FILE__, __LINE__);
    now = EventStatus::failed;
  }
  // If the device is lost between the queries of two threads, their results differ. All callers must get the
  // same status, so the first final one stays.
  EventStatus expected = EventStatus::pending;
  return status_.compare_exchange_strong(expected, now, std::memory_order_acq_rel) ? now : expected;
}

std::exception_ptr CudaPoint::error() const noexcept {
  if (query() != EventStatus::failed) return nullptr;
  if (carried_ != nullptr) return carried_;
  for (const std::shared_ptr<WatchedLaunch>& launch : launches_) {
    if (!launch->settled()) continue;  // the device was lost before it ended
    if (std::exception_ptr error = launch->settle()) return error;
  }
  return device_.lost();
}

void CudaPoint::when_reached(std::function<void()> callback) {
  if (query() != EventStatus::pending) {
    callback();
  } else {
    call_when_reached(shared_from_this(), stream_, std::move(callback));
  }
}

cudaStream_t make_cuda_stream(StreamKind kind) {
  int least = 0;
  int greatest = 0;
  MX_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  MX_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                       kind == StreamKind::comm ? greatest : least));
  return stream;
}

CudaStream::CudaStream(CudaDevice& device, StreamKind kind) : device_(device), kind_(kind) {
  const CudaGuard guard(device.id());
  try {
    stream_ = make_cuda_stream(kind);
  } catch (const CudaError& e) {
    device.failed(e.code(), "cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority)",
                  __FILE__, __LINE__);
    throw;
  }
}

CudaStream::~CudaStream() {
  forget_stream(*this);
  const CudaGuard guard(device_.id());
  const CaptureExempt exempt;
  if (const cudaError_t code = cudaStreamSynchronize(stream_); code != cudaSuccess) {
    device_.failed(code, "cudaStreamSynchronize(stream)", __FILE__, __LINE__);
  } else {
    (void)settle_all(sync_launches_);  // so that their words are used again
  }
  if (cudaStreamDestroy(stream_) != cudaSuccess) (void)cudaGetLastError();
}

void CudaStream::submit(Task task) {
  MX_CHECK(task, InvalidArgument, "[submit] expected a task, got an empty function");
  if (std::exception_ptr error = device_.lost()) {
    note_error(std::move(error));
    return;
  }
  const CudaGuard guard(device_.id());
  const CudaStream* outer = std::exchange(current_stream, this);
  begin_append(+1);
  try {
    (void)cudaGetLastError();  // left by other code on this thread; the task is not to blame for it
    KernelContext context(device_, stream_, 0);
    task(context);
    MX_CUDA(cudaGetLastError());  // of kernel launches, which return nothing
  } catch (...) {
    device_.examine(stream_);
    note_error(std::current_exception());
  }
  begin_append(-1);
  current_stream = outer;
}

// Notes that work is being appended, and changes the number of running tasks by `tasks`. The last mark cannot
// be reused after this.
void CudaStream::begin_append(int tasks) {
  std::lock_guard lock(mutex_);
  in_task_ += tasks;
  ++appended_;
  last_mark_ = nullptr;
}

KernelError* CudaStream::watch(Describe describe) {
  auto word = std::make_shared<WatchedWord>(device_, std::move(describe));
  KernelError* const result = word->get();
  launches(std::move(word));
  return result;
}

void CudaStream::launches(std::shared_ptr<WatchedWord> word) {
  auto launch = std::make_shared<WatchedLaunch>(std::move(word));
  std::lock_guard lock(mutex_);
  drop_settled();
  event_launches_.push_back(launch);
  sync_launches_.push_back(std::move(launch));
}

// Drops launches that have ended without an error, so that a stream that nobody synchronizes does not collect
// them. Their first error stays for synchronize().
void CudaStream::drop_settled() {
  const uint64_t reached = progress_->reached.load(std::memory_order_acquire);
  const auto end = std::find_if(sync_launches_.begin(), sync_launches_.end(), [&](const auto& launch) {
    return !launch->settled() && launch->number() > reached;
  });
  for (auto it = sync_launches_.begin(); it != end; ++it)
    if (std::exception_ptr error = (*it)->settle(); sync_error_ == nullptr) sync_error_ = std::move(error);
  sync_launches_.erase(sync_launches_.begin(), end);
}

// Returns the number of a point that is about to be recorded. An event with a larger number has all of this
// point's work before it.
uint64_t CudaStream::take_number() {
  std::lock_guard lock(mutex_);
  const uint64_t number = progress_->taken.fetch_add(1, std::memory_order_acq_rel) + 1;
  // The kernels of a task that runs may be launched after the point.
  if (in_task_ == 0) {
    for (auto it = sync_launches_.rbegin(); it != sync_launches_.rend() && (*it)->number() == UINT64_MAX;
         ++it)
      (*it)->set_number(number);
  }
  return number;
}

// Returns a point after everything submitted so far; a failed point if the device is lost. If CUDA has no
// memory for an event, waits for the stream.
std::shared_ptr<EventPoint> CudaStream::point_here(std::exception_ptr carried, WatchedLaunches launches) {
  if (std::exception_ptr error = device_.lost()) return HostPoint::reached(carried ? carried : error);
  const CudaGuard guard(device_.id());
  const uint64_t number = take_number();
  cudaEvent_t event = nullptr;
  try {
    event = device_.take_event();
  } catch (const CudaError& e) {
    return point_after_waiting(e.code(), "cudaEventCreateWithFlags(&event, cudaEventDisableTiming)", carried,
                               launches);
  }
  auto point = std::make_shared<CudaPoint>(device_, id(), progress_, number, event, carried, launches);
  if (const cudaError_t code = cudaEventRecord(event, stream_); code != cudaSuccess)
    return point_after_waiting(code, "cudaEventRecord(event, stream)", carried, launches);
  return point;
}

// Called if no event could be recorded. Work in flight must not count as ended, so the stream is waited for.
std::shared_ptr<EventPoint> CudaStream::point_after_waiting(cudaError_t code, const char* call,
                                                            const std::exception_ptr& carried,
                                                            const WatchedLaunches& launches) {
  std::exception_ptr error = device_.failed(code, call, __FILE__, __LINE__);
  if (device_.lost() != nullptr) return HostPoint::reached(carried != nullptr ? carried : error);
  const CaptureExempt exempt;
  if (const cudaError_t waited = cudaStreamSynchronize(stream_); waited != cudaSuccess) {
    error = device_.failed(waited, "cudaStreamSynchronize(stream)", __FILE__, __LINE__);
    return HostPoint::reached(carried != nullptr ? carried : error);
  }
  error = settle_all(launches);
  return HostPoint::reached(carried != nullptr ? carried : error);
}

void CudaStream::record(Event& event) {
  std::exception_ptr carried;
  WatchedLaunches launches;
  {
    std::lock_guard lock(mutex_);
    carried = std::exchange(event_error_, nullptr);
    launches = std::exchange(event_launches_, {});
  }
  event.set_latest(point_here(std::move(carried), std::move(launches)));
}

std::shared_ptr<EventPoint> CudaStream::mark() {
  uint64_t appended = 0;
  {
    std::lock_guard lock(mutex_);
    if (last_mark_ != nullptr && in_task_ == 0) return last_mark_;
    appended = appended_;
  }
  std::shared_ptr<EventPoint> point = point_here(nullptr, {});
  std::lock_guard lock(mutex_);
  if (in_task_ == 0 && appended == appended_) last_mark_ = point;
  return point;
}

void CudaStream::wait_point(std::shared_ptr<EventPoint> point) {
  MX_CHECK(point != nullptr, InvalidArgument,
           "[wait_point] expected a point of a stream, got a null pointer");
  if (point->query() != EventStatus::pending || device_.lost() != nullptr) return;
  // A mark that another thread makes before the wait is enqueued must not be reused after it.
  begin_append(+1);
  try {
    enqueue_wait(std::move(point));
  } catch (...) {
    begin_append(-1);
    throw;
  }
  begin_append(-1);
}

void CudaStream::enqueue_wait(std::shared_ptr<EventPoint> point) {
  const auto* mine = dynamic_cast<const CudaPoint*>(point.get());
  if (mine == nullptr) {
    wait_for_host(std::move(point));
    return;
  }
  const CudaGuard guard(device_.id());
  const cudaError_t code = cudaStreamWaitEvent(stream_, mine->event(), 0);
  if (code == cudaSuccess) return;
  // The other device may have been lost in the meantime. That is not an error of this device: the point
  // counts as reached.
  if (mine->query() == EventStatus::failed && &mine->device() != &device_) {
    (void)cudaGetLastError();
  } else {
    note_error(device_.failed(code, "cudaStreamWaitEvent(stream, event, 0)", __FILE__, __LINE__));
  }
}

// A point of another backend: the stream waits for a flag that its callback sets.
void CudaStream::wait_for_host(std::shared_ptr<EventPoint> point) {
  const auto wait_value = cuda_driver().wait_value;
  MX_CHECK(wait_value != nullptr, DeviceError,
           "[wait] expected a CUDA driver with stream memory operations, got one without; ",
           device_.context(), " needs them to wait for another kind of device");
  const CudaGuard guard(device_.id());
  uint32_t* flag = device_.take_flag();
  void* address = nullptr;
  if (const cudaError_t code = cudaHostGetDevicePointer(&address, flag, 0); code != cudaSuccess) {
    device_.give_flag(flag);
    throw_cuda_error(code, "cudaHostGetDevicePointer(&address, flag, 0)", __FILE__, __LINE__);
  }
  const CUresult result =
      wait_value(stream_, reinterpret_cast<CUdeviceptr>(address), 1, CU_STREAM_WAIT_VALUE_GEQ);
  if (result != CUDA_SUCCESS) {
    device_.give_flag(flag);
    device_.examine(stream_);
    throw DeviceError(detail::concat("[wait] expected success of cuStreamWaitValue32, got error ",
                                     static_cast<int>(result)));
  }
  const auto let_go = [flag] { std::atomic_ref(*flag).store(1, std::memory_order_release); };
  try {
    point->when_reached(let_go);
  } catch (...) {
    let_go();  // otherwise the stream would never go on
    throw;
  }
  // The flag is reused once the stream is past the wait. If that cannot be observed, the flag is never
  // reused.
  const std::shared_ptr<EventPoint> passed = point_here(nullptr, {});
  if (dynamic_cast<const CudaPoint*>(passed.get()) == nullptr) return;
  passed->when_reached([device = &device_, flag] {
    if (device->lost() == nullptr) device->give_flag(flag);
  });
}

void CudaStream::notify(std::function<void(std::exception_ptr)> callback) {
  MX_CHECK(callback, InvalidArgument, "[notify] expected a callback, got an empty function");
  std::exception_ptr first;
  WatchedLaunches launches;
  {
    std::lock_guard lock(mutex_);
    drop_settled();
    first = sync_error_;
    launches = sync_launches_;
  }
  // The launches are known to have ended if the point is complete.
  std::shared_ptr<EventPoint> point = point_here(first, std::move(launches));
  call_when_reached(point, id(), [point, callback = std::move(callback)] { callback(point->error()); });
}

void CudaStream::synchronize() {
  MX_CHECK(current_stream != this, InvalidState,
           "[synchronize] expected a call from outside the stream, got one from a task of the stream, which "
           "would wait for itself");
  std::exception_ptr error;
  WatchedLaunches launches;
  {
    std::lock_guard lock(mutex_);
    launches = std::exchange(sync_launches_, {});
  }
  if (device_.lost() == nullptr) {
    const CudaGuard guard(device_.id());
    const CaptureExempt exempt;
    if (const cudaError_t code = cudaStreamSynchronize(stream_); code != cudaSuccess) {
      error = device_.failed(code, "cudaStreamSynchronize(stream)", __FILE__, __LINE__);
    } else {
      error = settle_all(launches);
    }
  }
  {
    std::lock_guard lock(mutex_);
    if (std::exception_ptr first = std::exchange(sync_error_, nullptr)) error = std::move(first);
  }
  if (error == nullptr) error = device_.lost();
  if (error != nullptr) std::rethrow_exception(error);
}

void CudaStream::note_error(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (event_error_ == nullptr) event_error_ = error;
  if (sync_error_ == nullptr) sync_error_ = std::move(error);
}

}  // namespace mx
