// PriorityScope: operations on arrays that this thread calls while it lives have a priority.
#pragma once

namespace mx {

namespace detail {
inline thread_local constinit int launch_priority = 0;
}  // namespace detail

/// Among operations that could run, those of higher priority come first (PushOptions::priority). A scope of
/// one thread; the innermost counts.
class PriorityScope {
 public:
  explicit PriorityScope(int priority) : before_(detail::launch_priority) {
    detail::launch_priority = priority;
  }
  ~PriorityScope() { detail::launch_priority = before_; }
  PriorityScope(const PriorityScope&) = delete;
  PriorityScope& operator=(const PriorityScope&) = delete;

 private:
  int before_;
};

}  // namespace mx
