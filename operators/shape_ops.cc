// Joining, splitting, and functions that return views. Operators that fill an array from one other array are
// in fill_ops.cc.
#include "operators/shape_ops.h"
#include "ndarray/detail/place.h"

#include <algorithm>
#include <numeric>

#include "engine/base/check.h"
#include "ndarray/cuda_kernels.h"
#include "ndarray/tensor_copy.h"
#include "operators/indexing.h"

namespace mx {
namespace {

constexpr int64_t kDirectElements = 2048;

struct AxisAttrs {
  int64_t axis = 0;
  template <class V>
  static void fields(V&& v) {
    v("axis", &AxisAttrs::axis, "the dimension along which the arrays are joined");
  }
};

struct SplitAttrs {
  std::vector<int64_t> sizes;
  int64_t axis = 0;
  template <class V>
  static void fields(V&& v) {
    v("sizes", &SplitAttrs::sizes, "the sizes of the pieces, which add up to the size of the dimension");
    v("axis", &SplitAttrs::axis, "the dimension to split");
  }
};

void infer_concat(InferContext& c) {
  const int axis = normalize_axis(c.attr<AxisAttrs>().axis, c.shape(0).rank(), c.name());
  Shape shape = c.shape(0);
  DType dtype = c.dtype(0);
  for (size_t i = 1; i < c.inputs(); ++i) {
    const Shape& other = c.shape(i);
    bool fits = other.rank() == shape.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) fits = d == axis || other[d] == shape[d];
    MX_CHECK(fits, InvalidArgument, "[", c.name(), "] expected shapes that are equal except along axis ",
             axis, ", got ", c.shape(0), " for input 0 and, for input ", i, ", ", other);
    MX_CHECK(!__builtin_add_overflow(shape[axis], other[axis], &shape[axis]), InvalidArgument, "[", c.name(),
             "] expected sizes whose sum is below 2^63, got ", shape[axis], " and ", other[axis]);
    dtype = promote(dtype, c.dtype(i));
  }
  c.output(shape, dtype);
}

void run_concat(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const int axis = normalize_axis(args.attr<AxisAttrs>().axis, out.rank(), "concat");
  int64_t first = 0;
  for (const Tensor& x : args.in) {
    detail::copy_tensor(args, out.narrowed(axis, first, x.shape[axis]), x);
    first += x.shape[axis];
  }
}

int64_t work_concat(const InferContext& c) { return c.output_shape(0).numel(); }

// The gradients are views of the head.
void gradient_concat(GradientContext& g) {
  const NDArray& head = g.head();
  const int axis = normalize_axis(g.attr<AxisAttrs>().axis, head.rank(), "concat");
  int64_t first = 0;
  for (size_t i = 0; i < g.inputs(); ++i) {
    const int64_t size = g.input_shape(i)[axis];
    if (g.wanted(i)) g.set(i, head.slice(axis, Slice{first, first + size}));
    first += size;
  }
}

void infer_split(InferContext& c) {
  const auto& attrs = c.attr<SplitAttrs>();
  const int axis = normalize_axis(attrs.axis, c.shape(0).rank(), c.name());
  int64_t rest = c.shape(0)[axis];
  for (int64_t size : attrs.sizes) {
    rest = size < 0 || size > rest ? -1 : rest - size;
    if (rest < 0) break;
  }
  MX_CHECK(rest == 0 && !attrs.sizes.empty(), InvalidArgument, "[", c.name(),
           "] expected sizes of 0 or more that add up to ", c.shape(0)[axis], " (axis ", axis, " of ",
           c.shape(0), "), got ", to_string(AttrValue(attrs.sizes)));
  Shape shape = c.shape(0);
  for (int64_t size : attrs.sizes) {
    shape[axis] = size;
    c.output(shape, c.dtype(0));
  }
}

void run_split(const KernelArgs& args) {
  const int axis = normalize_axis(args.attr<SplitAttrs>().axis, args.in[0].rank(), "split");
  int64_t first = 0;
  for (const Tensor& out : args.out) {
    detail::copy_tensor(args, out, args.in[0].narrowed(axis, first, out.shape[axis]));
    first += out.shape[axis];
  }
}

void gradient_split(GradientContext& g) {
  std::vector<NDArray> heads;
  for (size_t i = 0; i < g.outputs(); ++i) heads.push_back(g.head_or_zeros(i));
  g.set(0, concat(heads, g.attr<SplitAttrs>().axis));
}

constexpr Operator kConcat = {.kernel = {"concat", run_concat, cuda::also(run_concat), kDirectElements},
                              .doc = "Arrays joined along an existing axis; all other dimensions are equal.",
                              .family = "shape",
                              .inputs = {"x", "more..."},
                              .attrs = &kAttrType<AxisAttrs>,
                              .infer = infer_concat,
                              .gradient = gradient_concat,
                              .work = work_concat};
constexpr Operator kSplit = {.kernel = {"split", run_split, cuda::also(run_split), kDirectElements},
                             .doc = "Consecutive pieces of x along an axis.",
                             .family = "shape",
                             .inputs = {"x"},
                             .outputs = {"y..."},
                             .attrs = &kAttrType<SplitAttrs>,
                             .infer = infer_split,
                             .gradient = gradient_split};

std::vector<NDArray> each(std::span<const NDArray> arrays, NDArray (*change)(const NDArray&)) {
  std::vector<NDArray> result;
  for (const NDArray& a : arrays) result.push_back(change(a));
  return result;
}

std::span<const NDArray> list(std::initializer_list<NDArray> arrays) {
  return {arrays.begin(), arrays.size()};
}

}  // namespace

