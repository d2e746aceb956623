// Searches of hyper-parameters: reproducible, whatever the number of threads.
#include "nn/training/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/random.h"
#include "operators/reduce.h"
#include "tests/support/errors.h"

namespace mx::training {
namespace {

using test::contains;
using test::error_of;

SearchSpace space_of_all() {
  SearchSpace space;
  space.uniform("x", -1, 3).log_uniform("lr", 1e-4, 1e-1).integers("n", 2, 5);
  space.choice("name", {std::string("sgd"), std::string("adam")});
  return space;
}
double real(const Trial& trial, const char* name) { return std::get<double>(trial.values.at(name)); }

TEST(Search, SamplesCoverTheSpace) {
  const SearchSpace space = space_of_all();
  std::map<int64_t, int> integers;
  std::map<std::string, int> names;
  int small = 0, low = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const AttrMap values = space.sample(7, i);
    const double x = std::get<double>(values.at("x")), lr = std::get<double>(values.at("lr"));
    ASSERT_TRUE(x >= -1 && x <= 3 && lr >= 1e-4 && lr <= 1e-1);
    low += x < 1;
    small += lr < std::sqrt(1e-5);  // the middle of the logarithms
    ++integers[std::get<int64_t>(values.at("n"))];
    ++names[std::get<std::string>(values.at("name"))];
  }
  for (const int half : {low, small, names["sgd"]}) EXPECT_NEAR(2000, half, 200);
  ASSERT_EQ(4u, integers.size());
  for (const auto& [n, count] : integers) EXPECT_NEAR(1000, count, 150) << n;
  EXPECT_EQ(space.sample(7, 3), space.sample(7, 3));
  EXPECT_NE(space.sample(7, 3), space.sample(8, 3));
}

TEST(Search, AGridHasAllCombinations) {
  const std::vector<AttrMap> grid = space_of_all().grid(3);
  EXPECT_EQ(3u * 3 * 3 * 2, grid.size());
  std::set<double> rates;
  std::set<int64_t> integers;
  for (const AttrMap& values : grid) {
    rates.insert(std::get<double>(values.at("lr")));
    integers.insert(std::get<int64_t>(values.at("n")));
  }
  ASSERT_EQ(3u, rates.size());
  EXPECT_DOUBLE_EQ(1e-4, *rates.begin());
  EXPECT_DOUBLE_EQ(1e-1, *rates.rbegin());
  EXPECT_EQ((std::set<int64_t>{2, 4, 5}), integers);
  EXPECT_EQ(std::set<AttrMap>(grid.begin(), grid.end()).size(), grid.size());
  EXPECT_EQ(4u, SearchSpace().integers("n", 2, 5).grid(10).size());
}

// A trial's random numbers are its own, so trials that run at the same time have the results of a serial
// search.
TEST(Search, ResultsDoNotDependOnHowManyRunAtATime) {
  const SearchSpace space = space_of_all();
  const auto objective = [](const Trial& trial) {
    double score = real(trial, "x");
    for (int i = 0; i < 20; ++i) score += static_cast<double>(sum(mx::randn({100})).item<float>());
    return score;
  };
  std::vector<std::vector<double>> all;
  manual_seed(3);
  const double next = rand({1}).item<float>();
  for (const int64_t parallel : {1, 2, 5}) {
    manual_seed(3);
    const SearchResult result =
        random_search(space, objective, {.trials = 12, .seed = 4, .parallel = parallel});
    EXPECT_EQ(next, rand({1}).item<float>()) << "the caller's random numbers";
    auto& scores = all.emplace_back();
    for (const TrialResult& trial : result.trials) {
      EXPECT_EQ("", trial.error);
      scores.push_back(trial.score);
    }
    EXPECT_EQ(*std::min_element(scores.begin(), scores.end()), result.best().score);
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
  EXPECT_EQ(12u, std::set<double>(all[0].begin(), all[0].end()).size());
}

TEST(Search, TrialsRunAtTheSameTime) {
  std::barrier meeting(3);  // would wait for ever with fewer
  const auto meet = [&](const Trial& trial) {
    meeting.arrive_and_wait();
    return static_cast<double>(trial.number);
  };
  EXPECT_EQ(0, random_search(space_of_all(), meet, {.trials = 3, .parallel = 3}).best().score);
}

TEST(Search, AFailedTrialIsReported) {
  SearchSpace space;
  space.integers("n", 0, 3);
  const auto objective = [](const Trial& trial) {
    const int64_t n = std::get<int64_t>(trial.values.at("n"));
    if (n == 0) throw InvalidState("no zeros please");
    return n == 1 ? std::nan("") : static_cast<double>(n);
  };
  const SearchResult result = grid_search(space, objective, {.parallel = 2});
  ASSERT_EQ(4u, result.trials.size());
  EXPECT_TRUE(contains(result.trials[0].error, "no zeros please"));
  EXPECT_EQ(2, result.best().score);
  const SearchResult none =
      random_search(space, [](const Trial&) -> double { throw InvalidState("never"); }, {.trials = 2});
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { none.best(); }), "2 failed ones; the first: never"));
}

