// ReduceOnPlateau: lowers learning rates when a value stops getting better.
//
//   optim::ReduceOnPlateau schedule(opt, {.patience = 5});
//   for (epochs) {
//     ...
//     schedule.step(validation_loss);
//   }
//
// Unlike other schedules (schedule.h) it has no plan: each step is told what came out. A value is better when
// it is below the best one so far by more than the threshold. After more than `patience` steps in a row that
// were not better, every group's rate is multiplied by `factor`; then `cooldown` steps do not count as bad.
// As with torch.optim.lr_scheduler.ReduceLROnPlateau. During the warm-up values are not looked at.
//
// Lifetime, groups that are added later, and threads: as other schedules.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "ndarray/save.h"
#include "optim/optimizer.h"

namespace mx::optim {

struct ReduceOnPlateauOptions {
  bool maximize = false;     ///< larger values are better
  double factor = 0.1;       ///< from 0 to below 1
  int64_t patience = 10;     ///< at least 0
  double threshold = 1e-4;   ///< fraction of the best value; at least 0
  bool absolute = false;     ///< the threshold is a difference
  int64_t cooldown = 0;      ///< at least 0
  double min_lr = 0;         ///< no lower, unless the rate is
  double min_change = 1e-8;  ///< a change of the rate that is not larger is left out
  int64_t warmup = 0;        ///< as other schedules
  double warmup_start = 0;
};

class ReduceOnPlateau {
 public:
  /// Throws InvalidArgument, listing all options that are out of range.
  ReduceOnPlateau(Optimizer& optimizer, const ReduceOnPlateauOptions& options = {},
                  std::source_location where = std::source_location::current());
  ReduceOnPlateau(const ReduceOnPlateau&) = delete;
  ReduceOnPlateau& operator=(const ReduceOnPlateau&) = delete;

  /// One step further. A NaN is not better.
  void step(double value);
  /// The same with the only element of a floating-point array; waits for it.
  void step(const NDArray& value);

  /// The group's rate now, without its multiplier.
  double learning_rate(size_t group = 0) const { return optimizer_.learning_rate(group); }
  int64_t steps_done() const { return step_; }
  /// Infinite (negative, with `maximize`) before the first step that counts.
  double best() const { return best_; }

  /// "step", "best", "bad_steps", "cooldown" and "rates". The arrays are copies.
  NamedArrays state_dict() const;
  /// Sets the optimiser's rates too. Throws InvalidArgument, listing all that does not fit, before anything
  /// is changed. Waits for the arrays.
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
  int64_t cooldown_ = 0;       // steps that still do not count as bad
  std::vector<double> rates_;  // without the warm-up
};

}  // namespace mx::optim
