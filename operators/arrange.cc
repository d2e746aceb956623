#include "operators/arrange.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx {

NDArray diff(const Arg& x, IntArg n, IntArg axis, const NDArray& prepend, const NDArray& append) try {
  MX_CHECK(n >= 0, InvalidArgument, "[diff] expected a number of differences n of 0 or more, got ", n);
  const int d = normalize_axis(axis, x.array.rank(), "diff");
  std::vector<NDArray> joined;
  if (prepend.defined()) joined.push_back(prepend);
  joined.push_back(x.array);
  if (append.defined()) joined.push_back(append);
  NDArray result = joined.size() > 1 ? concat(joined, d, x.where) : x.array;
  for (int64_t i = 0; i < n && result.shape()[d] > 0; ++i) {
    const NDArray later = result.slice(d, {1, {}}), earlier = result.slice(d, {0, -1});
    result = result.dtype() == bool_ ? not_equal({later, x.where}, earlier) : sub({later, x.where}, earlier);
  }
  return result;
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray diag(const Arg& x, IntArg diagonal) try {
  const int64_t k = diagonal;
  const NDArray& a = x.array;
  if (a.rank() == 2) return a.diagonal(k).clone(x.where);
  MX_CHECK(a.rank() == 1, InvalidArgument, "[diag] expected a vector or a matrix, got shape ", a.shape());
  const int64_t length = a.numel();
  int64_t size = 0;
  MX_CHECK(k != INT64_MIN && !__builtin_add_overflow(length, std::abs(k), &size), InvalidArgument,
           "[diag] expected a diagonal k for which the size of the matrix is below 2^63, got ", k);
  checked_numel({size, size}, size_of(a.dtype()), "diag");
  // columns[j] is the element of the diagonal in column j.
  const NDArray columns = pad(x, {std::max<int64_t>(k, 0), std::max<int64_t>(-k, 0)});
  const NDArray place = arange(0, size, 1, i64, a.context(), x.where);
  const NDArray on_diagonal = equal(sub({place, x.where}, place.expand_dims(1)), k);
  return mx::where({on_diagonal, x.where}, columns, zeros({}, a.dtype(), a.context()));
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray sliding_window(const NDArray& x, const Shape& window, const Shape& axes,
                       std::source_location where) try {
  Shape places = axes;
  if (axes.empty())
    for (int d = 0; d < x.rank(); ++d) places.push_back(d);
  MX_CHECK(window.rank() == places.rank() && !window.empty(), InvalidArgument,
           "[sliding_window] expected a window size for each of the ", places.rank(), " axes, got ", window);
  Shape shape = x.shape();
  Strides strides = x.strides();
  for (int i = 0; i < window.rank(); ++i) {
    const int d = normalize_axis(places[i], x.rank(), "sliding_window");
    MX_CHECK(window[i] >= 0 && window[i] <= shape[d], InvalidArgument,
             "[sliding_window] expected a window of 0 to ", shape[d], " elements along axis ", d,
             " of shape ", x.shape(), ", got ", window[i]);
    shape[d] -= window[i] - 1;
    shape.push_back(window[i]);
    strides.push_back(x.strides()[d]);
  }
  return x.as_strided(shape, strides, x.impl().offset);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray sliding_window(const NDArray& x, int64_t window, IntArg axis, std::source_location where) {
  return sliding_window(x, Shape{window}, Shape{axis}, where);
}

std::vector<NDArray> unbind(const NDArray& x, IntArg axis, std::source_location where) try {
  const int d = normalize_axis(axis, x.rank(), "unbind");
  std::vector<NDArray> entries;
  for (int64_t i = 0; i < x.shape()[d]; ++i) entries.push_back(x.select(d, i));
  return entries;
} catch (const Error&) {
  detail::rethrow_at(where);
}

std::vector<NDArray> array_split(const Arg& x, IntArg parts, IntArg axis) try {
  const int d = normalize_axis(axis, x.array.rank(), "array_split");
  MX_CHECK(parts > 0, InvalidArgument, "[array_split] expected a number of parts above 0, got ", parts);
  const int64_t size = x.array.shape()[d];
  std::vector<int64_t> sizes(static_cast<size_t>(parts), size / parts);
  for (int64_t i = 0; i < size % parts; ++i) ++sizes[static_cast<size_t>(i)];
  return split(x, sizes, d);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray column_stack(std::span<const NDArray> arrays, std::source_location where) try {
  std::vector<NDArray> columns;
  for (const NDArray& a : arrays) {
    MX_CHECK(a.rank() <= 2, InvalidArgument, "[column_stack] expected vectors or matrices, got shape ",
             a.shape());
    columns.push_back(a.rank() == 2 ? a : a.reshape({a.numel(), 1}, where));
  }
  return concat(columns, 1, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray column_stack(std::initializer_list<NDArray> arrays, std::source_location where) {
  return column_stack(std::span<const NDArray>(arrays.begin(), arrays.size()), where);
}

NDArray rot90(const NDArray& x, IntArg k, const Shape& axes, std::source_location where) try {
  MX_CHECK(axes.rank() == 2, InvalidArgument, "[rot90] expected two axes, got ", axes);
  const int a = normalize_axis(axes[0], x.rank(), "rot90"), b = normalize_axis(axes[1], x.rank(), "rot90");
  MX_CHECK(a != b, InvalidArgument, "[rot90] expected two different axes, got ", axes);
  switch (k % 4 < 0 ? k % 4 + 4 : k % 4) {
    case 1:
      return flip(x, {b}).swap_axes(a, b);
    case 2:
      return flip(x, {a, b});
    case 3:
      return flip(x.swap_axes(a, b), {b});
    default:
      return x;
  }
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray logspace(double start, double stop, IntArg count, double base, DType dtype, Context context,
                 std::source_location where) {
  const NDArray exponents = linspace(start, stop, count, f64, context, where);
  return pow({base, where}, exponents).to(dtype, where);
}

NDArray geomspace(double start, double stop, IntArg count, DType dtype, Context context,
                  std::source_location where) try {
  MX_CHECK(std::isfinite(start) && std::isfinite(stop) && start * stop != 0 && (start < 0) == (stop < 0),
           InvalidArgument,
           "[geomspace] expected finite numbers start and stop of the same sign, not 0, got ", start, " and ",
           stop);
  const NDArray logarithms =
      linspace(std::log(std::abs(start)), std::log(std::abs(stop)), count, f64, context, where);
  NDArray result = exp({logarithms, where}) * (start < 0 ? -1.0 : 1.0);
  if (count > 0) result.select(0, 0).fill_(start, where);
  if (count > 1) result.select(0, count - 1).fill_(stop, where);
  return result.to(dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace mx
