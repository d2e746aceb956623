#include "optim/plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/detail/dictionary.h"
#include "optim/detail/problems.h"
#include "optim/detail/warmup.h"

namespace mx::optim {

using detail::at_least_0;
using detail::Problems;

namespace {

constexpr const char* kName = "ReduceOnPlateau";

void check(const ReduceOnPlateauOptions& options, std::source_location where) {
  Problems problems(kName);
  problems.expect(options.factor >= 0 && options.factor < 1, "expected a factor from 0 to below 1, got ",
                  options.factor);
  problems.expect(options.patience >= 0, "expected patience of at least 0 steps, got ", options.patience);
  problems.expect(at_least_0(options.threshold), "expected a threshold of at least 0, got ",
                  options.threshold);
  problems.expect(options.cooldown >= 0, "expected cooldown of at least 0 steps, got ", options.cooldown);
  problems.expect(at_least_0(options.min_lr), "expected min_lr of at least 0, got ", options.min_lr);
  problems.expect(at_least_0(options.min_change), "expected min_change of at least 0, got ",
                  options.min_change);
  detail::check_warmup(problems, options.warmup, options.warmup_start);
  problems.raise(where);
}

double worst(bool maximize) {
  return maximize ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

}  // namespace

ReduceOnPlateau::ReduceOnPlateau(Optimizer& optimizer, const ReduceOnPlateauOptions& options,
                                 std::source_location where)
    : optimizer_(optimizer), options_(options), best_(worst(options.maximize)) {
  check(options, where);
  apply();
}

// With a relative threshold the limit is best_ * (1 - t), or best_ * (1 + t) with maximize, also if best_ is
// 0 or negative, as in torch. For a negative best_ the limit is then on the worse side of best_.
bool ReduceOnPlateau::better(double value) const {
  const double t = options_.threshold;
  if (std::isinf(best_)) return options_.maximize ? value > best_ : value < best_;
  if (options_.maximize) return value > (options_.absolute ? best_ + t : best_ * (1 + t));
  return value < (options_.absolute ? best_ - t : best_ * (1 - t));
}

void ReduceOnPlateau::join() {
  for (size_t g = rates_.size(); g < optimizer_.groups(); ++g) rates_.push_back(optimizer_.learning_rate(g));
}

void ReduceOnPlateau::apply() {
  join();
  const double factor =
      step_ < options_.warmup ? detail::warmup_factor(step_, options_.warmup, options_.warmup_start) : 1;
  for (size_t g = 0; g < rates_.size(); ++g) optimizer_.set_learning_rate(rates_[g] * factor, g);
}

void ReduceOnPlateau::step(double value) {
  join();
  if (++step_ > options_.warmup) {
    if (better(value)) {
      best_ = value;
      bad_steps_ = 0;
    } else {
      ++bad_steps_;
    }
    if (cooldown_ > 0) {
      --cooldown_;
      bad_steps_ = 0;
    }
    if (bad_steps_ > options_.patience) {
      for (double& rate : rates_) {
        const double lower = std::max(rate * options_.factor, std::min(options_.min_lr, rate));
        if (rate - lower > options_.min_change) rate = lower;
      }
      cooldown_ = options_.cooldown;
      bad_steps_ = 0;
    }
  }
  apply();
}

void ReduceOnPlateau::step(const NDArray& value) {
  MX_CHECK(is_floating(value.dtype()) && value.numel() == 1, InvalidArgument, "[", kName,
           "] expected one floating-point number, got ", detail::describe(value));
  step(value.to_vector<double>()[0]);
}

NamedArrays ReduceOnPlateau::state_dict() const {
  return {{"step", scalar_array(step_, i64)},
          {"best", scalar_array(best_, f64)},
          {"bad_steps", scalar_array(bad_steps_, i64)},
          {"cooldown", scalar_array(cooldown_, i64)},
          {"rates", array(rates_)}};
}

void ReduceOnPlateau::load_state_dict(const NamedArrays& state, std::source_location where) {
  join();
  const std::vector<NDArray> loaded = detail::matched(kName, state_dict(), state, where);
  const auto count = [&](size_t i) { return loaded[i].item<int64_t>(); };
  const int64_t step = count(0), bad = count(2), cooldown = count(3);
  const auto best = loaded[1].item<double>();
  const auto rates = loaded[4].to_vector<double>();
  Problems problems(kName);
  const auto countable = [](int64_t n) { return n >= 0 && n < INT64_MAX; };
  if (!countable(step) || !countable(bad) || !countable(cooldown))
    problems.add("expected counts from 0 to below ", INT64_MAX, ", got step ", step, ", bad_steps ", bad,
                 " and cooldown ", cooldown);
  for (const double rate : rates)
    if (!at_least_0(rate)) problems.add("expected rates of at least 0, got ", rate);
  problems.raise(where);
  step_ = step;
  best_ = best;
  bad_steps_ = bad;
  cooldown_ = cooldown;
  rates_ = rates;
  apply();
}

}  // namespace mx::optim
