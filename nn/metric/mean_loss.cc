#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/launch.h"
#include "nn/metric/inputs.h"
#include "nn/metric/metric.h"

namespace mx::metric {
namespace {

using mx::detail::ArrayImpl;

struct LossAttrs {
  int64_t samples = 1;
  template <class V>
  static void fields(V&&) {}
};

// Runs on one thread, in the order of memory: a batch has few losses.
void run_mean_loss(const KernelArgs& args) {
  const Tensor& loss = args.in[0];
  const auto samples = static_cast<double>(args.attr<LossAttrs>().samples);
  const kernels::LoopPlan<1> plan({&loss});
  double sum = 0;
  visit(loss.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>) {
      kernels::for_each_run<1>(plan, 0, plan.numel, [&](const int64_t* at, int64_t n) {
        for (int64_t i = 0; i < n; ++i)
          sum += static_cast<double>(loss.as<const T>()[at[0] + i * plan.strides[0][0]]);
      });
    }
  });
  auto* const sums = args.out[0].as<double>();
  sums[0] += sum * samples;
  sums[1] += static_cast<double>(plan.numel) * samples;
}
const Kernel kMeanLoss = {"mean_loss", run_mean_loss, nullptr, 1024};

}  // namespace

MeanLoss::MeanLoss() : sums_(zeros({2}, f64)) {}

void MeanLoss::update(const NDArray& loss, IntArg samples, std::source_location where) try {
  MX_CHECK(loss.defined() && is_floating(loss.dtype()), InvalidArgument,
           "[mean_loss] expected a loss in floating point, got ", describe(loss));
  MX_CHECK(samples >= 1, InvalidArgument, "[mean_loss] expected 1 sample or more, got ", samples);
  if (loss.numel() == 0) return;
  const NDArray values = input_of(loss, loss.dtype(), "mean_loss", "a loss", where);
  const Attrs attrs = LossAttrs{samples};
  ArrayImpl* const in[] = {&values.impl()};
  ArrayImpl* const out[] = {&sums_.impl()};
  launch({.kernel = &kMeanLoss,
          .attrs = &attrs,
          .inputs = in,
          .outputs = out,
          .partial_outputs = true,  // the kernel adds to their old values
          .work = loss.numel(),
          .where = where});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void MeanLoss::observe(const Observation& step, std::source_location where) {
  const bool mean_of_labels = step.loss.defined() && step.loss.numel() == 1 && step.labels.defined();
  if (mean_of_labels && step.labels.numel() == 0) return;
  update(step.loss, mean_of_labels ? step.labels.numel() : 1, where);
}

double MeanLoss::value() const {
  const std::vector<double> sums = sums_.to_vector<double>();
  return sums[1] == 0 ? std::numeric_limits<double>::quiet_NaN() : sums[0] / sums[1];
}

void MeanLoss::reset() { sums_.fill_(0); }

void detail::check_sums(const std::vector<NDArray>& sums, const std::string& name,
                        std::source_location where) {
  MX_CHECK(!sums.empty(), InvalidArgument, "[sync] expected a metric whose counts can be added up, got '",
           name, "', which has none", mx::detail::called_at(where));
}

Custom::Custom(Function function, std::source_location where) try : function_(std::move(function)) {
  MX_CHECK(function_ != nullptr, InvalidArgument, "[custom metric] expected a function, got an empty one");
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void Custom::update(const NDArray& logits, const NDArray& labels, std::source_location where) {
  const NoGrad pause;
  mean_.update(function_(logits, labels), 1, where);
}

NDArray detail::as_row(const NDArray& values, int64_t index, int64_t count) {
  Shape shape = values.shape();
  shape.insert(0, count);
  NDArray rows = zeros(shape, values.dtype(), values.context());
  rows.slice(0, {index, index + 1}).copy_from(values.expand_dims(0));
  return rows;
}

void Metric::join(const std::vector<NDArray>& rows, std::source_location where) const {
  throw InvalidState(mx::detail::concat("[metric] expected a metric with a join() of its own, got ",
                                        rows.size(), " arrays for one whose sums add up",
                                        mx::detail::called_at(where)));
}

}  // namespace mx::metric
