// CloneScope: how a module of any type, also one that a program defines, is copied with parameters of its
// own. Internal.
//
// Copying a module shares its parameters. While a CloneScope lives, copying one on the same thread makes
// another module instead, and the next copy of the same one gives that other module again. So the ordinary
// copy constructor of a struct copies everything that its members refer to, each once, and what they shared
// before their copies share as well.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mx::nn::detail {

class CloneScope {
 public:
  CloneScope() : before_(std::exchange(current, this)) {}
  ~CloneScope() { current = before_; }
  CloneScope(const CloneScope&) = delete;
  CloneScope& operator=(const CloneScope&) = delete;

  /// Of this thread; null when copies are to share.
  static CloneScope* active() { return current; }

  /// What stands for `original` among the copies. The first call makes it: set(made, original) fills an empty
  /// T, which is known already, so that an object may lead back to itself.
  template <class T, class Set>
  std::shared_ptr<T> copy_of(const std::shared_ptr<T>& original, const Set& set) {
    if (original == nullptr) return nullptr;
    if (const auto found = copies_.find(original.get()); found != copies_.end())
      return std::static_pointer_cast<T>(found->second);
    auto made = std::make_shared<T>();
    copies_.emplace(original.get(), made);
    copies_.emplace(made.get(), made);  // a copy of a copy is no third one
    originals_.push_back(original);
    set(*made, *original);
    return made;
  }

 private:
  static inline thread_local constinit CloneScope* current = nullptr;

  CloneScope* before_;
  std::unordered_map<const void*, std::shared_ptr<void>> copies_;
  std::vector<std::shared_ptr<const void>> originals_;  // so that no address comes twice
};

}  // namespace mx::nn::detail
