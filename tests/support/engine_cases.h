// The engine configurations in which a property must hold, as parameters of a test suite.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace mx::test {

struct EngineCase {
  std::string name;
  EngineOptions options;
};

inline void PrintTo(const EngineCase& c, std::ostream* out) { *out << c.name; }

inline EngineCase threaded_case(int threads) {
  EngineCase c{"threaded" + std::to_string(threads), {}};
  c.options.threads = threads;
  return c;
}

inline EngineCase mode_case(EngineMode mode, const std::string& name, uint64_t seed = 0) {
  EngineCase c{name, {}};
  c.options.mode = mode;
  c.options.seed = seed;
  if (mode == EngineMode::check) c.options.threads = 2;
  return c;
}

/// Configurations in which operations run on workers, so a body may block without blocking the pusher.
inline std::vector<EngineCase> worker_cases() {
  return {threaded_case(1), threaded_case(2), threaded_case(4), mode_case(EngineMode::check, "check")};
}

inline std::vector<EngineCase> all_cases() {
  std::vector<EngineCase> cases = worker_cases();
  cases.push_back(mode_case(EngineMode::naive, "naive"));
  for (uint64_t seed : {1, 2, 3}) {
    cases.push_back(mode_case(EngineMode::fuzz, "fuzz" + std::to_string(seed), seed));
  }
  return cases;
}

struct CaseName {
  std::string operator()(const ::testing::TestParamInfo<EngineCase>& info) const { return info.param.name; }
};

class EngineTest : public ::testing::TestWithParam<EngineCase> {
 protected:
  Engine e_{GetParam().options};
};

}  // namespace mx::test
