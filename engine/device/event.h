// The two plain parts of the event model that backends share: an Event that holds points, and a point that
// host code reaches.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/device/device.h"

namespace mx {

/// The Event of every backend of this library. Safe from any thread.
class PointEvent final : public Event {
 public:
  EventStatus query() const noexcept override;
  std::exception_ptr error() const noexcept override;
  std::shared_ptr<EventPoint> latest() const override;
  void set_latest(std::shared_ptr<EventPoint> point) override;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<EventPoint> point_;
};

/// A point that a thread of this process reaches by calling reach(). Safe from any thread.
class HostPoint final : public EventPoint {
 public:
  /// A point that has been reached already, failed if `error` is not null.
  static std::shared_ptr<HostPoint> reached(std::exception_ptr error = nullptr);

  EventStatus query() const noexcept override { return status_.load(std::memory_order_acquire); }
  std::exception_ptr error() const noexcept override;
  void when_reached(std::function<void()> callback) override;

  /// The first call counts; callbacks run on the calling thread, outside every lock of this class.
  void reach(std::exception_ptr error = nullptr);

 private:
  std::atomic<EventStatus> status_{EventStatus::pending};
  std::exception_ptr error_;  // written before status_ leaves pending, constant after
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace mx
