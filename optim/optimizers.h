// The optimisers SGD, Adam and AdamW, what all optimisers have in common, and how to make one by its name.
// Others are in adaptive.h (Adagrad, Adadelta, RMSprop, Adamax, NAdam, RAdam, Ftrl), in direct.h (Signum,
// Rprop, ASGD, LARS, LAMB) and in lbfgs.h.
//
//   optim::AdamW opt(decayed, {.lr = 3e-4, .max_norm = 1});
//   opt.add_group(biases, {.lr = 3e-4, .weight_decay = 0});
//   opt.add_group(head, {.lr = 3e-4}, {.lr = 10});  // always ten times the rate that a schedule sets
//
//   auto opt = optim::make_optimizer("sgd", {{"lr", 0.1}, {"momentum", 0.9}}, parameters);
//
// Options have the names, the order and the defaults of torch.optim; docs/optim.md lists the exceptions. For
// instance, the pair `betas` is here `.beta1` and `.beta2`, because attributes are single numbers. Options
// that torch does not have come last. Constructors and add_group() throw InvalidArgument, listing all options
// that are out of range and all invalid parameters.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "optim/detail/common_fields.h"
#include "optim/detail/problems.h"
#include "optim/optimizer.h"

namespace mx::optim {

/// The state that a rule keeps for each parameter.
struct RuleState {
  std::vector<std::string> names;    ///< names of arrays of the parameter's shape
  bool counts = false;               ///< whether the number of the parameter's step is counted
  std::vector<double> initial = {};  ///< their first values; empty: all are zero
};

/// The optimiser of a rule. A Rule has only these members:
///
///   using Options = ...;                                   // a struct with fields() (ndarray/attrs.h)
///   static constexpr const char* kName = "sgd";            // for make_optimizer() and messages
///   static void check(detail::Problems&, const Options&);  // reports the options that are out of range
///   static RuleState state(const Options&);                // the state that it keeps for each parameter
///   static void update(const UpdateArrays&, const UpdateState&, const UpdateNumbers&, const Options&,
///                      double weight_decay, std::source_location);  // with the group's weight decay
///
/// and, if elements depend on each other (Optimizer::elementwise()), `static constexpr bool kWholeParameters
/// = true`. Options must have `lr`, `clip` and `max_norm`; `weight_decay` is optional.
template <class Rule>
class RuleOptimizer final : public Optimizer {
 public:
  using Options = typename Rule::Options;

  RuleOptimizer(const Parameters& parameters, const Options& options = {},
                std::source_location where = std::source_location::current())
      : Optimizer(Rule::kName) {
    add_group(parameters, options, {}, where);
  }

  void add_group(const Parameters& parameters, const Options& options, const Multipliers& multipliers = {},
                 std::source_location where = std::source_location::current()) {
    detail::Problems problems(Rule::kName);
    Rule::check(problems, options);
    problems.raise(where);
    RuleState state = Rule::state(options);
    options_.reserve(options_.size() + 1);
    add(parameters,
        {.lr = options.lr,
         .multipliers = multipliers,
         .max_norm = options.max_norm,
         .state = std::move(state.names),
         .counts = state.counts,
         .initial = std::move(state.initial)},
        where);
    options_.push_back(options);
  }

  /// Throws InvalidArgument if there is no such group.
  const Options& options(size_t group = 0) const {
    this->group(group);
    return options_[group];
  }
  AttrMap option_map(size_t group = 0) const override { return Attrs(options(group)).to_map(); }
  bool elementwise() const override {
    if constexpr (requires { Rule::kWholeParameters; }) {
      return !Rule::kWholeParameters;
    } else {
      return true;
    }
  }

 private:
  void update(size_t i, const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
              std::source_location where) const override {
    const Options& o = options_[i];
    double decay = 0;
    if constexpr (requires { o.weight_decay; }) decay = o.weight_decay * group(i).multipliers.weight_decay;
    Rule::update(arrays, state, numbers, o, decay, where);
  }