namespace detail {
OperatorFamily family_shape_ops() { return {&kConcat, &kSplit}; }
}  // namespace detail

NDArray concat(std::span<const NDArray> arrays, IntArg axis, std::source_location where) {
  return call(kConcat, AxisAttrs{axis}, arrays, where).at(0);
}

NDArray stack(std::span<const NDArray> arrays, IntArg axis, std::source_location where) try {
  MX_CHECK(!arrays.empty(), InvalidArgument, "[stack] expected at least one array, got none");
  const int d = normalize_axis(axis, arrays[0].rank() + 1, "stack");
  std::vector<NDArray> views;
  for (const NDArray& a : arrays) {
    MX_CHECK(a.shape() == arrays[0].shape(), InvalidArgument,
             "[stack] expected arrays of the same shape, got ", arrays[0].shape(), " and ", a.shape());
    views.push_back(a.expand_dims(d));
  }
  return concat(views, d, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray hstack(std::span<const NDArray> arrays, std::source_location where) {
  const auto least = [](const NDArray& a) { return a.rank() == 0 ? a.expand_dims(0) : a; };
  const std::vector<NDArray> views = each(arrays, least);
  return concat(views, !views.empty() && views[0].rank() == 1 ? 0 : 1, where);
}

NDArray vstack(std::span<const NDArray> arrays, std::source_location where) {
  const auto least = [](const NDArray& a) {
    return a.rank() == 0 ? a.expand_dims(0).expand_dims(0) : a.rank() == 1 ? a.expand_dims(0) : a;
  };
  return concat(each(arrays, least), 0, where);
}

NDArray concat(std::initializer_list<NDArray> arrays, IntArg axis, std::source_location where) {
  return concat(list(arrays), axis, where);
}
NDArray stack(std::initializer_list<NDArray> arrays, IntArg axis, std::source_location where) {
  return stack(list(arrays), axis, where);
}
NDArray hstack(std::initializer_list<NDArray> arrays, std::source_location where) {
  return hstack(list(arrays), where);
}
NDArray vstack(std::initializer_list<NDArray> arrays, std::source_location where) {
  return vstack(list(arrays), where);
}

NDArray concat(const NDArray& a, const NDArray& b, IntArg axis, std::source_location where) {
  return concat({a, b}, axis, where);
}
NDArray stack(const NDArray& a, const NDArray& b, IntArg axis, std::source_location where) {
  return stack({a, b}, axis, where);
}
NDArray hstack(const NDArray& a, const NDArray& b, std::source_location where) {
  return hstack({a, b}, where);
}
NDArray vstack(const NDArray& a, const NDArray& b, std::source_location where) {
  return vstack({a, b}, where);
}

std::vector<NDArray> split(const Arg& x, const std::vector<int64_t>& sizes, IntArg axis) {
  return call(kSplit, SplitAttrs{sizes, axis}, {&x.array, 1}, x.where);
}

std::vector<NDArray> split(const Arg& x, int64_t parts, IntArg axis) try {
  const int d = normalize_axis(axis, x.array.rank(), "split");
  const int64_t size = x.array.shape()[d];
  MX_CHECK(parts > 0 && size % parts == 0, InvalidArgument,
           "[split] expected a number of parts that divides ", size, " (axis ", d, " of ", x.array.shape(),
           "), got ", parts);
  return split(x, std::vector<int64_t>(static_cast<size_t>(parts), size / parts), d);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

std::vector<NDArray> chunk(const Arg& x, IntArg parts, IntArg axis) try {
  const int d = normalize_axis(axis, x.array.rank(), "chunk");
  MX_CHECK(parts > 0, InvalidArgument, "[chunk] expected a number of parts above 0, got ", parts);
  const int64_t size = x.array.shape()[d];
  if (size == 0) return split(x, std::vector<int64_t>(static_cast<size_t>(parts), 0), d);
  const int64_t step = (size - 1) / parts + 1;
  std::vector<int64_t> sizes;
  for (int64_t first = 0; first < size; first += step) sizes.push_back(std::min(step, size - first));
  return split(x, sizes, d);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray flip(const NDArray& x, const Axes& axes, std::source_location where) try {
  NDArray result = x;
  if (x.rank() == 0 && axes.empty()) return result;
  for (int64_t axis : normalize_axes(axes, x.rank(), "flip")) result = result.slice(axis, Slice{{}, {}, -1});
  return result;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray repeat(const Arg& x, const std::vector<int64_t>& counts, IntArg axis) try {
  const int d = normalize_axis(axis, x.array.rank(), "repeat");
  const int64_t size = x.array.shape()[d];
  MX_CHECK(static_cast<int64_t>(counts.size()) == size, InvalidArgument, "[repeat] expected ", size,
           " counts (axis ", d, " of ", x.array.shape(), "), got ", counts.size());
  int64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    MX_CHECK(counts[i] >= 0 && !__builtin_add_overflow(total, counts[i], &total), InvalidArgument,
             "[repeat] expected counts of 0 or more with a sum below 2^63, got ", counts[i], " at position ",
             i);
  Shape shape = x.array.shape();
  shape[d] = total;
  checked_numel(shape, size_of(x.array.dtype()), "repeat");
  checked_numel({total}, sizeof(int64_t), "repeat");
  std::vector<int64_t> indices;
  for (size_t i = 0; i < counts.size(); ++i)
    indices.insert(indices.end(), static_cast<size_t>(counts[i]), static_cast<int64_t>(i));
  return take(x, array(indices, x.array.context(), x.where), d);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray repeat(const Arg& x, const NDArray& counts, IntArg axis) try {
  MX_CHECK(counts.rank() == 1 && is_integral(counts.dtype()), InvalidArgument,
           "[repeat] expected counts of an integer type and rank 1, got ", counts.dtype(), " ",
           counts.shape());
  return repeat(x, counts.to_vector<int64_t>(), axis);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

std::vector<NDArray> broadcast_arrays(std::span<const NDArray> arrays, std::source_location where) try {
  Shape shape;
  for (const NDArray& a : arrays) shape = broadcast_shapes(shape, a.shape(), "broadcast_arrays");
  std::vector<NDArray> result;
  for (const NDArray& a : arrays) result.push_back(a.broadcast_to(shape));
  return result;
} catch (const Error&) {
  detail::rethrow_at(where);
}

std::vector<NDArray> meshgrid(std::span<const NDArray> vectors, const std::string& indexing,
                              std::source_location where) try {
  MX_CHECK(indexing == "xy" || indexing == "ij", InvalidArgument,
           "[meshgrid] expected indexing \"xy\" or \"ij\", got \"", indexing, "\"");
  const int rank = static_cast<int>(vectors.size());
  const bool swapped = indexing == "xy" && rank > 1;
  Shape shape = Shape::filled(rank, 1);
  const auto place = [&](int i) { return swapped && i < 2 ? 1 - i : i; };
  for (int i = 0; i < rank; ++i) {
    const NDArray& v = vectors[static_cast<size_t>(i)];
    MX_CHECK(v.rank() <= 1, InvalidArgument, "[meshgrid] expected vectors, got shape ", v.shape());
    shape[place(i)] = v.numel();
  }
  std::vector<NDArray> result;
  for (int i = 0; i < rank; ++i) {
    Shape own = Shape::filled(rank, 1);
    own[place(i)] = shape[place(i)];
    result.push_back(vectors[static_cast<size_t>(i)].reshape(own).broadcast_to(shape));
  }
  return result;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray reshape(const NDArray& x, const Shape& shape, std::source_location where) {
  return x.reshape(shape, where);
}
NDArray flatten(const NDArray& x, std::source_location where) { return x.flatten(where); }
NDArray transpose(const NDArray& x, const Shape& axes, std::source_location where) {
  return x.transpose(axes, where);
}
NDArray swap_axes(const NDArray& x, IntArg a, IntArg b, std::source_location where) {
  return x.swap_axes(a, b, where);
}
NDArray move_axis(const NDArray& x, IntArg from, IntArg to, std::source_location where) {
  return x.move_axis(from, to, where);
}
NDArray squeeze(const NDArray& x) { return x.squeeze(); }
NDArray squeeze(const NDArray& x, IntArg axis, std::source_location where) { return x.squeeze(axis, where); }
NDArray expand_dims(const NDArray& x, IntArg axis, std::source_location where) {
  return x.expand_dims(axis, where);
}
NDArray broadcast_to(const NDArray& x, const Shape& shape, std::source_location where) {
  return x.broadcast_to(shape, where);
}

}  // namespace mx
