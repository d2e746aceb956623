#include "engine/device/event.h"

namespace mx {

EventStatus PointEvent::query() const noexcept {
  const std::shared_ptr<EventPoint> point = latest();
  return point ? point->query() : EventStatus::unrecorded;
}

std::exception_ptr PointEvent::error() const noexcept {
  const std::shared_ptr<EventPoint> point = latest();
  return point ? point->error() : nullptr;
}

std::shared_ptr<EventPoint> PointEvent::latest() const {
  std::lock_guard lock(mutex_);
  return point_;
}

void PointEvent::set_latest(std::shared_ptr<EventPoint> point) {
  {
    std::lock_guard lock(mutex_);
    point_.swap(point);
  }
  // The previous generation is destroyed here, outside the lock, because its destructor may call a driver.
}

std::shared_ptr<HostPoint> HostPoint::reached(std::exception_ptr error) {
  auto point = std::make_shared<HostPoint>();
  point->reach(std::move(error));
  return point;
}

std::exception_ptr HostPoint::error() const noexcept {
  return query() == EventStatus::failed ? error_ : nullptr;
}

void HostPoint::when_reached(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (query() == EventStatus::pending) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void HostPoint::reach(std::exception_ptr error) {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (query() != EventStatus::pending) return;
    error_ = std::move(error);
    status_.store(error_ ? EventStatus::failed : EventStatus::complete, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  for (auto& callback : callbacks) callback();
}

}  // namespace mx
