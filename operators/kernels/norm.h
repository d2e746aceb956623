// Normalisation: y = (x - mean) * rstd * weight + bias, where mean and rstd = 1 / sqrt(variance + eps) are
// those of groups of elements; and the gradients.
//
// Variances are computed from deviations from the mean, of some thousand elements at a time, and joined in a
// fixed order in double. So a mean that is large compared with the deviations costs no digits, and results
// are the same bits at any number of threads. A group without elements has mean and rstd NaN, and so has a
// group with a NaN or an infinity.
//
// All tensors are contiguous. x, dy, y and dx have any floating-point types. mean, rstd, weight, bias,
// dweight and dbias are f64 if x is f64, otherwise f32, which is also the type of the computation. y may be
// the memory of x, and dx that of x or dy. The caller checks shapes and types.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// x as (batches, groups, channels, run): one mean for each batch and group, one weight and bias for each
/// group and channel. Layer normalisation of rows of n elements is {rows, 1, n, 1}.
struct GroupShape {
  int64_t batches = 1, groups = 1, channels = 1, run = 1;
  int64_t rows() const { return batches * groups; }
  int64_t row() const { return channels * run; }
};

/// x as (batches, channels, run): one mean, weight and bias for each channel.
struct ChannelShape {
  int64_t batches = 1, channels = 1, run = 1;
};

struct NormForward {
  Tensor y, mean, rstd;  ///< results; mean only if `centred`
  Tensor x;
  const Tensor* weight = nullptr;  ///< null: 1
  const Tensor* bias = nullptr;    ///< null: 0; not without weight
  double eps = 0;
  bool centred = true;  ///< false: the mean counts as 0, and rstd is 1 / sqrt(mean(x * x) + eps)
};

struct NormBackward {
  Tensor dx, dweight, dbias;  ///< results; dweight and dbias only if `parameters`, dbias only if `centred`
  Tensor dy, x, mean, rstd;
  const Tensor* weight = nullptr;
  bool parameters = true;
  bool centred = true;
};

void group_norm(const GroupShape& shape, const NormForward& args);
/// The gradients of sum(dy * y), with mean and rstd as functions of x.
void group_norm_backward(const GroupShape& shape, const NormBackward& args);

/// `centred` must be true.
void batch_norm(const ChannelShape& shape, const NormForward& args);
void batch_norm_backward(const ChannelShape& shape, const NormBackward& args);
/// y of given means and variances, one for each channel.
void batch_norm_inference(const ChannelShape& shape, const Tensor& y, const Tensor& x, const Tensor& mean,
                          const Tensor& variance, const Tensor* weight, const Tensor* bias, double eps);

}  // namespace mx::kernels
