// EngineUse: keeps arrays out of direct use while a closure that the engine holds has not run. Internal.
//
// For operations after which only the engine knows whether the arrays may be used: copies to and from
// devices, whose work goes on after the closure has run, and failures. Made before the push, a member of the
// closure: from then on every operation on the arrays goes through the engine, in its order, and goes on
// doing so after the closure has gone, until an operation of the CPU with exclusive access has run well.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "ndarray/detail/array_impl.h"

namespace mx::detail {

class EngineUse {
 public:
  explicit EngineUse(std::span<ArrayImpl* const> arrays) {
    arrays_.reserve(arrays.size());
    for (ArrayImpl* array : arrays) arrays_.emplace_back(array);
    for (const auto& array : arrays_)
      if (array->storage->on_cpu()) array->storage->begin_pending();
  }
  EngineUse(EngineUse&& other) noexcept : arrays_(std::move(other.arrays_)) { other.arrays_.clear(); }
  EngineUse& operator=(EngineUse&&) = delete;
  ~EngineUse() {
    for (const auto& array : arrays_) {
      if (!array->storage->on_cpu()) continue;
      array->storage->taint();
      array->storage->end_pending();
    }
  }
  ArrayImpl& operator[](size_t i) const { return *arrays_[i]; }

 private:
  std::vector<Ref<ArrayImpl>> arrays_;
};

}  // namespace mx::detail
