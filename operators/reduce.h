// Reductions over all dimensions or over some of them.
//
// `axes` is one dimension, a list of different dimensions, or empty for all; negative ones count from the
// end. keep_dims keeps reduced dimensions with size 1, so that the result broadcasts against the input.
//
// Types: f16 and bf16 are accumulated in f32. sum and prod of integers and bool are i64, modulo 2^64. mean,
// var, stddev, norm and logsumexp of integers and bool are f32; they are accumulated without wrapping, in f64
// if a sum in i64 could wrap. With a `dtype`, sum, prod and mean have that type, and elements are converted
// before the computation: with f32 a sum of f16 has the range of f32, with f64 a sum of i64 that of f64.
//
// For no elements: sum 0, prod 1, any false, all true, count_nonzero 0, norm 0, logsumexp -inf; mean, var and
// stddev NaN.
//
// All throw InvalidArgument for an axis that is out of range or given twice. max, min, argmax and argmin also
// throw it for a reduction of no elements.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "ndarray/axes.h"
#include "operators/axis_list.h"
#include "operators/operator.h"

namespace mx {

struct ReduceAttrs {
  detail::AxisList axes;
  bool keep_dims = false;
  template <class V>
  static void fields(V&& v) {
    v("axes", &ReduceAttrs::axes, "the dimensions to reduce; empty: all");
    v("keep_dims", &ReduceAttrs::keep_dims, "true: reduced dimensions are kept with size 1");
  }
};

/// The attributes of sum, prod and mean.
struct TotalAttrs {
  detail::AxisList axes;
  bool keep_dims = false;
  std::optional<DType> dtype{};
  template <class V>
  static void fields(V&& v) {
    v("axes", &TotalAttrs::axes, "the dimensions to reduce; empty: all");
    v("keep_dims", &TotalAttrs::keep_dims, "true: reduced dimensions are kept with size 1");
    v("dtype", &TotalAttrs::dtype, "the type of the computation and of the result; none: from the type of x");
  }
};

struct VarianceAttrs {
  detail::AxisList axes;
  double correction = 1;
  bool keep_dims = false;
  template <class V>
  static void fields(V&& v) {
    v("axes", &VarianceAttrs::axes, "the dimensions to reduce; empty: all");
    v("correction", &VarianceAttrs::correction,
      "the number subtracted from the count of elements in the divisor");
    v("keep_dims", &VarianceAttrs::keep_dims, "true: reduced dimensions are kept with size 1");
  }
};

struct NormAttrs {
  detail::AxisList axes;
  double p = 2;
  bool keep_dims = false;
  template <class V>
  static void fields(V&& v) {
    v("axes", &NormAttrs::axes, "the dimensions to reduce; empty: all");
    v("p", &NormAttrs::p, "the order of the norm; inf and -inf: the largest and the smallest magnitude");
    v("keep_dims", &NormAttrs::keep_dims, "true: reduced dimensions are kept with size 1");
  }
};

/// `dtype`: the type of the computation and of the result. It must not be bool; for mean it must be floating
/// point.
NDArray sum(const Arg& x, const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {});
NDArray prod(const Arg& x, const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {});
NDArray mean(const Arg& x, const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {});
NDArray max(const Arg& x, const Axes& axes = {}, bool keep_dims = false);  ///< NaN if an element is NaN
NDArray min(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
/// The index of the maximum, in row-major order of the reduced dimensions; of equal ones the first. NaN
/// counts as the maximum.
NDArray argmax(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray argmin(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray any(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray all(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray count_nonzero(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
/// log(sum(exp(x))), without overflow of intermediate results.
NDArray logsumexp(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

/// The variance: the sum of squared distances from the mean, divided by max(0, count - correction).
/// Correction 1 estimates the variance from a sample; correction 0 is the variance of the elements
/// themselves.
NDArray var(const Arg& x, const Axes& axes = {}, RealArg correction = 1, bool keep_dims = false);
/// The square root of var(). A function named `std` would hide the namespace std.
NDArray stddev(const Arg& x, const Axes& axes = {}, RealArg correction = 1, bool keep_dims = false);

/// (sum |x|^p)^(1/p). p = 0: the number of elements that are not 0. p = infinity: the largest magnitude.
/// p = -infinity: the smallest magnitude; throws InvalidArgument for a reduction of no elements.
NDArray norm(const Arg& x, RealArg p = 2, const Axes& axes = {}, bool keep_dims = false);

}  // namespace mx
