// Averages: averages of parameters over the steps of a training, which often test better than the last ones.
//
//   optim::Averages averages(net.parameters(), {.decay = 0.999});   // exponential moving average
//   for (...) {
//     opt.step();
//     averages.update();
//   }
//   averages.apply();     // the model has the averages now
//   evaluate(net);
//   averages.restore();   // and its own parameters again
//
// With `equal`, all updates count the same: stochastic weight averaging. Averages of f16 and bf16 parameters
// are kept in f32. update() is one operation per device and returns at once.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "operators/parameter.h"

namespace mx::optim {

struct AveragesOptions {
  double decay = 0.999;  ///< average = decay * average + (1 - decay) * parameter; from 0 to 1
  /// The decay of update n, from 0, is at most (1 + n) / (10 + n), so that early averages are not dominated
  /// by the first parameters.
  bool warmup = false;
  bool equal = false;  ///< the average is the mean of all updates; decay and warmup are not used
};

class Averages {
 public:
  /// The averages begin with the current parameters. With `equal`, these count only until the first update.
  /// Throws InvalidArgument for a decay that is out of range, and for parameters that are not contiguous or
  /// not of a floating-point type.
  explicit Averages(const Parameters& parameters, const AveragesOptions& options = {},
                    std::source_location where = std::source_location::current());
  Averages(const Averages&) = delete;
  Averages& operator=(const Averages&) = delete;

  /// Adds the current parameters. Throws InvalidState between apply() and restore().
  void update(std::source_location where = std::source_location::current());
  /// Copies the averages into the parameters, and keeps the parameters' own values for restore(). Throws
  /// InvalidState if that was done already. (Master copies of an optimiser are not changed.)
  void apply();
  /// Gives the parameters their own values back. Throws InvalidState without apply().
  void restore();
  bool applied() const { return !own_.empty(); }
  /// Copies the averages into the parameters for good.
  void copy_to_parameters() const;
  /// After a bad batch (docs/optim.md): averages that are poisoned only by skipped updates hold their last
  /// good values again. Call it after the optimiser's recover(), and not between apply() and restore(). Waits
  /// for the averages. Throws InvalidState, naming the averages, if some are lost: on an accelerator, if the
  /// optimiser was not set_recoverable(). The skipped update still counts in updates().
  void recover(std::source_location where = std::source_location::current());
  int64_t updates() const { return updates_; }
  /// Returns the averages, in the order of the parameters.
  const std::vector<NDArray>& values() const { return values_; }

  /// Returns "updates" and "average.<parameter>", with the names that Optimizer::parameters() has for these
  /// parameters: a parameter without a name is named by its number, and the second "weight" is "weight@3" if
  /// it is parameter 3. The arrays are those in use.
  NamedArrays state_dict() const;
  /// Throws InvalidArgument, listing all mismatches, before anything is changed. Waits.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 private:
  void follow();

  Parameters parameters_;  // each name once
  AveragesOptions options_;
  std::vector<NDArray> values_;
  std::vector<NDArray> own_;  // the parameters' values between apply() and restore()
  int64_t updates_ = 0;
};

/// Steps an optimiser after several backward passes, for batches that do not fit into memory. Parameters must
/// have GradReq::add, so that gradients add up.
///
///   optim::Accumulation accumulation(4);
///   for (...) {
///     accumulation.scale(loss).backward();
///     if (accumulation.step()) {   // true for every fourth
///       opt.step();
///       opt.zero_grad();
///     }
///   }
class Accumulation {
 public:
  /// Throws InvalidArgument for `parts` below 1.
  explicit Accumulation(IntArg parts, std::source_location where = std::source_location::current());
  /// Returns loss / parts, so that the sum of the gradients is that of the mean of the losses.
  NDArray scale(const NDArray& loss) const;
  /// Counts a backward pass; returns true if it completes a batch.
  bool step();
  int64_t done() const { return done_; }

 private:
  int64_t parts_, done_ = 0;
};

}  // namespace mx::optim
