// Further optimisers: Signum and Rprop, which use the signs of gradients; ASGD, which averages parameters;
// LARS and LAMB for large batches, which scale the step of each parameter by its norm. See optimizers.h. The
// formulas are in operators/kernels/update_rules.h; those of Rprop and ASGD are torch's, the others those of
// Apache MXNet.
//
// LARS and LAMB need the norms of whole parameters. Stores with servers and sharded optimisers, which update
// portions, refuse them.
#pragma once

#include <source_location>

#include "optim/optimizers.h"

namespace mx::optim {

struct SignumMethod;
struct SignumOptions {
  using Rule = SignumMethod;
  double lr = 1e-2;
  double momentum = 0.9;
  double weight_decay = 0;
  double wd_lh = 0;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<SignumOptions>(v);
    v("momentum", &SignumOptions::momentum, "momentum factor");
    detail::penalty_field<SignumOptions>(v);
    v("wd_lh", &SignumOptions::wd_lh,
      "decoupled weight decay: the parameter shrinks by lr times this factor");
    detail::maximize_field<SignumOptions>(v);
    detail::limit_fields<SignumOptions>(v);
  }
};

/// State: "momentum_buffer" with momentum, otherwise none.
struct SignumMethod {
  using Options = SignumOptions;
  static constexpr const char* kName = "signum";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using Signum = RuleOptimizer<SignumMethod>;

struct RpropMethod;
struct RpropOptions {
  using Rule = RpropMethod;
  double lr = 1e-2;
  double eta_minus = 0.5;
  double eta_plus = 1.2;
  double step_min = 1e-6;
  double step_max = 50;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    v("lr", &RpropOptions::lr, "first step size of each element");
    v("eta_minus", &RpropOptions::eta_minus, "factor of the step size when the sign of the gradient changes");
    v("eta_plus", &RpropOptions::eta_plus, "factor of the step size while the sign stays");
    v("step_min", &RpropOptions::step_min, "smallest step size");
    v("step_max", &RpropOptions::step_max, "largest step size");
    detail::maximize_field<RpropOptions>(v);
    detail::limit_fields<RpropOptions>(v);
  }
};

/// For gradients of the whole data set. `lr` is only the first step size; a schedule has no effect. State:
/// "prev", "step_size", "step".
struct RpropMethod {
  using Options = RpropOptions;
  static constexpr const char* kName = "rprop";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using Rprop = RuleOptimizer<RpropMethod>;

struct ASGDMethod;
struct ASGDOptions {
  using Rule = ASGDMethod;
  double lr = 1e-2;
  double lambd = 1e-4;
  double alpha = 0.75;
  double t0 = 1e6;
  double weight_decay = 0;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<ASGDOptions>(v);
    v("lambd", &ASGDOptions::lambd, "decay of the parameter");
    v("alpha", &ASGDOptions::alpha, "power of the decay of the learning rate");
    v("t0", &ASGDOptions::t0, "the step at which averaging begins");
    detail::penalty_field<ASGDOptions>(v);
    detail::maximize_field<ASGDOptions>(v);
    detail::limit_fields<ASGDOptions>(v);
  }
};

/// State: "ax", the average, and "step". (The "eta" and "mu" of torch are functions of the step.)
struct ASGDMethod {
  using Options = ASGDOptions;
  static constexpr const char* kName = "asgd";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using ASGD = RuleOptimizer<ASGDMethod>;

struct LARSMethod;
struct LARSOptions {
  using Rule = LARSMethod;
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  double eta = 1e-3;
  double eps = 1e-8;
  bool maximize = false;
  bool adapt = true;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<LARSOptions>(v);
    v("momentum", &LARSOptions::momentum, "momentum factor");
    detail::penalty_field<LARSOptions>(v);
    v("eta", &LARSOptions::eta, "the norm of a step is about lr * eta times that of its parameter");
    v("eps", &LARSOptions::eps, "added to the denominator");
    detail::maximize_field<LARSOptions>(v);
    v("adapt", &LARSOptions::adapt, "false: SGD without the norms, for biases and scales of normalisations");
    detail::limit_fields<LARSOptions>(v);
  }
};

/// State: "momentum_buffer" with momentum, otherwise none. It contains the learning rates.
struct LARSMethod {
  using Options = LARSOptions;
  static constexpr const char* kName = "lars";
  static constexpr bool kWholeParameters = true;
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using LARS = RuleOptimizer<LARSMethod>;

struct LAMBMethod;
struct LAMBOptions {
  using Rule = LAMBMethod;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  double lower_bound = 0;
  double upper_bound = 0;
  bool bias_correction = true;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<LAMBOptions>(v);
    detail::moment_fields<LAMBOptions>(v);
    v("eps", &LAMBOptions::eps, "added to the denominator");
    v("weight_decay", &LAMBOptions::weight_decay, "added to the direction of the step, times the parameter");
    v("lower_bound", &LAMBOptions::lower_bound, "smallest norm of a parameter in the formula; 0: none");
    v("upper_bound", &LAMBOptions::upper_bound, "largest norm of a parameter in the formula; 0: none");
    v("bias_correction", &LAMBOptions::bias_correction, "correct the bias of moments that start at zero");
    detail::maximize_field<LAMBOptions>(v);
    detail::limit_fields<LAMBOptions>(v);
  }
};

/// State: "exp_avg", "exp_avg_sq", "step".
struct LAMBMethod {
  using Options = LAMBOptions;
  static constexpr const char* kName = "lamb";
  static constexpr bool kWholeParameters = true;
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using LAMB = RuleOptimizer<LAMBMethod>;

}  // namespace mx::optim
