// Dropout.
#pragma once

#include <optional>
#include <string>

#include "nn/module.h"
#include "operators/random.h"

namespace mx::nn {

/// In training each element is 0 with probability p, and else x / (1 - p); otherwise x. Whether it is
/// training says training(), and before that the thread's TrainMode or PredictMode.
///
/// The numbers come from the default generator of x's device, or from the one given, which must be of x's
/// device; copies and clones draw from the same one.
class Dropout : public ModuleOf<Dropout> {
 public:
  /// Throws InvalidArgument unless p is from 0 to 1.
  explicit Dropout(double p = 0.5, std::optional<Generator> generator = {});
  NDArray forward(const NDArray& x) override;
  double p() const { return p_; }
  std::string extra() const override;

 private:
  double p_;
  std::optional<Generator> generator_;
};

}  // namespace mx::nn
