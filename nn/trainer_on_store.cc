// The trainer whose parameters are in the store, which updates them: TrainerOptions::update_on_store.
#include <algorithm>
#include <limits>

#include "comm/world.h"
#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "nn/detail/gradient_buckets.h"
#include "nn/trainer.h"

namespace mx::nn {

/// Gives the parameters of process 0 to the store, and copies them to all replicas of all processes.
void Trainer::put_on_store(std::source_location where) {
  optimizer();  // throws if this trainer was moved from
  const NoGrad pause;
  check_ = zeros({});  // a comparison that has failed is over
  const size_t count = replicas_[0].size();
  if (!on_store_) {
    MX_CHECK(optimizer_->groups() == 1, InvalidArgument,
             "[Trainer] expected an optimiser with one group with update_on_store, got ",
             optimizer_->groups());
    MX_CHECK(
        prefix_.empty(), InvalidState,
        "[Trainer] expected the first trainer of its store with update_on_store, because a store has one "
        "optimiser, got another one; create a store for each trainer");
    const AttrMap options = optimizer_->option_map();
    store_->set_optimizer(optimizer_->name(), options, where);
    store_rate_ = std::get<double>(options.at("lr"));
  }
  std::vector<bool> updated(count, false);
  for (const size_t i : updated_) updated[i] = true;
  std::vector<KVKey> others;
  std::vector<NDArray> values;
  for (size_t i = 0; i < count; ++i) {
    const NDArray parameter = replicas_[0][i].detach();
    if (!updated[i]) {
      others.emplace_back(key_of(i));
      values.push_back(parameter);
      continue;
    }
    if (on_store_) store_->erase(key_of(i), where);
    store_->init(key_of(i), parameter, where);
    store_->pull(key_of(i), parameter, {.priority = detail::parameter_priority(i, count), .where = where});
  }
  if (buffers_.first)
    for (const auto& [name, buffer] : buffers_.first()) {
      others.emplace_back(prefix_ + "buffer " + name);
      values.push_back(buffer.detach());
    }
  store_->broadcast_from_first(others, values, {.where = where});
  on_store_ = true;
  // Models that differ are an error here, on all processes, and not at some later wait.
  if (several_processes())
    for (const NamedParameter& parameter : replicas_[0]) parameter.array().detach().wait();
  for (size_t i = 0; i < count; ++i) copy_to_replicas(i, where);
  copy_buffers_to_replicas(where);
}

/// Loads the parameters and the state of the optimiser into the store, and pulls the parameters.
void Trainer::load_on_store(const NamedArrays& state, std::source_location where) {
  optimizer();  // throws if this trainer was moved from
  const NoGrad pause;
  store_->load_state_dict(state);
  // The optimisers of all keys have one learning rate, so any of them tells it. Process 0 has the state.
  NDArray rate = full({1}, optimizer_->learning_rate(), f64);
  for (const size_t i : updated_) {
    const NDArray* const saved = state.find("state:" + key_of(i) + ":group.0.learning_rate");
    if (saved == nullptr) continue;
    rate.fill_(saved->item<double>());
    break;
  }
  store_->broadcast_from_first({prefix_ + "learning rate"}, {rate}, {.where = where});
  optimizer_->set_learning_rate(rate.item<double>());
  // The next step sends the rate to all keys, also to those whose optimiser is made later.
  store_rate_ = std::numeric_limits<double>::quiet_NaN();
  const size_t count = replicas_[0].size();
  for (const size_t i : updated_) {
    store_->pull(key_of(i), replicas_[0][i].detach(),
                 {.priority = detail::parameter_priority(i, count), .where = where});
    copy_to_replicas(i, where);
  }
}

void Trainer::step_on_store(std::source_location where) {
  const double rate = optimizer_->learning_rate();
  if (rate != store_rate_) store_->set_optimizer_option("lr", rate, where);
  store_rate_ = rate;
  std::vector<size_t> order =
      updated_;  // the last layers first: the backward pass computes their gradients first
  std::sort(order.begin(), order.end(), std::greater<>());
  for (const size_t i : order) {
    std::vector<NDArray> gradients, outs;
    for (const Parameters& replica : replicas_) {
      if (const NDArray gradient = replica[i].grad(); gradient.defined())
        gradients.push_back(gradient.detach());
      outs.push_back(replica[i].detach());
    }
    // A frozen parameter stays as it is; another one that has no gradient here may have one elsewhere.
    if (gradients.empty() && !(several_processes() && replicas_[0][i].requires_grad())) continue;
    if (gradients.empty()) gradients.push_back(zeros_like(outs[0]));
    store_->pushpull(key_of(i), gradients, outs,
                     {.priority = detail::parameter_priority(i, replicas_[0].size()), .where = where});
  }
  ++steps_;
  if (several_processes()) comm::report_step(steps_);
  broadcast_buffers(where);
  check_parameters(where);
}

}  // namespace mx::nn
