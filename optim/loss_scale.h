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
// and replayed goes on from the current values. The method is that of torch.amp.GradScaler.
#pragma once

#include <cstdint>
#include <source_location>

#include "ndarray/ndarray.h"
#include "ndarray/save.h"

namespace mx::optim {

struct LossScaleOptions {
  double scale = 65536;     ///< at the start; above 0
  double growth = 2;        ///< factor after `interval` updates without an overflow; at least 1
  double backoff = 0.5;     ///< factor after one with an overflow; above 0, at most 1
  int64_t interval = 2000;  ///< 0: the scale is constant, gradients are not checked, no step is skipped
};

/// A handle: copies share the scale. One scale may serve several optimisers of one loss: call update() once,
/// after the steps of all. Thread-safety: that of an array.
class LossScale {
 public:
  /// `context`: where the scale lives; best where the gradients are. Throws InvalidArgument.
  explicit LossScale(const LossScaleOptions& options = {}, Context context = cpu(),
                     std::source_location where = std::source_location::current());

  const LossScaleOptions& options() const { return options_; }
  /// Are gradients checked, and the scale adapted?
  bool dynamic() const { return options_.interval > 0; }

  /// loss * scale, in the type of the loss, but f32 at least.
  NDArray operator()(const NDArray& loss) const;
  /// Adapts the scale. To be called after the step.
  void update(std::source_location where = std::source_location::current());
  /// The scale, f64 of rank 0; a view, which always shows the present value.
  NDArray value() const;

  /// "scale" and "good_steps", the number of consecutive updates without an overflow. The arrays are those in
  /// use.
  NamedArrays state_dict() const;
  /// Throws InvalidArgument, listing all that does not fit, before anything is changed.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

  /// For optimisers: f64 of shape (3,): the scale, good steps in a row, 1 after an overflow.
  const NDArray& state() const { return state_; }

 private:
  LossScaleOptions options_;
  NDArray state_;
};

}  // namespace mx::optim
