// Schedules: set learning rates as functions of the step number. Further ones are in cycles.h and plateau.h.
//
//   optim::CosineLR schedule(opt, {.steps = 1000, .warmup = 50});
//   for (...) {
//     ...
//     opt.step();
//     schedule.step();
//   }
//
// A schedule takes each group's learning rate at its construction as the group's base rate, and sets the
// rates of step 0 at once; step() goes one step further. A step may be a batch or an epoch: the caller
// decides. The rate of a step is a formula of the base rate and the number of the step, so rounding errors do
// not accumulate. A rate that is set by other means lasts until the next step(). Multipliers of groups are
// applied on top.
//
// Schedules with the option `warmup` begin with a linear warm-up: during their first `warmup` steps rates
// rise from `warmup_start` times the base rate to the base rate. The schedule itself begins after them, as
// with torch's SequentialLR: its own step 0 is step `warmup`, and milestones count from there. `steps`, if a
// schedule has it, counts all steps with the warm-up; afterwards the rate stays at its last value.
//
// In the formulas t is the number of a step after the warm-up, and T = steps - warmup.
//
// An optimiser must outlive its schedules. A group that is added to it later joins at the next step(); its
// base rate is its rate at that time. Thread-safety: as the optimiser's. Constructors throw InvalidArgument,
// listing all options that are out of range.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "ndarray/save.h"
#include "optim/optimizer.h"

namespace mx::optim {

class Schedule {
 public:
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// Sets the rates of the next step. Returns at once.
  void step();
  /// Returns the group's current rate, without its multiplier.
  double learning_rate(size_t group = 0) const { return optimizer_.learning_rate(group); }
  /// Returns a group's rate in a step; steps count from 0.
  double rate_at(int64_t step, size_t group = 0) const;
  /// Returns how often step() has been called.
  int64_t steps_done() const { return step_; }

  /// Returns "step" and "base_rates". The arrays are copies.
  NamedArrays state_dict() const;
  /// Loads the state and sets the optimiser's rates. Throws InvalidArgument, listing all mismatches, before
  /// anything is changed. Waits for the arrays.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 protected:
  /// `name` is for messages and must outlive the schedule.
  Schedule(const char* name, Optimizer& optimizer, int64_t warmup, double warmup_start);
  /// Returns the rate of a step, which counts from the end of the warm-up.
  virtual double rate(double base, int64_t step) const = 0;
  /// Returns the rate of a step of any schedule, with its warm-up, for a group with this base rate.
  static double rate_of(const Schedule& schedule, double base, int64_t step);
  /// Sets the rates of the current step. Each constructor of a derived class must end with it.
  void apply();

 private:
  void join();

  const char* name_;
  Optimizer& optimizer_;
  int64_t warmup_;
  double warmup_start_;
  int64_t step_ = 0;
  std::vector<double> base_rates_;
};

struct StepLROptions {
  IntArg step_size = 1;  ///< at least 1
  double gamma = 0.1;
  double min_lr = 0;  ///< the lowest rate; a base rate below it stays
  IntArg warmup = 0;
  double warmup_start = 0;
};
/// base * gamma^floor(t / step_size): the factor schedule of Apache MXNet.
class StepLR final : public Schedule {
 public:
  StepLR(Optimizer& optimizer, const StepLROptions& options,
         std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  StepLROptions options_;
};

struct MultiStepLROptions {
  std::vector<int64_t> milestones = {};  ///< ascending; duplicates count as often as they occur
  double gamma = 0.1;
  double min_lr = 0;
  IntArg warmup = 0;
  double warmup_start = 0;
};
/// base * gamma^(number of milestones <= t).
class MultiStepLR final : public Schedule {
 public:
  MultiStepLR(Optimizer& optimizer, const MultiStepLROptions& options,
              std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  MultiStepLROptions options_;
};

struct ExponentialLROptions {
  double gamma = 0.9;
  double min_lr = 0;
  IntArg warmup = 0;
  double warmup_start = 0;
};
/// base * gamma^t.
class ExponentialLR final : public Schedule {
 public:
  ExponentialLR(Optimizer& optimizer, const ExponentialLROptions& options,
                std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  ExponentialLROptions options_;
};

struct CosineLROptions {
  IntArg steps = 0;  ///< above warmup
  double min_lr = 0;
  IntArg warmup = 0;
  double warmup_start = 0;
};
/// min_lr + (base - min_lr) * (1 + cos(pi * t / T)) / 2.
class CosineLR final : public Schedule {
 public:
  CosineLR(Optimizer& optimizer, const CosineLROptions& options,
           std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  CosineLROptions options_;
};

struct PolyLROptions {
  IntArg steps = 0;  ///< above warmup
  double power = 1;  ///< above 0; 1: a straight line
  double min_lr = 0;
  IntArg warmup = 0;
  double warmup_start = 0;
};
/// min_lr + (base - min_lr) * (1 - t / T)^power.
class PolyLR final : public Schedule {
 public:
  PolyLR(Optimizer& optimizer, const PolyLROptions& options,
         std::source_location where = std::source_location::current());

 private:
  double rate(double base, int64_t step) const override;
  PolyLROptions options_;
};

}  // namespace mx::optim
