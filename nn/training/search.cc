#include "nn/training/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/storage.h"
#include "operators/kernels/philox.h"
#include "operators/random.h"

namespace mx::training {
namespace {

constexpr uint32_t kSearchStream = 0x5EA4C4;  // separates these random numbers from those of operators

kernels::PhiloxWords words_of(uint64_t seed, int64_t number, uint32_t entry) {
  return kernels::philox_block(seed, static_cast<uint64_t>(number), kSearchStream, entry);
}

/// Returns a number from 0 to below 1.
double share_of(uint64_t seed, int64_t number, uint32_t entry) {
  const auto words = words_of(seed, number, entry);
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

uint64_t seed_of(uint64_t seed, int64_t number) {
  const auto words = words_of(seed, number, std::numeric_limits<uint32_t>::max());
  return uint64_t{words[0]} << 32 | words[1];
}

/// Returns a score for comparisons: NaN and failed trials come last.
double rank_of(const TrialResult& result) {
  return !result.error.empty() || std::isnan(result.score) ? std::numeric_limits<double>::infinity()
                                                           : result.score;
}

void check_at_least(const char* op, const char* what, int64_t least, int64_t got,
                    std::source_location where) {
  MX_CHECK(got >= least, InvalidArgument, "[", op, "] expected ", what, " of at least ", least, ", got ", got,
           mx::detail::called_at(where));
}

void run_trial(TrialResult& result, const Objective& objective, Engine& engine) {
  const EngineScope scope(engine);  // also gives the trial random generators of its own
  manual_seed(result.trial.seed);
  try {
    result.score = objective(result.trial);
  } catch (const std::exception& error) {
    result.score = std::numeric_limits<double>::quiet_NaN();
    result.error = error.what();
    if (result.error.empty()) result.error = "an exception without text";
  } catch (...) {
    result.score = std::numeric_limits<double>::quiet_NaN();
    result.error = "an exception of an unknown type";
  }
}

std::vector<TrialResult> run_trials(const std::vector<Trial>& trials, const Objective& objective,
                                    int64_t parallel) {
  std::vector<TrialResult> results;
  for (const Trial& trial : trials) results.push_back({trial});
  Engine& engine = current_engine();
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < results.size(); i = next++) run_trial(results[i], objective, engine);
  };
  std::vector<std::jthread> threads;
  const auto count = std::min<size_t>(static_cast<size_t>(parallel), results.size());
  for (size_t i = 0; i < count; ++i) threads.emplace_back(work);
  threads.clear();  // joins
  return results;
}

}  // namespace

void SearchSpace::add(Entry entry) {
  for (const Entry& other : entries_)
    MX_CHECK(other.name != entry.name, InvalidArgument, "[SearchSpace] expected a new name, got '",
             entry.name, "' again");
  entries_.push_back(std::move(entry));
}

SearchSpace& SearchSpace::uniform(const std::string& name, double low, double high) {
  MX_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, InvalidArgument,
           "[SearchSpace] expected a finite range for '", name, "', got ", low, " to ", high);
  add({.name = name, .low = low, .high = high});
  return *this;
}

SearchSpace& SearchSpace::log_uniform(const std::string& name, double low, double high) {
  MX_CHECK(low > 0 && std::isfinite(high) && low <= high, InvalidArgument,
           "[SearchSpace] expected a finite range above 0 for '", name, "', got ", low, " to ", high);
  add({.name = name, .low = low, .high = high, .logarithmic = true});
  return *this;
}

SearchSpace& SearchSpace::integers(const std::string& name, int64_t low, int64_t high) {
  constexpr int64_t kExact = int64_t{1} << 52;
  MX_CHECK(low <= high && low >= -kExact && high <= kExact, InvalidArgument,
           "[SearchSpace] expected a range of integers of up to 2^52 for '", name, "', got ", low, " to ",
           high);
  add({.name = name, .low = static_cast<double>(low), .high = static_cast<double>(high), .integral = true});
  return *this;
}

SearchSpace& SearchSpace::choice(const std::string& name, const std::vector<AttrValue>& values) {
  MX_CHECK(!values.empty(), InvalidArgument, "[SearchSpace] expected values for '", name, "', got none");
  add({.name = name, .values = values});
  return *this;
}

AttrValue SearchSpace::at(const Entry& entry, double share) {
  if (!entry.values.empty()) {
    const auto count = static_cast<double>(entry.values.size());
    return entry.values[static_cast<size_t>(std::min(share * count, count - 1))];
  }
  if (entry.integral) {
    const double count = entry.high - entry.low + 1;
    return static_cast<int64_t>(entry.low + std::min(std::floor(share * count), count - 1));
  }
  if (entry.logarithmic)
    return std::clamp(entry.low * std::pow(entry.high / entry.low, share), entry.low, entry.high);
  return std::clamp(entry.low + share * (entry.high - entry.low), entry.low, entry.high);
}

AttrMap SearchSpace::sample(uint64_t seed, int64_t number) const {
  AttrMap values;
  for (size_t i = 0; i < entries_.size(); ++i)
    values[entries_[i].name] = at(entries_[i], share_of(seed, number, static_cast<uint32_t>(i)));
  return values;
}

int64_t SearchSpace::grid_values(const Entry& entry, int64_t points) {
  if (!entry.values.empty()) return static_cast<int64_t>(entry.values.size());
  const bool few = entry.integral && entry.high - entry.low < static_cast<double>(points);
  return few ? static_cast<int64_t>(entry.high - entry.low) + 1 : points;
}

