// The oracle, continued: the rules of adaptive.h and direct.h as loops in float64, written from the formulas
// of torch.optim, and from those of Apache MXNet for Ftrl, Signum, LARS and LAMB.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "optim/adaptive.h"
#include "optim/direct.h"
#include "tests/optim/plain_rules.h"

namespace mx::test {

inline double plain_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

/// Calls body(i, g) with the prepared gradient of each element; g contains the weight decay if `coupled`.
template <class Options, class Body>
void plain_elements(PlainParameter& p, const Options& o, const std::vector<double>& gradient, double scale,
                    double decay, bool coupled, const Body& body) {
  for (size_t i = 0; i < p.w.size(); ++i)
    body(i, plain_gradient(o, gradient[i], p.w[i], scale, coupled ? decay : 0));
}

inline void plain_step(PlainParameter& p, const optim::AdagradOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const auto t = static_cast<double>(++p.steps);
  if (t == 1) p.s0.assign(p.w.size(), o.initial_accumulator_value);
  const double now = rate * by.lr / (1 + (t - 1) * o.lr_decay);
  plain_elements(p, o, gradient, scale, o.weight_decay * by.weight_decay, true, [&](size_t i, double g) {
    p.s0[i] += g * g;
    p.w[i] -= now * g / (std::sqrt(p.s0[i]) + o.eps);
  });
}

inline void plain_step(PlainParameter& p, const optim::AdadeltaOptions& o,
                       const std::vector<double>& gradient, double rate, double scale,
                       const optim::Multipliers& by) {
  plain_elements(p, o, gradient, scale, o.weight_decay * by.weight_decay, true, [&](size_t i, double g) {
    p.s0[i] = o.rho * p.s0[i] + (1 - o.rho) * g * g;
    const double change = std::sqrt(p.s1[i] + o.eps) / std::sqrt(p.s0[i] + o.eps) * g;
    p.s1[i] = o.rho * p.s1[i] + (1 - o.rho) * change * change;
    p.w[i] -= rate * by.lr * change;
  });
}

inline void plain_step(PlainParameter& p, const optim::RMSpropOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  plain_elements(p, o, gradient, scale, o.weight_decay * by.weight_decay, true, [&](size_t i, double g) {
    p.s0[i] = o.alpha * p.s0[i] + (1 - o.alpha) * g * g;
    p.s1[i] = o.alpha * p.s1[i] + (1 - o.alpha) * g;
    const double variance = o.centered ? p.s0[i] - p.s1[i] * p.s1[i] : p.s0[i];
    const double change = g / (std::sqrt(std::max(0.0, variance)) + o.eps);
    p.s2[i] = o.momentum * p.s2[i] + change;
    p.w[i] -= rate * by.lr * p.s2[i];
  });
}

inline void plain_step(PlainParameter& p, const optim::AdamaxOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const auto t = static_cast<double>(++p.steps);
  plain_elements(p, o, gradient, scale, o.weight_decay * by.weight_decay, true, [&](size_t i, double g) {
    p.s0[i] = o.beta1 * p.s0[i] + (1 - o.beta1) * g;
    p.s1[i] = std::max(o.beta2 * p.s1[i], std::fabs(g) + o.eps);
    p.w[i] -= rate * by.lr / (1 - std::pow(o.beta1, t)) * p.s0[i] / p.s1[i];
  });
}

inline void plain_step(PlainParameter& p, const optim::NAdamOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const auto t = static_cast<double>(++p.steps);
  const double decay = o.weight_decay * by.weight_decay, lr = rate * by.lr;
  const auto mu = [&](double step) { return o.beta1 * (1 - 0.5 * std::pow(0.96, step * o.momentum_decay)); };
  double product = 1;
  for (double step = 1; step <= t; ++step) product *= mu(step);
  plain_elements(p, o, gradient, scale, decay, !o.decoupled_weight_decay, [&](size_t i, double g) {
    if (o.decoupled_weight_decay) p.w[i] *= 1 - lr * decay;
    p.s0[i] = o.beta1 * p.s0[i] + (1 - o.beta1) * g;
    p.s1[i] = o.beta2 * p.s1[i] + (1 - o.beta2) * g * g;
    const double size = std::sqrt(p.s1[i] / (1 - std::pow(o.beta2, t))) + o.eps;
    p.w[i] -= lr * (1 - mu(t)) / (1 - product) * g / size;
    p.w[i] -= lr * mu(t + 1) / (1 - product * mu(t + 1)) * p.s0[i] / size;
  });
}

inline void plain_step(PlainParameter& p, const optim::RAdamOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const auto t = static_cast<double>(++p.steps);
  const double decay = o.weight_decay * by.weight_decay, lr = rate * by.lr;
  const double correction = 1 - std::pow(o.beta2, t), longest = 2 / (1 - o.beta2) - 1;
  const double length = longest - 2 * t * std::pow(o.beta2, t) / correction;
  plain_elements(p, o, gradient, scale, decay, !o.decoupled_weight_decay, [&](size_t i, double g) {
    if (o.decoupled_weight_decay) p.w[i] *= 1 - lr * decay;
    p.s0[i] = o.beta1 * p.s0[i] + (1 - o.beta1) * g;
    p.s1[i] = o.beta2 * p.s1[i] + (1 - o.beta2) * g * g;
    double change = p.s0[i] / (1 - std::pow(o.beta1, t));
    if (length > 5)
      change *= std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) *
                std::sqrt(correction) / (std::sqrt(p.s1[i]) + o.eps);
    p.w[i] -= lr * change;
  });
}

