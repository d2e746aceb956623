// Normalisation over a batch, a layer or groups of channels, as torch.nn.functional defines it.
//
// y = (x - mean) * rstd * weight + bias, where rstd = 1 / sqrt(variance + eps), and the variance is the
// biased one. Statistics of f16 and bf16 are computed and returned in f32, others in the type of x. weight
// and bias may be empty handles, for 1 and 0. kernels/norm.h says how variances are computed. Each gradient
// is one operator. All throw InvalidArgument for types that are not floating point, for shapes that do not
// fit, and for a negative eps.
#pragma once

#include <cstdint>
#include <optional>

#include "operators/operator.h"

namespace mx {

/// A normalised array with the statistics of its groups.
struct NormResult {
  NDArray y, mean, rstd;
};

/// Normalises each channel of x (N, C, ..) over all batches and positions. weight, bias, mean and rstd are
/// (C,). Changes no running statistics; see update_running_statistics().
NormResult batch_norm(const Arg& x, const NDArray& weight = {}, const NDArray& bias = {}, RealArg eps = 1e-5);
/// The same with given means and variances, (C,).
NDArray batch_norm_inference(const Arg& x, const NDArray& mean, const NDArray& variance,
                             const NDArray& weight = {}, const NDArray& bias = {}, RealArg eps = 1e-5);

struct RunningStatisticsOptions {
  /// Share of the new values in the averages; none: 1 / `batches`, which gives the average of all batches.
  std::optional<double> momentum = 0.1;
  double eps = 1e-5;  ///< of the call of batch_norm()
  /// The number of elements of each channel in the batch. Required. At least 2, because the unbiased variance
  /// divides by n - 1.
  int64_t elements = 0;
};
/// Adds 1 to `batches` (i64, rank 0) and moves the averages (C,) towards the statistics that batch_norm()
/// returned, all in place. Call it in a NoGrad scope.
void update_running_statistics(const NDArray& running_mean, const NDArray& running_variance,
                               const NDArray& batches, const Arg& mean, const NDArray& rstd,
                               const RunningStatisticsOptions& options);

/// Normalises over the last dimensions of x, which have the sizes `shape`, as weight and bias.
NDArray layer_norm(const Arg& x, const Shape& shape, const NDArray& weight = {}, const NDArray& bias = {},
                   RealArg eps = 1e-5);
/// Normalises x (N, C, ..) over `groups` groups of C / groups channels each, for each n. weight and bias are
/// (C,).
NDArray group_norm(const Arg& x, IntArg groups, const NDArray& weight = {}, const NDArray& bias = {},
                   RealArg eps = 1e-5);
/// The same with the statistics of the groups, (N, groups).
NormResult group_norm_with_statistics(const Arg& x, IntArg groups, const NDArray& weight = {},
                                      const NDArray& bias = {}, RealArg eps = 1e-5);
/// group_norm with a group for each channel.
NDArray instance_norm(const Arg& x, const NDArray& weight = {}, const NDArray& bias = {}, RealArg eps = 1e-5);
/// x / sqrt(mean(x * x) + eps) * weight, with the mean over the last dimensions of x, which have the sizes
/// `shape`. Without eps, it is the distance from 1 to the next number of the type of the computation.
NDArray rms_norm(const Arg& x, const Shape& shape, const NDArray& weight = {},
                 std::optional<double> eps = {});

/// x / max(norm(x), eps) along an axis, with the p-norm.
NDArray lp_normalize(const Arg& x, RealArg p = 2, IntArg axis = 1, RealArg eps = 1e-12);

struct LocalResponseOptions {
  double alpha = 1e-4, beta = 0.75, k = 1;
};
/// x / (k + alpha * s)^beta, where s is the mean of the squares of x (N, C, ..) in a window of `size`
/// channels; channels outside of x count as 0.
NDArray local_response_norm(const Arg& x, IntArg size, const LocalResponseOptions& options = {});

// The attributes of the records.

struct BatchNormAttrs {
  double eps = 1e-5;
  template <class V>
  static void fields(V&& v) {
    v("eps", &BatchNormAttrs::eps, "added to the variance");
  }
};

struct GroupNormAttrs {
  int64_t groups = 1;
  double eps = 1e-5;
  template <class V>
  static void fields(V&& v) {
    v("groups", &GroupNormAttrs::groups, "number of groups; it divides the number of channels");
    v("eps", &GroupNormAttrs::eps, "added to the variance");
  }
};

struct LayerNormAttrs {
  int64_t dims = 1;
  double eps = 1e-5;
  template <class V>
  static void fields(V&& v) {
    v("dims", &LayerNormAttrs::dims, "number of last dimensions that are normalised together");
    v("eps", &LayerNormAttrs::eps, "added to the variance, or to the mean of the squares");
  }
};

struct BatchNormBackwardAttrs {
  bool parameters = true;
  template <class V>
  static void fields(V&& v) {
    v("parameters", &BatchNormBackwardAttrs::parameters,
      "whether dweight and dbias are computed; otherwise they have no elements");
  }
};

struct GroupNormBackwardAttrs {
  int64_t groups = 1;
  bool parameters = true;
  template <class V>
  static void fields(V&& v) {
    v("groups", &GroupNormBackwardAttrs::groups, "number of groups; it divides the number of channels");
    v("parameters", &GroupNormBackwardAttrs::parameters,
      "whether dweight and dbias are computed; otherwise they have no elements");
  }
};

struct LayerNormBackwardAttrs {
  int64_t dims = 1;
  bool parameters = true;
  template <class V>
  static void fields(V&& v) {
    v("dims", &LayerNormBackwardAttrs::dims, "number of last dimensions that are normalised together");
    v("parameters", &LayerNormBackwardAttrs::parameters,
      "whether dweight and dbias are computed; otherwise they have no elements");
  }
};

}  // namespace mx
