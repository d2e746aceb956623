// The further update rules: what all have in common, and the norms of whole parameters. The formulas of all
// rules are compared with plain loops by tests/optim/optimizer_rules_test.cc.
#include "operators/kernels/update_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using kernels::UpdateRule;
using test::Array;

// Borders of tensors inside pieces of 16384 elements and exactly on their borders; one tensor is empty.
const std::vector<Shape> kRuleShapes = {{3, 5}, {}, {16353}, {0, 4}, {16384}, {40'000}, {1}};

std::vector<UpdateRule> all_rules() {
  return {kernels::AdagradRule{},
          kernels::AdadeltaRule{},
          kernels::RmspropRule{},
          kernels::RmspropRule{.eps = 0.1, .momentum = 0.9},
          kernels::RmspropRule{.eps = 0.1, .centered = true},
          kernels::RmspropRule{.eps = 0.1, .momentum = 0.9, .centered = true},
          kernels::AdamaxRule{},
          kernels::NadamRule{},
          kernels::RadamRule{},
          kernels::FtrlRule{},
          kernels::SignumRule{},
          kernels::SignumRule{.momentum = 0},
          kernels::RpropRule{},
          kernels::AsgdRule{},
          kernels::LarsRule{},
          kernels::LarsRule{.momentum = 0.9, .eta = 0.1},
          kernels::LambRule{}};
}

std::string name_of(const UpdateRule& rule) {
  return std::visit([](const auto& own) { return std::string(own.kName); }, rule);
}
size_t states_of(const UpdateRule& rule) {
  return std::visit([](const auto& own) { return own.states(); }, rule);
}
bool whole_parameters(const UpdateRule& rule) {
  return std::visit([](const auto& own) { return own.kWholeParameters; }, rule);
}

/// Parameters with their state, and steps of a rule.
struct RuleRun {
  UpdateRule rule;
  std::vector<Array> w, g;
  std::vector<std::vector<Array>> states;
  std::vector<Tensor> w_of, g_of;
  std::vector<std::vector<Tensor>> states_of_w;
  double step = 0;

  RuleRun(const UpdateRule& of, const std::vector<Shape>& shapes, DType type = f32, DType gradient = f32)
      : rule(of), states(states_of(of)), states_of_w(states.size()) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      w.emplace_back(type, shapes[i]);
      w.back().fill_random(i + 1);
      g.emplace_back(gradient, shapes[i]);
      for (auto& list : states) list.emplace_back(type, shapes[i]);
    }
    for (const Array& a : w) w_of.push_back(a.t);
    for (const Array& a : g) g_of.push_back(a.t);
    for (size_t k = 0; k < states.size(); ++k)
      for (const Array& a : states[k]) states_of_w[k].push_back(a.t);
  }
  void gradients(uint64_t seed) {
    for (Array& a : g) {
      Array exact(f64, a.t.shape);
      exact.fill_random(seed++);
      a.fill([&](int64_t i) { return std::round(exact.get(i) * 64) / 64; });  // the same in every type
    }
  }
  void update() {
    Array rate(f64, {}), t(f64, {});
    rate.set(0, 0.01);
    t.set(0, ++step);
    std::vector<std::span<const Tensor>> lists(states_of_w.begin(), states_of_w.end());
    kernels::rule_update({w_of, g_of}, lists, {.learning_rate = rate.t, .weight_decay = 0.1}, rule,
                         {.step = &t.t});
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const Array& a : w)
      for (const double v : a.values()) all.push_back(v);
    for (const auto& list : states)
      for (const Array& a : list)
        for (const double v : a.values()) all.push_back(v);
    return all;
  }
};

TEST(UpdateRules, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const UpdateRule& rule : all_rules()) {
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 2, 3}) {
      RuleRun run(rule, kRuleShapes);
      test::with_threads(threads, [&] {
        for (uint64_t t = 1; t <= 3; ++t) {
          run.gradients(100 * t);
          run.update();
        }
      });
      results.push_back(run.values());
    }
    EXPECT_EQ(results[0], results[1]) << name_of(rule);
    EXPECT_EQ(results[0], results[2]) << name_of(rule);
  }
}

TEST(UpdateRules, TheTypeOfTheGradientDoesNotMatter) {
  for (const UpdateRule& rule : all_rules()) {
    RuleRun same(rule, kRuleShapes), half(rule, kRuleShapes, f32, f16), wide(rule, kRuleShapes, f32, f64);
    for (RuleRun* run : {&same, &half, &wide})
      for (uint64_t t = 1; t <= 2; ++t) {
        run->gradients(100 * t);
        run->update();
      }
    EXPECT_EQ(same.values(), half.values()) << name_of(rule);
    EXPECT_EQ(same.values(), wide.values()) << name_of(rule);
  }
}

