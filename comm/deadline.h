// Deadline: the point in time until which a call may block.
//
// Thread-safety: a value without shared state.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace mx::comm {

/// The longest time limit, 10 days. Longer ones are clamped to it, so that sums of times cannot overflow.
inline constexpr int64_t kLongestTimeoutMs = int64_t{10} * 24 * 3600 * 1000;

/// The limit, or the longest one.
constexpr int64_t limited_timeout(int64_t timeout_ms) { return std::min(timeout_ms, kLongestTimeoutMs); }

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// The point in time `timeout_ms` from now. Negative limits count as 0.
  static Deadline after_ms(int64_t timeout_ms) {
    return Deadline(Clock::now() +
                    std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, kLongestTimeoutMs)));
  }
  explicit Deadline(Clock::time_point at) : at_(at) {}

  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }
  /// Returns the milliseconds that are left, rounded up; 0 if the deadline has passed.
  int64_t left_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return std::max<int64_t>(left, 0);
  }
  /// Returns the time that is left as the limit of a poll(), which counts in int: at most an hour.
  int poll_ms() const {
    constexpr int64_t kHourMs = 3600 * 1000;
    return static_cast<int>(std::min(left_ms(), kHourMs));
  }
  /// Returns the earlier of two deadlines.
  friend Deadline earlier(Deadline a, Deadline b) { return a.at_ < b.at_ ? a : b; }

 private:
  Clock::time_point at_;
};

}  // namespace mx::comm
