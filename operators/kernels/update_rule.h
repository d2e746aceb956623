// Vectorised update rules on runs of elements. Used only by update.cc; the formulas are in update.h.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// g = clip(g * scale) + weight_decay * w.
struct GradientRule {
  double scale = 1, clip = 0, weight_decay = 0;
};

struct SgdRule {
  GradientRule gradient;
  double rate = 0, momentum = 0;
  double kept = 1;  ///< factor of g in u
  double look = 1;  ///< factor of g in Nesterov's step
  bool nesterov = false, first = false;
};

struct AdamRule {
  GradientRule gradient;
  double rate = 0;    ///< learning rate with the correction of the first moment
  double root = 1;    ///< 1 / sqrt(correction of the second moment)
  double shrink = 1;  ///< factor of w, from decoupled weight decay
  double beta1 = 0, beta2 = 0, eps = 0;
};

/// s0 is the velocity, or null without momentum; s1 is unused.
void apply(const SgdRule& rule, float* w, const float* g, float* s0, float* s1, int64_t n);
void apply(const SgdRule& rule, double* w, const double* g, double* s0, double* s1, int64_t n);
/// s0 and s1 are the first and second moments.
void apply(const AdamRule& rule, float* w, const float* g, float* s0, float* s1, int64_t n);
void apply(const AdamRule& rule, double* w, const double* g, double* s0, double* s1, int64_t n);

}  // namespace mx::kernels::detail
