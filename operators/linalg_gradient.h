// The gradients of the operators of linear algebra. Internal.
#pragma once

#include "operators/gradient.h"

namespace mx::detail {

void gradient_solve(GradientContext& g);
void gradient_solve_triangular(GradientContext& g);
void gradient_inv(GradientContext& g);
void gradient_det(GradientContext& g);
void gradient_slogdet(GradientContext& g);
void gradient_cofactor(GradientContext& g);
void gradient_lu_factor(GradientContext& g);
void gradient_cholesky(GradientContext& g);
void gradient_qr(GradientContext& g);
void gradient_svd(GradientContext& g);
void gradient_svdvals(GradientContext& g);
void gradient_eigh(GradientContext& g);
void gradient_eigvalsh(GradientContext& g);
void gradient_pinv(GradientContext& g);
void gradient_lstsq(GradientContext& g);
void gradient_matrix_exp(GradientContext& g);

}  // namespace mx::detail
