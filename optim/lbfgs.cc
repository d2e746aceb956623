#include "optim/lbfgs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"
#include "optim/detail/dictionary.h"
#include "optim/detail/option_checks.h"

namespace mx::optim {

using detail::describe;
using detail::Problems;

namespace {

constexpr const char* kLbfgs = "lbfgs";
// The strong Wolfe conditions with the constants that are usual for quasi-Newton methods.
constexpr double kDecrease = 1e-4, kCurvature = 0.9;
constexpr double kLeastCurvature = 1e-10;  // steps along which the gradient changes less are not remembered

/// The products are rank 0, f64: f32 sums would lose the small differences that the method lives on.
NDArray product(const NDArray& a, const NDArray& b) { return sum(a * b, {}, false, f64); }
double number(const NDArray& array) { return array.to_vector<double>()[0]; }
double largest(const NDArray& x) { return x.numel() == 0 ? 0 : number(max(abs(x))); }

/// Returns the minimum of the cubic polynomial through two points with slopes, limited to [from, to]; the
/// middle if there is none.
double cubic_minimum(double x1, double f1, double s1, double x2, double f2, double s2, double from,
                     double to) {
  if (x1 > x2) std::swap(x1, x2), std::swap(f1, f2), std::swap(s1, s2);
  const double a = s1 + s2 - 3 * (f1 - f2) / (x1 - x2), square = a * a - s1 * s2;
  const double root = std::sqrt(square);
  const double x = x2 - (x2 - x1) * (s2 + root - a) / (s2 - s1 + 2 * root);
  return square >= 0 && std::isfinite(x) ? std::clamp(x, from, to) : (from + to) / 2;
}

}  // namespace

LBFGS::LBFGS(const Parameters& parameters, const LBFGSOptions& options, std::source_location where)
    : parameters_(parameters), options_(options) {
  Problems problems(kLbfgs);
  const LBFGSOptions& o = options_;
  problems.expect(o.lr > 0 && std::isfinite(o.lr), "expected lr above 0", detail::and_finite(o.lr), ", got ",
                  o.lr);
  problems.expect(o.max_iter >= 1, "expected max_iter of at least 1, got ", o.max_iter);
  problems.expect(o.max_eval >= 0, "expected max_eval of at least 0, got ", o.max_eval);
  problems.expect(o.history_size >= 1, "expected history_size of at least 1, got ", o.history_size);
  detail::expect_at_least_0(problems, "tolerance_grad", o.tolerance_grad);
  detail::expect_at_least_0(problems, "tolerance_change", o.tolerance_change);
  problems.expect(!parameters_.empty(), "expected parameters, got none");
  const bool has_first = !parameters_.empty() && parameters_[0].defined() && parameters_[0].array().defined();
  const DType type = accumulation_type(has_first ? parameters_[0].dtype() : f32);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const NDArray p = parameters_[i].defined() ? parameters_[i].array() : NDArray();
    if (!p.defined() || p.dtype() != type || !p.contiguous())
      problems.add("expected parameter ", i, " as contiguous ", type, ", got ", describe(p),
                   p.defined() && !p.contiguous() ? ", which is not contiguous" : "");
  }
  problems.raise(where);
  if (options_.max_eval == 0) options_.max_eval = options_.max_iter * 5 / 4;
}

void LBFGS::set_learning_rate(double rate) {
  MX_CHECK(rate > 0 && std::isfinite(rate), InvalidArgument, "[", kLbfgs,
           "] expected a learning rate above 0", detail::and_finite(rate), ", got ", rate);
  options_.lr = rate;
}

void LBFGS::zero_grad() {
  const NoGrad pause;
  for (const NDArray& p : parameters_)
    if (p.requires_grad()) p.set_grad(NDArray());
}

NDArray LBFGS::flat_parameters() const {
  std::vector<NDArray> parts;
  for (const NDArray& p : parameters_)
    parts.push_back(p.detach().reshape({p.numel()}).to(parameters_[0].context()));
  return concat(parts);
}

void LBFGS::set_parameters(const NDArray& flat) const {
  int64_t begin = 0;
  for (const NDArray& p : parameters_) {
    NDArray target = p.detach();
    target.copy_from(flat.slice(0, Slice(begin, begin + p.numel())).reshape(p.shape()));
    begin += p.numel();
  }
}

LBFGS::Evaluation LBFGS::evaluate(const Closure& closure, std::source_location where) {
  NDArray loss;
  {
    const EnableGrad on;
    loss = closure();
  }
  ++evaluations_;
  MX_CHECK(loss.defined() && is_floating(loss.dtype()) && loss.numel() == 1, InvalidArgument, "[", kLbfgs,
           "] expected a closure that returns the loss, one floating-point number, got ", describe(loss),
           mx::detail::called_at(where));
  std::vector<NDArray> parts;
  for (const NDArray& p : parameters_) {
    const NDArray g = p.requires_grad() ? p.grad() : NDArray();
    MX_CHECK(!g.defined() || g.shape() == p.shape(), InvalidArgument, "[", kLbfgs,
             "] expected a gradient of shape ", p.shape(), ", got ", describe(g));
    parts.push_back(g.defined() ? g.detach().to(p.dtype()).reshape({p.numel()}).to(parameters_[0].context())
                                : zeros({p.numel()}, p.dtype(), parameters_[0].context()));
  }
  return {number(loss.detach()), concat(parts)};
}

