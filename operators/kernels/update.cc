#include "operators/kernels/update.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/reduce_fold.h"
#include "operators/kernels/row_convert.h"
#include "operators/kernels/update_rule.h"

namespace mx::kernels {
namespace {

constexpr int64_t kUpdatePiece = 16384;
constexpr int64_t kRun = 1024;  // elements whose gradients are converted at once

double scalar(const char* op, const char* what, const Tensor& t) {
  MX_CHECK(t.rank() == 0 && (t.dtype == f32 || t.dtype == f64), InvalidArgument, "[", op, "] expected ", what,
           " as f32 or f64 of rank 0, got ", t.dtype, " of shape ", t.shape);
  return t.dtype == f32 ? static_cast<double>(*t.as<float>()) : *t.as<double>();
}

/// Returns where each tensor begins in the sequence of all elements.
std::vector<int64_t> starts_of(std::span<const Tensor> tensors) {
  std::vector<int64_t> starts{0};
  for (const Tensor& t : tensors) starts.push_back(starts.back() + t.numel());
  return starts;
}

/// Calls body(tensor, first, n) for each part of a tensor within elements [begin, end) of the sequence.
template <class Body>
void for_each_part(const std::vector<int64_t>& starts, int64_t begin, int64_t end, const Body& body) {
  auto at = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
  for (; begin < end; ++at) {
    const int64_t n = std::min(starts[at + 1], end) - begin;
    if (n > 0) body(at, begin - starts[at], n);
    begin += n;
  }
}

void check_list(const char* op, const char* what, std::span<const Tensor> list,
                std::span<const Tensor> parameters, bool same_type) {
  MX_CHECK(list.size() == parameters.size(), InvalidArgument, "[", op, "] expected as many ", what,
           " as there are parameters, ", parameters.size(), ", got ", list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    MX_CHECK(list[i].numel() == parameters[i].numel() && list[i].contiguous(), InvalidArgument, "[", op,
             "] expected the ", what, " of parameter ", i, " to be contiguous, of shape ",
             parameters[i].shape, ", got ", list[i].shape, " with strides ", list[i].strides);
    MX_CHECK(same_type ? list[i].dtype == parameters[0].dtype : is_floating(list[i].dtype), InvalidArgument,
             "[", op, "] expected the ", what, " of parameter ", i, " as ",
             same_type ? to_string(parameters[0].dtype) : "floating point", ", got ", list[i].dtype);
  }
}

/// The loop of every rule: calls rule(i, w, g, state0, state1, n) on runs of parameter i that fit into the
/// caches.
template <class T, class Rule>
void update_as(const UpdateLists& lists, std::span<const Tensor> state0, std::span<const Tensor> state1,
               const Rule& rule) {
  const std::vector<int64_t> starts = starts_of(lists.parameters);
  parallel_for(starts.back(), kUpdatePiece, [&](int64_t begin, int64_t end) {
    for_each_part(starts, begin, end, [&](size_t i, int64_t first, int64_t n) {
      const Tensor& gradient = lists.gradients[i];
      T* const w = lists.parameters[i].as<T>() + first;
      T* const s0 = state0.empty() ? nullptr : state0[i].as<T>() + first;
      T* const s1 = state1.empty() ? nullptr : state1[i].as<T>() + first;
      if (gradient.dtype == dtype_of<T>) {
        rule(i, w, gradient.as<T>() + first, s0, s1, n);
      } else {
        T buffer[kRun];
        for (int64_t done = 0; done < n; done += kRun) {
          const int64_t here = std::min(kRun, n - done);
          load_run(buffer, gradient.data, gradient.dtype, first + done, 1, here);
          rule(i, w + done, buffer, s0 == nullptr ? s0 : s0 + done, s1 == nullptr ? s1 : s1 + done, here);
        }
      }
      if (!lists.copies.empty()) store_run(lists.copies[i].data, lists.copies[i].dtype, first, 1, w, n);
    });
  });
}

/// Checks the arguments that all rules have in common. Returns false if there is nothing to do.
bool check_lists(const char* op, const UpdateLists& lists, std::span<const Tensor> state0,
                 std::span<const Tensor> state1, const UpdateCommon& common) {
  if (lists.parameters.empty()) return false;
  const DType type = lists.parameters[0].dtype;
  MX_CHECK(type == f32 || type == f64, InvalidArgument, "[", op,
           "] expected parameters of type f32 or f64, got ", type);
  MX_CHECK(common.clip >= 0 && common.weight_decay >= 0, InvalidArgument, "[", op,
           "] expected clip and weight_decay of at least 0, got ", common.clip, " and ", common.weight_decay);
  check_list(op, "parameters", lists.parameters, lists.parameters, true);
  check_list(op, "gradients", lists.gradients, lists.parameters, false);
  if (!lists.copies.empty()) check_list(op, "copies", lists.copies, lists.parameters, false);
  for (auto state : {state0, state1})
    if (!state.empty()) check_list(op, "state", state, lists.parameters, true);
  return true;
}

detail::GradientRule gradient_rule(const char* op, const UpdateCommon& common, bool maximize) {
  const double scale = common.scale == nullptr ? 1 : scalar(op, "the gradient scale", *common.scale);
  return {maximize ? -scale : scale, common.clip, common.weight_decay};
}

/// Returns the step number of each parameter, or one number for all, or none without counts and step.
std::vector<double> step_numbers(const char* op, size_t parameters, const Tensor* step,
                                 const UpdateCommon& common) {
  std::vector<double> numbers;
  if (common.counts == nullptr) {
    if (step != nullptr) numbers.push_back(scalar(op, "the step", *step));
  } else {
    const Tensor& counts = *common.counts;
    MX_CHECK(counts.rank() == 1 && counts.dtype == f64 && counts.contiguous(), InvalidArgument, "[", op,
             "] expected counts as contiguous f64 of rank 1, got ", counts.dtype, " of shape ", counts.shape);
    MX_CHECK(common.rows.empty() ? counts.numel() == static_cast<int64_t>(parameters)
                                 : common.rows.size() == parameters,
             InvalidArgument, "[", op, "] expected a count for each of ", parameters, " parameters, got ",
             common.rows.empty() ? counts.numel() : static_cast<int64_t>(common.rows.size()));
    for (size_t i = 0; i < parameters; ++i) {
      const int64_t row = common.rows.empty() ? static_cast<int64_t>(i) : common.rows[i];
      MX_CHECK(row >= 0 && row < counts.numel(), InvalidArgument, "[", op, "] expected rows below ",
               counts.numel(), ", got ", row);
      numbers.push_back(counts.as<double>()[row] + 1);
    }
  }
  for (const double t : numbers)
    MX_CHECK(t >= 1, InvalidArgument, "[", op, "] expected a step number of at least 1, got ", t);
  return numbers;
}

void count(const UpdateCommon& common, const std::vector<double>& numbers) {
  if (common.counts == nullptr) return;
  for (size_t i = 0; i < numbers.size(); ++i)
    common.counts->as<double>()[common.rows.empty() ? static_cast<int64_t>(i) : common.rows[i]] = numbers[i];
}

/// Returns make(t) for each step number t: one rule for all parameters, or one for each.
template <class Make>
auto rules_for(const std::vector<double>& numbers, const Make& make) {
  std::vector<decltype(make(1.0))> rules;
  rules.reserve(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i)
    rules.push_back(i > 0 && numbers[i] == numbers[i - 1] ? rules.back() : make(numbers[i]));
  return rules;
}

template <class T, class Rule>
void run_rules(const UpdateLists& lists, std::span<const Tensor> state0, std::span<const Tensor> state1,
               std::span<const Rule> rules) {
  update_as<T>(lists, state0, state1, [&](size_t i, T* w, const T* g, T* s0, T* s1, int64_t n) {
    detail::apply(rules[rules.size() == 1 ? 0 : i], w, g, s0, s1, n);
  });
}

template <class Rule>
void run(const UpdateLists& lists, std::span<const Tensor> state0, std::span<const Tensor> state1,
         const std::vector<Rule>& rules) {
  if (lists.parameters[0].dtype == f32) {
    run_rules<float, Rule>(lists, state0, state1, rules);
  } else {
    run_rules<double, Rule>(lists, state0, state1, rules);
  }
}

bool skipped(const char* op, const UpdateCommon& common) {
  return common.skip != nullptr && scalar(op, "the skip flag", *common.skip) != 0;
}

}  // namespace

void sgd_update(const UpdateLists& lists, std::span<const Tensor> velocity, const UpdateCommon& common,
                const SgdOptions& options) {
  if (!check_lists("sgd", lists, velocity, {}, common)) return;
  MX_CHECK((options.momentum != 0) == !velocity.empty(), InvalidArgument,
           "[sgd] expected a velocity for each parameter if the momentum is not 0, and none otherwise, got "
           "momentum ",
           options.momentum, " and ", velocity.size(), " velocities");
  MX_CHECK(!options.nesterov || options.momentum != 0, InvalidArgument,
           "[sgd] expected a momentum other than 0 with nesterov, got 0");
  if (skipped("sgd", common)) return;
  std::vector<double> numbers = step_numbers("sgd", lists.parameters.size(), options.step, common);
  if (numbers.empty()) numbers.push_back(0);
  detail::SgdRule rule;
  rule.gradient = gradient_rule("sgd", common, options.maximize);
  rule.rate = scalar("sgd", "the learning rate", common.learning_rate);
  rule.momentum = options.momentum;
  rule.kept = options.ema ? 1 - options.momentum : 1 - options.dampening;
  rule.look = options.ema ? 1 - options.momentum : 1;
  rule.nesterov = options.nesterov;
  count(common, numbers);
  run(lists, velocity, {}, rules_for(numbers, [&](double t) {
        rule.first = t == 1;
        return rule;
      }));
}

void adam_update(const UpdateLists& lists, std::span<const Tensor> m, std::span<const Tensor> v,
                 const UpdateCommon& common, const AdamOptions& options) {
  if (!check_lists("adam", lists, m, v, common)) return;
  check_list("adam", "first moments", m, lists.parameters, true);
  check_list("adam", "second moments", v, lists.parameters, true);
  MX_CHECK(options.step != nullptr || common.counts != nullptr, InvalidArgument,
           "[adam] expected the step number or the step counts, got neither");
  const double rate = scalar("adam", "the learning rate", common.learning_rate);
  if (skipped("adam", common)) return;
  const std::vector<double> numbers = step_numbers("adam", lists.parameters.size(), options.step, common);
  detail::AdamRule rule;
  rule.gradient = gradient_rule("adam", common, options.maximize);
  if (options.decoupled) {
    rule.shrink = 1 - rate * common.weight_decay;
    rule.gradient.weight_decay = 0;
  }
  rule.beta1 = options.beta1;
  rule.beta2 = options.beta2;
  rule.eps = options.eps;
  count(common, numbers);
  run(lists, m, v, rules_for(numbers, [&](double t) {
        rule.rate = rate / (options.bias_correction ? 1 - std::pow(options.beta1, t) : 1);
        rule.root = options.bias_correction ? 1 / std::sqrt(1 - std::pow(options.beta2, t)) : 1;
        return rule;
      }));
}

void total_norm(const Tensor& norm, std::span<const Tensor> tensors) {
  MX_CHECK(norm.rank() == 0 && is_floating(norm.dtype), InvalidArgument,
           "[total_norm] expected a floating-point result of rank 0, got ", norm.dtype, " of shape ",
           norm.shape);
  for (const Tensor& t : tensors)
    MX_CHECK(t.contiguous() && is_floating(t.dtype), InvalidArgument,
             "[total_norm] expected contiguous tensors of floating point, got ", t.dtype, " of shape ",
             t.shape, " with strides ", t.strides);
  const std::vector<int64_t> starts = starts_of(tensors);
  std::vector<detail::FoldState<double>> pieces(
      static_cast<size_t>((starts.back() + kUpdatePiece - 1) / kUpdatePiece));
  parallel_for(starts.back(), kUpdatePiece, [&](int64_t begin, int64_t end) {
    double total = 0;
    for_each_part(starts, begin, end, [&](size_t i, int64_t first, int64_t n) {
      double buffer[kRun];
      for (int64_t done = 0; done < n; done += kRun) {
        const int64_t here = std::min(kRun, n - done);
        load_run(buffer, tensors[i].data, tensors[i].dtype, first + done, 1, here);
        detail::FoldState<double> part;
        detail::fold_rows(detail::Fold::sum_squares, buffer, 1, 0, here, 0, 0, &part);
        total += part.a;
      }
    });
    pieces[static_cast<size_t>(begin / kUpdatePiece)].a = total;
  });
  double total = 0;
  for (const auto& piece : pieces) total += piece.a;
  const double root = std::sqrt(total);
  store_run(norm.data, norm.dtype, 0, 1, &root, 1);
}

void clip_scale(const Tensor& scale, const Tensor& norm, double max_norm) {
  const double ratio = max_norm / (scalar("clip_scale", "the norm", norm) + 1e-6);
  const double value = ratio > 1 ? 1 : ratio;  // NaN if the norm is NaN
  MX_CHECK(scale.rank() == 0 && is_floating(scale.dtype), InvalidArgument,
           "[clip_scale] expected a floating-point result of rank 0, got ", scale.dtype, " of shape ",
           scale.shape);
  store_run(scale.data, scale.dtype, 0, 1, &value, 1);
}

}  // namespace mx::kernels
