// The most floating-point operations that the processor does, measured in a loop of registers only.
#pragma once

namespace mx::bench {

/// Multiply-adds on vectors of float, 24 chains; returns GFLOP/s of the calling thread over a few
/// milliseconds.
double fma_peak_f32();

}  // namespace mx::bench
