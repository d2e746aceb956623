// Every program of a few operations on a few variables, and every set of them that fails.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/model/queue_model.h"
#include "tests/engine/model/report.h"

namespace mx::test::model {

/// Calls f(ops) for every list of `ops` operations that touch at least one of `vars` variables, but for
/// those that only call the variables by other names.
template <class F>
void for_each_program(size_t ops, size_t vars, F&& f) {
  static constexpr char kAccess[] = {'.', 'r', 'w', 'u'};
  size_t kinds = 1;
  for (size_t v = 0; v < vars; ++v) kinds *= 4;
  std::vector<Touches> program(ops, Touches(vars, '.'));
  std::vector<size_t> kind(ops, 1);
  for (;;) {
    for (size_t i = 0; i < ops; ++i) {
      for (size_t v = 0, rest = kind[i]; v < vars; ++v, rest /= 4) program[i][v] = kAccess[rest % 4];
    }
    bool first_of_its_names = true;
    for (size_t v = 1; v < vars; ++v) {
      std::string left, right;
      for (const Touches& touches : program) {
        left += touches[v - 1];
        right += touches[v];
      }
      first_of_its_names &= left >= right;
    }
    if (first_of_its_names) f(program);
    size_t i = 0;
    while (i < ops && ++kind[i] == kinds) kind[i++] = 1;
    if (i == ops) return;
  }
}

/// Calls f(failing) for every set of operations whose failure shows: those that write.
template <class F>
void for_each_failing_set(const std::vector<Touches>& ops, F&& f) {
  for (uint32_t failing = 0; failing < 1u << ops.size(); ++failing) {
    bool shows = true;
    for (size_t i = 0; i < ops.size(); ++i) {
      shows &= !(failing >> i & 1) || ops[i].find_first_of("wu") != std::string::npos;
    }
    if (shows) f(failing);
  }
}

/// Explores many programs, and reports them as one.
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
