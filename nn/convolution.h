// Convolutions as modules: those of torch.nn, with its names, layouts and initial values.
//
//   nn::Conv2d(3, 16, 5);                                            // a kernel of 5 x 5
//   nn::Conv2d(3, 16, {5, 3}, {.stride = 2, .padding = {2, 1}});     // a number for each axis
//   nn::Conv2d(16, 16, 3, {.padding = "same", .groups = 16, .bias = false});
//
// x is (images, in, spatial...), or one image (in, spatial...). The weight of a convolution is (out, in /
// groups, kernel...), that of a transposed one (in, out / groups, kernel...). Weights and biases are
// initialised uniformly in [-b, b) with b = 1 / sqrt(elements of the weight for one of its first dimension),
// from the CPU's default generator on every device.
//
// Constructors throw InvalidArgument for sizes less than 1, groups that do not divide the channels, numbers
// that no convolution has, and types that are not floating point.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/per_axis.h"
#include "operators/random.h"

namespace mx::nn {

/// The padding of a convolution: numbers, or "valid" for none, or "same" for a result of the size of x, which
/// needs a stride of 1. If "same" needs an odd number of elements, the end gets one more.
class ConvPadding {
 public:
  template <class T>
  requires std::convertible_to<T, PerAxis> ConvPadding(T numbers) : numbers_(numbers) {}
  ConvPadding(std::initializer_list<IntArg> numbers) : numbers_(numbers) {}
  /// Throws InvalidArgument for another text.
  ConvPadding(const char* text, std::source_location where = std::source_location::current());
  ConvPadding(const std::string& text, std::source_location where = std::source_location::current())
      : ConvPadding(text.c_str(), where) {}

  bool same() const { return same_; }
  const PerAxis& numbers() const { return numbers_; }  ///< 0 if same()

 private:
  PerAxis numbers_ = 0;
  bool same_ = false;
};

struct ConvOptions {
  PerAxis stride = 1;
  ConvPadding padding = 0;
  PerAxis dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< "zeros", "reflect", "replicate" or "circular"
  Context context = cpu();
  DType dtype = f32;
};

struct ConvTransposeOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;
  PerAxis output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  PerAxis dilation = 1;
  Context context = cpu();
  DType dtype = f32;
};

namespace detail {

/// What the convolutions of all dimensions share.
class ConvBase : public Module {
 public:
  NDArray forward(const NDArray& x) override;
  /// Initialises the parameters again.
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;

  Parameter weight;
  Parameter bias;  ///< not defined() if ConvOptions::bias is false

 protected:
  ConvBase(const char* name, int axes, int64_t in, int64_t out, const PerAxis& kernel,
           const ConvOptions& options, std::source_location where);

 private:
  const char* name_;
  int axes_;
  ConvOptions options_;
};

class ConvTransposeBase : public Module {
 public:
  NDArray forward(const NDArray& x) override;
  /// Initialises the parameters again.
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;

  Parameter weight;
  Parameter bias;  ///< not defined() if ConvTransposeOptions::bias is false

 protected:
  ConvTransposeBase(const char* name, int axes, int64_t in, int64_t out, const PerAxis& kernel,
                    const ConvTransposeOptions& options, std::source_location where);

 private:
  const char* name_;
  int axes_;
  ConvTransposeOptions options_;
};

}  // namespace detail

class Conv1d : public ModuleOf<Conv1d, detail::ConvBase> {
 public:
  Conv1d(IntArg in, IntArg out, PerAxis kernel, const ConvOptions& options = {},
         std::source_location where = std::source_location::current())
      : ModuleOf("Conv1d", 1, in, out, kernel, options, where) {}
};
class Conv2d : public ModuleOf<Conv2d, detail::ConvBase> {
 public:
  Conv2d(IntArg in, IntArg out, PerAxis kernel, const ConvOptions& options = {},
         std::source_location where = std::source_location::current())
      : ModuleOf("Conv2d", 2, in, out, kernel, options, where) {}
};
class Conv3d : public ModuleOf<Conv3d, detail::ConvBase> {
 public:
  Conv3d(IntArg in, IntArg out, PerAxis kernel, const ConvOptions& options = {},
         std::source_location where = std::source_location::current())
      : ModuleOf("Conv3d", 3, in, out, kernel, options, where) {}
};
class ConvTranspose1d : public ModuleOf<ConvTranspose1d, detail::ConvTransposeBase> {
 public:
  ConvTranspose1d(IntArg in, IntArg out, PerAxis kernel, const ConvTransposeOptions& options = {},
                  std::source_location where = std::source_location::current())
      : ModuleOf("ConvTranspose1d", 1, in, out, kernel, options, where) {}
};
class ConvTranspose2d : public ModuleOf<ConvTranspose2d, detail::ConvTransposeBase> {
 public:
  ConvTranspose2d(IntArg in, IntArg out, PerAxis kernel, const ConvTransposeOptions& options = {},
                  std::source_location where = std::source_location::current())
      : ModuleOf("ConvTranspose2d", 2, in, out, kernel, options, where) {}
};
class ConvTranspose3d : public ModuleOf<ConvTranspose3d, detail::ConvTransposeBase> {
 public:
  ConvTranspose3d(IntArg in, IntArg out, PerAxis kernel, const ConvTransposeOptions& options = {},
                  std::source_location where = std::source_location::current())
      : ModuleOf("ConvTranspose3d", 3, in, out, kernel, options, where) {}
};

}  // namespace mx::nn
