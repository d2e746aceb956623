// CloneScope: deep copies of modules of any type, also of types that a program defines: the copy has
// parameters of its own. Internal.
//
// Copying a handle (a Parameter, a module) shares what it refers to. While a CloneScope lives, copying one on
// the same thread makes a new object instead. A second copy of the same original returns that new object
// again. So the ordinary copy constructor of a struct copies every object that its members refer to exactly
// once, and objects that the originals shared are shared among the copies.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mx::detail {

class CloneScope {
 public:
  CloneScope() : before_(std::exchange(current, this)) {}
  ~CloneScope() { current = before_; }
  CloneScope(const CloneScope&) = delete;
  CloneScope& operator=(const CloneScope&) = delete;

  /// Returns the innermost scope of this thread; null outside of any scope, where copies share.
  static CloneScope* active() { return current; }

  /// Returns the copy of `original`. The first call makes an empty T, registers it, and then fills it by
  /// set(made, original). Because it is registered first, an object that refers to itself finds its copy.
  template <class T, class Set>
  std::shared_ptr<T> copy_of(const std::shared_ptr<T>& original, const Set& set) {
    if (original == nullptr) return nullptr;
    if (const auto found = copies_.find(original.get()); found != copies_.end())
      return std::static_pointer_cast<T>(found->second);
    auto made = std::make_shared<T>();
    copies_.emplace(original.get(), made);
    copies_.emplace(made.get(), made);  // copying the copy returns it again
    originals_.push_back(original);
    set(*made, *original);
    return made;
  }

 private:
  static inline thread_local constinit CloneScope* current = nullptr;

  CloneScope* before_;
  std::unordered_map<const void*, std::shared_ptr<void>> copies_;
  std::vector<std::shared_ptr<const void>> originals_;  // kept alive, so that no address is used again
};

}  // namespace mx::detail
