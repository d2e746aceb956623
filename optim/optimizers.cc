#include "optim/optimizers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "engine/base/check.h"
#include "optim/detail/problems.h"

namespace mx::optim {

using detail::at_least_0;
using detail::Problems;

namespace {

// False for NaN as well.
bool share(double value) { return value >= 0 && value < 1; }

void expect_at_least_0(Problems& problems, const char* name, double value) {
  if (!at_least_0(value)) problems.add("expected ", name, " of at least 0, got ", value);
}

/// What all options have.
template <class Options>
void check_common(Problems& problems, const Options& options) {
  expect_at_least_0(problems, "lr", options.lr);
  expect_at_least_0(problems, "weight_decay", options.weight_decay);
  expect_at_least_0(problems, "clip", options.clip);
  expect_at_least_0(problems, "max_norm", options.max_norm);
}

void check(Problems& problems, const SGDOptions& options) {
  check_common(problems, options);
  expect_at_least_0(problems, "momentum", options.momentum);
  if (!std::isfinite(options.dampening)) problems.add("expected a finite dampening, got ", options.dampening);
  if (options.nesterov && !(options.momentum > 0))
    problems.add("expected momentum above 0 for nesterov, got ", options.momentum);
  if ((options.nesterov || options.ema) && options.dampening != 0)
    problems.add("expected no dampening for ", options.ema ? "ema" : "nesterov", ", got ", options.dampening);
  if (options.ema && !(options.momentum < 1))
    problems.add("expected momentum below 1 for ema, got ", options.momentum);
}

template <bool kDecoupled>
void check(Problems& problems, const AdamOptionsOf<kDecoupled>& options) {
  check_common(problems, options);
  if (!share(options.beta1)) problems.add("expected beta1 from 0 to below 1, got ", options.beta1);
  if (!share(options.beta2)) problems.add("expected beta2 from 0 to below 1, got ", options.beta2);
  expect_at_least_0(problems, "eps", options.eps);
}

template <class Options>
void raise_unless_valid(const char* op, const Options& options, std::source_location where) {
  Problems problems(op);
  check(problems, options);
  problems.raise(where);
}

}  // namespace

SGD::SGD(const Parameters& parameters, const SGDOptions& options, std::source_location where)
    : Optimizer("sgd") {
  add_group(parameters, options, {}, where);
}

void SGD::add_group(const Parameters& parameters, const SGDOptions& options, const Multipliers& multipliers,
                    std::source_location where) {
  raise_unless_valid(name(), options, where);
  Group group{.lr = options.lr, .multipliers = multipliers, .max_norm = options.max_norm};
  if (options.momentum != 0) {
    group.state = {"momentum_buffer"};
    group.counts = true;
  }
  options_.reserve(options_.size() + 1);
  add(parameters, group, where);
  options_.push_back(options);
}

AttrMap SGD::option_map(size_t group) const { return Attrs(options(group)).to_map(); }

void SGD::update(size_t i, const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                 std::source_location where) const {
  const SGDOptions& o = options_[i];
  sgd_update(arrays, state, numbers,
             {.momentum = o.momentum,
              .dampening = o.dampening,
              .nesterov = o.nesterov,
              .ema = o.ema,
              .weight_decay = o.weight_decay * group(i).multipliers.weight_decay,
              .clip = o.clip,
              .maximize = o.maximize},
             where);
}

template <bool kDecoupled>
AdamOf<kDecoupled>::AdamOf(const Parameters& parameters, const Options& options, std::source_location where)
    : Optimizer(kDecoupled ? "adamw" : "adam") {
  add_group(parameters, options, {}, where);
}

template <bool kDecoupled>
void AdamOf<kDecoupled>::add_group(const Parameters& parameters, const Options& options,
                                   const Multipliers& multipliers, std::source_location where) {
  raise_unless_valid(name(), options, where);
  options_.reserve(options_.size() + 1);
  add(parameters, {options.lr, multipliers, options.max_norm, {"exp_avg", "exp_avg_sq"}, true}, where);
  options_.push_back(options);
}

template <bool kDecoupled>
AttrMap AdamOf<kDecoupled>::option_map(size_t group) const {
  return Attrs(options(group)).to_map();
}

template <bool kDecoupled>
void AdamOf<kDecoupled>::update(size_t i, const UpdateArrays& arrays, const UpdateState& state,
                                const UpdateNumbers& numbers, std::source_location where) const {
  const Options& o = options_[i];
  adam_update(arrays, state, numbers,
              {.beta1 = o.beta1,
               .beta2 = o.beta2,
               .eps = o.eps,
               .weight_decay = o.weight_decay * group(i).multipliers.weight_decay,
               .decoupled = kDecoupled,
               .bias_correction = o.bias_correction,
               .clip = o.clip,
               .maximize = o.maximize},
              where);
}

template class AdamOf<false>;
template class AdamOf<true>;

namespace {

/// An optimiser from options by name; all that is wrong with them in one message.
template <class Made>
std::unique_ptr<Optimizer> made(const char* op, const Parameters& parameters, const AttrMap& map,
                                std::source_location where) {
  typename Made::Options options;
  Problems problems(op);
  const auto& fields = mx::detail::attr_fields<typename Made::Options>();
  std::string unknown, known;
  for (const auto& [name, value] : map) {
    const auto found = std::find_if(fields.begin(), fields.end(),
                                    [&](const AttrField& field) { return field.name == name; });
    if (found == fields.end()) {
      unknown += (unknown.empty() ? "'" : ", '") + name + "'";
      continue;
    }
    try {
      found->set(&options, value);
    } catch (const InvalidArgument&) {
      problems.add("expected '", name, "' as ", found->type, ", got ", to_string(value));
    }
  }
  for (const AttrField& field : fields) known += (known.empty() ? "" : ", ") + field.name;
  if (!unknown.empty()) problems.add("expected options out of ", known, ", got ", unknown);
  check(problems, options);
  problems.raise(where);
  return std::make_unique<Made>(parameters, options, where);
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, OptimizerFactory> factories;

  Registry() {
    add<SGD>("sgd");
    add<Adam>("adam");
    add<AdamW>("adamw");
  }
  template <class Made>
  void add(const char* name) {
    factories[name] = [name](const Parameters& parameters, const AttrMap& options,
                             std::source_location where) {
      return made<Made>(name, parameters, options, where);
    };
  }
};

Registry& registry() {
  static Registry& instance = *new Registry;  // never destroyed: static destructors may make optimisers
  return instance;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const AttrMap& options,
                                          const Parameters& parameters, std::source_location where) {
  OptimizerFactory factory;
  std::string known;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.factories.find(name); found != all.factories.end()) factory = found->second;
    for (const auto& entry : all.factories) known += (known.empty() ? "" : ", ") + entry.first;
  }
  MX_CHECK(factory != nullptr, InvalidArgument, "[make_optimizer] expected one of ", known, ", got '", name,
           "' (called at ", where.file_name(), ':', where.line(), ')');
  return factory(parameters, options, where);
}

void register_optimizer(const std::string& name, OptimizerFactory factory) {
  MX_CHECK(!name.empty() && factory != nullptr, InvalidArgument,
           "[register_optimizer] expected a name and a function, got '", name, "' and ",
           factory != nullptr ? "one" : "none");
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  MX_CHECK(all.factories.emplace(name, std::move(factory)).second, InvalidArgument,
           "[register_optimizer] expected a new name, got '", name, "'");
}

std::vector<std::string> optimizer_names() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& entry : all.factories) names.push_back(entry.first);
  return names;
}

}  // namespace mx::optim
