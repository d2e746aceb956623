// Runs a test with each instruction set that the processor supports.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cstdint>

namespace mx::test {

/// Calls f(target) for each supported instruction set: the best one first, the others from the baseline up.
/// If one is not compiled, run-time dispatch selects the baseline instead. Afterwards dispatch selects the
/// best one again.
///
/// A function that keeps the functions it has looked up in a static table does not notice the change. The
/// best instruction set comes first so that such a table does not hold slower or less accurate functions for
/// the tests that follow in the same process.
template <class F>
void with_every_instruction_set(const F& f) {
  const int64_t supported = hwy::SupportedTargets(), best = supported & -supported;
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
