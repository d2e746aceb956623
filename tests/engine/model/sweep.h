// Many programs, explored one after another.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/engine/model/program.h"
#include "tests/engine/model/queue_model.h"
#include "tests/engine/model/report.h"

namespace mx::test::model {

/// Explores many programs and reports the results as one.
class Sweep {
 public:
  Sweep(const char* what, Limits limits = {}) : what_(what), limits_(limits) { sum_.complete = true; }

  void add(const Program& program) {
    if (!sum_.violation.empty()) return;
    QueueModel<> model(program);
    const Exploration one = explore(model, limits_);
    ++programs_;
    sum_.executions += one.executions;
    sum_.states += one.states;
    sum_.longest = std::max(sum_.longest, one.longest);
    sum_.complete &= one.complete;
    if (!one.violation.empty()) sum_.violation = program.text() + ": " + one.violation;
  }

  void expect_complete() {
    print((what_ + ", " + std::to_string(programs_) + " programs").c_str(), sum_);
    EXPECT_EQ(sum_.violation, "");
    EXPECT_TRUE(sum_.complete);
    EXPECT_GT(programs_, 0);
  }

 private:
  const std::string what_;
  const Limits limits_;
  int programs_ = 0;
  Exploration sum_;
};

}  // namespace mx::test::model
