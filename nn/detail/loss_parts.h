// What the losses composed of operators share. Internal.
#pragma once

#include <string>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
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

}  // namespace mx::nn::detail