  std::vector<Options> options_;
};

struct SGDMethod;
template <bool kDecoupled>
struct AdamMethod;

struct SGDOptions {
  using Rule = SGDMethod;
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< needs momentum, and no dampening
  bool maximize = false;
  bool ema = false;     ///< u = momentum * u + (1 - momentum) * g; momentum below 1, no dampening
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<SGDOptions>(v);
    v("momentum", &SGDOptions::momentum, "momentum factor");
    v("dampening", &SGDOptions::dampening, "dampening of the momentum");
    detail::penalty_field<SGDOptions>(v);
    v("nesterov", &SGDOptions::nesterov, "Nesterov momentum");
    detail::maximize_field<SGDOptions>(v);
    v("ema", &SGDOptions::ema, "the momentum is an exponential moving average of the gradients");
    detail::limit_fields<SGDOptions>(v);
  }
};

/// w -= lr * u with u = momentum * u + (1 - dampening) * g; the first u is g. State: "momentum_buffer" and
/// "step" with momentum, otherwise none.
struct SGDMethod {
  using Options = SGDOptions;
  static constexpr const char* kName = "sgd";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using SGD = RuleOptimizer<SGDMethod>;

/// If kDecoupled, weight decay shrinks the parameter directly. Otherwise it is added to the gradient, and so
/// to the moments.
template <bool kDecoupled>
struct AdamOptionsOf {
  using Rule = AdamMethod<kDecoupled>;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = kDecoupled ? 1e-2 : 0;
  bool amsgrad = false;
  bool maximize = false;
  bool bias_correction = true;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<AdamOptionsOf>(v);
    detail::moment_fields<AdamOptionsOf>(v);
    v("eps", &AdamOptionsOf::eps, "added to the square root of the second moment");
    v("weight_decay", &AdamOptionsOf::weight_decay,
      kDecoupled ? "decoupled weight decay: the parameter shrinks by lr times this factor"
                 : "L2 penalty: this factor times the parameter is added to its gradient");
    v("amsgrad", &AdamOptionsOf::amsgrad, "use the largest second moment so far");
    detail::maximize_field<AdamOptionsOf>(v);
    v("bias_correction", &AdamOptionsOf::bias_correction, "correct the bias of moments that start at zero");
    detail::limit_fields<AdamOptionsOf>(v);
  }
};
using AdamOptions = AdamOptionsOf<false>;
using AdamWOptions = AdamOptionsOf<true>;

/// State: "exp_avg", "exp_avg_sq", with amsgrad "max_exp_avg_sq", and "step".
template <bool kDecoupled>
struct AdamMethod {
  using Options = AdamOptionsOf<kDecoupled>;
  static constexpr const char* kName = kDecoupled ? "adamw" : "adam";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
extern template struct AdamMethod<false>;
extern template struct AdamMethod<true>;
using Adam = RuleOptimizer<AdamMethod<false>>;
using AdamW = RuleOptimizer<AdamMethod<true>>;

/// Makes an optimiser by its registered name: "sgd", "adam", "adamw", "adagrad", "adadelta", "rmsprop",
/// "adamax", "nadam", "radam", "ftrl", "signum", "rprop", "asgd", "lars", "lamb". Options that are not given
/// have their defaults; an integer is accepted for a number. Throws InvalidArgument for a name that is not
/// registered; also, listing all of them, for options that are unknown, of another type or out of range. Any
/// thread may call.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const AttrMap& options,
                                          const Parameters& parameters,
                                          std::source_location where = std::source_location::current());

using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(
    const Parameters& parameters, const AttrMap& options, std::source_location where)>;
/// Registers a name. Throws InvalidArgument if it exists. Any thread may call.
void register_optimizer(const std::string& name, OptimizerFactory factory);
/// Returns all registered names, sorted.
std::vector<std::string> optimizer_names();

}  // namespace mx::optim
