#include "operators/kernels/update.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/check.h"
#include "operators/kernels/reduce_fold.h"
#include "operators/kernels/update_loop.h"
#include "operators/kernels/update_numbers.h"

namespace mx::kernels {

using detail::check_list;
using detail::check_lists;
using detail::count;
using detail::for_each_part;
using detail::gradient_step;
using detail::kUpdatePiece;
using detail::kUpdateRun;
using detail::run_steps;
using detail::scalar;
using detail::skipped;
using detail::starts_of;
using detail::step_numbers;
using detail::steps_for;

void sgd_update(const UpdateLists& lists, std::span<const Tensor> velocity, const UpdateCommon& common,
                const SgdOptions& options) {
  if (!check_lists("sgd", lists, {velocity}, common)) return;
  MX_CHECK((options.momentum != 0) == !velocity.empty(), InvalidArgument,
           "[sgd] expected a velocity for each parameter if the momentum is not 0, and none otherwise, got "
           "momentum ",
           options.momentum, " and ", velocity.size(), " velocities");
  MX_CHECK(!options.nesterov || options.momentum != 0, InvalidArgument,
           "[sgd] expected a momentum other than 0 with nesterov, got 0");
  if (skipped("sgd", common)) return;
  std::vector<double> numbers = step_numbers("sgd", lists.parameters.size(), options.step, common);
  if (numbers.empty()) numbers.push_back(0);
  const detail::StepNumbers at{scalar("sgd", "the learning rate", common.learning_rate), common.weight_decay,
                               gradient_step("sgd", common, options.maximize)};
  count(common, numbers);
  run_steps(lists, {velocity}, steps_for(numbers, [&](double t) { return detail::step_of(options, at, t); }));
}

void adam_update(const UpdateLists& lists, std::span<const Tensor> m, std::span<const Tensor> v,
                 const UpdateCommon& common, const AdamOptions& options, std::span<const Tensor> largest) {
  if (!check_lists("adam", lists, {m, v, largest}, common)) return;
  check_list("adam", "first moments", m, lists.parameters, true);
  check_list("adam", "second moments", v, lists.parameters, true);
  MX_CHECK(options.step != nullptr || common.counts != nullptr, InvalidArgument,
           "[adam] expected the step number or the step counts, got neither");
  const double rate = scalar("adam", "the learning rate", common.learning_rate);
  if (skipped("adam", common)) return;
  const std::vector<double> numbers = step_numbers("adam", lists.parameters.size(), options.step, common);
  const detail::StepNumbers at{rate, common.weight_decay, gradient_step("adam", common, options.maximize)};
  count(common, numbers);
  run_steps(lists, {m, v, largest},
            steps_for(numbers, [&](double t) { return detail::step_of(options, at, t); }));
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
      double buffer[kUpdateRun];
      for (int64_t done = 0; done < n; done += kUpdateRun) {
        const int64_t here = std::min(kUpdateRun, n - done);
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
