// The Padé approximant of the exponential of a matrix: its coefficients, and how often the argument is halved
// before it is used. For the host and for GPUs. Source: Higham, "The scaling and squaring method for the
// matrix exponential revisited", SIAM J. Matrix Anal. Appl. 26 (2005), degree 13.
#pragma once

#include <cmath>

namespace mx::formulas {

/// Coefficient i of the numerator, for i <= 13; the denominator has the same with alternating signs.
constexpr double matrix_exp_coefficient(int i) {
  constexpr double kCoefficients[] = {64764752532480000.,
                                      32382376266240000.,
                                      7771770303897600.,
                                      1187353796428800.,
                                      129060195264000.,
                                      10559470521600.,
                                      670442572800.,
                                      33522128640.,
                                      1323241920.,
                                      40840800.,
                                      960960.,
                                      16380.,
                                      182.,
                                      1.};
  return kCoefficients[i];
}

/// Returns how often a matrix with this 1-norm is halved. The approximant is accurate to the precision of
/// double up to the norm 5.37. An infinite norm or a NaN gives 0.
constexpr int matrix_exp_halvings(double norm) {
  constexpr double kLargestNorm = 5.371920351148152;
  if (!std::isfinite(norm) || norm <= kLargestNorm) return 0;
  const int halvings = static_cast<int>(std::ceil(std::log2(norm / kLargestNorm)));
  return halvings > 0 ? halvings : 0;
}

}  // namespace mx::formulas
