// HookHandle: removes a hook that was added to an array's gradient or to a module.
#pragma once

#include <functional>
#include <utility>

namespace mx {

/// A handle of a hook. Destroying the handle does not remove the hook, and the handle keeps nothing alive.
/// Copies refer to the same hook. remove() may be called from any thread, and from the hook itself.
class HookHandle {
 public:
  HookHandle() = default;
  /// For code that adds hooks. `remove` must do nothing if the hook, or its array or module, no longer
  /// exists.
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}

  /// Removes the hook. Backward passes and calls of the module that begin later do not call it. A second call
  /// has no effect.
  void remove() {
    if (const auto remove = std::exchange(remove_, nullptr)) remove();
  }

 private:
  std::function<void()> remove_;
};

}  // namespace mx
