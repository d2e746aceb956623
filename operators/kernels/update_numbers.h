// The numbers of one step of each update rule, and the steps on one element; for the kernels of every device.
// The CPU applies steps to vectors (update_step.cc). The formulas are in update.h and update_rules.h.
// Internal.
#pragma once

#include <cmath>
#include <cstdint>

#include "operators/kernels/update_rules.h"
#include "operators/kernels/update_step.h"

namespace mx::kernels::detail {

/// What every rule needs for one step.
struct StepNumbers {
  double rate = 0, decay = 0;  ///< learning rate and weight decay
  GradientStep gradient;       ///< with the weight decay

  constexpr GradientStep without_decay() const { return {gradient.scale, gradient.clip, 0}; }
};

// Functions are templates where they call functions of <cmath>, which are not constexpr everywhere.

/// step_of() returns the numbers of step t, from 1, of a rule. For LarsRule and LambRule the norms of whole
/// parameters change them later.
template <class N>
constexpr SgdStep step_of(const SgdOptions& rule, const N& n, double t) {
  SgdStep step;
  step.gradient = n.gradient;
  step.rate = n.rate;
  step.momentum = rule.momentum;
  step.kept = rule.ema ? 1 - rule.momentum : 1 - rule.dampening;
  step.look = rule.ema ? 1 - rule.momentum : 1;
  step.nesterov = rule.nesterov;
  step.first = t == 1;
  return step;
}

template <class N>
constexpr AdamStep step_of(const AdamOptions& rule, const N& n, double t) {
  AdamStep step;
  step.gradient = rule.decoupled ? n.without_decay() : n.gradient;
  step.shrink = rule.decoupled ? 1 - n.rate * n.decay : 1;
  step.beta1 = rule.beta1;
  step.beta2 = rule.beta2;
  step.eps = rule.eps;
  step.rate = n.rate / (rule.bias_correction ? 1 - std::pow(rule.beta1, t) : 1);
  step.root = rule.bias_correction ? 1 / std::sqrt(1 - std::pow(rule.beta2, t)) : 1;
  return step;
}

template <class N>
constexpr AdagradStep step_of(const AdagradRule& rule, const N& n, double t) {
  return {n.gradient, n.rate / (1 + (t - 1) * rule.lr_decay), rule.eps};
}

template <class N>
constexpr AdadeltaStep step_of(const AdadeltaRule& rule, const N& n, double) {
  return {n.gradient, n.rate, rule.rho, rule.eps};
}

template <class N>
constexpr RmspropStep step_of(const RmspropRule& rule, const N& n, double) {
  return {n.gradient, n.rate, rule.alpha, rule.eps, rule.momentum};
}

template <class N>
constexpr AdamaxStep step_of(const AdamaxRule& rule, const N& n, double t) {
  return {n.gradient, n.rate / (1 - std::pow(rule.beta1, t)), rule.beta1, rule.beta2, rule.eps};
}

template <class R>
constexpr double nadam_momentum(const R& rule, double t) {
  return rule.beta1 * (1 - 0.5 * std::pow(0.96, t * rule.momentum_decay));
}
/// Returns the product of nadam_momentum() over the steps 1 to t. Stops when further factors, all below 1,
/// cannot change 1 - product any more.
template <class R>
constexpr double nadam_product(const R& rule, double t) {
  double product = 1;
  for (double i = 1; i <= t && product > 1e-18; ++i) product *= nadam_momentum(rule, i);
  return product;
}

template <class N>
constexpr NadamStep step_of(const NadamRule& rule, const N& n, double t) {
  const double now = nadam_momentum(rule, t), next = nadam_momentum(rule, t + 1);
  const double product = nadam_product(rule, t);
  NadamStep step;
  step.gradient = rule.decoupled ? n.without_decay() : n.gradient;
  step.gradient_rate = n.rate * (1 - now) / (1 - product);
  step.moment_rate = n.rate * next / (1 - product * next);
  step.root = 1 / std::sqrt(1 - std::pow(rule.beta2, t));
  step.shrink = rule.decoupled ? 1 - n.rate * n.decay : 1;
  step.beta1 = rule.beta1;
  step.beta2 = rule.beta2;
  step.eps = rule.eps;
  return step;
}

template <class N>
constexpr RadamStep step_of(const RadamRule& rule, const N& n, double t) {
  const double power = std::pow(rule.beta2, t), longest = 2 / (1 - rule.beta2) - 1;
  const double length = longest - 2 * t * power / (1 - power);
  RadamStep step;
  step.gradient = rule.decoupled ? n.without_decay() : n.gradient;
  step.rate = n.rate / (1 - std::pow(rule.beta1, t));
  step.rectified = length > 5;
  if (step.rectified)
    step.rate *= std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) *
                           (1 - power));
  step.shrink = rule.decoupled ? 1 - n.rate * n.decay : 1;
  step.beta1 = rule.beta1;
  step.beta2 = rule.beta2;
  step.eps = rule.eps;
  return step;
}