inline void plain_step(PlainParameter& p, const optim::FtrlOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const double lr = rate * by.lr, decay = o.weight_decay * by.weight_decay;
  plain_elements(p, o, gradient, scale, decay, false, [&](size_t i, double g) {
    const double before = std::sqrt(p.s1[i]);
    p.s1[i] += g * g;
    p.s0[i] += g - (std::sqrt(p.s1[i]) - before) * p.w[i] / lr;
    p.w[i] = std::fabs(p.s0[i]) > o.lambda1
                 ? (plain_sign(p.s0[i]) * o.lambda1 - p.s0[i]) / ((o.beta + std::sqrt(p.s1[i])) / lr + decay)
                 : 0;
  });
}

inline void plain_step(PlainParameter& p, const optim::SignumOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const double lr = rate * by.lr;
  plain_elements(p, o, gradient, scale, o.weight_decay * by.weight_decay, true, [&](size_t i, double g) {
    p.s0[i] = o.momentum * p.s0[i] + (1 - o.momentum) * g;
    p.w[i] = (1 - lr * o.wd_lh) * p.w[i] - lr * plain_sign(p.s0[i]);
  });
}

inline void plain_step(PlainParameter& p, const optim::RpropOptions& o, const std::vector<double>& gradient,
                       double, double scale, const optim::Multipliers&) {
  if (p.steps++ == 0) p.s1.assign(p.w.size(), o.lr);
  plain_elements(p, o, gradient, scale, 0, false, [&](size_t i, double g) {
    const double turn = plain_sign(g * p.s0[i]);
    const double factor = turn > 0 ? o.eta_plus : turn < 0 ? o.eta_minus : 1;
    p.s1[i] = std::clamp(p.s1[i] * factor, o.step_min, o.step_max);
    if (turn < 0) g = 0;
    p.w[i] -= plain_sign(g) * p.s1[i];
    p.s0[i] = g;
  });
}

inline void plain_step(PlainParameter& p, const optim::ASGDOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const auto t = static_cast<double>(++p.steps);
  const double lr = rate * by.lr, now = lr / std::pow(1 + o.lambd * lr * (t - 1), o.alpha);
  plain_elements(p, o, gradient, scale, o.weight_decay * by.weight_decay, true, [&](size_t i, double g) {
    p.w[i] = p.w[i] * (1 - o.lambd * now) - now * g;
    p.s0[i] += (p.w[i] - p.s0[i]) / std::max(1.0, t - 1 - o.t0);
  });
}

inline double plain_norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

inline void plain_step(PlainParameter& p, const optim::LARSOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const double decay = o.weight_decay * by.weight_decay;
  std::vector<double> prepared;
  plain_elements(p, o, gradient, scale, 0, false, [&](size_t, double g) { prepared.push_back(g); });
  const double w = plain_norm(p.w), g_norm = plain_norm(prepared);
  const double ratio = o.adapt && w > 0 && g_norm > 0 ? o.eta * w / (g_norm + decay * w + o.eps) : 1;
  plain_elements(p, o, gradient, scale, decay, true, [&](size_t i, double g) {
    p.s0[i] = o.momentum * p.s0[i] + rate * by.lr * ratio * g;
    p.w[i] -= p.s0[i];
  });
}

inline void plain_step(PlainParameter& p, const optim::LAMBOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& by) {
  const auto t = static_cast<double>(++p.steps);
  const double decay = o.weight_decay * by.weight_decay;
  std::vector<double> direction;
  plain_elements(p, o, gradient, scale, 0, false, [&](size_t i, double g) {
    p.s0[i] = o.beta1 * p.s0[i] + (1 - o.beta1) * g;
    p.s1[i] = o.beta2 * p.s1[i] + (1 - o.beta2) * g * g;
    const double m = o.bias_correction ? p.s0[i] / (1 - std::pow(o.beta1, t)) : p.s0[i];
    const double v = o.bias_correction ? p.s1[i] / (1 - std::pow(o.beta2, t)) : p.s1[i];
    direction.push_back(m / (std::sqrt(v) + o.eps) + decay * p.w[i]);
  });
  double w = plain_norm(p.w);
  const double d = plain_norm(direction);
  if (o.lower_bound > 0) w = std::max(w, o.lower_bound);
  if (o.upper_bound > 0) w = std::min(w, o.upper_bound);
  const double ratio = w == 0 || d == 0 ? 1 : w / d;
  for (size_t i = 0; i < p.w.size(); ++i) p.w[i] -= rate * by.lr * ratio * direction[i];
}

}  // namespace mx::test
