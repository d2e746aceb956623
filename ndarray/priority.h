// PriorityScope: gives a priority to the operations on arrays that a thread calls.
#pragma once

namespace mx {

namespace detail {
inline thread_local constinit int launch_priority = 0;
}  // namespace detail

/// Sets the priority of operations that this thread calls while the scope lives. Among operations that are
/// ready, those of higher priority start first (PushOptions::priority). The innermost scope counts.
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
