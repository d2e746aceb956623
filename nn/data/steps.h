// The steps in which loaders bring a batch in: operations of the engine whose results are host objects, and
// the order of loading behind computation. Internal to the loaders.
#pragma once

#include <source_location>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "ndarray/detail/push_on.h"
#include "ndarray/ndarray.h"
#include "ndarray/storage.h"

namespace mx::data::detail {

/// An array that no step reads as numbers: it stands for the host objects that a step sets, and poisons what
/// depends on them if the step fails.
inline NDArray step_token() { return empty({1}, u8); }

/// Pushes an operation that calls work() when the arrays in `after` are set, and that then sets `made`.
/// Operations with the same array in `serial` run one after the other.
template <class Work>
void push_step(const std::vector<NDArray>& after, const NDArray& made, const char* name, StreamKind lane,
               Work work, const std::vector<NDArray>& serial = {},
               std::source_location where = std::source_location::current()) {
  std::vector<mx::detail::ArrayUse> uses;
  for (const NDArray& array : after) uses.push_back({&array.impl(), mx::detail::Touch::read});
  for (const NDArray& array : serial) uses.push_back({&array.impl(), mx::detail::Touch::update});
  uses.push_back({&made.impl(), mx::detail::Touch::write});
  mx::detail::push_on(
      current_engine(), uses,
      [work = std::move(work)](const RunContext&, mx::detail::PushedArrays& arrays) {
        work();
        arrays.ran_well();
      },
      {.name = name, .lane = lane}, where);
}

/// Returns whether wait() would return or throw at once.
bool has_ended(const NDArray& token);

/// Orders loading behind computation: its array is updated when the computation on a batch has ended, and the
/// operations that load a later batch read it. It never holds a value.
class Turn {
 public:
  /// Pushes operations that update array() when those that use `arrays` have ended. Returns false if none of
  /// them is left, so that a later batch need not wait.
  bool end(const std::vector<NDArray>& arrays) const;
  const NDArray& array() const { return array_; }

 private:
  NDArray array_ = step_token();
};

}  // namespace mx::data::detail
