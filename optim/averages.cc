#include "optim/averages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/recover.h"
#include "operators/elementwise_binary.h"
#include "optim/detail/dictionary.h"
#include "optim/detail/names.h"
#include "optim/detail/problems.h"
#include "optim/update.h"

namespace mx::optim {

using detail::describe;
using detail::Problems;

Averages::Averages(const Parameters& parameters, const AveragesOptions& options, std::source_location where)
    : parameters_(detail::with_names({}, parameters)), options_(options) {
  Problems problems("Averages");
  if (!(options.decay >= 0 && options.decay <= 1))
    problems.add("expected a decay from 0 to 1, got ", options.decay);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const NDArray& p = parameters_[i];
    if (!p.defined() || !is_floating(p.dtype()) || !p.contiguous())
      problems.add("expected parameter ", i, " to be contiguous and of a floating-point type, got ",
                   describe(p));
  }
  problems.raise(where);
  const NoGrad pause;
  for (const NDArray& p : parameters_) {
    const NDArray copy = p.detach().clone();
    values_.push_back(copy.dtype() == f64 ? copy : copy.to(f32));
  }
}

/// Moves the averages to the devices of their parameters, if the module was moved.
void Averages::follow() {
  for (size_t i = 0; i < values_.size(); ++i) values_[i] = values_[i].to(parameters_[i].context());
}

void Averages::update(std::source_location where) try {
  MX_CHECK(!applied(), InvalidState,
           "[Averages] expected update() while the model has its own parameters, got it after apply()");
  const NoGrad pause;
  follow();
  const auto n = static_cast<double>(updates_++);
  double decay = options_.warmup ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay;
  if (options_.equal) decay = n / (n + 1);
  // SGD with the gradient average - parameter and the rate 1 - decay.
  const NDArray rate = full({}, 1 - decay, f64);
  for (const DType type : {f32, f64}) {
    UpdateArrays arrays;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].dtype() != type) continue;
      arrays.parameters.push_back(values_[i]);
      arrays.gradients.push_back(parameters_[i].array().detach());
    }
    if (!arrays.parameters.empty())
      sgd_update(arrays, {}, {.learning_rate = rate}, {.weight_decay = 1, .maximize = true}, where);
  }
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void Averages::apply() {
  MX_CHECK(!applied(), InvalidState,
           "[Averages] expected apply() while the model has its own parameters, got a second one");
  const NoGrad pause;
  for (const NDArray& p : parameters_) own_.push_back(p.detach().clone());
  copy_to_parameters();
}

void Averages::restore() {
  MX_CHECK(applied(), InvalidState, "[Averages] expected restore() after apply(), got it without");
  const NoGrad pause;
  for (size_t i = 0; i < own_.size(); ++i) NDArray(parameters_[i].array().detach()).copy_from(own_[i]);
  own_.clear();
}

void Averages::copy_to_parameters() const {
  const NoGrad pause;
  for (size_t i = 0; i < values_.size(); ++i) NDArray(parameters_[i].array().detach()).copy_from(values_[i]);
}

void Averages::recover(std::source_location where) {
  NamedArrays arrays = state_dict();
  arrays.erase("updates");
  mx::detail::undo_skipped_updates(arrays, where);
  mx::detail::check_recovered("Averages", arrays, "load a checkpoint", where);
}

NamedArrays Averages::state_dict() const {
  NamedArrays state = {{"updates", scalar_array(updates_, i64)}};
  for (size_t i = 0; i < values_.size(); ++i)
    state.emplace_back("average." + parameters_[i].name, values_[i]);
  return state;
}

void Averages::load_state_dict(const NamedArrays& state, std::source_location where) try {
  const NoGrad pause;
  const std::vector<NDArray> loaded = detail::matched("Averages", state_dict(), state, where);
  const auto updates = loaded[0].item<int64_t>();
  MX_CHECK(updates >= 0, InvalidArgument, "[Averages] expected updates of at least 0, got ", updates);
  updates_ = updates;
  for (size_t i = 0; i < values_.size(); ++i) values_[i].copy_from(loaded[i + 1]);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

Accumulation::Accumulation(IntArg parts, std::source_location where) : parts_(parts) {
  MX_CHECK(parts >= 1, InvalidArgument, "[Accumulation] expected 1 part or more, got ", parts,
           mx::detail::called_at(where));
}

NDArray Accumulation::scale(const NDArray& loss) const { return loss / static_cast<double>(parts_); }

bool Accumulation::step() { return ++done_ % parts_ == 0; }

}  // namespace mx::optim
