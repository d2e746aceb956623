// Reductions: one number from all elements, or one for each place in the dimensions that are kept.
//
// `axes` is one dimension, a list of different ones, or nothing for all; negative ones count from the end.
// keep_dims leaves dimensions of size 1 in their place, so that the result broadcasts against the input.
// Types: f16 and bf16 are accumulated in f32; sum and prod of integers and bool are i64, modulo 2^64; mean,
// var, stddev, norm and logsumexp of those are accumulated without wrapping, in f64 where a sum of i64 might,
// and are f32. sum, prod and mean with a `dtype` have that type, and the
// elements are converted before anything is computed: a sum of f16 has the range of f32, one of i64 that of
// f64. Of no elements: sum 0, prod 1, any false, all true, count_nonzero 0, norm 0, logsumexp -inf, mean, var
// and stddev NaN.
//
// All throw InvalidArgument for an axis that is out of range or given twice; max, min, argmax and argmin also
// where there is nothing to choose from.
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
    v("axes", &ReduceAttrs::axes, "the dimensions that are reduced; none: all");
    v("keep_dims", &ReduceAttrs::keep_dims, "leave dimensions of size 1 in their place");
  }
};

/// Of sum, prod and mean.
struct TotalAttrs {
  detail::AxisList axes;
  bool keep_dims = false;
  std::optional<DType> dtype{};
  template <class V>
  static void fields(V&& v) {
    v("axes", &TotalAttrs::axes, "the dimensions that are reduced; none: all");
    v("keep_dims", &TotalAttrs::keep_dims, "leave dimensions of size 1 in their place");
    v("dtype", &TotalAttrs::dtype, "the type of the result, in which it is computed");
  }
};

struct VarianceAttrs {
  detail::AxisList axes;
  double correction = 1;
  bool keep_dims = false;
  template <class V>
  static void fields(V&& v) {
    v("axes", &VarianceAttrs::axes, "the dimensions that are reduced; none: all");
    v("correction", &VarianceAttrs::correction, "taken from the number of elements before dividing by it");
    v("keep_dims", &VarianceAttrs::keep_dims, "leave dimensions of size 1 in their place");
  }
};

struct NormAttrs {
  detail::AxisList axes;
  double p = 2;
  bool keep_dims = false;
  template <class V>
  static void fields(V&& v) {
    v("axes", &NormAttrs::axes, "the dimensions that are reduced; none: all");
    v("p", &NormAttrs::p, "the exponent; inf and -inf: the largest and the smallest magnitude");
    v("keep_dims", &NormAttrs::keep_dims, "leave dimensions of size 1 in their place");
  }
};

/// With a dtype (for mean a floating-point one, and bool for none): computed in that.
NDArray sum(const Arg& x, const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {});
NDArray prod(const Arg& x, const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {});
NDArray mean(const Arg& x, const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {});
NDArray max(const Arg& x, const Axes& axes = {}, bool keep_dims = false);  ///< NaN if there is one
NDArray min(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
/// Where the maximum is: the first place in row-major order of the reduced dimensions. A NaN is the maximum.
NDArray argmax(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray argmin(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray any(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray all(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray count_nonzero(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
/// log(sum(exp(x))) without overflow on the way.
NDArray logsumexp(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

/// The sum of squared distances from the mean, over max(0, count - correction): 1 for the estimate from a
/// sample, 0 for the variance of these numbers.
NDArray var(const Arg& x, const Axes& axes = {}, RealArg correction = 1, bool keep_dims = false);
/// The square root of var(). (A function `std` would hide the namespace.)
NDArray stddev(const Arg& x, const Axes& axes = {}, RealArg correction = 1, bool keep_dims = false);

/// (sum |x|^p)^(1/p). p = 0 counts what is not zero; infinity takes the largest magnitude, -infinity the
/// smallest, which there must be.
NDArray norm(const Arg& x, RealArg p = 2, const Axes& axes = {}, bool keep_dims = false);

}  // namespace mx
