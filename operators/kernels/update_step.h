// Vectorised steps of the update rules on runs of elements. Used only by the update kernels; the formulas are
// in update.h and update_rules.h.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

namespace mx::kernels::detail {

/// g = clip(g * scale) + weight_decay * w.
struct GradientStep {
  double scale = 1, clip = 0, weight_decay = 0;
};

// The numbers of one step. `rate` is the learning rate with all corrections of this step; `shrink` is the
// factor of w from decoupled weight decay. The comment names the state in the slots s0, s1 and s2; a slot in
// brackets may be null.

/// s0: [velocity].
struct SgdStep {
  GradientStep gradient;
  double rate = 0, momentum = 0;
  double kept = 1;  ///< factor of g in u
  double look = 1;  ///< factor of g in Nesterov's step
  bool nesterov = false, first = false;
};

/// s0, s1: first and second moment, s2: [the largest second moment].
struct AdamStep {
  GradientStep gradient;
  double rate = 0;  ///< with the correction of the first moment
  double root = 1;  ///< 1 / sqrt(correction of the second moment)
  double shrink = 1;
  double beta1 = 0, beta2 = 0, eps = 0;
};

/// s0: sum of squares.
struct AdagradStep {
  GradientStep gradient;
  double rate = 0, eps = 0;
};

/// s0: mean of squares, s1: mean of squared changes.
struct AdadeltaStep {
  GradientStep gradient;
  double rate = 0, rho = 0, eps = 0;
};

/// s0: mean of squares, s1: [mean], s2: [momentum].
struct RmspropStep {
  GradientStep gradient;
  double rate = 0, alpha = 0, eps = 0, momentum = 0;
};

/// s0: first moment, s1: infinity norm.
struct AdamaxStep {
  GradientStep gradient;
  double rate = 0, beta1 = 0, beta2 = 0, eps = 0;
};

/// s0, s1: first and second moment.
struct NadamStep {
  GradientStep gradient;
  double gradient_rate = 0, moment_rate = 0;
  double root = 1, shrink = 1, beta1 = 0, beta2 = 0, eps = 0;
};

/// s0, s1: first and second moment.
struct RadamStep {
  GradientStep gradient;
  double rate = 0;
  bool rectified = false;  ///< false: the second moment is not used
  double shrink = 1, beta1 = 0, beta2 = 0, eps = 0;
};

/// s0: z, s1: sum of squares. The weight decay is part of the formula, not of the gradient.
struct FtrlStep {
  GradientStep gradient;
  double rate = 0, lambda1 = 0, beta = 0, weight_decay = 0;
};

/// s0: [momentum].
struct SignumStep {
  GradientStep gradient;
  double rate = 0, momentum = 0, shrink = 1;
};

/// s0: the previous gradient, s1: the step sizes.
struct RpropStep {
  GradientStep gradient;
  double eta_minus = 0, eta_plus = 0, step_min = 0, step_max = 0;
};

/// s0: the average.
struct AsgdStep {
  GradientStep gradient;
  double rate = 0, shrink = 1, mu = 1;
};

/// s0: [momentum], which contains the rate.
struct LarsStep {
  GradientStep gradient;
  double rate = 0, momentum = 0;
};

/// s0, s1: first and second moment. With `moments`, updates these, sets s2 to the direction of the step and
/// leaves w unchanged; without it, s2 is null and w -= rate * direction.
struct LambStep {
  GradientStep gradient;
  double rate = 0;
  double correction = 1;  ///< 1 / (correction of the first moment)
  double root = 1;        ///< 1 / sqrt(correction of the second moment)
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool moments = false;
};

using Step = std::variant<SgdStep, AdamStep, AdagradStep, AdadeltaStep, RmspropStep, AdamaxStep, NadamStep,
                          RadamStep, FtrlStep, SignumStep, RpropStep, AsgdStep, LarsStep, LambStep>;

/// The state of a run of elements; null for a slot that the rule does not have.
template <class T>
using StateRun = std::array<T*, 3>;

/// Updates n elements. No two of the arrays overlap.
void apply(const Step& step, float* w, const float* g, const StateRun<float>& s, int64_t n);
void apply(const Step& step, double* w, const double* g, const StateRun<double>& s, int64_t n);

}  // namespace mx::kernels::detail
