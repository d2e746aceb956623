// Softmax, its logarithm, and the gradients of both, along one axis.
//
// Stable: the row's maximum is subtracted first. As in PyTorch, a row gives NaN if it has a NaN or +infinity,
// or if all its elements are -infinity. f16 and bf16 are computed in f32. Rows are independent, so results do
// not depend on the number of threads. All operands have one shape, any strides and floating-point types,
// which may differ. A result may be the same array as an operand, otherwise they must not overlap. All
// functions throw InvalidArgument for different shapes, an axis out of range (a rank of 0 has axis 0) and
// other types.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// y = exp(x) / sum(exp(x)).
void softmax(const Tensor& y, const Tensor& x, int64_t axis);
/// y = x - log(sum(exp(x))).
void log_softmax(const Tensor& y, const Tensor& x, int64_t axis);
/// y = log(sum(exp(x))). y's shape is x's without the axis, or with size 1 in its place (see reduce.h).
void logsumexp(const Tensor& y, const Tensor& x, int64_t axis);

/// dx = y * (dy - sum(dy * y)) where y = softmax(x).
void softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t axis);
/// dx = dy - exp(y) * sum(dy) where y = log_softmax(x).
void log_softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t axis);

namespace detail {

/// log(sum(exp(x))) of one row. If the maximum is infinite, the result is the maximum; if there is a NaN, it
/// is NaN.
float logsumexp_row(const float* x, int64_t n);
double logsumexp_row(const double* x, int64_t n);
/// y = exp(x - shift) * scale.
void exp_row(const float* x, float* y, int64_t n, float shift, float scale);
void exp_row(const double* x, double* y, int64_t n, double shift, double scale);

}  // namespace detail
}  // namespace mx::kernels
