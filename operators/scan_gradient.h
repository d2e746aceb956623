// The gradients of scans, for their records. Internal.
#pragma once

#include "operators/gradient.h"
#include "operators/kernels/scan.h"

namespace mx::detail {

struct ScanGradient {
  void (*gradient)(GradientContext&) = nullptr;
  GradientUses uses{};
};

ScanGradient scan_gradient(kernels::ScanOp op);
void gradient_linear_recurrence(GradientContext& g);

}  // namespace mx::detail
