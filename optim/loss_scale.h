// LossScale: keeps the small gradients of f16 models from becoming zero.
//
//   optim::LossScale scale;
//   optimizer.set_loss_scale(scale);
//   for (...) {
//     scale(loss).backward();   // gradients are larger by the scale
//     optimizer.step();         // divides by it; a step whose gradients are not all finite changes nothing
//     scale.update();           // smaller after such a step, larger after many good ones
//   }
//
// The scale, and the flag that a step was skipped, are arrays: no call waits, and a program that is recorded
// and replayed goes on from the current values. With MX_CHECK_NUMERICS=1 the overflow of a step is an error
// (NumericError) instead, so do not use both. The method is that of torch.amp.GradScaler.
#pragma once

#include <cstdint>
#include <source_location>

#include "ndarray/ndarray.h"
#include "ndarray/save.h"

namespace mx::optim {

struct LossScaleOptions {
  double scale = 65536;    ///< at the start; a normal number of f32 above 0
  double growth = 2;       ///< factor after `interval` consecutive updates without an overflow; at least 1
  double backoff = 0.5;    ///< factor after an update with an overflow; above 0, at most 1
  IntArg interval = 2000;  ///< 0: the scale is constant, gradients are not checked, no step is skipped
};

/// A handle: copies share the scale. One scale may serve several optimisers of one loss: call update() once,
/// after the steps of all. Thread-safety: that of an array.
class LossScale {
 public:
  /// `context` is the device of the scale, preferably that of the gradients. Throws InvalidArgument for an
  /// option that is out of range.
  explicit LossScale(const LossScaleOptions& options = {}, Context context = cpu(),
                     std::source_location where = std::source_location::current());

  const LossScaleOptions& options() const { return options_; }
  /// Returns true if gradients are checked and the scale is adapted.
  bool dynamic() const { return options_.interval > 0; }

  /// Returns loss * scale, in f64 if the loss is f64, otherwise in f32.
  NDArray operator()(const NDArray& loss) const;
  /// Adapts the scale. Call it after the step.
  void update(std::source_location where = std::source_location::current());
  /// Returns the scale, f64 of rank 0, as a view, which always shows the current value.
  NDArray value() const;

  /// Returns "scale" and "good_steps", the number of consecutive updates without an overflow. The arrays are
  /// views of the current state, not copies.
  NamedArrays state_dict() const;
  /// Throws InvalidArgument, listing all mismatches, and the error of a poisoned array, before anything is
  /// changed. Waits for `state`.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

  /// For optimisers: f64 of shape (3,) with the scale, the number of consecutive good steps, and 1 after an
  /// overflow.
  const NDArray& state() const { return state_; }

 private:
  LossScaleOptions options_;
  NDArray state_;
};

}  // namespace mx::optim
