#include "engine/base/check.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace mx {
namespace {

TEST(Check, PassesWithoutEvaluatingItsMessage) {
  int evaluated = 0;
  const auto part = [&evaluated] { return ++evaluated; };
  MX_CHECK(true, InvalidArgument, "part ", part());
  EXPECT_EQ(evaluated, 0);
}

TEST(Check, ThrowsTheNamedTypeWithEveryPartOfTheMessage) {
  const int64_t n = -3;
  try {
    MX_CHECK(n > 0, InvalidArgument, "[full] expected a positive size, got ", n, " (", 1.5, ", ", 'x', ")");
    FAIL() << "the check let a negative size pass";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "[full] expected a positive size, got -3 (1.5, x)");
  }
}

TEST(Check, EvaluatesItsConditionOnce) {
  int evaluated = 0;
  EXPECT_THROW(MX_CHECK(++evaluated == 0, InvalidState, "evaluated"), InvalidState);
  EXPECT_EQ(evaluated, 1);
}

TEST(Check, BindsAsOneStatement) {
  // Without the do-while of the macro the else would belong to the macro's own if.
  bool reached_else = false;
  if (false)
    MX_CHECK(false, InvalidArgument, "not reached");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(CheckDeathTest, BrokenInvariantPrintsItsTextAndPlaceAndAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(detail::invariant_failed("head != nullptr", "queue.cc", 42),
               "broken invariant `head != nullptr` at queue.cc:42");
}

}  // namespace
}  // namespace mx
