// What the losses composed of operators share. Internal.
#pragma once

#include <string>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "operators/reduce.h"

namespace mx::nn::detail {

/// Throws InvalidArgument for different shapes; `names` says which arrays these are.
inline void check_loss_shapes(const char* op, const Arg& a, const NDArray& b, const char* names) {
  MX_CHECK(a.array.shape() == b.shape(), InvalidArgument, "[", op, "] expected ", names,
           " of the same shape, got ", a.array.shape(), " and ", b.shape(), mx::detail::called_at(a.where));
}

inline void check_loss_reduction(const char* op, const std::string& reduction) {
  MX_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", InvalidArgument, "[", op,
           "] expected \"none\", \"mean\" or \"sum\" for the reduction, got \"", reduction, '"');
}

inline NDArray reduce_losses(const NDArray& losses, const std::string& reduction) {
  if (reduction == "none") return losses;
  return reduction == "mean" ? mean(losses) : sum(losses);
}

/// Returns x, as the argument of a loss that is called on behalf of the module's caller. Throws
/// InvalidArgument if x is empty and the reduction is a mean: the mean would be NaN, and an optimiser would
/// write NaN into every weight.
inline Arg not_empty(const char* module, const NDArray& x, const std::string& reduction) {
  const bool takes_mean = reduction == "mean" || reduction == "batchmean";
  MX_CHECK(!takes_mean || x.numel() > 0, InvalidArgument, "[", module,
           "] expected a batch with at least one element, of which to take the mean, got shape ", x.shape());
  return at_call(x);
}

}  // namespace mx::nn::detail
