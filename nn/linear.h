// Linear: x weight' + bias.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/random.h"

namespace mx::nn {

struct LinearOptions {
  bool bias = true;
  Context context = cpu();
  DType dtype = f32;
};

/// Maps (.., in) to (.., out). Parameters: weight (out, in) and bias (out,). Both are initialised uniformly
/// in [-b, b) with b = 1 / sqrt(in), as in torch.nn.Linear. The numbers come from the CPU's default generator
/// on every device.
class Linear : public ModuleOf<Linear> {
 public:
  /// Throws InvalidArgument for a negative size and for a type that is not floating point.
  Linear(IntArg in, IntArg out, const LinearOptions& options = {},
         std::source_location where = std::source_location::current());
  /// As in PyTorch: Linear(3, 2, false) has no bias. It is a template so that only a bool is taken for one.
  template <std::same_as<bool> B>
  Linear(IntArg in, IntArg out, B with_bias, Context context = cpu(), DType dtype = f32,
         std::source_location where = std::source_location::current())
      : Linear(in, out, LinearOptions{.bias = with_bias, .context = context, .dtype = dtype}, where) {}

  NDArray forward(const NDArray& x) override;
  /// Initialises the parameters again.
  void reset_parameters(Generator* generator = nullptr);

  int64_t in_features() const { return weight.shape()[1]; }
  int64_t out_features() const { return weight.shape()[0]; }
  std::string extra() const override;

  Parameter weight;
  Parameter bias;  ///< not defined() if LinearOptions::bias is false
};

}  // namespace mx::nn