/// With a rate of 0, by which the formula divides, the step must not be applied.
template <class N>
constexpr FtrlStep step_of(const FtrlRule& rule, const N& n, double) {
  return {n.without_decay(), n.rate, rule.lambda1, rule.beta, n.decay};
}

template <class N>
constexpr SignumStep step_of(const SignumRule& rule, const N& n, double) {
  return {n.gradient, n.rate, rule.momentum, 1 - n.rate * rule.wd_lh};
}

template <class N>
constexpr RpropStep step_of(const RpropRule& rule, const N& n, double) {
  return {n.gradient, rule.eta_minus, rule.eta_plus, rule.step_min, rule.step_max};
}

template <class N>
constexpr AsgdStep step_of(const AsgdRule& rule, const N& n, double t) {
  const double rate = n.rate / std::pow(1 + rule.lambd * n.rate * (t - 1), rule.alpha);
  const double steps = t - 1 - rule.t0;
  return {n.gradient, rate, 1 - rule.lambd * rate, 1 / (steps > 1 ? steps : 1)};
}

template <class N>
constexpr LarsStep step_of(const LarsRule& rule, const N& n, double) {
  return {n.gradient, n.rate, rule.momentum};
}

template <class N>
constexpr LambStep step_of(const LambRule& rule, const N& n, double t) {
  LambStep step;
  step.gradient = n.without_decay();
  step.rate = n.rate;
  step.beta1 = rule.beta1;
  step.beta2 = rule.beta2;
  step.eps = rule.eps;
  step.weight_decay = n.decay;
  if (rule.bias_correction) {
    step.correction = 1 / (1 - std::pow(rule.beta1, t));
    step.root = 1 / std::sqrt(1 - std::pow(rule.beta2, t));
  }
  return step;
}

/// Returns the learning rate of a parameter from the sums of squares of its elements and of its gradient,
/// after scale and clip.
template <class N>
constexpr double adapted_rate(const LarsRule& rule, const N& n, double w_squares, double g_squares) {
  const double w = std::sqrt(w_squares), g = std::sqrt(g_squares);
  return rule.adapt && w > 0 && g > 0 ? n.rate * (rule.eta * w / (g + n.decay * w + rule.eps)) : n.rate;
}
/// The same from the squares of its elements and of the direction of its step.
template <class N>
constexpr double adapted_rate(const LambRule& rule, const N& n, double w_squares, double d_squares) {
  double w = std::sqrt(w_squares);
  const double d = std::sqrt(d_squares);
  if (rule.lower_bound > 0 && w < rule.lower_bound) w = rule.lower_bound;
  if (rule.upper_bound > 0 && w > rule.upper_bound) w = rule.upper_bound;
  return w == 0 || d == 0 ? n.rate : n.rate * w / d;
}

// Steps on one element, by the names of the vector versions. s0, s1, s2 are its state; `has` says which of
// them exist.

struct StateSlots {
  bool s0, s1, s2;
};

template <class T>
constexpr T clipped_gradient(const GradientStep& rule, T g) {
  g *= static_cast<T>(rule.scale);
  const T clip = static_cast<T>(rule.clip);
  return rule.clip > 0 ? (g > clip ? clip : g < -clip ? -clip : g) : g;  // NaN stays NaN
}
template <class T>
constexpr T prepared_gradient(const GradientStep& rule, T g, T w) {
  g = clipped_gradient(rule, g);
  return rule.weight_decay != 0 ? w * static_cast<T>(rule.weight_decay) + g : g;
}
template <class T>
constexpr T running_average(double decay, T average, T x) {
  return average * static_cast<T>(decay) + x * static_cast<T>(1 - decay);
}
/// Returns the larger number; NaN if one is NaN.
template <class T>
constexpr T larger_of(T a, T b) {
  return a != a ? a : b != b ? b : a > b ? a : b;
}
template <class T>
constexpr T smaller_of(T a, T b) {
  return a != a ? a : b != b ? b : a < b ? a : b;
}
template <class T>
constexpr T sign_or_nan(T x) {
  return x > T{0} ? T{1} : x < T{0} ? T{-1} : x;
}

