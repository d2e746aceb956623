// Helpers shared by the tests of the model checker.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "engine/base/annotations.h"
#include "tests/engine/model/explorer.h"

// ThreadSanitizer does not know the fibers and cannot find anything in one thread. Under AddressSanitizer
// everything is twenty times slower, so the largest cases run only in the other builds.
#if defined(MX_TSAN)
#  define MX_SKIP_MODEL() GTEST_SKIP() << "one thread of fibers: nothing for ThreadSanitizer"
#else
#  define MX_SKIP_MODEL() ((void)0)
#endif
#if defined(__SANITIZE_ADDRESS__)
#  define MX_SKIP_LARGE_MODEL() GTEST_SKIP() << "explored without sanitizers"
#else
#  define MX_SKIP_LARGE_MODEL() MX_SKIP_MODEL()
#endif

namespace mx::test::model {

inline void print(const char* what, const Exploration& result) {
  std::printf("[ explored ] %s: %s, %llu executions, %llu states, at most %u steps\n", what,
              !result.violation.empty() ? "violated"
              : result.complete         ? "complete"
                                        : "cut short",
              static_cast<unsigned long long>(result.executions),
              static_cast<unsigned long long>(result.states), result.longest);
}

/// Expects that every schedule (within the limits) is explored and that none violates a property.
inline void expect_complete(const char* what, Model& model, Limits limits = {}) {
  const Exploration result = explore(model, limits);
  print(what, result);
  EXPECT_EQ(result.violation, "");
  EXPECT_TRUE(result.violation != "" || result.complete);
}

/// Expects the checker to find a violation in a model that is broken on purpose.
inline void expect_violation(const char* what, Model& model) {
  const Exploration result = explore(model);
  print(what, result);
  EXPECT_NE(result.violation, "") << what;
  std::printf("             %s\n", result.violation.substr(0, result.violation.find('\n')).c_str());
}

}  // namespace mx::test::model
