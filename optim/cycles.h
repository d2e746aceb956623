// Schedules that rise and fall, schedules from a function, and schedules made of others. See schedule.h.
//
//   optim::OneCycleLR schedule(opt, {.max_lr = 0.1, .steps = 1000});
//   optim::SequentialLR schedule(opt, {optim::part<optim::PolyLR>(optim::PolyLROptions{.steps = 100}),
//                                      optim::part<optim::StepLR>(optim::StepLROptions{.step_size = 10})},
//                                {100});
//
// The formulas are those of torch.optim.lr_scheduler. Unlike there, momentum is not changed, and rates stay
// at their last value after the end. t is the number of a step after the warm-up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "optim/schedule.h"

namespace mx::optim {

struct OneCycleLROptions {
  double max_lr = 0;              ///< the largest rate of all groups; 0: each group's base rate
  IntArg steps = 0;               ///< at least 2
  double pct_start = 0.3;         ///< the fraction of the steps in which the rate rises; from 0 to 1
  bool linear = false;            ///< false: cosine
  double div_factor = 25;         ///< the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  ///< the last rate is the first one divided by this
  bool three_phase = false;       ///< fall to the first rate as fast as it rose, and then to the last one
};
/// Smith and Topin's policy of one cycle.
class OneCycleLR final : public Schedule {
 public:
  OneCycleLR(Optimizer& optimizer, const OneCycleLROptions& options,
             std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  OneCycleLROptions options_;
};

struct CyclicLROptions {
  double max_lr = 0.1;         ///< the top of each cycle; its bottom is the base rate
  IntArg step_size_up = 2000;  ///< at least 1
  IntArg step_size_down = 0;   ///< 0: step_size_up
  /// "triangular"; "triangular2": each cycle is half as high; "exp_range": its height is multiplied by
  /// gamma^t
  std::string mode = "triangular";
  double gamma = 1;
  IntArg warmup = 0;
  double warmup_start = 0;
};
/// Straight lines up and down between the base rate and max_lr.
class CyclicLR final : public Schedule {
 public:
  CyclicLR(Optimizer& optimizer, const CyclicLROptions& options,
           std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  CyclicLROptions options_;
};

struct CosineRestartsLROptions {
  IntArg t_0 = 0;     ///< steps of the first cycle; at least 1
  IntArg t_mult = 1;  ///< each cycle has so many times the steps of the one before; at least 1
  double min_lr = 0;
  IntArg warmup = 0;
  double warmup_start = 0;
};
/// In each cycle min_lr + (base - min_lr) * (1 + cos(pi * done / length)) / 2, as
/// CosineAnnealingWarmRestarts.
class CosineRestartsLR final : public Schedule {
 public:
  CosineRestartsLR(Optimizer& optimizer, const CosineRestartsLROptions& options,
                   std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  CosineRestartsLROptions options_;
};

/// base * f(t). The function must depend on t alone; what it returns must be at least 0.
class LambdaLR final : public Schedule {
 public:
  /// Throws InvalidArgument for an empty function.
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> f,
           std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  std::function<double(int64_t)> f_;
};

/// A schedule that is part of another one.
using SchedulePart = std::function<std::unique_ptr<Schedule>(Optimizer&, std::source_location)>;
/// Makes a part: part<CosineLR>(CosineLROptions{.steps = 100}).
template <class Made, class Options>
SchedulePart part(const Options& options) {
  return [options](Optimizer& optimizer, std::source_location where) {
    return std::make_unique<Made>(optimizer, options, where);
  };
}

/// One schedule after the other: part k begins, with its own step 0, in step milestones[k - 1].
class SequentialLR final : public Schedule {
 public:
  /// Throws InvalidArgument unless there are one part or more and one milestone less, ascending and above 0.
  SequentialLR(Optimizer& optimizer, const std::vector<SchedulePart>& parts,
               const std::vector<int64_t>& milestones,
               std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  std::vector<std::unique_ptr<Schedule>> parts_;
  std::vector<int64_t> milestones_;
};

/// Several schedules at the same time: the rate of each is the base rate of the next. For schedules that
/// multiply the base rate by a factor, the order does not matter.
class ChainedLR final : public Schedule {
 public:
  /// Throws InvalidArgument for no parts.
  ChainedLR(Optimizer& optimizer, const std::vector<SchedulePart>& parts,
            std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  std::vector<std::unique_ptr<Schedule>> parts_;
};

}  // namespace mx::optim
