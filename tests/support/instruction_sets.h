// Runs a test with each instruction set that the processor supports.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cstdint>

namespace mx::test {

/// Returns the instruction sets that the processor supports and the kernels are compiled for, as Highway's
/// bits. The lowest bit is the best one.
inline int64_t instruction_sets() { return hwy::SupportedTargets() & HWY_TARGETS; }

/// Calls f(target) for each of instruction_sets(): the best one first, the others from the baseline up.
/// Afterwards dispatch selects the best one again.
///
/// A function that keeps the functions it has looked up in a static table does not notice the change. The
/// best instruction set comes first so that such a table does not hold slower or less accurate functions for
/// the tests that follow in the same process.
template <class F>
void with_every_instruction_set(const F& f) {
  const int64_t supported = instruction_sets(), best = supported & -supported;
  {
    SCOPED_TRACE("the best instruction set");
    f(best);
  }
  int64_t target = 0;
  for (int64_t rest = supported & ~best; rest != 0; rest &= ~target) {
    target = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rest)));
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace mx::test
