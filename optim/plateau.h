// ReduceOnPlateau: lowers learning rates when a value stops improving.
//
//   optim::ReduceOnPlateau schedule(opt, {.patience = 5});
//   for (epochs) {
//     ...
//     schedule.step(validation_loss);
//   }
//
// Unlike other schedules (schedule.h) it does not depend on the step number: each step gets a result, such as
// the validation loss. A value is better if it is below the best one so far by more than the threshold. After
// more than `patience` consecutive steps without a better value, every group's rate is multiplied by
// `factor`; the next `cooldown` steps then do not count as bad. This is
// torch.optim.lr_scheduler.ReduceLROnPlateau. Values are ignored during the warm-up.
//
// Lifetime, groups that are added later, and thread-safety are as for other schedules.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "ndarray/save.h"
#include "optim/optimizer.h"

namespace mx::optim {

struct ReduceOnPlateauOptions {
  bool maximize = false;     ///< larger values are better
  double factor = 0.1;       ///< at least 0, below 1
  IntArg patience = 10;      ///< at least 0
  double threshold = 1e-4;   ///< a fraction of the best value; at least 0
  bool absolute = false;     ///< the threshold is an absolute difference instead
  IntArg cooldown = 0;       ///< at least 0
  double min_lr = 0;         ///< the lowest rate; a rate that is already lower stays
  double min_change = 1e-8;  ///< a rate stays if it would change by no more than this
  IntArg warmup = 0;         ///< as for other schedules
  double warmup_start = 0;
};

class ReduceOnPlateau {
 public:
  /// Throws InvalidArgument, listing all options that are out of range.
  ReduceOnPlateau(Optimizer& optimizer, const ReduceOnPlateauOptions& options = {},
                  std::source_location where = std::source_location::current());
  ReduceOnPlateau(const ReduceOnPlateau&) = delete;
  ReduceOnPlateau& operator=(const ReduceOnPlateau&) = delete;

  /// Goes one step further with this value. NaN is never better.
  void step(double value);
  /// Takes the only element of a floating-point array as the value; waits for it.
  void step(const NDArray& value);

  /// Returns the group's current rate, without its multiplier.
  double learning_rate(size_t group = 0) const { return optimizer_.learning_rate(group); }
  int64_t steps_done() const { return step_; }
  /// Returns the best value so far: infinity, or -infinity with `maximize`, before the first step after the
  /// warm-up.
  double best() const { return best_; }

  /// Returns "step", "best", "bad_steps", "cooldown" and "rates". The arrays are copies.
  NamedArrays state_dict() const;
  /// Loads the state and sets the optimiser's rates. Throws InvalidArgument, listing all mismatches, before
  /// anything is changed. Waits for the arrays.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 private:
  bool better(double value) const;
  void join();
  void apply();

  Optimizer& optimizer_;
  ReduceOnPlateauOptions options_;
  int64_t step_ = 0;
  double best_;
  int64_t bad_steps_ = 0;
  int64_t cooldown_ = 0;       // number of further steps that do not count as bad
  std::vector<double> rates_;  // without the factor of the warm-up
};

}  // namespace mx::optim