/// Adds the last step to those that the approximation uses. `gradient` is the one after the step.
void LBFGS::remember(const NDArray& gradient) {
  const NDArray change = gradient - gradient_, step = direction_ * length_;
  const double curvature = number(product(change, step));
  if (!(curvature > kLeastCurvature)) return;
  if (static_cast<int64_t>(steps_.size()) == options_.history_size) {
    steps_.pop_front();
    changes_.pop_front();
  }
  steps_.push_back(step);
  changes_.push_back(change);
  scale_ = curvature / number(product(change, change));
}

/// Returns minus the approximated inverse Hessian matrix times the gradient: the two-loop recursion. The
/// coefficients stay arrays, so the host does not wait for each.
NDArray LBFGS::direction(const NDArray& gradient) const {
  NDArray q = -gradient;
  const auto factor = [&](const NDArray& x) { return x.to(gradient.dtype()); };
  std::vector<NDArray> inverse, alpha(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) inverse.push_back(1.0 / product(changes_[i], steps_[i]));
  for (size_t i = steps_.size(); i-- > 0;) {
    alpha[i] = inverse[i] * product(steps_[i], q);
    q = q - factor(alpha[i]) * changes_[i];
  }
  q = q * scale_;
  for (size_t i = 0; i < steps_.size(); ++i)
    q = q + factor(alpha[i] - inverse[i] * product(changes_[i], q)) * steps_[i];
  return q;
}

