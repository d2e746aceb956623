// Search of hyper-parameters: random search, grid search, successive halving.
//
//   training::SearchSpace space;
//   space.log_uniform("lr", 1e-4, 1).uniform("momentum", 0, 0.99).choice("name", {"sgd", "adam"});
//   const auto result = training::random_search(space, [](const training::Trial& trial) {
//     return validation_loss(std::get<double>(trial.values.at("lr")), ...);
//   }, {.trials = 50, .seed = 1, .parallel = 4});
//   std::cout << result.best().score << '\n';
//
// A trial is a call of the program's function, which returns a score; smaller is better. Trials run in
// threads of their own, `parallel` of them at a time, and push their operations to the caller's engine, which
// runs those of all trials at once. Inside a trial the default random generators belong to the trial and
// begin with its seed. Values and seeds depend only on the search's seed and the trial's number. So results
// do not depend on `parallel`, if a trial depends on nothing else.
//
// With `parallel` above 1 the function is called from several threads at once, so it must not change shared
// data without a lock. Thread-safety of SearchSpace: one thread at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/attrs.h"

namespace mx::training {

/// Names with the values that they may have. The functions throw InvalidArgument for an empty range and for a
/// name that exists.
class SearchSpace {
 public:
  SearchSpace& uniform(const std::string& name, double low, double high);
  /// The logarithm is uniform; low must be above 0.
  SearchSpace& log_uniform(const std::string& name, double low, double high);
  /// Integers from low to high, both included.
  SearchSpace& integers(const std::string& name, int64_t low, int64_t high);
  SearchSpace& choice(const std::string& name, const std::vector<AttrValue>& values);

  /// Returns the values of trial `number` of a random search.
  AttrMap sample(uint64_t seed, int64_t number) const;
  /// Returns all combinations; the last name changes fastest. A range of real numbers has `points` values,
  /// evenly spaced (of a log_uniform: in the logarithm); a range of integers with more has as many.
  /// Throws InvalidArgument for more than kMostCombinations.
  std::vector<AttrMap> grid(IntArg points,
                            std::source_location where = std::source_location::current()) const;
  static constexpr int64_t kMostCombinations = 1'000'000;

 private:
  struct Entry {
    std::string name;
    std::vector<AttrValue> values{};  // of a choice
    double low = 0, high = 0;
    bool logarithmic = false, integral = false;
  };
  void add(Entry entry);
  static AttrValue at(const Entry& entry, double share);
  static int64_t grid_values(const Entry& entry, int64_t points);

  std::vector<Entry> entries_;
};

struct Trial {
  int64_t number = 0;  ///< from 0
  AttrMap values{};    ///< by name
  uint64_t seed = 0;   ///< of random numbers
  int64_t budget = 0;  ///< successive halving: how many steps or epochs to train; otherwise 0
};
/// Returns the score, for example a validation loss. NaN is worse than any number. A trial that throws has
/// failed.
using Objective = std::function<double(const Trial&)>;

struct TrialResult {
  Trial trial;
  double score = 0;
  std::string error{};  ///< what a failed trial has thrown; empty otherwise
};
struct SearchResult {
  std::vector<TrialResult> trials;  ///< by number; of successive halving, rung by rung
  /// Returns the trial with the smallest score; of equal ones the first. With successive halving, among those
  /// of the largest budget. Throws InvalidState, with the first error, if all have failed.
  const TrialResult& best() const;
};

struct SearchOptions {
  IntArg trials = 10;
  uint64_t seed = 0;
  IntArg parallel = 1;  ///< trials at a time
};
struct GridOptions {
  IntArg points = 5;  ///< values of a range
  uint64_t seed = 0;
  IntArg parallel = 1;
};
struct HalvingOptions {
  IntArg trials = 27;
  IntArg budget = 1;  ///< of the first rung
  IntArg factor = 3;  ///< the best 1 / factor of a rung are tried again with a budget `factor` times as large
  uint64_t seed = 0;
  IntArg parallel = 1;
};

/// All throw InvalidArgument for options below 1 (factor: below 2), an empty function, a grid of too many
/// combinations and a last budget of 2^63 or more, before any trial. They wait for all trials.
SearchResult random_search(const SearchSpace& space, const Objective& objective,
                           const SearchOptions& options = {},
                           std::source_location where = std::source_location::current());
SearchResult grid_search(const SearchSpace& space, const Objective& objective,
                         const GridOptions& options = {},
                         std::source_location where = std::source_location::current());
/// K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization",
/// 2016. A trial keeps its number, values and seed in later rungs, and begins anew there.
SearchResult successive_halving(const SearchSpace& space, const Objective& objective,
                                const HalvingOptions& options = {},
                                std::source_location where = std::source_location::current());

}  // namespace mx::training
