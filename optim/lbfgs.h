// LBFGS: minimises a function of all parameters with an approximation of its inverse Hessian matrix.
//
//   optim::LBFGS opt(net.parameters(), {.strong_wolfe = true});
//   for (...) {
//     const double loss = opt.step([&] {
//       opt.zero_grad();
//       NDArray loss = loss_of(net);
//       loss.backward();
//       return loss;
//     });
//   }
//
// For problems of moderate size whose loss is not random. One step() runs up to `max_iter` iterations. Each
// evaluates the loss and the gradient, once or several times, through the closure, and decides with their
// values, so step() waits: it cannot be recorded, and the optimiser is not one of optimizers.h that a server
// or a trainer could run. The method is that of Nocedal and Wright, Numerical Optimization, 2nd edition: the
// two-loop recursion (algorithm 7.4) and the line search for the strong Wolfe conditions (3.5 and 3.6). The
// steps are those of torch.optim.LBFGS, except that the line search steps back from a loss that is no number.
//
// The optimiser keeps 2 * history_size + 3 vectors as long as all parameters together, on the device of the
// first one. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <source_location>

#include "ndarray/attrs.h"
#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "operators/parameter.h"

namespace mx::optim {

struct LBFGSOptions {
  double lr = 1;         ///< length of a step, as a factor of the direction; above 0
  IntArg max_iter = 20;  ///< iterations of one step(); at least 1
  /// evaluations of one step(), one more with strong_wolfe, as in PyTorch; 0: max_iter * 5 / 4
  IntArg max_eval = 0;
  double tolerance_grad = 1e-7;    ///< step() ends if no element of the gradient is larger
  double tolerance_change = 1e-9;  ///< step() ends if the loss or all parameters change by less
  IntArg history_size = 100;       ///< earlier steps that the approximation uses; at least 1
  bool strong_wolfe = false;       ///< search the length of each step along its direction
};

class LBFGS {
 public:
  /// Computes the gradients of all parameters and returns the loss, one number of floating-point type.
  using Closure = std::function<NDArray()>;

  /// Throws InvalidArgument, listing all options that are out of range, and all parameters that are not
  /// contiguous, or not all f32 or all f64.
  LBFGS(const Parameters& parameters, const LBFGSOptions& options = {},
        std::source_location where = std::source_location::current());
  LBFGS(const LBFGS&) = delete;
  LBFGS& operator=(const LBFGS&) = delete;

  /// Returns the loss of the first evaluation, before any change. Waits. A parameter without a gradient
  /// counts as one whose gradient is zero. If the closure throws, the parameters get the values that they had
  /// before the iteration, and the error is thrown on. Throws InvalidArgument for a loss that is not one
  /// number.
  double step(const Closure& closure, std::source_location where = std::source_location::current());
  /// Removes all gradients.
  void zero_grad();

  const Parameters& parameters() const { return parameters_; }
  const LBFGSOptions& options() const { return options_; }
  void set_learning_rate(double rate);
  /// Return how many iterations and evaluations all steps together had.
  int64_t iterations() const { return iterations_; }
  int64_t evaluations() const { return evaluations_; }

  /// Returns the state under the names of torch: "n_iter", "func_evals", "t", "H_diag", and, after the first
  /// iteration, "d", "prev_flat_grad", "old_stps" and "old_dirs" (one row for each remembered step).
  NamedArrays state_dict() const;
  /// Throws InvalidArgument, listing all mismatches, before anything is changed. Waits.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 private:
  /// The loss, and the gradient as one vector.
  struct Evaluation {
    double loss = 0;
    NDArray gradient;
  };
  /// A point of the line search.
  struct Trial {
    double length = 0, loss = 0, slope = 0;
    NDArray gradient;
  };

  Evaluation evaluate(const Closure& closure, std::source_location where);
  NDArray flat_parameters() const;
  void set_parameters(const NDArray& flat) const;
  NDArray direction(const NDArray& gradient) const;
  void remember(const NDArray& gradient);
  void iterate(const Closure& closure, Evaluation& now, const NDArray& start, double slope, bool evaluates,
               int64_t max_trials, std::source_location where);
  Trial search(const std::function<Trial(double)>& at, const Trial& start, double first,
               int64_t max_trials) const;
  Trial zoom(const std::function<Trial(double)>& at, const Trial& start, Trial first, Trial second,
             int64_t trials, int64_t max_trials) const;

  Parameters parameters_;
  LBFGSOptions options_;
  int64_t iterations_ = 0, evaluations_ = 0;
  double length_ = 0;                    // of the last step
  double scale_ = 1;                     // of the initial inverse Hessian matrix
  NDArray direction_, gradient_;         // of the last step
  std::deque<NDArray> steps_, changes_;  // differences of parameters and of gradients, the oldest first
};

}  // namespace mx::optim
