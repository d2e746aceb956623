// Medians and quantiles. The elements are selected, not sorted: for few quantiles the time is proportional to
// the number of elements.
//
// Axes and keep_dims are those of reduce.h. The result has x's type; for integers and bool it is f32,
// computed in f64. If an element is NaN, the result is NaN; functions whose names begin with "nan" ignore
// NaN. For no elements the result is NaN. The gradient goes to the elements that were selected.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "operators/reduce.h"

namespace mx {

/// The value at a position between two elements.
enum class Interpolation : uint8_t { linear, lower, higher, nearest, midpoint };

/// The median, as numpy.median: for an even number of elements, the mean of the two in the middle.
/// torch.median returns the lower one: quantile(x, 0.5, axes, false, Interpolation::lower).
NDArray median(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanmedian(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

namespace detail {
NDArray quantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how);
NDArray nanquantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how);
NDArray percentile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how);
}  // namespace detail

/// The value below which the fraction q of the elements lies, as numpy.quantile. Throws InvalidArgument for q
/// outside [0, 1]. It is a template so that quantile(x, {0.5}) calls the overload for lists.
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
/// Several quantiles from one selection, along a new first dimension.
NDArray quantile(const Arg& x, const std::vector<double>& q, const Axes& axes = {}, bool keep_dims = false,
                 Interpolation how = Interpolation::linear);
NDArray nanquantile(const Arg& x, const std::vector<double>& q, const Axes& axes = {}, bool keep_dims = false,
                    Interpolation how = Interpolation::linear);
/// quantile(x, q / 100, ...), of one number or of several.
template <class T>
requires std::is_arithmetic_v<T> NDArray percentile(const Arg& x, T q, const Axes& axes = {},
                                                    bool keep_dims = false,
                                                    Interpolation how = Interpolation::linear) {
  return detail::percentile_at(x, static_cast<double>(q), axes, keep_dims, how);
}
NDArray percentile(const Arg& x, const std::vector<double>& q, const Axes& axes = {}, bool keep_dims = false,
                   Interpolation how = Interpolation::linear);

}  // namespace mx
