// Attributes of resample and resample_backward, for the records, their kernels and tests. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "operators/kernels/resample.h"
#include "operators/per_axis.h"

namespace mx::detail {

struct ResampleAttrs {
  PerAxis size = 1;
  std::vector<double> steps = {};
  std::string mode = "linear";
  bool align_corners = false;
  template <class V>
  static void fields(V&& v) {
    v("size", &ResampleAttrs::size, "spatial sizes of the result");
    v("steps", &ResampleAttrs::steps,
      "for each spatial axis, how far neighbours of the interpolated array are apart in the other one");
    v("mode", &ResampleAttrs::mode, "\"nearest\", \"nearest-exact\", \"linear\" or \"cubic\"");
    v("align_corners", &ResampleAttrs::align_corners,
      "the centres of the first elements coincide, otherwise the outer edges");
  }
};

/// The axes of x, of this shape, and of the result. Throws InvalidArgument for attributes that do not fit.
inline kernels::ResampleAxes resample_axes(const char* op, const ResampleAttrs& attrs, const Shape& x,
                                           bool transposed) {
  using formulas::ResampleMode;
  kernels::ResampleAxes axes;
  axes.transposed = transposed;
  axes.count = x.rank() - 2;
  attrs.size.check(op, "size", axes.count, 1);
  MX_CHECK(static_cast<int>(attrs.steps.size()) == axes.count, InvalidArgument, "[", op, "] expected ",
           axes.count, " steps, got ", attrs.steps.size());
  constexpr const char* kNames[] = {"nearest", "nearest-exact", "linear", "cubic"};
  int mode = 0;
  while (mode < 4 && attrs.mode != kNames[mode]) ++mode;
  MX_CHECK(mode < 4, InvalidArgument, "[", op,
           "] expected mode \"nearest\", \"nearest-exact\", \"linear\" or \"cubic\", got \"", attrs.mode,
           '"');
  for (int a = 0; a < 3 && a < axes.count; ++a) {
    const int64_t before = x[2 + a], after = attrs.size[a];
    MX_CHECK(before >= 1 && before <= INT32_MAX, InvalidArgument, "[", op,
             "] expected spatial sizes from 1 to 2^31 - 1, got shape ", x);
    const double step = attrs.steps[static_cast<size_t>(a)];
    // Steps beyond that are not those of two sizes, and positions would leave the range of integers.
    MX_CHECK(step >= 0 && step <= INT32_MAX, InvalidArgument, "[", op,
             "] expected steps from 0 to 2^31 - 1, got ", step);
    axes.axis[a] = {.in = transposed ? after : before,
                    .out = transposed ? before : after,
                    .step = step,
                    .mode = static_cast<ResampleMode>(mode),
                    .align_corners = attrs.align_corners};
    // A linear axis that keeps its size is copied, whatever the step, as in PyTorch.
    if (axes.axis[a].mode == ResampleMode::linear && before == after) {
      axes.axis[a].mode = ResampleMode::copied;
      axes.axis[a].step = 1;
    }
  }
  return axes;
}

}  // namespace mx::detail
