// Deadline: the point in time until which a call may block. DeferredLimit: a time limit that a call gets
// while it runs.
//
//   DeferredLimit limit;
//   Deadline deadline = Deadline::after_ms(kLongestTimeoutMs).or_after(limit);
//   ...                     // another thread blocks until the deadline
//   limit.set(1000);        // from now on, the deadline passes in a second
//
// Thread-safety: any thread may use a DeferredLimit. A Deadline is a value; copies share their DeferredLimit.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace mx::comm {

/// The longest time limit, 10 days. Longer ones are clamped to it, so that sums of times cannot overflow.
inline constexpr int64_t kLongestTimeoutMs = int64_t{10} * 24 * 3600 * 1000;

/// The limit, or the longest one.
constexpr int64_t limited_timeout(int64_t timeout_ms) { return std::min(timeout_ms, kLongestTimeoutMs); }

class DeferredLimit {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins to count. To be called once.
  void set(int64_t timeout_ms) {
    timeout_ms_.store(limited_timeout(timeout_ms), std::memory_order_relaxed);
    set_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_release);
  }
  bool is_set() const { return set_at_.load(std::memory_order_acquire) != kNotSet; }
  /// Returns when the limit passes for a call that began at `begin`: its time does not count before that.
  Clock::time_point at(Clock::time_point begin) const {
    if (!is_set()) return Clock::time_point::max();
    const Clock::time_point set_at{Clock::duration(set_at_.load(std::memory_order_relaxed))};
    return std::max(begin, set_at) + std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr Clock::rep kNotSet = Clock::duration::min().count();
  std::atomic<int64_t> timeout_ms_{0};
  std::atomic<Clock::rep> set_at_{kNotSet};
};

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// The point in time `timeout_ms` from now. Negative limits count as 0.
  static Deadline after_ms(int64_t timeout_ms) {
    return Deadline(Clock::now() +
                    std::chrono::milliseconds(std::clamp<int64_t>(timeout_ms, 0, kLongestTimeoutMs)));
  }
  explicit Deadline(Clock::time_point at) : at_(at) {}

  /// Returns a deadline of a call that begins now, which also passes when the limit does. The limit must
  /// outlive it.
  Deadline or_after(const DeferredLimit& limit) const {
    Deadline both = *this;
    both.deferred_ = &limit;
    both.begin_ = Clock::now();
    return both;
  }

  Clock::time_point at() const { return deferred_ == nullptr ? at_ : std::min(at_, deferred_->at(begin_)); }
  bool passed() const { return Clock::now() >= at(); }
  /// Returns the milliseconds that are left, rounded up; 0 if the deadline has passed.
  int64_t left_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at() - Clock::now()).count();
    return std::max<int64_t>(left, 0);
  }
  /// Returns how many milliseconds a thread may sleep before it looks at the deadline again; 0 if the
  /// deadline has passed. At most an hour, so that poll() can take it. Short while a limit may still be set,
  /// because that wakes nobody.
  int poll_ms() const {
    constexpr int64_t kHourMs = 3600 * 1000, kShortMs = 50;
    const bool may_change = deferred_ != nullptr && !deferred_->is_set();
    return static_cast<int>(std::min(left_ms(), may_change ? kShortMs : kHourMs));
  }
  /// Returns the earlier of two deadlines.
  friend Deadline earlier(Deadline a, Deadline b) { return a.at() < b.at() ? a : b; }

 private:
  Clock::time_point at_;
  const DeferredLimit* deferred_ = nullptr;
  Clock::time_point begin_{};  // of the call; only with a deferred limit
};

}  // namespace mx::comm
