#include "operators/sorting.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/indexing.h"
#include "operators/kernels/select_rank.h"
#include "operators/kernels/sort.h"
#include "operators/sorting_attrs.h"

namespace mx {
namespace {

using detail::PartitionAttrs;
using detail::SearchAttrs;
using detail::SortAttrs;
using detail::TopKAttrs;

constexpr int64_t kDirectElements = 64;

/// Returns the axis of an operator that treats an array of rank 0 as one element along axis 0.
int sorted_axis(int64_t axis, const Shape& shape, const char* op) {
  return normalize_axis(axis, std::max(shape.rank(), 1), op);
}

/// Returns x, or for rank 0 a vector of its element: the kernels need an axis.
Tensor with_axis(const Tensor& x) { return x.rank() > 0 ? x : Tensor{x.data, x.dtype, {1}, {1}}; }

void infer_sort(InferContext& c) {
  sorted_axis(c.attr<SortAttrs>().axis, c.shape(0), c.name());
  c.output(c.shape(0), c.dtype(0));
}

void infer_argsort(InferContext& c) {
  sorted_axis(c.attr<SortAttrs>().axis, c.shape(0), c.name());
  c.output(c.shape(0), i64);
}

void run_sort(const KernelArgs& args) {
  const auto& attrs = args.attr<SortAttrs>();
  kernels::sort(with_axis(args.out[0]), with_axis(args.in[0]), attrs.axis, attrs.descending);
}

void run_argsort(const KernelArgs& args) {
  const auto& attrs = args.attr<SortAttrs>();
  kernels::argsort(with_axis(args.out[0]), with_axis(args.in[0]), attrs.axis, attrs.descending);
}

void infer_argpartition(InferContext& c) {
  const auto& attrs = c.attr<PartitionAttrs>();
  const int64_t size = c.shape(0)[normalize_axis(attrs.axis, c.shape(0).rank(), c.name())];
  MX_CHECK(attrs.kth >= -size && attrs.kth < size, InvalidArgument, "[", c.name(), "] expected kth from ",
           -size, " to ", size - 1, " (axis ", attrs.axis, " of ", c.shape(0), "), got ", attrs.kth);
  c.output(c.shape(0), i64);
}

void run_argpartition(const KernelArgs& args) {
  const auto& attrs = args.attr<PartitionAttrs>();
  const Tensor& x = args.in[0];
  const int64_t size = x.shape[normalize_axis(attrs.axis, x.rank(), "argpartition")];
  kernels::argpartition(args.out[0], x, attrs.axis, attrs.kth < 0 ? attrs.kth + size : attrs.kth);
}

void infer_argselect(InferContext& c) {
  const Shape& x = c.shape(0);
  const Shape& places = c.shape(1);
  MX_CHECK(c.dtype(1) == i64, InvalidArgument, "[", c.name(), "] expected places of type i64, got ",
           c.dtype(1));
  bool fits = x.rank() > 0 && places.rank() == x.rank();
  for (int d = 0; fits && d + 1 < x.rank(); ++d) fits = x[d] == places[d];
  MX_CHECK(fits, InvalidArgument, "[", c.name(), "] expected places of x's shape ", x,
           " except for the last dimension, got ", places);
  c.output(places, i64);
}

void run_argselect(const KernelArgs& args) { kernels::argselect(args.out[0], args.in[0], args.in[1]); }

/// Returns the gradient of the input from the gradient of selected elements.
NDArray put_back(const GradientContext& g, const NDArray& indices, int64_t axis) {
  const NDArray& head = g.head(0);
  if (head.rank() == 0) return head;
  return scatter(detail::zeros_view(g.input_shape(0), head.dtype(), head.context()), indices, head, axis,
                 Scatter::add);
}

void gradient_sort(GradientContext& g) {
  const auto& attrs = g.attr<SortAttrs>();
  g.set(0, put_back(g, argsort(g.input(0), attrs.axis, attrs.descending), attrs.axis));
}

void gradient_topk(GradientContext& g) {
  if (g.head(0).defined()) g.set(0, put_back(g, g.output(1), g.attr<TopKAttrs>().axis));
}

void infer_topk(InferContext& c) {
  const auto& attrs = c.attr<TopKAttrs>();
  Shape shape = c.shape(0);
  const int axis = sorted_axis(attrs.axis, shape, c.name());
  if (shape.rank() == 0) {
    MX_CHECK(attrs.k == 1, InvalidArgument, "[", c.name(), "] expected k = 1 for an array of rank 0, got ",
             attrs.k);
    c.output(shape, c.dtype(0));
    return c.output(shape, i64);
  }
  MX_CHECK(attrs.k >= 0 && attrs.k <= shape[axis], InvalidArgument, "[", c.name(), "] expected k from 0 to ",
           shape[axis], " (axis ", axis, " of ", shape, "), got ", attrs.k);
  shape[axis] = attrs.k;
  c.output(shape, c.dtype(0));
  c.output(shape, i64);
}

void run_topk(const KernelArgs& args) {
  const auto& attrs = args.attr<TopKAttrs>();
  const Tensor values = with_axis(args.out[0]), indices = with_axis(args.out[1]);
  kernels::topk(&values, &indices, with_axis(args.in[0]), attrs.axis, attrs.largest);
}

// The outputs have room for as many values as the input has elements. The last output is the number of
// values.
void infer_unique(InferContext& c) {
  const int64_t n = c.shape(0).numel();
  c.output({n}, c.dtype(0));
  c.output({n}, i64);
  c.output(c.shape(0), i64);
  c.output({n}, i64);
  c.output({}, i64);
}

void run_unique(const KernelArgs& args) {
  const kernels::Unique found(args.in[0]);
  const auto cut = [&](size_t i) {
    Tensor result = args.out[i];
    result.shape[0] = found.count();
    return result;
  };
  found.values(cut(0));
  found.first(cut(1));
  found.inverse(args.out[2]);
  found.counts(cut(3));
  *args.out[4].as<int64_t>() = found.count();
  // Fills the unused elements, so that the outputs show no earlier contents of the memory.
  for (size_t i : {size_t{0}, size_t{1}, size_t{3}}) {
    const Tensor& out = args.out[i];
    const int64_t rest = out.numel() - found.count();
    if (rest > 0)
      std::memset(element_at(out.data, out.dtype, found.count()), 0,
                  static_cast<size_t>(rest) * size_of(out.dtype));
  }
}

void infer_searchsorted(InferContext& c) {
  MX_CHECK(c.shape(0).rank() == 1, InvalidArgument, "[", c.name(),
           "] expected a sorted array of rank 1, got shape ", c.shape(0));
  MX_CHECK(c.dtype(0) == c.dtype(1), InvalidArgument, "[", c.name(),
           "] expected arrays of the same type, got ", c.dtype(0), " and ", c.dtype(1));
  c.output(c.shape(1), i64);
}

void run_searchsorted(const KernelArgs& args) {
  kernels::searchsorted(args.out[0], args.in[0], args.in[1], args.attr<SearchAttrs>().behind);
}

int64_t work_searchsorted(const InferContext& c) { return c.shape(1).numel(); }

constexpr Operator kSort = {.kernel = {"sort", run_sort, cuda::sort, kDirectElements},
                            .doc = "Elements of x sorted along an axis. Sorting is stable, and NaN is last.",
                            .family = "sorting",
                            .inputs = {"x"},
                            .attrs = &kAttrType<SortAttrs>,
                            .infer = infer_sort,
                            .gradient = gradient_sort,
                            .gradient_uses = {.inputs = bit_set(0)}};
constexpr Operator kArgsort = {
    .kernel = {"argsort", run_argsort, cuda::argsort, kDirectElements},
    .doc = "Indices that sort x along an axis. Sorting is stable, and NaN is last.",
    .family = "sorting",
    .inputs = {"x"},
    .attrs = &kAttrType<SortAttrs>,
    .infer = infer_argsort};
constexpr Operator kArgpartition = {
    .kernel = {"argpartition", run_argpartition, cuda::argpartition, kDirectElements},
    .doc =
        "Indices along an axis that put the element of rank `kth` in its sorted position, with the smaller "
        "elements before it and the larger ones after it.",
    .family = "sorting",
    .inputs = {"x"},
    .attrs = &kAttrType<PartitionAttrs>,
    .infer = infer_argpartition};
constexpr Operator kArgselect = {
    .kernel = {"argselect", run_argselect, cuda::argselect, kDirectElements},
    .doc =
        "Indices along the last axis of the elements whose ranks in the sorted order are given by `places`.",
    .family = "sorting",
    .inputs = {"x", "places"},
    .infer = infer_argselect};
constexpr Operator kTopK = {
    .kernel = {"topk", run_topk, cuda::topk, kDirectElements},
    .doc = "The k largest or smallest elements along an axis, in order, and their indices.",
    .family = "sorting",
    .inputs = {"x"},
    .outputs = {"values", "indices"},
    .attrs = &kAttrType<TopKAttrs>,
    .infer = infer_topk,
    .gradient = gradient_topk,
    .gradient_uses = {.outputs = bit_set(1)}};
constexpr Operator kUnique = {
    .kernel = {"unique", run_unique, cuda::unique, kDirectElements, false},
    .doc =
        "Distinct elements in ascending order, the index of the first occurrence of each, for each element "
        "of x the index of its value, and the number of occurrences. Only the first `size` elements of "
        "`values`, `first` and `counts` are used; the others are 0.",
    .family = "sorting",
    .inputs = {"x"},
    .outputs = {"values", "first", "inverse", "counts", "size"},
    .infer = infer_unique};
constexpr Operator kSearchsorted = {
    .kernel = {"searchsorted", run_searchsorted, cuda::searchsorted, kDirectElements},
    .doc =
        "Positions at which `values` can be inserted into the ascending array `sorted` (n,) so that it stays "
        "sorted: i64 of the shape of `values`.",
    .family = "sorting",
    .inputs = {"sorted", "values"},
    .attrs = &kAttrType<SearchAttrs>,
    .infer = infer_searchsorted,
    .work = work_searchsorted};

}  // namespace

namespace detail {
OperatorFamily family_sorting() {
  return {&kSort, &kArgsort, &kArgpartition, &kArgselect, &kTopK, &kUnique, &kSearchsorted};
}
}  // namespace detail

NDArray sort(const Arg& x, IntArg axis, bool descending) {
  return call(kSort, SortAttrs{axis, descending}, x);
}

NDArray argsort(const Arg& x, IntArg axis, bool descending) {
  return call(kArgsort, SortAttrs{axis, descending}, x);
}

NDArray argpartition(const Arg& x, IntArg kth, IntArg axis) {
  return call(kArgpartition, PartitionAttrs{kth, axis}, x);
}

NDArray argselect(const Arg& x, const NDArray& places) { return call(kArgselect, {}, x, places); }

TopK topk(const Arg& x, IntArg k, IntArg axis, bool largest) {
  std::vector<NDArray> both = call(kTopK, TopKAttrs{k, axis, largest}, {&x.array, 1}, x.where);
  return {std::move(both[0]), std::move(both[1])};
}

UniqueResult unique(const Arg& x) {
  const std::vector<NDArray> all = call(kUnique, {}, {&x.array, 1}, x.where);
  const int64_t n = all[4].item<int64_t>();
  // Copies free the unused part of the outputs.
  const auto cut = [&](size_t i) {
    return all[i].numel() == n ? all[i] : all[i].slice(0, {0, n}).clone(x.where);
  };
  return {cut(0), cut(1), all[2], cut(3)};
}

NDArray searchsorted(const Arg& sorted, const NDArray& values, bool behind) {
  const DType type = promote(sorted.array.dtype(), values.dtype());
  const NDArray converted = sorted.array.to(type);
  return call(kSearchsorted, SearchAttrs{behind}, {converted, sorted.where}, values.to(type));
}

}  // namespace mx
