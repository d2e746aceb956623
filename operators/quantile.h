// Medians and quantiles, from the sorted elements.
//
// Axes and keep_dims are those of reduce.h. The result has x's type, for integers and bool f32 (computed in
// f64). Where an element is NaN the result is, but for the functions that begin with "nan", which leave NaN
// out. Of no elements it is NaN. The gradient goes to the elements that were chosen.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "operators/reduce.h"

namespace mx {

/// What stands for a position between two elements.
enum class Interpolation : uint8_t { linear, lower, higher, nearest, midpoint };

/// Of an even number of elements the mean of the two in the middle, as numpy.median. (torch.median gives the
/// lower one: quantile(x, 0.5, axes, false, Interpolation::lower).)
NDArray median(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanmedian(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

namespace detail {
NDArray quantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how);
NDArray nanquantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how);
}  // namespace detail

/// The value below which the share q of the elements is, as numpy.quantile. Throws InvalidArgument for q
/// outside [0, 1]. (A template, so that a list of one share, quantile(x, {0.5}), is a list.)
template <class T>
requires std::is_arithmetic_v<T> NDArray quantile(const Arg& x, T q, const Axes& axes = {},
                                                  bool keep_dims = false,
                                                  Interpolation how = Interpolation::linear) {
  return detail::quantile_at(x, static_cast<double>(q), axes, keep_dims, how);
}
template <class T>
requires std::is_arithmetic_v<T> NDArray nanquantile(const Arg& x, T q, const Axes& axes = {},
                                                     bool keep_dims = false,
                                                     Interpolation how = Interpolation::linear) {
  return detail::nanquantile_at(x, static_cast<double>(q), axes, keep_dims, how);
}
/// Several of them from one sort, along a new first dimension.
NDArray quantile(const Arg& x, const std::vector<double>& q, const Axes& axes = {}, bool keep_dims = false,
                 Interpolation how = Interpolation::linear);
NDArray nanquantile(const Arg& x, const std::vector<double>& q, const Axes& axes = {}, bool keep_dims = false,
                    Interpolation how = Interpolation::linear);
/// quantile(x, q / 100, ...).
NDArray percentile(const Arg& x, double q, const Axes& axes = {}, bool keep_dims = false,
                   Interpolation how = Interpolation::linear);

}  // namespace mx
