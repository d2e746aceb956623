// Update rules: all parameters of a device in one operation, in place.
//
//   NDArray rate = full({}, 0.1), step = full({}, 0);
//   for (...) {
//     step += 1;
//     sgd_update({w, gradients}, {velocity}, {.learning_rate = rate, .step = step}, {.momentum = 0.9});
//   }
//
// Every function returns at once. The operation reads the gradients and numbers and updates the parameters,
// state and copies; the engine orders it by these. Results do not depend on the number of threads. The
// formulas are those of torch.optim, element by element; options select variants. See
// operators/kernels/update.h.
//
// All throw InvalidArgument, listing every array that does not fit and why, before anything is changed.
#pragma once

#include <source_location>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/kernels/update_rules.h"

namespace mx::optim {

/// One entry per parameter in each list.
struct UpdateArrays {
  /// Updated in place. All f32 or all f64; contiguous; on any devices; no two may overlap.
  std::vector<NDArray> parameters;
  /// Of the parameter's shape and device, of any floating-point type. For an empty handle the parameter, its
  /// state and its copy stay unchanged.
  std::vector<NDArray> gradients;
  /// Empty; or the model's weights, of any floating-point type, which are set to the parameters' rounded
  /// values.
  std::vector<NDArray> copies{};
};

/// Optimiser state: the lists that a rule requires. Each list has one array per parameter, of the parameter's
/// shape, type and device, initially zero.
using UpdateState = std::vector<std::vector<NDArray>>;

/// Numbers that change from step to step: arrays of rank 0, f32 or f64, on any device. They are read when the
/// operation runs, so a graph that is replayed sees their current values.
struct UpdateNumbers {
  NDArray learning_rate;
  NDArray step{};   ///< the number of this step, from 1
  NDArray scale{};  ///< a factor of all gradients: 1 / loss scale, or clip_scale(); an empty handle means 1
  /// If it is not 0, nothing is changed. Used if gradients are not finite (LossScale).
  NDArray skip{};
  /// Instead of `step`, for parameters of one device: f64 with one entry for each, the number of steps that
  /// the parameter has had. The operation adds 1 for every parameter with a gradient, and the result is the
  /// number of its step. So each parameter counts its own steps, and a step that fails or is skipped is not
  /// counted.
  NDArray counts{};
};

struct SgdRule {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  bool ema = false;  ///< u = momentum * u + (1 - momentum) * g
  double clip = 0;   ///< limit of each element of a gradient; 0: none
};

/// u = momentum * u + (1 - dampening) * g, w -= learning_rate * u. State: {u} with momentum, otherwise none.
/// With a step or counts the first step sets u = g, as in torch; without them u starts from its current
/// value.
void sgd_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                const SgdRule& rule = {}, std::source_location where = std::source_location::current());

struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
  bool decoupled = false;  ///< AdamW: w shrinks by learning_rate * weight_decay; the gradient is not changed
  bool bias_correction = true;
  double clip = 0;
  bool amsgrad = false;  ///< the largest v so far takes the place of v
};

/// Adam or AdamW. State: {m, v}; with amsgrad {m, v, largest v}. The step or counts are required.
void adam_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                 const AdamRule& rule = {}, std::source_location where = std::source_location::current());

// The other rules: operators/kernels/update_rules.h has their formulas and the order of their state.
using kernels::AdadeltaRule;
using kernels::AdagradRule;
using kernels::AdamaxRule;
using kernels::AsgdRule;
using kernels::FtrlRule;
using kernels::LambRule;
using kernels::LarsRule;
using kernels::NadamRule;
using kernels::RadamRule;
using kernels::RmspropRule;
using kernels::RpropRule;
using kernels::SignumRule;
using kernels::UpdateRule;

/// What precedes every rule: g = -g with maximize, then clip, then g += weight_decay * w. (Ftrl, LAMB and
/// rules with decoupled weight decay use the weight decay elsewhere.)
struct GradientRule {
  double weight_decay = 0;
  bool maximize = false;
  double clip = 0;  ///< limit of each element of a gradient; 0: none
};

/// One step of a rule. State: as many lists as rule.states(). The step or counts are required if the rule
/// needs the number of the step.
void rule_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                 const UpdateRule& rule, const GradientRule& gradient = {},
                 std::source_location where = std::source_location::current());

/// Returns the 2-norm of all elements of all arrays together, accumulated in f64: an array of rank 0 on the
/// first one's device, f64 if one of the arrays is f64, otherwise f32. Empty handles count as zero. If all
/// are empty, the result is 0 on the CPU.
NDArray global_norm(const std::vector<NDArray>& arrays,
                    std::source_location where = std::source_location::current());

/// Returns min(1, max_norm / (norm + 1e-6)), for clipping by the global norm with UpdateNumbers::scale. NaN
/// if the norm is NaN, as in torch.
NDArray clip_scale(const NDArray& norm, double max_norm,
                   std::source_location where = std::source_location::current());

}  // namespace mx::optim
