#include "operators/kernels/simd.h"

#include <gtest/gtest.h>

namespace mx {
namespace {

TEST(Simd, TheTargetHasAName) {
  EXPECT_FALSE(kernels::simd_target().empty());
  EXPECT_NE("unknown", kernels::simd_target());
  RecordProperty("target", kernels::simd_target());
}

}  // namespace
}  // namespace mx
