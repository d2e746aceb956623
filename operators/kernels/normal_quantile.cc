#include "operators/kernels/normal_quantile.h"

#include "operators/kernels/normal_quantile_formulas.h"

namespace mx::kernels {

double erf_inverse(double x) { return formulas::erf_inverse(x); }

}  // namespace mx::kernels
