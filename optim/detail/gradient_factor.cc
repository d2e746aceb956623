#include "optim/detail/gradient_factor.h"

#include <algorithm>
#include <cmath>

#include "ndarray/copy.h"
#include "ndarray/launch.h"
#include "optim/update.h"

namespace mx::optim::detail {

using mx::detail::ArrayImpl;

namespace {

struct FactorAttrs {
  double max_norm = 0;
  bool unscaled = false;
  template <class V>
  static void fields(V&&) {}
};

double number(const Tensor& t) {
  return t.dtype == f32 ? static_cast<double>(*t.as<float>()) : *t.as<double>();
}

// Inputs: the state of the loss scale, and, if it is needed, the norm of the scaled gradients. Outputs, all
// f64: the factor; with a norm, the norm without the loss scale; with a dynamic loss scale, 1 if the step is
// to be skipped. In the last case an overflow is also recorded in the state.
void run_factor(const KernelArgs& args) {
  double* const state = args.in[0].as<double>();
  const double scale = args.attr<FactorAttrs>().unscaled ? 1 : state[0];
  double factor = 1 / scale;
  if (args.in.size() > 1) {
    const double scaled = number(args.in[1]), norm = scaled / scale;
    const double max_norm = args.attr<FactorAttrs>().max_norm;
    if (max_norm > 0) factor *= std::min(1.0, max_norm / (norm + 1e-6));
    const bool overflow = args.out.size() > 2 && !std::isfinite(scaled);
    if (overflow) state[2] = 1;
    *args.out[1].as<double>() = norm;
    if (args.out.size() > 2) *args.out[2].as<double>() = overflow ? 1 : 0;
  }
  *args.out[0].as<double>() = factor;
}
// Without the check of numerics: gradients that are not finite are expected here.
const Kernel kFactor = {"gradient_factor", run_factor, nullptr, 1, false};

}  // namespace

GradientFactor gradient_factor(const std::vector<NDArray>& gradients, double max_norm,
                               const LossScale* loss_scale, bool unscaled, std::source_location where) {
  GradientFactor result;
  NDArray norm;
  if (max_norm > 0 || (loss_scale != nullptr && loss_scale->dynamic())) norm = global_norm(gradients, where);
  if (loss_scale == nullptr) {
    if (max_norm > 0) result.scale = clip_scale(norm, max_norm, where);
    result.norm = norm;
    return result;
  }
  const Context context = loss_scale->state().context();
  const auto fresh = [&] { return NDArray(mx::detail::new_array({}, f64, context, kFactor.name)); };
  std::vector<ArrayImpl*> in = {&loss_scale->state().impl()}, out;
  result.scale = fresh();
  out.push_back(&result.scale.impl());
  if (norm.defined()) {
    norm = norm.to(context, where);
    in.push_back(&norm.impl());
    result.norm = fresh();
    out.push_back(&result.norm.impl());
    if (loss_scale->dynamic()) {
      result.skip = fresh();
      out.push_back(&result.skip.impl());
    }
  }
  const Attrs attrs = FactorAttrs{max_norm, unscaled};
  launch({.kernel = &kFactor,
          .attrs = &attrs,
          .inputs = in,
          .outputs = out,
          .updated_inputs = loss_scale->dynamic() ? uint64_t{1} : 0,
          .fresh_outputs = (uint64_t{1} << out.size()) - 1,
          .work = 1,
          .where = where});
  return result;
}

}  // namespace mx::optim::detail
