// Pooling as modules: those of torch.nn, and Gluon's global poolings.
//
//   nn::MaxPool2d(2);                                      // the stride is the kernel
//   nn::MaxPool2d({3, 2}, {.stride = 2, .padding = 1});
//   nn::AdaptiveAvgPool2d({7, 7});
//
// x is (images, channels, spatial...), or one image without the first dimension. The functions of
// operators/pooling.h also return the indices of the largest elements. Constructors throw InvalidArgument for
// numbers that no pooling has.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/pooling.h"

namespace mx::nn {

struct MaxPoolOptions {
  PerAxis stride = 0;  ///< 0: the kernel
  PerAxis padding = 0;
  PerAxis dilation = 1;
  bool ceil_mode = false;
};

struct AvgPoolOptions {
  PerAxis stride = 0;  ///< 0: the kernel
  PerAxis padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  int64_t divisor_override = 0;  ///< 0: the number of elements
};

namespace detail {

class MaxPoolBase : public Module {
 public:
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 protected:
  MaxPoolBase(const char* name, int axes, const PerAxis& kernel, const MaxPoolOptions& options,
              std::source_location where);

 private:
  const char* name_;
  int axes_;
  MaxPoolAttrs attrs_;
};

class AvgPoolBase : public Module {
 public:
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 protected:
  AvgPoolBase(const char* name, int axes, const PerAxis& kernel, const AvgPoolOptions& options,
              std::source_location where);

 private:
  const char* name_;
  int axes_;
  AvgPoolAttrs attrs_;
};

/// Pooling to given sizes by one of the functions of operators/pooling.h.
class AdaptivePoolBase : public Module {
 public:
  using Function = NDArray (*)(const Arg&, const PerAxis&);
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 protected:
  AdaptivePoolBase(const char* name, int axes, const PerAxis& size, Function pool,
                   std::source_location where);

 private:
  const char* name_;
  int axes_;
  PerAxis size_;
  Function pool_;
};

}  // namespace detail

class MaxPool1d : public ModuleOf<MaxPool1d, detail::MaxPoolBase> {
 public:
  explicit MaxPool1d(PerAxis kernel, const MaxPoolOptions& options = {},
                     std::source_location where = std::source_location::current())
      : ModuleOf("MaxPool1d", 1, kernel, options, where) {}
};
class MaxPool2d : public ModuleOf<MaxPool2d, detail::MaxPoolBase> {
 public:
  explicit MaxPool2d(PerAxis kernel, const MaxPoolOptions& options = {},
                     std::source_location where = std::source_location::current())
      : ModuleOf("MaxPool2d", 2, kernel, options, where) {}
};
class MaxPool3d : public ModuleOf<MaxPool3d, detail::MaxPoolBase> {
 public:
  explicit MaxPool3d(PerAxis kernel, const MaxPoolOptions& options = {},
                     std::source_location where = std::source_location::current())
      : ModuleOf("MaxPool3d", 3, kernel, options, where) {}
};
class AvgPool1d : public ModuleOf<AvgPool1d, detail::AvgPoolBase> {
 public:
  explicit AvgPool1d(PerAxis kernel, const AvgPoolOptions& options = {},
                     std::source_location where = std::source_location::current())
      : ModuleOf("AvgPool1d", 1, kernel, options, where) {}
};
class AvgPool2d : public ModuleOf<AvgPool2d, detail::AvgPoolBase> {
 public:
  explicit AvgPool2d(PerAxis kernel, const AvgPoolOptions& options = {},
                     std::source_location where = std::source_location::current())
      : ModuleOf("AvgPool2d", 2, kernel, options, where) {}
};
class AvgPool3d : public ModuleOf<AvgPool3d, detail::AvgPoolBase> {
 public:
  explicit AvgPool3d(PerAxis kernel, const AvgPoolOptions& options = {},
                     std::source_location where = std::source_location::current())
      : ModuleOf("AvgPool3d", 3, kernel, options, where) {}
};
class AdaptiveAvgPool1d : public ModuleOf<AdaptiveAvgPool1d, detail::AdaptivePoolBase> {
 public:
  explicit AdaptiveAvgPool1d(PerAxis size, std::source_location where = std::source_location::current())
      : ModuleOf("AdaptiveAvgPool1d", 1, size, adaptive_avg_pool, where) {}
};
class AdaptiveAvgPool2d : public ModuleOf<AdaptiveAvgPool2d, detail::AdaptivePoolBase> {
 public:
  explicit AdaptiveAvgPool2d(PerAxis size, std::source_location where = std::source_location::current())
      : ModuleOf("AdaptiveAvgPool2d", 2, size, adaptive_avg_pool, where) {}
};
class AdaptiveAvgPool3d : public ModuleOf<AdaptiveAvgPool3d, detail::AdaptivePoolBase> {
 public:
  explicit AdaptiveAvgPool3d(PerAxis size, std::source_location where = std::source_location::current())
      : ModuleOf("AdaptiveAvgPool3d", 3, size, adaptive_avg_pool, where) {}
};
class AdaptiveMaxPool1d : public ModuleOf<AdaptiveMaxPool1d, detail::AdaptivePoolBase> {
 public:
  explicit AdaptiveMaxPool1d(PerAxis size, std::source_location where = std::source_location::current())
      : ModuleOf("AdaptiveMaxPool1d", 1, size, adaptive_max_pool, where) {}
};
class AdaptiveMaxPool2d : public ModuleOf<AdaptiveMaxPool2d, detail::AdaptivePoolBase> {
 public:
  explicit AdaptiveMaxPool2d(PerAxis size, std::source_location where = std::source_location::current())
      : ModuleOf("AdaptiveMaxPool2d", 2, size, adaptive_max_pool, where) {}
};
class AdaptiveMaxPool3d : public ModuleOf<AdaptiveMaxPool3d, detail::AdaptivePoolBase> {
 public:
  explicit AdaptiveMaxPool3d(PerAxis size, std::source_location where = std::source_location::current())
      : ModuleOf("AdaptiveMaxPool3d", 3, size, adaptive_max_pool, where) {}
};

/// The mean of all positions of each channel, for any number of spatial axes; they keep a size of 1. x must
/// have a dimension of images.
class GlobalAvgPool : public ModuleOf<GlobalAvgPool> {
 public:
  NDArray forward(const NDArray& x) override;
};
/// The largest element of each channel.
class GlobalMaxPool : public ModuleOf<GlobalMaxPool> {
 public:
  NDArray forward(const NDArray& x) override;
};

}  // namespace mx::nn
