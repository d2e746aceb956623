// The shapes of a normalisation, which its records, kernels and gradients share. Internal.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/check.h"
#include "ndarray/dtype.h"
#include "operators/gradient.h"
#include "operators/kernels/norm.h"
#include "operators/norm.h"

namespace mx::detail {

/// How an operator sees its input x: reshaped to `x`, with statistics and parameters that broadcast to it.
struct NormForm {
  Shape x;       ///< x in canonical form
  Shape stats;   ///< of mean and rstd, with size 1 in the dimensions over which they are taken
  Shape params;  ///< of weight and bias, with size 1 in the dimensions that share them
  Shape stats_plain, params_plain;  ///< as the operator takes and returns them
  kernels::GroupShape group{};      ///< for layers and groups
  kernels::ChannelShape channel{};  ///< for batches
  bool centred = true;

  double elements() const {  // of one mean
    return static_cast<double>(std::max<int64_t>(1, x.numel() / std::max<int64_t>(1, stats.numel())));
  }
};

inline int64_t product(const Shape& shape, int first, int last) {
  int64_t n = 1;
  for (int i = first; i < last; ++i) n *= shape[i];
  return n;
}

// Throw InvalidArgument for shapes that do not fit; `op` begins the message.

inline NormForm batch_norm_form(const Shape& x, const char* op) {
  MX_CHECK(x.rank() >= 2, InvalidArgument, "[", op,
           "] expected an array of rank 2 or more, (batch, channels, ..), got shape ", x);
  const int64_t n = x[0], c = x[1], s = product(x, 2, x.rank());
  return {.x = {n, c, s},
          .stats = {1, c, 1},
          .params = {1, c, 1},
          .stats_plain = {c},
          .params_plain = {c},
          .channel = {n, c, s}};
}

inline NormForm group_norm_form(const Shape& x, int64_t groups, const char* op) {
  MX_CHECK(x.rank() >= 2, InvalidArgument, "[", op,
           "] expected an array of rank 2 or more, (batch, channels, ..), got shape ", x);
  MX_CHECK(groups > 0 && x[1] % groups == 0, InvalidArgument, "[", op,
           "] expected a number of groups that divides the ", x[1], " channels of shape ", x, ", got ",
           groups);
  const int64_t n = x[0], d = x[1] / groups, s = product(x, 2, x.rank());
  return {.x = {n, groups, d, s},
          .stats = {n, groups, 1, 1},
          .params = {1, groups, d, 1},
          .stats_plain = {n, groups},
          .params_plain = {x[1]},
          .group = {n, groups, d, s}};
}

inline NormForm layer_norm_form(const Shape& x, int64_t dims, bool centred, const char* op) {
  MX_CHECK(dims >= 1 && dims <= x.rank(), InvalidArgument, "[", op,
           "] expected dims from 1 to the rank of x, ", x.rank(), ", got ", dims, " for shape ", x);
  const int outer = x.rank() - static_cast<int>(dims);
  const int64_t rows = product(x, 0, outer), n = product(x, outer, x.rank());
  Shape leading = x, trailing;
  leading.resize(outer);
  for (int i = outer; i < x.rank(); ++i) trailing.push_back(x[i]);
  return {.x = {rows, n},
          .stats = {rows, 1},
          .params = {1, n},
          .stats_plain = leading,
          .params_plain = trailing,
          .group = {rows, 1, n, 1},
          .centred = centred};
}

/// The attributes of update_running_statistics.
struct RunningStatisticsAttrs {
  double momentum = 0.1;
  bool cumulative = false;
  double eps = 1e-5;
  int64_t elements = 2;
  template <class V>
  static void fields(V&& v) {
    v("momentum", &RunningStatisticsAttrs::momentum, "share of the new values in the averages");
    v("cumulative", &RunningStatisticsAttrs::cumulative,
      "whether the share is 1 / (number of batches) instead of momentum");
    v("eps", &RunningStatisticsAttrs::eps, "the eps with which rstd was computed");
    v("elements", &RunningStatisticsAttrs::elements, "number of elements of each channel in the batch");
  }
};

void gradient_batch_norm(GradientContext& g);
void gradient_batch_norm_backward(GradientContext& g);
void gradient_batch_norm_inference(GradientContext& g);
void gradient_group_norm(GradientContext& g);
void gradient_group_norm_backward(GradientContext& g);
void gradient_layer_norm(GradientContext& g);
void gradient_layer_norm_backward(GradientContext& g);
void gradient_rms_norm(GradientContext& g);
void gradient_rms_norm_backward(GradientContext& g);

}  // namespace mx::detail