template <class T>
constexpr void apply_step(const SgdStep& rule, StateSlots has, T& w, T g, T& u, T&, T&) {
  T change = g;
  if (has.s0) {
    u = rule.first ? g : u * static_cast<T>(rule.momentum) + g * static_cast<T>(rule.kept);
    change = rule.nesterov ? u * static_cast<T>(rule.momentum) + g * static_cast<T>(rule.look) : u;
  }
  w -= change * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const AdamStep& rule, StateSlots has, T& w, T g, T& m, T& v, T& largest) {
  m = running_average(rule.beta1, m, g);
  v = running_average(rule.beta2, v, g * g);
  if (has.s2) largest = larger_of(largest, v);
  const T size = std::sqrt(has.s2 ? largest : v) * static_cast<T>(rule.root) + static_cast<T>(rule.eps);
  w = w * static_cast<T>(rule.shrink) - m / size * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const AdagradStep& rule, StateSlots, T& w, T g, T& sum, T&, T&) {
  sum += g * g;
  w -= g / (std::sqrt(sum) + static_cast<T>(rule.eps)) * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const AdadeltaStep& rule, StateSlots, T& w, T g, T& square, T& changes, T&) {
  const T eps = static_cast<T>(rule.eps);
  square = running_average(rule.rho, square, g * g);
  const T change = std::sqrt(changes + eps) / std::sqrt(square + eps) * g;
  changes = running_average(rule.rho, changes, change * change);
  w -= change * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const RmspropStep& rule, StateSlots has, T& w, T g, T& square, T& mean, T& u) {
  square = running_average(rule.alpha, square, g * g);
  T variance = square;
  if (has.s1) {
    mean = running_average(rule.alpha, mean, g);
    // Rounding can make the difference of two nearly equal numbers negative.
    variance = larger_of(T{0}, square - mean * mean);
  }
  T change = g / (std::sqrt(variance) + static_cast<T>(rule.eps));
  if (has.s2) change = u = u * static_cast<T>(rule.momentum) + change;
  w -= change * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const AdamaxStep& rule, StateSlots, T& w, T g, T& m, T& norm, T&) {
  m = running_average(rule.beta1, m, g);
  norm = larger_of(norm * static_cast<T>(rule.beta2), std::fabs(g) + static_cast<T>(rule.eps));
  w -= m / norm * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const NadamStep& rule, StateSlots, T& w, T g, T& m, T& v, T&) {
  m = running_average(rule.beta1, m, g);
  v = running_average(rule.beta2, v, g * g);
  const T size = std::sqrt(v) * static_cast<T>(rule.root) + static_cast<T>(rule.eps);
  const T ahead = g * static_cast<T>(rule.gradient_rate) + m * static_cast<T>(rule.moment_rate);
  w = w * static_cast<T>(rule.shrink) - ahead / size;
}

template <class T>
constexpr void apply_step(const RadamStep& rule, StateSlots, T& w, T g, T& m, T& v, T&) {
  m = running_average(rule.beta1, m, g);
  v = running_average(rule.beta2, v, g * g);
  const T change = rule.rectified ? m / (std::sqrt(v) + static_cast<T>(rule.eps)) : m;
  w = w * static_cast<T>(rule.shrink) - change * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const FtrlStep& rule, StateSlots, T& w, T g, T& z, T& squares, T&) {
  if (rule.rate == 0) return;
  const T before = std::sqrt(squares), per_rate = static_cast<T>(1 / rule.rate);
  const T limit = static_cast<T>(rule.lambda1);
  squares += g * g;
  const T root = std::sqrt(squares);
  z += g - (root - before) * per_rate * w;
  const T above = sign_or_nan(z) * limit - z;
  const T size = (static_cast<T>(rule.beta) + root) * per_rate + static_cast<T>(rule.weight_decay);
  w = std::fabs(z) <= limit ? T{0} : above / size;  // NaN stays NaN
}

template <class T>
constexpr void apply_step(const SignumStep& rule, StateSlots has, T& w, T g, T& u, T&, T&) {
  if (has.s0) g = u = running_average(rule.momentum, u, g);
  w = w * static_cast<T>(rule.shrink) - sign_or_nan(g) * static_cast<T>(rule.rate);
}

template <class T>
constexpr void apply_step(const RpropStep& rule, StateSlots, T& w, T g, T& previous, T& size, T&) {
  const T product = g * previous;
  const bool turned = product < T{0};
  const T factor = static_cast<T>(product > T{0} ? rule.eta_plus : turned ? rule.eta_minus : 1);
  size = larger_of(static_cast<T>(rule.step_min), smaller_of(static_cast<T>(rule.step_max), size * factor));
  previous = turned ? T{0} : g;
  w -= sign_or_nan(previous) * size;
}

template <class T>
constexpr void apply_step(const AsgdStep& rule, StateSlots, T& w, T g, T& average, T&, T&) {
  w = w * static_cast<T>(rule.shrink) - g * static_cast<T>(rule.rate);
  average = rule.mu == 1 ? w : (w - average) * static_cast<T>(rule.mu) + average;
}

template <class T>
constexpr void apply_step(const LarsStep& rule, StateSlots has, T& w, T g, T& u, T&, T&) {
  T change = g * static_cast<T>(rule.rate);
  if (has.s0) change = u = u * static_cast<T>(rule.momentum) + change;
  w -= change;
}

template <class T>
constexpr void apply_step(const LambStep& rule, StateSlots, T& w, T g, T& m, T& v, T& direction) {
  if (rule.moments) {
    m = running_average(rule.beta1, m, g);
    v = running_average(rule.beta2, v, g * g);
  }
  const T size = std::sqrt(v) * static_cast<T>(rule.root) + static_cast<T>(rule.eps);
  direction = w * static_cast<T>(rule.weight_decay) + m * static_cast<T>(rule.correction) / size;
  if (!rule.moments) w -= direction * static_cast<T>(rule.rate);
}

}  // namespace mx::kernels::detail
