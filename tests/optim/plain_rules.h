// The oracle: the rules of the optimisers as loops in float64, written from the formulas of torch.optim.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "optim/optimizers.h"

namespace mx::test {

/// A parameter and its state.
struct PlainParameter {
  std::vector<double> w, s0, s1, s2;
  int64_t steps = 0;

  explicit PlainParameter(std::vector<double> start = {})
      : w(std::move(start)), s0(w.size()), s1(w.size()), s2(w.size()) {}
};

/// Returns the gradient that a rule starts with.
template <class Options>
double plain_gradient(const Options& o, double g, double w, double scale, double decay) {
  g *= o.maximize ? -scale : scale;
  if (o.clip > 0) g = std::clamp(g, -o.clip, o.clip);
  return g + decay * w;
}

inline void plain_step(PlainParameter& p, const optim::SGDOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& multipliers) {
  const bool first = p.steps++ == 0;
  for (size_t i = 0; i < p.w.size(); ++i) {
    const double g = plain_gradient(o, gradient[i], p.w[i], scale, o.weight_decay * multipliers.weight_decay);
    double step = g;
    if (o.momentum != 0) {
      const double share = o.ema ? 1 - o.momentum : 1 - o.dampening;
      p.s0[i] = first ? g : o.momentum * p.s0[i] + share * g;
      step = p.s0[i];
      if (o.nesterov) step = (o.ema ? 1 - o.momentum : 1) * g + o.momentum * p.s0[i];
    }
    p.w[i] -= rate * multipliers.lr * step;
  }
}

template <class Options>
void plain_adam(PlainParameter& p, const Options& o, const std::vector<double>& gradient, double rate,
                double scale, double coupled, double decoupled) {
  const auto t = static_cast<double>(++p.steps);
  for (size_t i = 0; i < p.w.size(); ++i) {
    const double g = plain_gradient(o, gradient[i], p.w[i], scale, coupled);
    p.w[i] *= 1 - rate * decoupled;
    p.s0[i] = o.beta1 * p.s0[i] + (1 - o.beta1) * g;
    p.s1[i] = o.beta2 * p.s1[i] + (1 - o.beta2) * g * g;
    const double m = o.bias_correction ? p.s0[i] / (1 - std::pow(o.beta1, t)) : p.s0[i];
    p.s2[i] = std::max(p.s2[i], p.s1[i]);
    const double square = o.amsgrad ? p.s2[i] : p.s1[i];
    const double v = o.bias_correction ? square / (1 - std::pow(o.beta2, t)) : square;
    p.w[i] -= rate * m / (std::sqrt(v) + o.eps);
  }
}
inline void plain_step(PlainParameter& p, const optim::AdamOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& multipliers) {
  plain_adam(p, o, gradient, rate * multipliers.lr, scale, o.weight_decay * multipliers.weight_decay, 0);
}
inline void plain_step(PlainParameter& p, const optim::AdamWOptions& o, const std::vector<double>& gradient,
                       double rate, double scale, const optim::Multipliers& multipliers) {
  plain_adam(p, o, gradient, rate * multipliers.lr, scale, 0, o.weight_decay * multipliers.weight_decay);
}

/// Normally distributed numbers, the same in every run, that f32 represents exactly.
class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : engine_(seed) {}
  std::vector<double> operator()(int64_t count, double scale = 1) {
    std::vector<double> values(static_cast<size_t>(count));
    for (double& v : values) v = static_cast<float>(normal_(engine_) * scale);
    return values;
  }
  NDArray array(const Shape& shape, DType type = f32, Context context = cpu()) {
    return from_data((*this)(shape.numel()).data(), shape).to(type).to(context);
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

/// Returns all elements of all arrays, unchanged.
inline std::vector<double> values_of(const std::vector<NDArray>& arrays) {
  std::vector<double> all;
  for (const NDArray& array : arrays) {
    const std::vector<double> values = array.to(cpu()).to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace mx::test