double LBFGS::step(const Closure& closure, std::source_location where) try {
  MX_CHECK(closure != nullptr, InvalidArgument, "[", kLbfgs, "] expected a function, got an empty one");
  const NoGrad pause;
  const int64_t before = evaluations_;
  Evaluation now = evaluate(closure, where);
  const double first_loss = now.loss;
  if (largest(now.gradient) <= options_.tolerance_grad) return first_loss;
  for (int64_t i = 1; i <= options_.max_iter; ++i) {
    const bool first = ++iterations_ == 1;
    if (!first) remember(now.gradient);
    direction_ = first ? -now.gradient : direction(now.gradient);
    gradient_ = now.gradient;
    length_ = options_.lr * (first ? std::min(1.0, 1 / number(sum(abs(now.gradient), {}, false, f64))) : 1);
    const double loss = now.loss, slope = number(product(now.gradient, direction_));
    if (!(slope <= -options_.tolerance_change)) break;

    const NDArray start = flat_parameters();
    try {
      const int64_t evaluations_left = options_.max_eval - (evaluations_ - before);
      iterate(closure, now, start, slope, i < options_.max_iter, evaluations_left, where);
    } catch (...) {
      set_parameters(start);
      throw;
    }
    if (evaluations_ - before >= options_.max_eval || i == options_.max_iter ||
        largest(now.gradient) <= options_.tolerance_grad ||
        largest(direction_) * length_ <= options_.tolerance_change ||
        std::fabs(now.loss - loss) < options_.tolerance_change)
      break;
  }
  return first_loss;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

/// Moves the parameters along the direction, and evaluates there. A line search tries up to `max_trials`
/// points after its first.
void LBFGS::iterate(const Closure& closure, Evaluation& now, const NDArray& start, double slope,
                    bool evaluates, int64_t max_trials, std::source_location where) {
  const auto move = [&](double length) { set_parameters(start + direction_ * length); };
  if (!options_.strong_wolfe) {
    move(length_);
    if (evaluates) now = evaluate(closure, where);
    return;
  }
  const auto at = [&](double length) {
    move(length);
    const Evaluation there = evaluate(closure, where);
    return Trial{length, there.loss, number(product(there.gradient, direction_)), there.gradient};
  };
  const Trial found = search(at, {0, now.loss, slope, now.gradient}, length_, max_trials);
  length_ = found.length;
  move(length_);
  now = {found.loss, found.gradient};
}

/// Returns a point that satisfies the strong Wolfe conditions, or the best one if the trials are used up. The
/// points are those that PyTorch tries.
LBFGS::Trial LBFGS::search(const std::function<Trial(double)>& at, const Trial& start, double first,
                           int64_t max_trials) const {
  Trial before = start, now = at(first);
  for (int64_t trials = 0; trials < max_trials; ++trials) {
    // A loss that is not a number counts as too large.
    const bool decreased = now.loss <= start.loss + kDecrease * now.length * start.slope;
    if (!decreased || (trials > 1 && now.loss >= before.loss))
      return zoom(at, start, before, now, trials, max_trials);
    if (std::fabs(now.slope) <= -kCurvature * start.slope) return now;
    if (now.slope >= 0) return zoom(at, start, before, now, trials, max_trials);
    const double from = now.length + 0.01 * (now.length - before.length), to = 10 * now.length;
    const double length =
        cubic_minimum(before.length, before.loss, before.slope, now.length, now.loss, now.slope, from, to);
    before = std::move(now);
    now = at(length);
  }
  return now.loss < start.loss ? now : start;
}

/// The same in the interval between two points, which contains such a point; `trials` points have been tried
/// before.
LBFGS::Trial LBFGS::zoom(const std::function<Trial(double)>& at, const Trial& start, Trial first,
                         Trial second, int64_t trials, int64_t max_trials) const {
  const double size = largest(direction_);
  std::array<Trial, 2> ends{std::move(first), std::move(second)};
  // The end with the smaller loss, the first one of equal ones. A loss that is not a number is the larger.
  const auto lower = [&] { return ends[0].loss <= ends[1].loss || std::isnan(ends[1].loss) ? 0U : 1U; };
  size_t low = lower();
  bool stuck = false;  // the last trial was near an end
  for (; trials < max_trials; ++trials) {
    const auto [from, to] = std::minmax(ends[0].length, ends[1].length);
    if ((to - from) * size < options_.tolerance_change) break;
    double length = cubic_minimum(ends[0].length, ends[0].loss, ends[0].slope, ends[1].length, ends[1].loss,
                                  ends[1].slope, from, to);
    // A point near an end makes the interval hardly smaller: so not two of them in a row.
    const double margin = 0.1 * (to - from);
    const bool near = std::min(to - length, length - from) < margin;
    const bool inwards = near && (stuck || length >= to || length <= from);
    if (inwards) length = std::fabs(length - to) < std::fabs(length - from) ? to - margin : from + margin;
    stuck = near && !inwards;

    Trial now = at(length);
    if (!(now.loss <= start.loss + kDecrease * length * start.slope) || now.loss >= ends[low].loss) {
      ends[1 - low] = std::move(now);
      low = lower();
      continue;
    }
    if (std::fabs(now.slope) <= -kCurvature * start.slope) return now;
    if (now.slope * (ends[1 - low].length - ends[low].length) >= 0) ends[1 - low] = ends[low];
    ends[low] = std::move(now);
  }
  return ends[low];
}

NamedArrays LBFGS::state_dict() const {
  const NoGrad pause;
  NamedArrays state = {{"n_iter", scalar_array(iterations_, i64)},
                       {"func_evals", scalar_array(evaluations_, i64)},
                       {"t", scalar_array(length_, f64)},
                       {"H_diag", scalar_array(scale_, f64)}};
  if (!direction_.defined()) return state;
  const auto rows = [&](const std::deque<NDArray>& list) {
    if (list.empty()) return zeros({0, direction_.numel()}, direction_.dtype(), direction_.context());
    return stack(std::vector<NDArray>(list.begin(), list.end()));
  };
  state.emplace_back("d", direction_.clone());
  state.emplace_back("prev_flat_grad", gradient_.clone());
  state.emplace_back("old_stps", rows(steps_));
  state.emplace_back("old_dirs", rows(changes_));
  return state;
}

void LBFGS::load_state_dict(const NamedArrays& state, std::source_location where) {
  const NoGrad pause;
  NamedArrays expected = {{"n_iter", zeros({}, i64)},
                          {"func_evals", zeros({}, i64)},
                          {"t", zeros({}, f64)},
                          {"H_diag", zeros({}, f64)}};
  const bool begun = state.find("d") != nullptr;
  int64_t rows = 0;
  if (begun) {
    const NDArray flat = flat_parameters();
    if (const NDArray* steps = state.find("old_stps"); steps != nullptr && steps->rank() == 2)
      rows = std::min<int64_t>(steps->size(0), options_.history_size);
    const NDArray history = zeros({rows, flat.numel()}, flat.dtype());
    expected.emplace_back("d", flat);
    expected.emplace_back("prev_flat_grad", flat);
    expected.emplace_back("old_stps", history);
    expected.emplace_back("old_dirs", history.clone());
  }
  const std::vector<NDArray> loaded = detail::matched(kLbfgs, expected, state, where);
  iterations_ = loaded[0].item<int64_t>();
  evaluations_ = loaded[1].item<int64_t>();
  length_ = loaded[2].item<double>();
  scale_ = loaded[3].item<double>();
  steps_.clear();
  changes_.clear();
  direction_ = gradient_ = NDArray();
  if (!begun) return;
  const Context context = parameters_[0].context();
  direction_ = loaded[4].clone().to(context);
  gradient_ = loaded[5].clone().to(context);
  for (int64_t i = 0; i < rows; ++i) {
    steps_.push_back(loaded[6][i].clone().to(context));
    changes_.push_back(loaded[7][i].clone().to(context));
  }
}

}  // namespace mx::optim
