// Indexing with several index arrays, masks, and the functions that a[indices] calls.
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/hooks.h"
#include "ndarray/kernels/copy.h"
#include "operators/cuda_kernels.h"
#include "operators/indexing.h"
#include "operators/indexing_records.h"
#include "operators/kernels/mask.h"
#include "operators/select.h"

namespace mx {

using detail::CountAttrs;
using detail::GatherNdAttrs;
using detail::PutNdAttrs;

namespace {

constexpr int64_t kDirectElements = 1024, kDirectUpdates = 256;

using IndexList = detail::FixedList<NDArray, kMaxRank>;

bool widens(const Shape& from, const Shape& to, const char* op) {
  return from.rank() <= to.rank() && broadcast_shapes(from, to, op) == to;
}

// gather_nd and put_nd

/// Returns the shape of x[indices]; the indices are the inputs from `first` on.
Shape indexed_shape(InferContext& c, size_t first, const Shape& axes, int64_t position) {
  detail::FixedList<Tensor, kMaxRank> indices;
  for (size_t i = first; i < c.inputs(); ++i) {
    detail::check_index_type(c, i);
    indices.push_back({nullptr, c.dtype(i), c.shape(i), contiguous_strides(c.shape(i))});
  }
  return kernels::gather_nd_shape(c.shape(0), indices, axes, position, c.name());
}

void infer_gather_nd(InferContext& c) {
  const auto& attrs = c.attr<GatherNdAttrs>();
  c.output(indexed_shape(c, 1, attrs.axes, attrs.position), c.dtype(0));
}

void run_gather_nd(const KernelArgs& args) {
  const auto& attrs = args.attr<GatherNdAttrs>();
  kernels::gather_nd(args.out[0], args.in[0], args.in.subspan(1), attrs.axes, attrs.position);
}

int64_t work_gather_nd(const InferContext& c) { return c.output_shape(0).numel(); }

void infer_put_nd(InferContext& c) {
  const auto& attrs = c.attr<PutNdAttrs>();
  detail::scatter_how(attrs.how, c.name());
  MX_CHECK(c.dtype(1) == c.dtype(0), InvalidArgument, "[", c.name(), "] expected values of x's type ",
           c.dtype(0), ", got ", c.dtype(1));
  const Shape place = indexed_shape(c, 2, attrs.axes, attrs.position);
  MX_CHECK(widens(c.shape(1), place, c.name()), InvalidArgument, "[", c.name(),
           "] expected values that broadcast to ", place, ", got ", c.shape(1));
  c.output(c.shape(0), c.dtype(0));
}

void run_put_nd(const KernelArgs& args) {
  const auto& attrs = args.attr<PutNdAttrs>();
  if (args.out[0].data != args.in[0].data) kernels::copy(args.out[0], args.in[0]);
  kernels::put_nd(args.out[0], args.in.subspan(2), attrs.axes, args.in[1],
                  detail::scatter_how(attrs.how, "put_nd"), attrs.position);
}

// Masks

void infer_mask_count(InferContext& c) { c.output({}, i64); }

void run_mask_count(const KernelArgs& args) {
  *args.out[0].as<int64_t>() = kernels::count_nonzero(args.in[0]);
}

void check_count(const InferContext& c, int64_t most) {
  const int64_t count = c.attr<CountAttrs>().count;
  MX_CHECK(count >= 0 && count <= most, InvalidArgument, "[", c.name(), "] expected a count from 0 to ", most,
           ", got ", count);
}

void infer_argwhere(InferContext& c) {
  check_count(c, c.shape(0).numel());
  c.output({c.attr<CountAttrs>().count, c.shape(0).rank()}, i64);
}

void run_argwhere(const KernelArgs& args) { kernels::nonzero(args.out[0], args.in[0]); }

void check_mask(const InferContext& c, const Shape& shape) {
  MX_CHECK(c.dtype(1) == bool_, InvalidArgument, "[", c.name(), "] expected a mask of type bool, got ",
           c.dtype(1));
  MX_CHECK(widens(c.shape(1), shape, c.name()), InvalidArgument, "[", c.name(),
           "] expected a mask that broadcasts to ", shape, ", got ", c.shape(1));
}

void infer_masked_select(InferContext& c) {
  check_mask(c, c.shape(0));
  check_count(c, c.shape(0).numel());
  c.output({c.attr<CountAttrs>().count}, c.dtype(0));
}

void run_masked_select(const KernelArgs& args) {
  kernels::masked_select(args.out[0], args.in[0], args.in[1].broadcast(args.in[0].shape));
}

void infer_masked_scatter(InferContext& c) {
  check_mask(c, c.shape(0));
  MX_CHECK(c.dtype(2) == c.dtype(0), InvalidArgument, "[", c.name(), "] expected a source of x's type ",
           c.dtype(0), ", got ", c.dtype(2));
  c.output(c.shape(0), c.dtype(0));
}

void run_masked_scatter(const KernelArgs& args) {
  if (args.out[0].data != args.in[0].data) kernels::copy(args.out[0], args.in[0]);
  kernels::masked_scatter(args.out[0], args.in[1].broadcast(args.out[0].shape), args.in[2]);
}

constexpr Operator kGatherNd = {
    .kernel = {"gather_nd", run_gather_nd, cuda::gather_nd, kDirectElements},
    .doc =
        "Elements of x at positions given by several index arrays, as x[i, j] in NumPy. The index arrays "
        "broadcast together, and their dimensions replace the dimensions `axes` of x.",
    .family = "indexing",
    .inputs = {"x", "indices..."},
    .attrs = &kAttrType<GatherNdAttrs>,
    .infer = infer_gather_nd,
    .gradient = detail::gradient_gather_nd,
    .gradient_uses = {.inputs = ~uint64_t{1}},
    .work = work_gather_nd};
constexpr Operator kPutNd = {.kernel = {"put_nd", run_put_nd, cuda::put_nd, kDirectUpdates},
                             .doc =
                                 "Copy of x in which the elements at positions given by several index arrays "
                                 "are set to `values`, or combined with them.",
                             .family = "indexing",
                             .inputs = {"x", "values", "indices..."},
                             .attrs = &kAttrType<PutNdAttrs>,
                             .infer = infer_put_nd,
                             .gradient = detail::gradient_put_nd,
                             .gradient_uses = {.inputs = ~uint64_t{0}, .outputs = bit_set(0)},
                             .narrowed_uses = detail::uses_of_put_nd,
                             .in_place = bit_set(0)};
constexpr Operator kMaskCount = {
    .kernel = {"mask_count", run_mask_count, cuda::mask_count, kDirectElements},
    .doc = "Number of elements that are not zero, i64 of shape (): the size of a selection with this mask.",
    .family = "indexing",
    .inputs = {"mask"},
    .infer = infer_mask_count};
constexpr Operator kArgwhere = {
    .kernel = {"argwhere", run_argwhere, cuda::argwhere, kDirectElements},
    .doc = "Indices of the elements that are not zero, in row-major order: i64 of shape (count, rank).",
    .family = "indexing",
    .inputs = {"x"},
    .attrs = &kAttrType<CountAttrs>,
    .infer = infer_argwhere,
    .sized_by_values = true};
constexpr Operator kMaskedSelect = {
    .kernel = {"masked_select", run_masked_select, cuda::masked_select, kDirectElements},
    .doc = "Elements of x where the mask is true, in row-major order: shape (count,).",
    .family = "indexing",
    .inputs = {"x", "mask"},
    .attrs = &kAttrType<CountAttrs>,
    .infer = infer_masked_select,
    .gradient = detail::gradient_masked_select,
    .gradient_uses = {.inputs = bit_set(1)},
    .sized_by_values = true};
constexpr Operator kMaskedScatter = {
    .kernel = {"masked_scatter", run_masked_scatter, cuda::masked_scatter, kDirectElements},
    .doc =
        "Copy of x in which the elements where the mask is true are replaced by the elements of `source`, "
        "one after the other in row-major order.",
    .family = "indexing",
    .inputs = {"x", "mask", "source"},
    .infer = infer_masked_scatter,
    .gradient = detail::gradient_masked_scatter,
    .gradient_uses = {.inputs = bit_set(1)},
    .in_place = bit_set(0),
    .sized_by_values = true};

/// Returns the number of elements that a mask selects. Waits for the mask.
int64_t count_of(const NDArray& mask, std::source_location where) {
  return call(kMaskCount, {}, {mask, where}).item<int64_t>();
}

/// The inputs of gather_nd and put_nd: at most two arrays before the indices.
using Inputs = detail::FixedList<NDArray, kMaxRank + 2>;

/// Appends the indices to the inputs, in a type that the kernels take.
Inputs with_indices(std::initializer_list<NDArray> first, std::span<const NDArray> indices, const char* op,
                    std::source_location where) {
  Inputs inputs;
  for (const NDArray& array : first) inputs.push_back(array);
  for (const NDArray& index : indices) inputs.push_back(detail::as_indices(index, op, where));
  return inputs;
}

/// Returns the arrays of indices, and sets `axes` to their dimensions.
IndexList split(const detail::AdvancedIndex& index, Shape& axes) {
  IndexList arrays;
  for (size_t i = 0; i < index.indices.size(); ++i) {
    if (!index.indices[i].defined()) continue;
    axes.push_back(static_cast<int64_t>(i));
    arrays.push_back(detail::as_indices(index.indices[i], "index", index.where));
  }
  MX_CHECK(!arrays.empty(), InvalidArgument,
           "[index] expected a mask of rank 1 or more, got one of rank 0; use where()");
  return arrays;
}

/// Returns the index with its mask replaced by arrays of positions. Precondition: the index has a mask and no
/// other arrays.
detail::AdvancedIndex with_positions(const detail::AdvancedIndex& index) {
  detail::AdvancedIndex result;
  result.base = index.base;
  result.separated = index.separated;
  result.where = index.where;
  result.indices.grow(static_cast<size_t>(index.base.rank()));
  size_t at = static_cast<size_t>(index.mask_axis);
  for (const NDArray& positions : nonzero({index.mask, index.where})) result.indices[at++] = positions;
  return result;
}

bool masks_all(const detail::AdvancedIndex& index) { return index.mask.rank() == index.base.rank(); }

NDArray hook_gather(const detail::AdvancedIndex& index) {
  if (index.mask.defined()) {
    if (!masks_all(index)) return hook_gather(with_positions(index));
    return call(kMaskedSelect, CountAttrs{index.mask_count}, {index.base, index.where}, index.mask);
  }
  Shape axes;
  const IndexList arrays = split(index, axes);
  return gather_nd({index.base, index.where}, arrays, axes, index.separated ? 0 : -1);
}

Shape hook_gather_shape(const detail::AdvancedIndex& index) {
  if (index.mask.defined()) {
    Shape shape = index.base.shape();
    for (int k = 0; k < index.mask.rank(); ++k) shape.erase(index.mask_axis);
    shape.insert(index.mask_axis, index.mask_count);
    return shape;
  }
  Shape axes;
  detail::FixedList<Tensor, kMaxRank> indices;
  for (const NDArray& a : split(index, axes)) indices.push_back({nullptr, a.dtype(), a.shape(), a.strides()});
  return kernels::gather_nd_shape(index.base.shape(), indices, axes, index.separated ? 0 : -1);
}

void hook_put(const detail::AdvancedIndex& index, const NDArray& values, std::source_location where) {
  NDArray base = index.base;
  // Leading dimensions of size 1 are dropped, as in other assignments.
  NDArray source = values.to(base.context(), where);
  const int rank = hook_gather_shape(index).rank();
  while (source.rank() > rank && source.shape()[0] == 1) source = source.squeeze(0);
  if (index.mask.defined()) {
    if (source.numel() == 1) {
      // For a single value the positions are not needed: one pass over the array with where() is enough.
      Shape wide = index.mask.shape();
      while (index.mask_axis + wide.rank() < base.rank()) wide.push_back(1);
      const NDArray inputs[] = {index.mask.reshape(wide), source.to(base.dtype(), where).reshape({}), base};
      call_into(base, detail::where_operator(), {}, inputs, where);
    } else if (masks_all(index) && source.shape() == Shape{index.mask_count}) {
      masked_scatter_(base, index.mask, source, where);
    } else {
      hook_put(with_positions(index), source, where);
    }
    return;
  }
  Shape axes;
  const IndexList arrays = split(index, axes);
  put_nd_(base, arrays, axes, source, Scatter::set, index.separated ? 0 : -1, where);
}

int64_t hook_count(const NDArray& mask, std::source_location where) { return count_of(mask, where); }

std::vector<NDArray> hook_nonzero(const NDArray& mask, std::source_location where) {
  return nonzero({mask, where});
}

}  // namespace

namespace detail {

OperatorFamily family_advanced_indexing() {
  return {&kGatherNd, &kPutNd, &kMaskCount, &kArgwhere, &kMaskedSelect, &kMaskedScatter};
}

bool install_indexing() {
  static const bool once = [] {
    Hooks& table = hooks();
    table.gather = hook_gather;
    table.gather_shape = hook_gather_shape;
    table.put = hook_put;
    table.count = hook_count;
    table.nonzero = hook_nonzero;
    return true;
  }();
  return once;
}

}  // namespace detail

NDArray gather_nd(const Arg& x, std::span<const NDArray> indices, const Shape& axes, IntArg position) {
  const GatherNdAttrs attrs{axes, position};
  // The call of one index array returns its only result without a vector.
  if (indices.size() == 1)
    return call(kGatherNd, attrs, x, detail::as_indices(indices[0], "gather_nd", x.where));
  return call(kGatherNd, attrs, with_indices({x.array}, indices, "gather_nd", x.where), x.where).at(0);
}

NDArray put_nd(const Arg& x, std::span<const NDArray> indices, const Shape& axes, const NDArray& values,
               Scatter how, IntArg position) {
  return call(kPutNd, PutNdAttrs{axes, position, to_string(how)},
              with_indices({x.array, values.to(x.array.dtype(), x.where)}, indices, "put_nd", x.where),
              x.where)
      .at(0);
}

NDArray& put_nd_(NDArray& x, std::span<const NDArray> indices, const Shape& axes, const NDArray& values,
                 Scatter how, IntArg position, std::source_location where) {
  call_into(x, kPutNd, PutNdAttrs{axes, position, to_string(how)},
            with_indices({x, values.to(x.dtype(), where)}, indices, "put_nd", where), where);
  return x;
}

NDArray masked_select(const Arg& x, const NDArray& mask) try {
  const Shape shape = broadcast_shapes(x.array.shape(), mask.shape(), "masked_select");
  MX_CHECK(mask.dtype() == bool_, InvalidArgument, "[masked_select] expected a mask of type bool, got ",
           mask.dtype());
  const NDArray wide = mask.broadcast_to(shape);
  return call(kMaskedSelect, CountAttrs{count_of(wide, x.where)}, {x.array.broadcast_to(shape), x.where},
              wide);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray masked_scatter(const Arg& x, const NDArray& mask, const NDArray& source) {
  return call(kMaskedScatter, {}, x, mask, source.to(x.array.dtype(), x.where));
}

NDArray& masked_scatter_(NDArray& x, const NDArray& mask, const NDArray& source, std::source_location where) {
  const NDArray inputs[] = {x, mask, source.to(x.dtype(), where)};
  call_into(x, kMaskedScatter, {}, inputs, where);
  return x;
}

NDArray argwhere(const Arg& x) { return call(kArgwhere, CountAttrs{count_of(x.array, x.where)}, x); }

std::vector<NDArray> nonzero(const Arg& x) {
  const NDArray all = argwhere(x);
  std::vector<NDArray> result;
  for (int i = 0; i < x.array.rank(); ++i) result.push_back(all.select(1, i));
  return result;
}

}  // namespace mx
