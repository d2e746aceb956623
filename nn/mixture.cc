#include "nn/mixture.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "nn/detail/call_site.h"
#include "operators/elementwise_binary.h"
#include "operators/histogram.h"
#include "operators/indexing.h"
#include "operators/random.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"
#include "operators/softmax.h"
#include "operators/sorting.h"

namespace mx::nn {
namespace {

void check_mixture(const MixtureOptions& options) {
  MX_CHECK(options.experts >= 1, InvalidArgument, "[MixtureOfExperts] expected at least one expert, got ",
           options.experts);
  MX_CHECK(options.top_k >= 1 && options.top_k <= options.experts, InvalidArgument,
           "[MixtureOfExperts] expected a top_k from 1 to the number of experts, ", options.experts, ", got ",
           options.top_k);
  MX_CHECK(options.capacity >= 0 && options.noise >= 0 && std::isfinite(options.capacity) &&
               std::isfinite(options.noise),
           InvalidArgument, "[MixtureOfExperts] expected a capacity and a noise of 0 or more, got ",
           options.capacity, " and ", options.noise);
}

std::vector<AnyModule> make_experts(const MixtureOptions& options, const std::function<AnyModule()>& make) {
  check_mixture(options);
  MX_CHECK(make != nullptr, InvalidArgument, "[MixtureOfExperts] expected a function, got an empty one");
  std::vector<AnyModule> experts;
  for (int64_t e = 0; e < options.experts; ++e) experts.push_back(make());
  return experts;
}

MixtureOptions with_number(MixtureOptions options, size_t experts) {
  options.experts = static_cast<int64_t>(experts);
  check_mixture(options);
  return options;
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(IntArg in, const MixtureOptions& options,
                                   const std::function<AnyModule()>& make, std::source_location where) try
    : MixtureOfExperts(in, make_experts(options, make), options) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

MixtureOfExperts::MixtureOfExperts(IntArg in, const std::vector<AnyModule>& modules, MixtureOptions options,
                                   std::source_location where) try
    : router(in, with_number(options, modules.size()).experts,
             LinearOptions{.bias = false, .context = options.context, .dtype = options.dtype}),
      experts(modules),
      options_(with_number(options, modules.size())) {
  add("router", router);
  add("experts", experts);
  counts = add_buffer("counts", zeros({options_.experts}, i64, options.context), false);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray MixtureOfExperts::forward(const NDArray& x) { return route(x).output; }

MixtureResult MixtureOfExperts::route(const NDArray& x) {
  MX_CHECK(x.rank() >= 1 && x.shape().back() == router.in_features(), InvalidArgument,
           "[MixtureOfExperts] expected an array (.., ", router.in_features(), "), got shape ", x.shape());
  const int64_t number = options_.experts, k = options_.top_k;
  const NDArray rows = x.reshape({-1, router.in_features()});
  const NDArray scores = router(rows), probabilities = softmax(scores, -1);
  NDArray ranked = probabilities;
  if (options_.noise > 0 && train_mode())
    ranked = scores + normal(0, options_.noise, scores.shape(), scores.dtype(), scores.context());
  const NDArray chosen = topk(ranked.detach(), k, -1).indices;  // (rows, k)
  NDArray weights = gather(probabilities, chosen, 1);
  if (k > 1 && options_.normalize) weights = weights / sum(weights, -1, true);

  MixtureResult result;
  result.counts = bincount(chosen.reshape({-1}), {}, number).to(i64);
  const int64_t count = rows.shape()[0];
  // Without rows there is no choice: the shares are zeros.
  const NDArray shares =
      result.counts.to(scores.dtype()) / static_cast<double>(std::max<int64_t>(1, count * k));
  const NDArray means = sum(probabilities, 0) / static_cast<double>(std::max<int64_t>(1, count));
  result.balance_loss = sum(shares * means) * static_cast<double>(number);
  const NDArray y = run_experts(rows, chosen, weights, result.counts.to_vector<int64_t>());
  if (train_mode()) {  // after the experts: a call in which one throws is not counted
    const NoGrad pause;
    NDArray total = counts.array();
    total += result.counts;
  }
  Shape shape = x.shape();
  shape[shape.rank() - 1] = y.shape()[1];
  result.output = y.reshape(shape);
  return result;
}

/// `sizes`: the number of choices of each expert.
NDArray MixtureOfExperts::run_experts(const NDArray& x, const NDArray& chosen, const NDArray& weights,
                                      const std::vector<int64_t>& sizes) {
  const int64_t count = x.shape()[0], k = options_.top_k, choices = count * k;
  const auto limit =
      options_.capacity > 0
          ? static_cast<int64_t>(std::min(static_cast<double>(choices),
                                          std::ceil(options_.capacity * static_cast<double>(choices) /
                                                    static_cast<double>(options_.experts))))
          : choices;
  // The choices sorted by expert, those of one expert in the order of the rows.
  const NDArray order = argsort(chosen.reshape({-1}));
  const NDArray sorted = take(x, floor_div(order, k));
  std::vector<NDArray> parts;
  std::vector<int64_t> left_out;  // of each part, how many zeros follow
  int64_t begin = 0;
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t chosen_by = sizes[static_cast<size_t>(e)], size = std::min(chosen_by, limit);
    if (size > 0) {
      parts.push_back(experts[e](sorted.slice(0, Slice{begin, begin + size}), detail::call_site()));
      left_out.push_back(chosen_by - size);
    }
    begin += chosen_by;
  }
  if (parts.empty())
    parts = {experts[0](sorted, detail::call_site())};  // no rows: an empty result of its shape
  const int64_t width = parts[0].shape().back();
  std::vector<NDArray> pieces;
  for (size_t i = 0; i < parts.size(); ++i) {
    MX_CHECK(parts[i].rank() == 2 && parts[i].shape()[1] == width, InvalidArgument,
             "[MixtureOfExperts] expected experts with results (rows, ", width, "), got shape ",
             parts[i].shape());
    pieces.push_back(parts[i]);
    if (i < left_out.size() && left_out[i] > 0)
      pieces.push_back(zeros({left_out[i], width}, parts[i].dtype(), parts[i].context()));
  }
  const NDArray back = take(concat(pieces), argsort(order)).reshape({count, k, width});
  return sum(back * weights.expand_dims(-1), 1);
}

std::string MixtureOfExperts::extra() const {
  std::string text = mx::detail::concat("experts=", options_.experts, ", top_k=", options_.top_k);
  if (options_.capacity > 0) text += mx::detail::concat(", capacity=", options_.capacity);
  if (options_.noise > 0) text += mx::detail::concat(", noise=", options_.noise);
  return text;
}

}  // namespace mx::nn
