// The table of functions of operators/ that NDArray's members call: x.sum(), x.sort(). The operators layer
// fills it (operators/members.cc); each entry is the function with the same name. Internal.
#pragma once

#include <cstdint>
#include <optional>

#include "ndarray/axes.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

struct MemberFunctions {
  using Unary = NDArray (*)(const Arg&);
  using Total = NDArray (*)(const Arg&, const Axes&, bool keep_dims, std::optional<DType>);
  using Reduce = NDArray (*)(const Arg&, const Axes&, bool keep_dims);
  using Variance = NDArray (*)(const Arg&, const Axes&, double correction, bool keep_dims);
  using Scan = NDArray (*)(const Arg&, int64_t axis);
  using Sort = NDArray (*)(const Arg&, int64_t axis, bool descending);
  using Product = NDArray (*)(const Arg&, const NDArray&);

  Total sum, prod, mean;
  Reduce max, min, argmax, argmin, any, all, count_nonzero, ptp, median;
  Variance variance, stddev;
  NDArray (*norm)(const Arg&, double p, const Axes&, bool keep_dims);
  Scan cumsum, cumprod;
  Sort sort, argsort;
  Unary abs, sign, square, sqrt, exp, log, sin, cos, tanh, sigmoid, relu;
  NDArray (*pow)(const Arg&, Scalar exponent);
  NDArray (*clip)(const Arg&, Scalar low, Scalar high);
  NDArray (*round)(const Arg&, int64_t decimals);
  Product matmul, dot;
};

}  // namespace mx::detail
