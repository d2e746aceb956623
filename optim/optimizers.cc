#include "optim/optimizers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "optim/adaptive.h"
#include "optim/detail/option_checks.h"
#include "optim/direct.h"

namespace mx::optim {

using detail::check_common;
using detail::expect_at_least_0;
using detail::expect_fraction;
using detail::Problems;

void SGDMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_at_least_0(problems, "momentum", options.momentum);
  if (!std::isfinite(options.dampening)) problems.add("expected a finite dampening, got ", options.dampening);
  if (options.nesterov && !(options.momentum > 0))
    problems.add("expected a momentum above 0 with nesterov, got ", options.momentum);
  if ((options.nesterov || options.ema) && options.dampening != 0)
    problems.add("expected a dampening of 0 with ", options.ema ? "ema" : "nesterov", ", got ",
                 options.dampening);
  if (options.ema && !(options.momentum < 1))
    problems.add("expected a momentum below 1 with ema, got ", options.momentum);
}

RuleState SGDMethod::state(const Options& options) {
  return options.momentum != 0 ? RuleState{{"momentum_buffer"}, true} : RuleState{};
}

void SGDMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                       const Options& options, double weight_decay, std::source_location where) {
  sgd_update(arrays, state, numbers,
             {.momentum = options.momentum,
              .dampening = options.dampening,
              .weight_decay = weight_decay,
              .nesterov = options.nesterov,
              .maximize = options.maximize,
              .ema = options.ema,
              .clip = options.clip},
             where);
}

template <bool kDecoupled>
void AdamMethod<kDecoupled>::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "beta1", options.beta1);
  expect_fraction(problems, "beta2", options.beta2);
  expect_at_least_0(problems, "eps", options.eps);
}

template <bool kDecoupled>
RuleState AdamMethod<kDecoupled>::state(const Options& options) {
  if (options.amsgrad) return {{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, true};
  return {{"exp_avg", "exp_avg_sq"}, true};
}

template <bool kDecoupled>
void AdamMethod<kDecoupled>::update(const UpdateArrays& arrays, const UpdateState& state,
                                    const UpdateNumbers& numbers, const Options& options, double weight_decay,
                                    std::source_location where) {
  adam_update(arrays, state, numbers,
              {.beta1 = options.beta1,
               .beta2 = options.beta2,
               .eps = options.eps,
               .weight_decay = weight_decay,
               .maximize = options.maximize,
               .decoupled = kDecoupled,
               .bias_correction = options.bias_correction,
               .clip = options.clip,
               .amsgrad = options.amsgrad},
              where);
}

template struct AdamMethod<false>;
template struct AdamMethod<true>;

namespace {

/// Makes an optimiser from named options. Throws one InvalidArgument that lists all problems with them.
template <class Rule>
std::unique_ptr<Optimizer> made(const Parameters& parameters, const AttrMap& map,
                                std::source_location where) {
  typename Rule::Options options;
  Problems problems(Rule::kName);
  const auto& fields = mx::detail::attr_fields<typename Rule::Options>();
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
      problems.add("expected a value of type ", found->type, " for '", name, "', got ", to_string(value));
    }
  }
  for (const AttrField& field : fields) known += (known.empty() ? "" : ", ") + field.name;
  if (!unknown.empty()) problems.add("expected options among ", known, ", got ", unknown);
  Rule::check(problems, options);
  problems.raise(where);
  return std::make_unique<RuleOptimizer<Rule>>(parameters, options, where);
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, OptimizerFactory> factories;

  Registry() {
    add<SGDMethod>();
    add<AdamMethod<false>>();
    add<AdamMethod<true>>();
    add<AdagradMethod>();
    add<AdadeltaMethod>();
    add<RMSpropMethod>();
    add<AdamaxMethod>();
    add<NAdamMethod>();
    add<RAdamMethod>();
    add<FtrlMethod>();
    add<SignumMethod>();
    add<RpropMethod>();
    add<ASGDMethod>();
    add<LARSMethod>();
    add<LAMBMethod>();
  }
  template <class Rule>
  void add() {
    factories[Rule::kName] = made<Rule>;
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
           "'", mx::detail::called_at(where));
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
