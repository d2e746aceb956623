// A hook that somebody has registered: on an array's gradient or on a module.
#pragma once

#include <functional>
#include <utility>

namespace mx {

/// Takes a hook away again. The hook stays when the handle goes, and the handle keeps nothing alive. Copies
/// name the same hook. remove() may be called from any thread, also from the hook itself.
class HookHandle {
 public:
  HookHandle() = default;
  /// For who registers: `remove` does nothing where the hook, or what it was on, is gone.
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}

  /// What begins later does not call the hook. Nothing the second time.
  void remove() {
    if (const auto remove = std::exchange(remove_, nullptr)) remove();
  }

 private:
  std::function<void()> remove_;
};

}  // namespace mx
