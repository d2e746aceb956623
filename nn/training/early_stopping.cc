#include "nn/training/early_stopping.h"

#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "optim/detail/dictionary.h"
#include "optim/detail/problems.h"

namespace mx::training {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options, std::source_location where)
    : options_(options),
      best_(options.maximize ? -std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::infinity()) {
  optim::detail::Problems problems("EarlyStopping");
  problems.expect(options.patience >= 0, "expected patience of at least 0, got ", options.patience);
  problems.expect(optim::detail::at_least_0(options.min_delta), "expected min_delta of at least 0, got ",
                  options.min_delta);
  problems.raise(where);
}

bool EarlyStopping::stop(double value) {
  const double gain = options_.maximize ? value - best_ : best_ - value;
  if (gain > options_.min_delta) {
    best_ = value;
    best_at_ = values_;
    bad_ = 0;
  } else {
    ++bad_;
  }
  ++values_;
  return bad_ > options_.patience;
}

NamedArrays EarlyStopping::state_dict() const {
  return {{"best", scalar_array(best_, f64)},
          {"best_value", scalar_array(best_at_, i64)},
          {"bad", scalar_array(bad_, i64)},
          {"values", scalar_array(values_, i64)}};
}

void EarlyStopping::load_state_dict(const NamedArrays& state, std::source_location where) {
  const std::vector<NDArray> loaded = optim::detail::matched("EarlyStopping", state_dict(), state, where);
  best_ = loaded[0].item<double>();
  best_at_ = loaded[1].item<int64_t>();
  bad_ = loaded[2].item<int64_t>();
  values_ = loaded[3].item<int64_t>();
}

}  // namespace mx::training
