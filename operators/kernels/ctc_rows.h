// Vectorised inner loops of the CTC loss. Internal to ctc.cc.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// to[i] = log(exp(stay[i]) + exp(step[i]) + exp(skip[i] + may_skip[i])) + score[i], without overflow. The
/// numbers may be -infinity; NaN stays NaN. `to` does not overlap the others.
struct CtcStates {
  const double *stay, *step, *skip, *may_skip, *score;
  double* to;
};
void ctc_next_states(const CtcStates& states, int64_t n);

/// shares[i] = exp(alpha[i] + beta[i] - score[i] + loss), and 0 where alpha or beta is -infinity, and
/// below 1e-304.
void ctc_shares(const double* alpha, const double* beta, const double* score, double loss, double* shares,
                int64_t n);

}  // namespace mx::kernels::detail
