// Layers that change the spatial sizes of images without parameters: interpolation, channels as pixels, and
// padding.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <vector>

#include "nn/module.h"
#include "operators/interpolate.h"
#include "operators/shape_ops.h"

namespace mx::nn {

/// Interpolates to other sizes, as torch.nn.Upsample. A call throws what interpolate() throws.
class Upsample : public ModuleOf<Upsample> {
 public:
  explicit Upsample(InterpolateOptions options) : options_(std::move(options)) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  InterpolateOptions options_;
};

/// (images, channels r^2, height, width) to (images, channels, height r, width r).
class PixelShuffle : public ModuleOf<PixelShuffle> {
 public:
  explicit PixelShuffle(IntArg factor) : factor_(factor) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  int64_t factor_;
};

/// The inverse of PixelShuffle.
class PixelUnshuffle : public ModuleOf<PixelUnshuffle> {
 public:
  explicit PixelUnshuffle(IntArg factor) : factor_(factor) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  int64_t factor_;
};

/// The widths of a padding of the last two dimensions: one number for all sides, or left, right, top, bottom.
class PadWidths {
 public:
  template <mx::detail::IntegerNumber T>
  PadWidths(T all) : PadWidths(all, all, all, all) {}
  PadWidths(IntArg l, IntArg r, IntArg t, IntArg b) : left(l), right(r), top(t), bottom(b) {}

  int64_t left, right, top, bottom;
};

namespace detail {
class PadBase : public Module {
 public:
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 protected:
  PadBase(const char* name, const PadWidths& widths, PadMode mode, double value, std::source_location where);

 private:
  const char* name_;
  PadWidths widths_;
  PadMode mode_;
  double value_;
};
}  // namespace detail

class ZeroPad2d : public ModuleOf<ZeroPad2d, detail::PadBase> {
 public:
  explicit ZeroPad2d(const PadWidths& widths, std::source_location where = std::source_location::current())
      : ModuleOf("ZeroPad2d", widths, PadMode::constant, 0., where) {}
};
class ConstantPad2d : public ModuleOf<ConstantPad2d, detail::PadBase> {
 public:
  ConstantPad2d(const PadWidths& widths, double value,
                std::source_location where = std::source_location::current())
      : ModuleOf("ConstantPad2d", widths, PadMode::constant, value, where) {}
};
class ReflectionPad2d : public ModuleOf<ReflectionPad2d, detail::PadBase> {
 public:
  explicit ReflectionPad2d(const PadWidths& widths,
                           std::source_location where = std::source_location::current())
      : ModuleOf("ReflectionPad2d", widths, PadMode::reflect, 0., where) {}
};
class ReplicationPad2d : public ModuleOf<ReplicationPad2d, detail::PadBase> {
 public:
  explicit ReplicationPad2d(const PadWidths& widths,
                            std::source_location where = std::source_location::current())
      : ModuleOf("ReplicationPad2d", widths, PadMode::edge, 0., where) {}
};

}  // namespace mx::nn
