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

constexpr int64_t kPiece = 16384;
constexpr int64_t kRun = 1024;  // elements whose gradients are converted at once

double scalar(const char* op, const char* what, const Tensor& t) {
  MX_CHECK(t.rank() == 0 && (t.dtype == f32 || t.dtype == f64), InvalidArgument, "[", op, "] expected ", what,
           " as f32 or f64 of rank 0, got ", t.dtype, " of shape ", t.shape);
  return t.dtype == f32 ? static_cast<double>(*t.as<float>()) : *t.as<double>();
}

/// Where each tensor begins in the sequence of all elements.
std::vector<int64_t> starts_of(std::span<const Tensor> tensors) {
  std::vector<int64_t> starts{0};
  for (const Tensor& t : tensors) starts.push_back(starts.back() + t.numel());
  return starts;
}

/// Calls body(tensor, first, n) for the parts of tensors in elements [begin, end) of the sequence.
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
  MX_CHECK(list.size() == parameters.size(), InvalidArgument, "[", op, "] expected one of the ", what,
           " for each of ", parameters.size(), " parameters, got ", list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    MX_CHECK(list[i].numel() == parameters[i].numel() && list[i].contiguous(), InvalidArgument, "[", op,
             "] expected the ", what, " of parameter ", i, " to be contiguous, of shape ",
             parameters[i].shape, ", got ", list[i].shape, " with strides ", list[i].strides);
    MX_CHECK(same_type ? list[i].dtype == parameters[0].dtype : is_floating(list[i].dtype), InvalidArgument,
             "[", op, "] expected the ", what, " of parameter ", i, " as ",
             same_type ? to_string(parameters[0].dtype) : "floating point", ", got ", list[i].dtype);
  }
}

/// The same for every rule: Rule(w, g, state0, state1, n) on runs that fit the caches.
template <class T, class Rule>
void update_as(const UpdateLists& lists, std::span<const Tensor> state0, std::span<const Tensor> state1,
               const Rule& rule) {
  const std::vector<int64_t> starts = starts_of(lists.parameters);
  parallel_for(starts.back(), kPiece, [&](int64_t begin, int64_t end) {
    for_each_part(starts, begin, end, [&](size_t i, int64_t first, int64_t n) {
      const Tensor& gradient = lists.gradients[i];
      T* const w = lists.parameters[i].as<T>() + first;
      T* const s0 = state0.empty() ? nullptr : state0[i].as<T>() + first;
      T* const s1 = state1.empty() ? nullptr : state1[i].as<T>() + first;
      if (gradient.dtype == dtype_of<T>) {
        rule(w, gradient.as<T>() + first, s0, s1, n);
      } else {
        T buffer[kRun];
        for (int64_t done = 0; done < n; done += kRun) {
          const int64_t here = std::min(kRun, n - done);
          load_run(buffer, gradient.data, gradient.dtype, first + done, 1, here);
          rule(w + done, buffer, s0 == nullptr ? s0 : s0 + done, s1 == nullptr ? s1 : s1 + done, here);
        }
      }
      if (!lists.copies.empty()) store_run(lists.copies[i].data, lists.copies[i].dtype, first, 1, w, n);
    });
  });
}

/// Checks what every rule needs; returns false when there is nothing to do.
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

template <class T, class Rule>
void run_rule(const UpdateLists& lists, std::span<const Tensor> state0, std::span<const Tensor> state1,
              const Rule& rule) {
  update_as<T>(lists, state0, state1,
               [&](T* w, const T* g, T* s0, T* s1, int64_t n) { detail::apply(rule, w, g, s0, s1, n); });
}

template <class Rule>
void run(const UpdateLists& lists, std::span<const Tensor> state0, std::span<const Tensor> state1,
         const Rule& rule) {
  if (lists.parameters[0].dtype == f32) {
    run_rule<float>(lists, state0, state1, rule);
  } else {
    run_rule<double>(lists, state0, state1, rule);
  }
}

}  // namespace

void sgd_update(const UpdateLists& lists, std::span<const Tensor> velocity, const UpdateCommon& common,
                const SgdOptions& options) {
  if (!check_lists("sgd", lists, velocity, {}, common)) return;
  MX_CHECK((options.momentum != 0) == !velocity.empty(), InvalidArgument,
           "[sgd] expected a velocity for each parameter with momentum and none without, got momentum ",
           options.momentum, " and ", velocity.size(), " velocities");
  MX_CHECK(!options.nesterov || options.momentum != 0, InvalidArgument,
           "[sgd] expected momentum for nesterov, got 0");
  const bool first = options.step != nullptr && scalar("sgd", "the step", *options.step) == 1;
  detail::SgdRule rule;
  rule.gradient = gradient_rule("sgd", common, options.maximize);
  rule.rate = scalar("sgd", "the learning rate", common.learning_rate);
  rule.momentum = options.momentum;
  rule.kept = options.ema ? 1 - options.momentum : 1 - options.dampening;
  rule.look = options.ema ? 1 - options.momentum : 1;
  rule.nesterov = options.nesterov;
  rule.first = first;
  run(lists, velocity, {}, rule);
}

void adam_update(const UpdateLists& lists, std::span<const Tensor> m, std::span<const Tensor> v,
                 const Tensor& step, const UpdateCommon& common, const AdamOptions& options) {
  if (!check_lists("adam", lists, m, v, common)) return;
  check_list("adam", "first moments", m, lists.parameters, true);
  check_list("adam", "second moments", v, lists.parameters, true);
  const double t = scalar("adam", "the step", step),
               rate = scalar("adam", "the learning rate", common.learning_rate);
  MX_CHECK(t >= 1, InvalidArgument, "[adam] expected a step of at least 1, got ", t);
  detail::AdamRule rule;
  rule.gradient = gradient_rule("adam", common, options.maximize);
  if (options.decoupled) {
    rule.shrink = 1 - rate * common.weight_decay;
    rule.gradient.weight_decay = 0;
  }
  rule.beta1 = options.beta1;
  rule.beta2 = options.beta2;
  rule.eps = options.eps;
  rule.rate = rate / (options.bias_correction ? 1 - std::pow(options.beta1, t) : 1);
  rule.root = options.bias_correction ? 1 / std::sqrt(1 - std::pow(options.beta2, t)) : 1;
  run(lists, m, v, rule);
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
  std::vector<detail::FoldState<double>> pieces(static_cast<size_t>((starts.back() + kPiece - 1) / kPiece));
  parallel_for(starts.back(), kPiece, [&](int64_t begin, int64_t end) {
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
    pieces[static_cast<size_t>(begin / kPiece)].a = total;
  });
  double total = 0;
  for (const auto& piece : pieces) total += piece.a;
  const double root = std::sqrt(total);
  store_run(norm.data, norm.dtype, 0, 1, &root, 1);
}

void clip_scale(const Tensor& scale, const Tensor& norm, double max_norm) {
  const double value = std::min(1.0, max_norm / (scalar("clip_scale", "the norm", norm) + 1e-6));
  MX_CHECK(scale.rank() == 0 && is_floating(scale.dtype), InvalidArgument,
           "[clip_scale] expected a floating-point result of rank 0, got ", scale.dtype, " of shape ",
           scale.shape);
  store_run(scale.data, scale.dtype, 0, 1, &value, 1);
}

}  // namespace mx::kernels
