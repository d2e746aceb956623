// Update rules: all parameters of a device in one operation, in place.
//
//   NDArray rate = full({}, 0.1), step = full({}, 0);
//   for (...) {
//     step += 1;
//     sgd_update({w, gradients}, {velocity}, {.learning_rate = rate, .step = step}, {.momentum = 0.9});
//   }
//
// Everything returns at once; the operation is ordered by what it reads (gradients, numbers) and changes
// (parameters, state, copies). Results do not depend on the number of threads. The formulas are those of
// torch.optim, element by element; where others differ an option says so. See operators/kernels/update.h.
//
// All throw InvalidArgument, with every array that does not fit and why, before anything is changed.
#pragma once

#include <source_location>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::optim {

/// One entry per parameter in each list.
struct UpdateArrays {
  /// Changed. All f32 or all f64; contiguous; on any devices; no two may overlap.
  std::vector<NDArray> parameters;
  /// Of the parameter's shape and device, any floating-point type. An empty handle: the parameter, its state
  /// and its copy stay as they are.
  std::vector<NDArray> gradients;
  /// None; or the model's weights, of any floating-point type, which get the parameters' rounded values.
  std::vector<NDArray> copies{};
};

/// Optimiser state: the lists that a rule asks for, each with a zero array like every parameter at the start.
using UpdateState = std::vector<std::vector<NDArray>>;

/// Numbers that change from step to step: arrays of rank 0, f32 or f64, on any device. They are read when the
/// operation runs, so a graph that is replayed sees their current values.
struct UpdateNumbers {
  NDArray learning_rate;
  NDArray step{};   ///< the number of this step, from 1
  NDArray scale{};  ///< a factor of all gradients: 1 / loss scale, or what clip_scale() gives; none: 1
  /// Where it is not 0, nothing at all is changed. For gradients that are no use (LossScale).
  NDArray skip{};
  /// Instead of `step`, for parameters of one device: f64 with one entry for each, how many steps it has had.
  /// Changed: one more for those with a gradient, and that is the number of their step. So a parameter that
  /// comes late, or now and then, is at a step of its own, and a step that fails or is skipped is not
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

/// u = momentum * u + (1 - dampening) * g, w -= learning_rate * u. State: without momentum none, else {u}.
/// With a step or counts the first sets u = g, as torch does; without them u starts from what it holds.
void sgd_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                const SgdRule& rule = {}, std::source_location where = std::source_location::current());

struct AdamRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
  bool decoupled = false;  ///< AdamW: w shrinks by learning_rate * weight_decay, the gradient stays
  bool bias_correction = true;
  double clip = 0;
};

/// State: {m, v}; the step or counts are required.
void adam_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                 const AdamRule& rule = {}, std::source_location where = std::source_location::current());

/// The 2-norm of all elements of all arrays together, added in f64: an array of rank 0 on the first one's
/// device, f64 if an array is, else f32. Empty handles count as zero; all empty: 0 on the CPU.
NDArray global_norm(const std::vector<NDArray>& arrays,
                    std::source_location where = std::source_location::current());

/// min(1, max_norm / (norm + 1e-6)), for UpdateNumbers::scale: clipping by global norm.
NDArray clip_scale(const NDArray& norm, double max_norm,
                   std::source_location where = std::source_location::current());

}  // namespace mx::optim
