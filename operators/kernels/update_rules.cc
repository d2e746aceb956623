#include "operators/kernels/update_rules.h"

#include <cmath>
#include <vector>

#include "engine/base/check.h"
#include "operators/kernels/reduce_fold.h"
#include "operators/kernels/update_loop.h"

namespace mx::kernels {

using detail::GradientStep;
using detail::kUpdateRun;
using detail::scalar;
using detail::StateLists;
using detail::Step;

namespace {

/// What every rule needs for one step.
struct Call {
  const char* op;
  UpdateLists lists;
  StateLists states;
  double rate, decay;           // learning rate and weight decay
  GradientStep gradient;        // with the weight decay
  std::vector<double> numbers;  // of the steps: one for all parameters, or one for each

  GradientStep without_decay() const { return {gradient.scale, gradient.clip, 0}; }
};

void run(const Call& call, const std::vector<Step>& steps) {
  detail::run_steps(call.lists, call.states, steps);
}
template <class Make>
void run_each(const Call& call, const Make& make) {
  run(call, detail::steps_for(call.numbers, make));
}

void update(const AdagradRule& rule, const Call& call) {
  run_each(call, [&](double t) {
    return detail::AdagradStep{call.gradient, call.rate / (1 + (t - 1) * rule.lr_decay), rule.eps};
  });
}

void update(const AdadeltaRule& rule, const Call& call) {
  run(call, {detail::AdadeltaStep{call.gradient, call.rate, rule.rho, rule.eps}});
}

void update(const RmspropRule& rule, const Call& call) {
  Call own = call;  // the momentum has its own slot, also if there is no mean
  own.states = {call.states[0], {}, {}};
  if (rule.momentum != 0) own.states[2] = call.states[1];
  if (rule.centered) own.states[1] = call.states[rule.momentum != 0 ? 2 : 1];
  run(own, {detail::RmspropStep{call.gradient, call.rate, rule.alpha, rule.eps, rule.momentum}});
}

void update(const AdamaxRule& rule, const Call& call) {
  run_each(call, [&](double t) {
    const double rate = call.rate / (1 - std::pow(rule.beta1, t));
    return detail::AdamaxStep{call.gradient, rate, rule.beta1, rule.beta2, rule.eps};
  });
}

double nadam_momentum(const NadamRule& rule, double t) {
  return rule.beta1 * (1 - 0.5 * std::pow(0.96, t * rule.momentum_decay));
}
/// Returns the product of nadam_momentum() over the steps 1 to t. Stops when further factors, all below 1,
/// cannot change 1 - product any more.
double nadam_product(const NadamRule& rule, double t) {
  double product = 1;
  for (double i = 1; i <= t && product > 1e-18; ++i) product *= nadam_momentum(rule, i);
  return product;
}

void update(const NadamRule& rule, const Call& call) {
  run_each(call, [&](double t) {
    const double now = nadam_momentum(rule, t), next = nadam_momentum(rule, t + 1);
    const double product = nadam_product(rule, t);
    detail::NadamStep step;
    step.gradient = rule.decoupled ? call.without_decay() : call.gradient;
    step.gradient_rate = call.rate * (1 - now) / (1 - product);
    step.moment_rate = call.rate * next / (1 - product * next);
    step.root = 1 / std::sqrt(1 - std::pow(rule.beta2, t));
    step.shrink = rule.decoupled ? 1 - call.rate * call.decay : 1;
    step.beta1 = rule.beta1;
    step.beta2 = rule.beta2;
    step.eps = rule.eps;
    return step;
  });
}

void update(const RadamRule& rule, const Call& call) {
  run_each(call, [&](double t) {
    const double power = std::pow(rule.beta2, t), longest = 2 / (1 - rule.beta2) - 1;
    const double length = longest - 2 * t * power / (1 - power);
    detail::RadamStep step;
    step.gradient = rule.decoupled ? call.without_decay() : call.gradient;
    step.rate = call.rate / (1 - std::pow(rule.beta1, t));
    step.rectified = length > 5;
    if (step.rectified)
      step.rate *= std::sqrt((length - 4) * (length - 2) * longest /
                             ((longest - 4) * (longest - 2) * length) * (1 - power));
    step.shrink = rule.decoupled ? 1 - call.rate * call.decay : 1;
    step.beta1 = rule.beta1;
    step.beta2 = rule.beta2;
    step.eps = rule.eps;
    return step;
  });
}

void update(const FtrlRule& rule, const Call& call) {
  if (call.rate == 0) return;  // the formula divides by the rate
  run(call, {detail::FtrlStep{call.without_decay(), call.rate, rule.lambda1, rule.beta, call.decay}});
}

void update(const SignumRule& rule, const Call& call) {
  run(call, {detail::SignumStep{call.gradient, call.rate, rule.momentum, 1 - call.rate * rule.wd_lh}});
}

void update(const RpropRule& rule, const Call& call) {
  run(call, {detail::RpropStep{call.gradient, rule.eta_minus, rule.eta_plus, rule.step_min, rule.step_max}});
}

void update(const AsgdRule& rule, const Call& call) {
  run_each(call, [&](double t) {
    const double rate = call.rate / std::pow(1 + rule.lambd * call.rate * (t - 1), rule.alpha);
    const double mu = 1 / std::max(1.0, t - 1 - rule.t0);
    return detail::AsgdStep{call.gradient, rate, 1 - rule.lambd * rate, mu};
  });
}

// Rules with norms of whole parameters.

/// Two sums of squares: of the parameter, and of what the rule divides by.
struct Squares {
  double w = 0, other = 0;
};

double squares_of(const double* x, int64_t n) {
  detail::FoldState<double> sum;
  detail::fold_rows(detail::Fold::sum_squares, x, 1, 0, n, 0, 0, &sum);
  return sum.a;
}
double squares_of(const float* x, int64_t n) {
  double wide[kUpdateRun];
  std::copy(x, x + n, wide);
  return squares_of(wide, n);
}

/// Returns the squares of each parameter: body(i, first, n, g) returns those of a run.
template <class T, class Body>
std::vector<Squares> squares_of_parameters(const UpdateLists& lists, const Body& body) {
  const std::vector<int64_t> starts = detail::starts_of(lists.parameters);
  std::vector<Squares> parts(detail::parts_of(starts));
  detail::for_each_run<T>(lists, starts, false,
                          [&](size_t i, int64_t first, int64_t n, const T* g, size_t part) {
                            const Squares run = body(i, first, n, g);
                            parts[part].w += run.w;
                            parts[part].other += run.other;
                          });
  std::vector<Squares> sums(lists.parameters.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    if (starts[i] == starts[i + 1]) continue;
    const int64_t last = (starts[i + 1] - 1) / detail::kUpdatePiece;
    for (int64_t piece = starts[i] / detail::kUpdatePiece; piece <= last; ++piece) {
      const Squares& part = parts[static_cast<size_t>(piece) + i];
      sums[i].w += part.w;
      sums[i].other += part.other;
    }
  }
  return sums;
}

template <class T>
std::vector<Squares> lars_squares(const Call& call) {
  const auto scale = static_cast<T>(call.gradient.scale), clip = static_cast<T>(call.gradient.clip);
  return squares_of_parameters<T>(call.lists, [&](size_t i, int64_t first, int64_t n, const T* g) {
    T prepared[kUpdateRun];
    for (int64_t k = 0; k < n; ++k) {
      const T x = g[k] * scale;
      prepared[k] = clip > 0 ? (x > clip ? clip : x < -clip ? -clip : x) : x;  // NaN stays NaN
    }
    return Squares{squares_of(call.lists.parameters[i].as<T>() + first, n), squares_of(prepared, n)};
  });
}

void update(const LarsRule& rule, const Call& call) {
  std::vector<Step> steps(1, detail::LarsStep{call.gradient, call.rate, rule.momentum});
  if (rule.adapt) {
    const auto squares =
        call.lists.parameters[0].dtype == f32 ? lars_squares<float>(call) : lars_squares<double>(call);
    steps.clear();
    for (const Squares& of : squares) {
      const double w = std::sqrt(of.w), g = std::sqrt(of.other);
      const double ratio = w > 0 && g > 0 ? rule.eta * w / (g + call.decay * w + rule.eps) : 1;
      steps.emplace_back(detail::LarsStep{call.gradient, call.rate * ratio, rule.momentum});
    }
  }
  run(call, steps);
}

/// Updates the moments, and returns the squares of the parameters and of the directions.
template <class T>
std::vector<Squares> lamb_moments(const Call& call, const std::vector<Step>& steps) {
  return squares_of_parameters<T>(call.lists, [&](size_t i, int64_t first, int64_t n, const T* g) {
    T direction[kUpdateRun] = {};
    detail::StateRun<T> state = detail::state_run<T>(call.states, i, first);
    state[2] = direction;
    T* const w = call.lists.parameters[i].as<T>() + first;
    detail::apply(steps[steps.size() == 1 ? 0 : i], w, g, state, n);
    return Squares{squares_of(w, n), squares_of(direction, n)};
  });
}

void update(const LambRule& rule, const Call& call) {
  detail::LambStep step;
  step.gradient = call.without_decay();
  step.beta1 = rule.beta1;
  step.beta2 = rule.beta2;
  step.eps = rule.eps;
  step.weight_decay = call.decay;
  step.moments = true;
  std::vector<Step> steps = detail::steps_for(call.numbers, [&](double t) {
    if (rule.bias_correction) {
      step.correction = 1 / (1 - std::pow(rule.beta1, t));
      step.root = 1 / std::sqrt(1 - std::pow(rule.beta2, t));
    }
    return step;
  });
  const auto squares = call.lists.parameters[0].dtype == f32 ? lamb_moments<float>(call, steps)
                                                             : lamb_moments<double>(call, steps);
  std::vector<Step> second;
  for (size_t i = 0; i < squares.size(); ++i) {
    double w = std::sqrt(squares[i].w);
    const double d = std::sqrt(squares[i].other);
    if (rule.lower_bound > 0) w = std::max(w, rule.lower_bound);
    if (rule.upper_bound > 0) w = std::min(w, rule.upper_bound);
    auto& own = std::get<detail::LambStep>(
        second.emplace_back(std::get<detail::LambStep>(steps[steps.size() == 1 ? 0 : i])));
    own.moments = false;
    own.rate = w == 0 || d == 0 ? call.rate : call.rate * w / d;
  }
  run(call, second);
}

}  // namespace

void rule_update(const UpdateLists& lists, std::span<const std::span<const Tensor>> states,
                 const UpdateCommon& common, const UpdateRule& rule, const RuleOptions& options) {
  std::visit(
      [&](const auto& own) {
        const char* const op = own.kName;
        MX_CHECK(states.size() == own.states(), InvalidArgument, "[", op, "] expected ", own.states(),
                 " lists of state, got ", states.size());
        StateLists lists_of{};
        std::copy(states.begin(), states.end(), lists_of.begin());
        if (!detail::check_lists(op, lists, lists_of, common)) return;
        for (const auto& state : states) detail::check_list(op, "state", state, lists.parameters, true);
        MX_CHECK(!own.kNeedsStep || options.step != nullptr || common.counts != nullptr, InvalidArgument, "[",
                 op, "] expected the step number or the step counts, got neither");
        Call call{op,
                  lists,
                  lists_of,
                  scalar(op, "the learning rate", common.learning_rate),
                  common.weight_decay,
                  detail::gradient_step(op, common, options.maximize),
                  {}};
        if (detail::skipped(op, common)) return;
        call.numbers = detail::step_numbers(op, lists.parameters.size(), options.step, common);
        detail::count(common, call.numbers);
        update(own, call);
      },
      rule);
}

}  // namespace mx::kernels
