#include "operators/kernels/update_rules.h"

#include <cmath>
#include <vector>

#include "engine/base/check.h"
#include "operators/kernels/reduce_fold.h"
#include "operators/kernels/update_loop.h"
#include "operators/kernels/update_numbers.h"

namespace mx::kernels {

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
  detail::StepNumbers at;
  std::vector<double> numbers;  // of the steps: one for all parameters, or one for each
};

void run(const Call& call, const std::vector<Step>& steps) {
  detail::run_steps(call.lists, call.states, steps);
}

template <class Rule>
std::vector<Step> steps_of(const Rule& rule, const Call& call) {
  if (call.numbers.empty()) return {detail::step_of(rule, call.at, 0.)};
  return detail::steps_for(call.numbers, [&](double t) { return detail::step_of(rule, call.at, t); });
}

template <class Rule>
void update(const Rule& rule, const Call& call) {
  run(call, steps_of(rule, call));
}

void update(const RmspropRule& rule, const Call& call) {
  Call own = call;  // the momentum has its own slot, also if there is no mean
  own.states = {call.states[0], {}, {}};
  if (rule.momentum != 0) own.states[2] = call.states[1];
  if (rule.centered) own.states[1] = call.states[rule.momentum != 0 ? 2 : 1];
  run(own, {detail::step_of(rule, own.at, 0.)});
}

void update(const FtrlRule& rule, const Call& call) {
  if (call.at.rate != 0) run(call, {detail::step_of(rule, call.at, 0.)});  // the formula divides by the rate
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
  return squares_of_parameters<T>(call.lists, [&](size_t i, int64_t first, int64_t n, const T* g) {
    T prepared[kUpdateRun];
    for (int64_t k = 0; k < n; ++k) prepared[k] = detail::clipped_gradient(call.at.gradient, g[k]);
    return Squares{squares_of(call.lists.parameters[i].as<T>() + first, n), squares_of(prepared, n)};
  });
}

void update(const LarsRule& rule, const Call& call) {
  const detail::LarsStep step = detail::step_of(rule, call.at, 0.);
  if (!rule.adapt) return run(call, {step});
  const auto squares =
      call.lists.parameters[0].dtype == f32 ? lars_squares<float>(call) : lars_squares<double>(call);
  std::vector<Step> steps;
  for (const Squares& of : squares) {
    auto& own = std::get<detail::LarsStep>(steps.emplace_back(step));
    own.rate = detail::adapted_rate(rule, call.at, of.w, of.other);
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
  std::vector<Step> steps = steps_of(rule, call);
  for (Step& step : steps) std::get<detail::LambStep>(step).moments = true;
  const auto squares = call.lists.parameters[0].dtype == f32 ? lamb_moments<float>(call, steps)
                                                             : lamb_moments<double>(call, steps);
  std::vector<Step> second;
  for (size_t i = 0; i < squares.size(); ++i) {
    auto& own = std::get<detail::LambStep>(second.emplace_back(steps[steps.size() == 1 ? 0 : i]));
    own.moments = false;
    own.rate = detail::adapted_rate(rule, call.at, squares[i].w, squares[i].other);
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
                  {scalar(op, "the learning rate", common.learning_rate), common.weight_decay,
                   detail::gradient_step(op, common, options.maximize)},
                  {}};
        if (detail::skipped(op, common)) return;
        call.numbers = detail::step_numbers(op, lists.parameters.size(), options.step, common);
        detail::count(common, call.numbers);
        update(own, call);
      },
      rule);
}

}  // namespace mx::kernels
