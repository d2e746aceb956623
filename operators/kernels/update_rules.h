// Further update rules of optimisers: what sgd_update() and adam_update() (update.h) do, for other formulas.
//
// In the formulas g is the gradient after the preprocessing of UpdateCommon (scale, clip, weight decay), rate
// is the learning rate, and t is the number of the parameter's step, from 1. Formulas are those of PyTorch
// (https://pytorch.org/docs/stable/optim.html), and those of Apache MXNet (python/mxnet/optimizer) where the
// comment says so. `states()` is the number of lists of state, in the order that the comment gives.
//
// Elements are independent of each other, except in LarsRule and LambRule. These need norms of whole
// parameters, so a parameter cannot be updated in portions (kWholeParameters). The norms are accumulated in
// f64, piece by piece in the order of memory, so results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <span>
#include <variant>

#include "operators/kernels/update.h"

namespace mx::kernels {

/// s += g * g, w -= rate / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps). State: s.
struct AdagradRule {
  static constexpr const char* kName = "adagrad_update";
  static constexpr bool kNeedsStep = true, kWholeParameters = false;
  double lr_decay = 0, eps = 1e-10;
  size_t states() const { return 1; }
};

/// v = rho * v + (1 - rho) * g * g, c = sqrt(a + eps) / sqrt(v + eps) * g, a = rho * a + (1 - rho) * c * c,
/// w -= rate * c. State: v, a.
struct AdadeltaRule {
  static constexpr const char* kName = "adadelta_update";
  static constexpr bool kNeedsStep = false, kWholeParameters = false;
  double rho = 0.9, eps = 1e-6;
  size_t states() const { return 2; }
};

/// v = alpha * v + (1 - alpha) * g * g, c = g / (sqrt(v) + eps), w -= rate * c. Centered: with
/// a = alpha * a + (1 - alpha) * g, sqrt(v - a * a) takes the place of sqrt(v). With momentum:
/// u = momentum * u + c, w -= rate * u. State: v, u with momentum, a if centered.
struct RmspropRule {
  static constexpr const char* kName = "rmsprop_update";
  static constexpr bool kNeedsStep = false, kWholeParameters = false;
  double alpha = 0.99, eps = 1e-8, momentum = 0;
  bool centered = false;
  size_t states() const { return 1 + (momentum != 0 ? 1 : 0) + (centered ? 1 : 0); }
};

/// m = beta1 * m + (1 - beta1) * g, n = max(beta2 * n, |g| + eps), w -= rate / (1 - beta1^t) * m / n.
/// State: m, n.
struct AdamaxRule {
  static constexpr const char* kName = "adamax_update";
  static constexpr bool kNeedsStep = true, kWholeParameters = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  size_t states() const { return 2; }
};

/// Adam with Nesterov momentum: m and v as in Adam, mu(t) = beta1 * (1 - 0.96^(t * momentum_decay) / 2), P
/// the product of mu(1) to mu(t), size = sqrt(v / (1 - beta2^t)) + eps, w -= rate * ((1 - mu(t)) / (1 - P) *
/// g + mu(t + 1) / (1 - P * mu(t + 1)) * m) / size. State: m, v.
struct NadamRule {
  static constexpr const char* kName = "nadam_update";
  static constexpr bool kNeedsStep = true, kWholeParameters = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, momentum_decay = 4e-3;
  bool decoupled = false;  ///< weight decay is w -= rate * weight_decay * w, and not added to the gradient
  size_t states() const { return 2; }
};

/// Adam whose second moment is used only when its variance is known well enough. With
/// R = 2 / (1 - beta2) - 1 and r = R - 2 * t * beta2^t / (1 - beta2^t): if r > 5,
/// w -= rate * m / (1 - beta1^t) * sqrt((r - 4) (r - 2) R / ((R - 4) (R - 2) r)) * sqrt(1 - beta2^t) /
/// (sqrt(v) + eps), otherwise w -= rate * m / (1 - beta1^t). State: m, v.
struct RadamRule {
  static constexpr const char* kName = "radam_update";
  static constexpr bool kNeedsStep = true, kWholeParameters = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool decoupled = false;  ///< as in NadamRule
  size_t states() const { return 2; }
};

/// Of MXNet: z += g - (sqrt(n + g * g) - sqrt(n)) / rate * w, n += g * g,
/// w = (sign(z) * lambda1 - z) / ((beta + sqrt(n)) / rate + weight_decay) if |z| > lambda1, otherwise 0. The
/// weight decay is not added to g. A rate of 0 changes nothing. State: z, n.
struct FtrlRule {
  static constexpr const char* kName = "ftrl_update";
  static constexpr bool kNeedsStep = false, kWholeParameters = false;
  double lambda1 = 0.01, beta = 1;
  size_t states() const { return 2; }
};

/// Of MXNet: u = momentum * u + (1 - momentum) * g, w = (1 - rate * wd_lh) * w - rate * sign(u); without
/// momentum sign(g). State: u with momentum, otherwise none.
struct SignumRule {
  static constexpr const char* kName = "signum_update";
  static constexpr bool kNeedsStep = false, kWholeParameters = false;
  double momentum = 0.9, wd_lh = 0;
  size_t states() const { return momentum != 0 ? 1 : 0; }
};

/// Resilient backpropagation: a step size d of each element grows by eta_plus while the sign of g stays, and
/// shrinks by eta_minus when it changes; then g counts as 0. d is limited to [step_min, step_max].
/// w -= sign(g) * d. The learning rate is not used. State: the previous g, d. The first d is the caller's.
struct RpropRule {
  static constexpr const char* kName = "rprop_update";
  static constexpr bool kNeedsStep = false, kWholeParameters = false;
  double eta_minus = 0.5, eta_plus = 1.2, step_min = 1e-6, step_max = 50;
  size_t states() const { return 2; }
};

/// Averaged SGD: e = rate / (1 + lambd * rate * (t - 1))^alpha, w = w * (1 - lambd * e) - e * g,
/// a += (w - a) / max(1, t - 1 - t0). State: a.
struct AsgdRule {
  static constexpr const char* kName = "asgd_update";
  static constexpr bool kNeedsStep = true, kWholeParameters = false;
  double lambd = 1e-4, alpha = 0.75, t0 = 1e6;
  size_t states() const { return 1; }
};

/// Of MXNet: u = momentum * u + rate * q * g, w -= u, with q = eta * |w| / (|h| + weight_decay * |w| + eps),
/// where |.| is the norm of the whole parameter and h is g without the weight decay. q is 1 if one of the
/// norms is 0, or if `adapt` is false. State: u with momentum, otherwise none.
struct LarsRule {
  static constexpr const char* kName = "lars_update";
  static constexpr bool kNeedsStep = false, kWholeParameters = true;
  double momentum = 0, eta = 1e-3, eps = 1e-8;
  bool adapt = true;
  size_t states() const { return momentum != 0 ? 1 : 0; }
};

/// Of MXNet: m and v as in Adam, d = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w,
/// w -= rate * |w| / |d| * d, where |.| is the norm of the whole parameter, and that of w is limited to
/// [lower_bound, upper_bound]. The quotient is 1 if one of the norms is 0. State: m, v.
struct LambRule {
  static constexpr const char* kName = "lamb_update";
  static constexpr bool kNeedsStep = true, kWholeParameters = true;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6;
  double lower_bound = 0;  ///< 0: none
  double upper_bound = 0;  ///< 0: none
  bool bias_correction = true;
  size_t states() const { return 2; }
};

using UpdateRule = std::variant<AdagradRule, AdadeltaRule, RmspropRule, AdamaxRule, NadamRule, RadamRule,
                                FtrlRule, SignumRule, RpropRule, AsgdRule, LarsRule, LambRule>;

struct RuleOptions {
  bool maximize = false;         ///< g = -g
  const Tensor* step = nullptr;  ///< rank 0, t; required without counts if the rule needs it
};

/// Runs one step of a rule. `states` has as many lists as rule.states(), each with one tensor per parameter.
/// Throws InvalidArgument for lists that do not fit together, and for a step number that is missing.
void rule_update(const UpdateLists& lists, std::span<const std::span<const Tensor>> states,
                 const UpdateCommon& common, const UpdateRule& rule, const RuleOptions& options = {});

}  // namespace mx::kernels