// A parameter that is cut into portions gets the same bits, unless the rule says that it needs all of it.
TEST(UpdateRules, PortionsOfAParameterCanBeUpdatedByThemselves) {
  for (const UpdateRule& rule : all_rules()) {
    RuleRun whole(rule, {{100}}), portions(rule, {{37}, {63}});
    const auto cut = [&](std::vector<Array>& from, std::vector<Array>& to) {
      for (int64_t i = 0; i < 100; ++i) to[i < 37 ? 0 : 1].set(i < 37 ? i : i - 37, from[0].get(i));
    };
    cut(whole.w, portions.w);
    for (uint64_t t = 1; t <= 3; ++t) {
      whole.gradients(100 * t);
      cut(whole.g, portions.g);
      whole.update();
      portions.update();
    }
    bool same = true;
    for (int64_t i = 0; i < 100; ++i)
      same = same && whole.w[0].get(i) == portions.w[i < 37 ? 0 : 1].get(i < 37 ? i : i - 37);
    EXPECT_EQ(!whole_parameters(rule), same) << name_of(rule);
  }
}

TEST(UpdateRules, NaNsArePassedOn) {
  for (const UpdateRule& rule : all_rules()) {
    RuleRun run(rule, {{20}});
    run.gradients(1);
    run.update();
    run.gradients(2);
    run.g[0].set(3, std::nan(""));
    run.g[0].set(18, std::nan(""));
    run.update();
    for (int64_t i = 0; i < 20; ++i) {
      if (i == 3 || i == 18) {
        EXPECT_TRUE(std::isnan(run.w[0].get(i))) << name_of(rule) << i;
      } else if (!whole_parameters(rule)) {
        EXPECT_FALSE(std::isnan(run.w[0].get(i))) << name_of(rule) << i;
      }
    }
  }
}

double norm_of(const Array& a) {
  double sum = 0;
  for (const double v : a.values()) sum += v * v;
  return std::sqrt(sum);
}

// The length of the first step is known from the norms, also over several pieces.
TEST(UpdateRules, NormsAreThoseOfWholeParameters) {
  for (const DType type : {f32, f64}) {
    RuleRun lars(kernels::LarsRule{.eta = 0.5, .eps = 0}, kRuleShapes, type, type);
    RuleRun lamb(kernels::LambRule{}, kRuleShapes, type, type);
    for (RuleRun* run : {&lars, &lamb}) {
      run->gradients(7);
      const RuleRun before(run->rule, kRuleShapes, type, type);
      run->update();
      for (size_t i = 0; i < kRuleShapes.size(); ++i) {
        Array change(f64, kRuleShapes[i]), sum(f64, kRuleShapes[i]);
        change.fill([&](int64_t k) { return run->w[i].get(k) - before.w[i].get(k); });
        sum.fill([&](int64_t k) { return run->g[i].get(k) + 0.1 * before.w[i].get(k); });
        const double w = norm_of(before.w[i]), g = norm_of(run->g[i]);
        if (w == 0 || g == 0) continue;
        const double length = run == &lars ? 0.01 * 0.5 * w / (g + 0.1 * w) * norm_of(sum) : 0.01 * w;
        EXPECT_NEAR(1, norm_of(change) / length, 10 * test::tolerance(type)) << i;
      }
    }
  }
}

TEST(UpdateRules, ListsThatDoNotFitAreRefused) {
  for (const UpdateRule& rule : all_rules()) {
    SCOPED_TRACE(name_of(rule));
    Array w(f32, {4}), g(f32, {4}), s(f32, {4}), d(f64, {4}), rate(f64, {});
    rate.set(0, 1);
    const auto run = [&](std::span<const Tensor> gradients,
                         const std::vector<std::span<const Tensor>>& states) {
      kernels::rule_update({{&w.t, 1}, gradients}, states, {.learning_rate = rate.t}, rule,
                           {.step = &rate.t});
    };
    const std::vector<std::span<const Tensor>> right(states_of(rule), {&s.t, 1});
    auto more = right, other = right;
    more.push_back({&s.t, 1});
    test::error_of<InvalidArgument>([&] { run({&g.t, 1}, more); });
    test::error_of<InvalidArgument>([&] { run({}, right); });
    if (!right.empty()) {
      other[0] = {&d.t, 1};
      test::error_of<InvalidArgument>([&] { run({&g.t, 1}, other); });
    }
    const bool needs_step = std::visit([](const auto& own) { return own.kNeedsStep; }, rule);
    const auto without = [&] {
      kernels::rule_update({{&w.t, 1}, {&g.t, 1}}, right, {.learning_rate = rate.t}, rule);
    };
    if (needs_step) test::error_of<InvalidArgument>(without);
    if (!needs_step) without();
  }
}

}  // namespace
}  // namespace mx
