#include "optim/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ndarray/grad_mode.h"
#include "ndarray/launch.h"
#include "operators/elementwise_binary.h"
#include "optim/detail/dictionary.h"
#include "optim/detail/problems.h"

namespace mx::optim {
namespace {

/// The smallest normal number of f32, the narrowest type of a scaled loss. With a scale of 0 all gradients
/// would be 0.
constexpr double kLeastScale = std::numeric_limits<float>::min();

struct ScaleAttrs {
  LossScaleOptions options;
  template <class V>
  static void fields(V&&) {}
};

void run_update(const KernelArgs& args) {
  const LossScaleOptions& options = args.attr<ScaleAttrs>().options;
  double* const state = args.out[0].as<double>();
  double &scale = state[0], &good = state[1], &overflow = state[2];
  if (overflow != 0) {
    scale = std::max(scale * options.backoff, kLeastScale);
    good = 0;
  } else if (++good >= static_cast<double>(options.interval)) {
    good = 0;
    // The scale must stay in the range of f32, the narrowest type of a scaled loss.
    if (const double next = scale * options.growth; next <= std::numeric_limits<float>::max()) scale = next;
  }
  overflow = 0;
}
const Kernel kUpdate = {"loss_scale_update", run_update, nullptr, 1};

}  // namespace

LossScale::LossScale(const LossScaleOptions& options, Context context, std::source_location where)
    : options_(options) {
  detail::Problems problems("LossScale");
  problems.expect(options.scale >= kLeastScale && options.scale <= std::numeric_limits<float>::max(),
                  "expected a scale in the range of f32, from ", kLeastScale, ", got ", options.scale);
  problems.expect(options.growth >= 1 && std::isfinite(options.growth), "expected growth of at least 1, got ",
                  options.growth);
  problems.expect(options.backoff > 0 && options.backoff <= 1, "expected backoff above 0 and at most 1, got ",
                  options.backoff);
  problems.expect(options.interval >= 0, "expected an interval of at least 0, got ", options.interval);
  problems.raise(where);
  const NoGrad pause;
  state_ = array({options.scale, 0.0, 0.0}).to(context);
}

NDArray LossScale::operator()(const NDArray& loss) const {
  const DType type = accumulation_type(loss.dtype());
  NDArray factor;
  {
    const NoGrad pause;
    // A copy, because the graph may save it, and update() changes the scale before the backward pass reads
    // it.
    factor = (type == f64 ? value().clone() : value().to(type)).to(loss.context());
  }
  return loss.to(type) * factor;
}

void LossScale::update(std::source_location where) {
  if (!dynamic()) return;
  const Attrs attrs = ScaleAttrs{options_};
  mx::detail::ArrayImpl* const out[] = {&state_.impl()};
  launch({.kernel = &kUpdate,
          .attrs = &attrs,
          .outputs = out,
          .partial_outputs = true,
          .work = 1,
          .where = where});
}

NDArray LossScale::value() const { return state_.select(0, 0); }

NamedArrays LossScale::state_dict() const {
  return {{"scale", value()}, {"good_steps", state_.select(0, 1)}};
}

void LossScale::load_state_dict(const NamedArrays& state, std::source_location where) {
  const NamedArrays own = state_dict();
  const std::vector<NDArray> arrays = detail::matched("LossScale", own, state, where);
  const NoGrad pause;
  // The whole array is written, which also clears an error that has poisoned it.
  NDArray all = zeros({3}, f64, state_.context());
  all.select(0, 0).copy_from(arrays[0]);
  all.select(0, 1).copy_from(arrays[1]);
  state_.copy_from(all);
}

}  // namespace mx::optim
