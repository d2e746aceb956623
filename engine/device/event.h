// Two implementations that backends share: an Event that stores points, and a point that host code marks as
// reached.
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
  /// Makes a point that is already reached, and failed if `error` is not null.
  static std::shared_ptr<HostPoint> reached(std::exception_ptr error = nullptr);

  EventStatus query() const noexcept override { return status_.load(std::memory_order_acquire); }
  std::exception_ptr error() const noexcept override;
  void when_reached(std::function<void()> callback) override;

  /// Marks the point as reached. Only the first call has an effect. Callbacks run on the calling thread,
  /// outside every lock of this class.
  void reach(std::exception_ptr error = nullptr);

 private:
  std::atomic<EventStatus> status_{EventStatus::pending};
  std::exception_ptr error_;  // written before status_ leaves pending, constant after
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace mx
