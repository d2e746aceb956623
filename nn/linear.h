// Linear: x weight' + bias.
#pragma once

#include <cstdint>
#include <string>

#include "nn/module.h"
#include "operators/random.h"

namespace mx::nn {

struct LinearOptions {
  bool bias = true;
  Context context = cpu();
  DType dtype = f32;
};

/// (.., in) to (.., out). Parameters: weight (out, in), bias (out,), both uniform in [-b, b) with
/// b = 1 / sqrt(in), as torch.nn.Linear; drawn from the default generator of the CPU whatever the device.
class Linear : public ModuleOf<Linear> {
 public:
  /// Throws InvalidArgument for sizes that are negative and types that are not floating point.
  Linear(int64_t in, int64_t out, const LinearOptions& options = {});

  NDArray forward(const NDArray& x) override;
  /// Draws the parameters anew.
  void reset_parameters(Generator* generator = nullptr);

  int64_t in_features() const { return weight.shape()[1]; }
  int64_t out_features() const { return weight.shape()[0]; }
  std::string extra() const override;

  Parameter weight;
  Parameter bias;  ///< not defined() without one
};

}  // namespace mx::nn
