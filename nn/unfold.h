// Unfold and Fold: the windows of images as columns, and back, with the names and options of torch.nn.
// operators/unfold.h has the functions. Constructors throw InvalidArgument for numbers that no window has.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/unfold.h"

namespace mx::nn {

struct UnfoldOptions {
  PerAxis dilation = 1;
  PerAxis padding = 0;
  PerAxis stride = 1;
};

/// (N, C, H, W) to (N, C * elements of a window, windows), or the same without N.
class Unfold : public ModuleOf<Unfold> {
 public:
  explicit Unfold(const PerAxis& kernel, const UnfoldOptions& options = {},
                  std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  UnfoldAttrs attrs_;
};

/// (N, C * elements of a window, windows) to (N, C, H, W), or the same without N; `size` is H and W. Elements
/// of several windows are added.
class Fold : public ModuleOf<Fold> {
 public:
  Fold(const PerAxis& size, const PerAxis& kernel, const UnfoldOptions& options = {},
       std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  FoldAttrs attrs_;
};

}  // namespace mx::nn
