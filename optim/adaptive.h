// Optimisers with a learning rate of its own for each element: Adagrad, Adadelta, RMSprop, Adamax, NAdam,
// RAdam and Ftrl. See optimizers.h. The formulas are in operators/kernels/update_rules.h; they are those of
// torch.optim, and for Ftrl that of Apache MXNet.
#pragma once

#include <source_location>

#include "optim/optimizers.h"

namespace mx::optim {

struct AdagradMethod;
struct AdagradOptions {
  using Rule = AdagradMethod;
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<AdagradOptions>(v);
    v("lr_decay", &AdagradOptions::lr_decay, "step t has the rate lr / (1 + (t - 1) * lr_decay)");
    detail::penalty_field<AdagradOptions>(v);
    v("initial_accumulator_value", &AdagradOptions::initial_accumulator_value,
      "first value of the sums of squares");
    v("eps", &AdagradOptions::eps, "added to the denominator");
    detail::maximize_field<AdagradOptions>(v);
    detail::limit_fields<AdagradOptions>(v);
  }
};

/// State: "sum", "step".
struct AdagradMethod {
  using Options = AdagradOptions;
  static constexpr const char* kName = "adagrad";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using Adagrad = RuleOptimizer<AdagradMethod>;

struct AdadeltaMethod;
struct AdadeltaOptions {
  using Rule = AdadeltaMethod;
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<AdadeltaOptions>(v);
    v("rho", &AdadeltaOptions::rho, "decay rate of the averages");
    v("eps", &AdadeltaOptions::eps, "added to both averages before their roots are taken");
    detail::penalty_field<AdadeltaOptions>(v);
    detail::maximize_field<AdadeltaOptions>(v);
    detail::limit_fields<AdadeltaOptions>(v);
  }
};

/// State: "square_avg", "acc_delta", "step".
struct AdadeltaMethod {
  using Options = AdadeltaOptions;
  static constexpr const char* kName = "adadelta";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using Adadelta = RuleOptimizer<AdadeltaMethod>;

struct RMSpropMethod;
struct RMSpropOptions {
  using Rule = RMSpropMethod;
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<RMSpropOptions>(v);
    v("alpha", &RMSpropOptions::alpha, "decay rate of the averages");
    v("eps", &RMSpropOptions::eps, "added to the denominator");
    detail::penalty_field<RMSpropOptions>(v);
    v("momentum", &RMSpropOptions::momentum, "momentum factor");
    v("centered", &RMSpropOptions::centered,
      "divide by the standard deviation of the gradients instead of their root mean square");
    detail::maximize_field<RMSpropOptions>(v);
    detail::limit_fields<RMSpropOptions>(v);
  }
};

/// State: "square_avg", with momentum "momentum_buffer", if centered "grad_avg", and "step".
struct RMSpropMethod {
  using Options = RMSpropOptions;
  static constexpr const char* kName = "rmsprop";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using RMSprop = RuleOptimizer<RMSpropMethod>;

struct AdamaxMethod;
struct AdamaxOptions {
  using Rule = AdamaxMethod;
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<AdamaxOptions>(v);
    v("beta1", &AdamaxOptions::beta1, "decay rate of the first moment");
    v("beta2", &AdamaxOptions::beta2, "decay rate of the infinity norm");
    v("eps", &AdamaxOptions::eps, "added to the magnitude of the gradient");
    detail::penalty_field<AdamaxOptions>(v);
    detail::maximize_field<AdamaxOptions>(v);
    detail::limit_fields<AdamaxOptions>(v);
  }
};

/// State: "exp_avg", "exp_inf", "step".
struct AdamaxMethod {
  using Options = AdamaxOptions;
  static constexpr const char* kName = "adamax";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using Adamax = RuleOptimizer<AdamaxMethod>;

struct NAdamMethod;
struct NAdamOptions {
  using Rule = NAdamMethod;
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<NAdamOptions>(v);
    detail::moment_fields<NAdamOptions>(v);
    v("eps", &NAdamOptions::eps, "added to the denominator");
    detail::penalty_field<NAdamOptions>(v);
    v("momentum_decay", &NAdamOptions::momentum_decay,
      "how fast the momentum of the first steps grows to beta1");
    v("decoupled_weight_decay", &NAdamOptions::decoupled_weight_decay,
      "weight decay shrinks the parameter and is not added to its gradient");
    detail::maximize_field<NAdamOptions>(v);
    detail::limit_fields<NAdamOptions>(v);
  }
};

/// State: "exp_avg", "exp_avg_sq", "step". (The "mu_product" of torch is a function of the step.)
struct NAdamMethod {
  using Options = NAdamOptions;
  static constexpr const char* kName = "nadam";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using NAdam = RuleOptimizer<NAdamMethod>;

struct RAdamMethod;
struct RAdamOptions {
  using Rule = RAdamMethod;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<RAdamOptions>(v);
    detail::moment_fields<RAdamOptions>(v);
    v("eps", &RAdamOptions::eps, "added to the denominator");
    detail::penalty_field<RAdamOptions>(v);
    v("decoupled_weight_decay", &RAdamOptions::decoupled_weight_decay,
      "weight decay shrinks the parameter and is not added to its gradient");
    detail::maximize_field<RAdamOptions>(v);
    detail::limit_fields<RAdamOptions>(v);
  }
};

/// State: "exp_avg", "exp_avg_sq", "step".
struct RAdamMethod {
  using Options = RAdamOptions;
  static constexpr const char* kName = "radam";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using RAdam = RuleOptimizer<RAdamMethod>;

struct FtrlMethod;
struct FtrlOptions {
  using Rule = FtrlMethod;
  double lr = 0.1;
  double lambda1 = 0.01;
  double beta = 1;
  double weight_decay = 0;
  bool maximize = false;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none

  template <class V>
  static void fields(V&& v) {
    detail::rate_field<FtrlOptions>(v);
    v("lambda1", &FtrlOptions::lambda1, "L1 penalty; lamda1 in MXNet");
    v("beta", &FtrlOptions::beta, "added to the root of the sum of squares");
    v("weight_decay", &FtrlOptions::weight_decay, "L2 penalty, in the denominator of the formula");
    detail::maximize_field<FtrlOptions>(v);
    detail::limit_fields<FtrlOptions>(v);
  }
};

/// Follow the regularised leader, of Apache MXNet: parameters that contribute little become exactly 0. The
/// first step of a parameter does not depend on its value. State: "z", "n".
struct FtrlMethod {
  using Options = FtrlOptions;
  static constexpr const char* kName = "ftrl";
  static void check(detail::Problems& problems, const Options& options);
  static RuleState state(const Options& options);
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options& options, double weight_decay, std::source_location where);
};
using Ftrl = RuleOptimizer<FtrlMethod>;

}  // namespace mx::optim
