// Dropout.
#pragma once

#include <optional>
#include <string>

#include "nn/module.h"
#include "operators/random.h"

namespace mx::nn {

/// In training mode, sets each element to 0 with probability p and scales the others by 1 / (1 - p). In
/// predict mode, returns x. The mode is the thread's `TrainMode` or `PredictMode` scope if there is one,
/// otherwise the module's training() flag.
///
/// Random numbers come from `generator`, which must be on x's device, or else from the default generator of
/// that device. Copies and clones draw from the same generator.
class Dropout : public ModuleOf<Dropout> {
 public:
  /// Throws InvalidArgument unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5, std::optional<Generator> generator = {});
  NDArray forward(const NDArray& x) override;
  double p() const { return p_; }
  std::string extra() const override;

 private:
  double p_;
  std::optional<Generator> generator_;
};

}  // namespace mx::nn
