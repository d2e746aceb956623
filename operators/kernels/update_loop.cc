#include "operators/kernels/update_loop.h"

#include "engine/base/check.h"

namespace mx::kernels::detail {

double scalar(const char* op, const char* what, const Tensor& t) {
  MX_CHECK(t.rank() == 0 && (t.dtype == f32 || t.dtype == f64), InvalidArgument, "[", op, "] expected ", what,
           " as f32 or f64 of rank 0, got ", t.dtype, " of shape ", t.shape);
  return t.dtype == f32 ? static_cast<double>(*t.as<float>()) : *t.as<double>();
}

std::vector<int64_t> starts_of(std::span<const Tensor> tensors) {
  std::vector<int64_t> starts{0};
  for (const Tensor& t : tensors) starts.push_back(starts.back() + t.numel());
  return starts;
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

bool check_lists(const char* op, const UpdateLists& lists, const StateLists& states,
                 const UpdateCommon& common) {
  if (lists.parameters.empty()) return false;
  const DType type = lists.parameters[0].dtype;
  MX_CHECK(type == f32 || type == f64, InvalidArgument, "[", op,
           "] expected parameters of type f32 or f64, got ", type);
  MX_CHECK(common.clip >= 0 && common.weight_decay >= 0, InvalidArgument, "[", op,
           "] expected clip and weight_decay of at least 0, got ", common.clip, " and ", common.weight_decay);
  check_list(op, "parameters", lists.parameters, lists.parameters, true);
  check_list(op, "gradients", lists.gradients, lists.parameters, false);
  if (!lists.copies.empty()) check_list(op, "copies", lists.copies, lists.parameters, false);
  for (const auto& state : states)
    if (!state.empty()) check_list(op, "state", state, lists.parameters, true);
  return true;
}

GradientStep gradient_step(const char* op, const UpdateCommon& common, bool maximize) {
  const double scale = common.scale == nullptr ? 1 : scalar(op, "the gradient scale", *common.scale);
  return {maximize ? -scale : scale, common.clip, common.weight_decay};
}

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

bool skipped(const char* op, const UpdateCommon& common) {
  return common.skip != nullptr && scalar(op, "the skip flag", *common.skip) != 0;
}

namespace {

template <class T>
void run_steps_of(const UpdateLists& lists, const StateLists& states, const std::vector<Step>& steps) {
  for_each_run<T>(lists, starts_of(lists.parameters), true,
                  [&](size_t i, int64_t first, int64_t n, const T* g, size_t) {
                    T* const w = lists.parameters[i].as<T>() + first;
                    apply(steps[steps.size() == 1 ? 0 : i], w, g, state_run<T>(states, i, first), n);
                    if (!lists.copies.empty())
                      store_run(lists.copies[i].data, lists.copies[i].dtype, first, 1, w, n);
                  });
}

}  // namespace

void run_steps(const UpdateLists& lists, const StateLists& states, const std::vector<Step>& steps) {
  if (lists.parameters[0].dtype == f32) {
    run_steps_of<float>(lists, states, steps);
  } else {
    run_steps_of<double>(lists, states, steps);
  }
}

}  // namespace mx::kernels::detail