TEST(Search, HalvingSpendsMoreOnTheBest) {
  SearchSpace space;
  space.uniform("x", 0, 1);
  std::atomic<int64_t> spent{0};
  const auto objective = [&](const Trial& trial) {
    spent += trial.budget;
    return std::fabs(real(trial, "x") - 0.3) + 1 / static_cast<double>(trial.budget);
  };
  const SearchResult result =
      successive_halving(space, objective, {.trials = 27, .budget = 2, .factor = 3, .parallel = 2});
  std::map<int64_t, int> rungs;
  for (const TrialResult& trial : result.trials) ++rungs[trial.trial.budget];
  EXPECT_EQ((std::map<int64_t, int>{{2, 27}, {6, 9}, {18, 3}, {54, 1}}), rungs);
  EXPECT_EQ(27 * 2 + 9 * 6 + 3 * 18 + 54, spent);
  double best = 1;
  for (size_t i = 0; i < 27; ++i) best = std::min(best, std::fabs(real(result.trials[i].trial, "x") - 0.3));
  EXPECT_EQ(54, result.best().trial.budget);
  EXPECT_DOUBLE_EQ(best, std::fabs(real(result.best().trial, "x") - 0.3));
}

TEST(Search, WhatIsWrongIsSaid) {
  const auto zero = [](const Trial&) { return 0.0; };
  SearchSpace space;
  error_of<InvalidArgument>([&] { space.uniform("x", 2, 1); });
  error_of<InvalidArgument>([&] { space.log_uniform("x", 0, 1); });
  error_of<InvalidArgument>([&] { space.integers("x", 2, 1); });
  error_of<InvalidArgument>([&] { space.choice("x", {}); });
  space.uniform("x", 0, 1);
  error_of<InvalidArgument>([&] { space.integers("x", 0, 1); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { random_search(space, zero, {.trials = 0}); }),
                       "[random_search] expected trials of at least 1, got 0 (called at "));
  error_of<InvalidArgument>([&] { random_search(space, nullptr); });
  error_of<InvalidArgument>([&] { grid_search(space, zero, {.points = 0}); });
  error_of<InvalidArgument>([&] { successive_halving(space, zero, {.factor = 1}); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         successive_halving(space, zero,
                                            {.trials = 10, .budget = INT64_MAX / 2, .factor = 3});
                       }),
                       "expected budgets below 2^63 in all rungs"));
  EXPECT_EQ(2u, successive_halving(space, zero, {.trials = 2, .factor = INT64_MAX}).trials.size());
}

TEST(Search, AGridHasALimit) {
  SearchSpace space;
  space.integers("n", 1, 1000).uniform("x", 0, 1);
  EXPECT_EQ(1'000'000u, space.grid(1000).size());
  const std::string message = error_of<InvalidArgument>([&] { space.grid(1001); });
  EXPECT_TRUE(contains(message, "at most 1000000 combinations, got 1001 values of 'x' with 1000 comb"))
      << message;
  EXPECT_TRUE(contains(message, "search_test.cc")) << message;
  error_of<InvalidArgument>([&] { space.grid(INT64_MAX); });
  space.uniform("y", 0, 1).uniform("z", 0, 1).uniform("w", 0, 1).uniform("v", 0, 1).uniform("u", 0, 1);
  error_of<InvalidArgument>(
      [&] { grid_search(space, [](const Trial&) { return 0.0; }, {.points = 100000}); });
}

}  // namespace
}  // namespace mx::training
