// Reductions on the CPU: any set of axes, any strides, any types.
//
// f16 and bf16 are accumulated in f32, integers and bool in i64 (modulo 2^64). var, std and logsumexp of
// integers and the mean of i64 are computed in f64; the sums of narrower integers are exact. Floating-point
// sums are trees over pieces of 1024 elements, or 64 rows, so the rounding error grows with the logarithm of
// the count. The shape of the tree depends only on shape and strides, so the same input gives the same bits
// at any number of threads.
//
// Source of the tree: Higham, "The accuracy of floating point summation", 1993 (pairwise summation, blocked).
#pragma once

#include <cstdint>
#include <optional>

#include "ndarray/tensor.h"

namespace mx::kernels {

enum class ReduceOp {
  sum,
  prod,
  mean,
  max,  ///< NaN if any element is NaN; so do min and max_abs
  min,
  argmax,  ///< index of the first maximum in row-major order of the reduced axes; a NaN is the maximum
  argmin,
  any,
  all,
  count_nonzero,  ///< a NaN counts
  sum_squares,
  sum_abs,
  max_abs,
  logsumexp,
  var,
  std,
};

/// Returns the name: "sum", ...
const char* to_string(ReduceOp op);

/// Returns the type of the result: bool_ for any and all; i64 for argmax, argmin, count_nonzero, and for sum,
/// prod, sum_squares, sum_abs and max_abs of integers and bool; f32 for mean, logsumexp, var and std of
/// integers and bool; otherwise the type of the input.
DType reduce_result(ReduceOp op, DType in);

struct ReduceOptions {
  double correction = 1;  ///< var and std divide by max(0, count - correction)
  /// Elements are converted to this type first. For sum, prod and mean, but not for a mean of integers.
  std::optional<DType> in{};
};

/// Returns in.shape without `axes`, or with sizes of 1 in their place. An empty list of axes means all axes.
/// Throws InvalidArgument for an axis out of range or given twice.
Shape reduce_shape(ReduceOp op, const Shape& in, const Shape& axes, bool keep_dims);

/// out = op(in) over `axes`; an empty list means all axes. out.shape is reduce_shape() with or without
/// keep_dims. out may have any type: the result is converted to it once.
///
/// Over no elements: sum 0, prod 1, any false, all true; count_nonzero, sum_squares, sum_abs and max_abs 0;
/// logsumexp -inf; mean, var and std NaN; max, min, argmax and argmin throw InvalidArgument. Throws
/// InvalidArgument for a wrong shape. out must not overlap in. Runs on several threads if large.
void reduce(ReduceOp op, const Tensor& out, const Tensor& in, const Shape& axes,
            const ReduceOptions& options = {});

}  // namespace mx::kernels