std::vector<AttrMap> SearchSpace::grid(IntArg points, std::source_location where) const {
  check_at_least("SearchSpace", "points", 1, points, where);
  int64_t combinations = 1;
  for (const Entry& entry : entries_) {
    const int64_t count = grid_values(entry, points);
    MX_CHECK(count <= kMostCombinations / combinations, InvalidArgument,
             "[SearchSpace] expected a grid of at most ", kMostCombinations, " combinations, got ", count,
             " values of '", entry.name, "' with ", combinations, " combinations of the names before it; ",
             "use fewer points, or random_search()", mx::detail::called_at(where));
    combinations *= count;
  }
  std::vector<AttrMap> all(1);
  for (const Entry& entry : entries_) {
    std::vector<AttrValue> values = entry.values;
    if (values.empty()) {
      const int64_t count = grid_values(entry, points);
      for (int64_t k = 0; k < count; ++k) {
        const double share = count == 1 ? 0.5 : static_cast<double>(k) / static_cast<double>(count - 1);
        if (entry.integral) {
          values.emplace_back(static_cast<int64_t>(std::round(entry.low + share * (entry.high - entry.low))));
        } else {
          values.push_back(at(entry, share));
        }
      }
    }
    std::vector<AttrMap> more;
    for (const AttrMap& before : all)
      for (const AttrValue& value : values) {
        more.push_back(before);
        more.back()[entry.name] = value;
      }
    all = std::move(more);
  }
  return all;
}

const TrialResult& SearchResult::best() const {
  const TrialResult* best = nullptr;
  for (const TrialResult& result : trials) {
    if (!result.error.empty()) continue;
    if (best == nullptr || result.trial.budget > best->trial.budget ||
        (result.trial.budget == best->trial.budget && rank_of(result) < rank_of(*best)))
      best = &result;
  }
  MX_CHECK(best != nullptr, InvalidState, "[search] expected a trial that did not fail, got ", trials.size(),
           " failed ones", trials.empty() ? std::string() : "; the first: " + trials[0].error);
  return *best;
}

namespace {

/// Checks what all searches have in common.
void check_search(const char* op, const Objective& objective, int64_t parallel, std::source_location where) {
  MX_CHECK(objective != nullptr, InvalidArgument, "[", op,
           "] expected a function of a trial, got an empty one", mx::detail::called_at(where));
  check_at_least(op, "parallel", 1, parallel, where);
}

std::vector<Trial> sampled(const SearchSpace& space, uint64_t seed, int64_t count, int64_t budget) {
  std::vector<Trial> trials;
  for (int64_t i = 0; i < count; ++i)
    trials.push_back(
        {.number = i, .values = space.sample(seed, i), .seed = seed_of(seed, i), .budget = budget});
  return trials;
}

}  // namespace

SearchResult random_search(const SearchSpace& space, const Objective& objective, const SearchOptions& options,
                           std::source_location where) {
  check_search("random_search", objective, options.parallel, where);
  check_at_least("random_search", "trials", 1, options.trials, where);
  return {run_trials(sampled(space, options.seed, options.trials, 0), objective, options.parallel)};
}

SearchResult grid_search(const SearchSpace& space, const Objective& objective, const GridOptions& options,
                         std::source_location where) {
  check_search("grid_search", objective, options.parallel, where);
  check_at_least("grid_search", "points", 1, options.points, where);
  std::vector<Trial> trials;
  for (AttrMap& values : space.grid(options.points, where)) {
    const auto number = static_cast<int64_t>(trials.size());
    trials.push_back({.number = number, .values = std::move(values), .seed = seed_of(options.seed, number)});
  }
  return {run_trials(trials, objective, options.parallel)};
}

SearchResult successive_halving(const SearchSpace& space, const Objective& objective,
                                const HalvingOptions& options, std::source_location where) {
  constexpr const char* kOp = "successive_halving";
  check_search(kOp, objective, options.parallel, where);
  check_at_least(kOp, "trials", 1, options.trials, where);
  check_at_least(kOp, "budget", 1, options.budget, where);
  check_at_least(kOp, "factor", 2, options.factor, where);
  int64_t largest = options.budget;
  for (int64_t left = options.trials / options.factor; left > 0; left /= options.factor)
    MX_CHECK(!__builtin_mul_overflow(largest, int64_t{options.factor}, &largest), InvalidArgument, "[", kOp,
             "] expected budgets below 2^63 in all rungs, got ", options.trials, " trials with a budget of ",
             options.budget, " and a factor of ", options.factor, mx::detail::called_at(where));
  std::vector<Trial> trials = sampled(space, options.seed, options.trials, options.budget);
  SearchResult all;
  while (true) {
    std::vector<TrialResult> rung = run_trials(trials, objective, options.parallel);
    all.trials.insert(all.trials.end(), rung.begin(), rung.end());
    const size_t kept = rung.size() / static_cast<size_t>(int64_t{options.factor});
    std::stable_sort(rung.begin(), rung.end(),
                     [](const TrialResult& a, const TrialResult& b) { return rank_of(a) < rank_of(b); });
    trials.clear();
    for (size_t i = 0; i < kept; ++i) {
      if (!rung[i].error.empty()) break;
      trials.push_back(rung[i].trial);
      trials.back().budget *= options.factor;
    }
    if (trials.empty()) return all;
    std::sort(trials.begin(), trials.end(),
              [](const Trial& a, const Trial& b) { return a.number < b.number; });
  }
}

}  // namespace mx::training
