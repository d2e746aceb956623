#include "operators/segment.h"

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/kernels/sparse.h"
#include "operators/segment_attrs.h"
#include "operators/select.h"

namespace mx {
namespace {

using detail::ExpandAttrs;
using detail::OffsetsAttrs;
using kernels::SegmentReduce;

constexpr int64_t kDirectElements = 1024;

/// Checks x, input 0, and offsets, input 1. Returns the number of segments.
int64_t check_segments(const InferContext& c) {
  detail::check_index_type(c, 1);
  MX_CHECK(c.shape(0).rank() >= 1 && c.shape(1).rank() == 1 && c.shape(1)[0] >= 1, InvalidArgument, "[",
           c.name(), "] expected x of rank 1 or more and offsets (segments + 1,), got shapes ", c.shape(0),
           " and ", c.shape(1));
  return c.shape(1)[0] - 1;
}

Shape with_rows(const Shape& x, int64_t rows) {
  Shape shape = x;
  shape[0] = rows;
  return shape;
}

/// The same for x of a floating-point type.
int64_t check_reduced(const InferContext& c) {
  MX_CHECK(is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected x of a floating-point type, got ", c.dtype(0));
  return check_segments(c);
}

void infer_reduce(InferContext& c) {
  const int64_t segments = check_reduced(c);
  c.output(with_rows(c.shape(0), segments), c.dtype(0));
}

template <SegmentReduce kHow>
void run_reduce(const KernelArgs& args) {
  kernels::segment_reduce(args, args.out[0], args.in[0], args.in[1], kHow);
}

NDArray spread(const GradientContext& g, const NDArray& x, const NDArray& offsets) {
  return segment_expand(x, offsets, g.input_shape(0)[0]);
}

void gradient_sum(GradientContext& g) { g.set(0, spread(g, g.head(), g.input(1))); }

void gradient_mean(GradientContext& g) {
  const NDArray &head = g.head(), &offsets = g.input(1);
  const NDArray sizes = offsets.slice(0, Slice{1, {}}) - offsets.slice(0, Slice{0, -1});
  Shape shape = Shape::filled(head.rank(), 1);
  shape[0] = head.shape()[0];
  g.set(0, spread(g, head / maximum(sizes, 1).to(head.dtype()).reshape(shape), offsets));
}

void gradient_extreme(GradientContext& g) {
  const NDArray &offsets = g.input(1), &head = g.head();
  const NDArray chosen = g.input(0) == spread(g, g.output(), offsets);
  // A segment without rows has no chosen ones; 0 / 0 would spoil gradients of this gradient.
  const NDArray count = maximum(segment_sum(chosen.to(head.dtype()), offsets), 1);
  g.set(0, where(chosen, spread(g, head / count, offsets), 0));
}

void infer_softmax(InferContext& c) {
  check_reduced(c);
  c.output(c.shape(0), c.dtype(0));
}

void run_softmax(const KernelArgs& args) {
  kernels::segment_softmax(args, args.out[0], args.in[0], args.in[1]);
}

// As that of softmax: y (dy - the sum of y dy).
void gradient_softmax(GradientContext& g) {
  const NDArray &y = g.output(), &offsets = g.input(1);
  g.set(0, y * (g.head() - spread(g, segment_sum(y * g.head(), offsets), offsets)));
}

void infer_expand(InferContext& c) {
  const int64_t segments = check_segments(c), rows = c.attr<ExpandAttrs>().rows;
  MX_CHECK(c.shape(0)[0] == segments && rows >= 0, InvalidArgument, "[", c.name(),
           "] expected x with a row for each of ", segments,
           " segments, and a number of rows of 0 or more, got", " shape ", c.shape(0), " and rows ", rows);
  c.output(with_rows(c.shape(0), rows), c.dtype(0));
}

void run_expand(const KernelArgs& args) {
  kernels::segment_expand(args, args.out[0], args.in[0], args.in[1]);
}

void gradient_expand(GradientContext& g) { g.set(0, segment_sum(g.head(), g.input(1))); }

void infer_offsets(InferContext& c) {
  const int64_t segments = c.attr<OffsetsAttrs>().segments;
  detail::check_index_type(c, 0);
  MX_CHECK(c.shape(0).rank() == 1 && segments >= 0, InvalidArgument, "[", c.name(),
           "] expected ids of rank 1 and a number of segments of 0 or more, got shape ", c.shape(0),
           " and segments ", segments);
  c.output({segments + 1}, i64);
}

void run_offsets(const KernelArgs& args) { kernels::segment_offsets(args.out[0], args.in[0]); }

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator reduction(const char* name, const char* doc, KernelFn run, KernelFn on_gpu,
                             void (*gradient)(GradientContext&), const GradientUses& uses) {
  return {.kernel = {name, run, on_gpu, kDirectElements},
          .doc = doc,
          .family = "segment",
          .inputs = {"x", "offsets"},
          .infer = infer_reduce,
          .gradient = gradient,
          .gradient_uses = uses,
          .dtypes = kFloating,
          .sized_by_values = true};
}

constexpr Operator kSum =
    reduction("segment_sum", "Sums of the rows of each segment; 0 for one without rows.",
              run_reduce<SegmentReduce::sum>, cuda::segment_sum, gradient_sum, {.inputs = bit_set(1)});
constexpr Operator kMean =
    reduction("segment_mean", "Means of the rows of each segment; 0 for one without rows.",
              run_reduce<SegmentReduce::mean>, cuda::segment_mean, gradient_mean, {.inputs = bit_set(1)});
constexpr Operator kMax =
    reduction("segment_max", "Largest elements of the rows of each segment; 0 for one without rows.",
              run_reduce<SegmentReduce::max>, cuda::segment_max, gradient_extreme,
              {.inputs = bit_set(0, 1), .outputs = bit_set(0)});
constexpr Operator kMin =
    reduction("segment_min", "Smallest elements of the rows of each segment; 0 for one without rows.",
              run_reduce<SegmentReduce::min>, cuda::segment_min, gradient_extreme,
              {.inputs = bit_set(0, 1), .outputs = bit_set(0)});

constexpr Operator kSoftmax = {
    .kernel = {"segment_softmax", run_softmax, cuda::segment_softmax, kDirectElements},
    .doc = "Exponentials of the rows of each segment, divided by their sums.",
    .family = "segment",
    .inputs = {"x", "offsets"},
    .infer = infer_softmax,
    .gradient = gradient_softmax,
    .gradient_uses = {.inputs = bit_set(1), .outputs = bit_set(0)},
    .dtypes = kFloating,
    .sized_by_values = true,
};

constexpr Operator kExpand = {
    .kernel = {"segment_expand", run_expand, cuda::segment_expand, kDirectElements},
    .doc = "Rows of x, each repeated for all rows of its segment.",
    .family = "segment",
    .inputs = {"x", "offsets"},
    .attrs = &kAttrType<ExpandAttrs>,
    .infer = infer_expand,
    .gradient = gradient_expand,
    .gradient_uses = {.inputs = bit_set(1)},
    .sized_by_values = true,
};

constexpr Operator kOffsets = {
    .kernel = {"segment_offsets", run_offsets, cuda::segment_offsets, kDirectElements},
    .doc = "Offsets of segments from the ascending numbers of the segments of all rows.",
    .family = "segment",
    .inputs = {"ids"},
    .attrs = &kAttrType<OffsetsAttrs>,
    .infer = infer_offsets,
    .dtypes = {i32, i64},
    .sized_by_values = true,
};

NDArray call_on_segments(const Operator& op, const Attrs& attrs, const Arg& x, const NDArray& offsets) {
  return call(op, attrs, x, detail::as_indices(offsets, op.name(), x.where));
}

}  // namespace

namespace detail {
OperatorFamily family_segment() { return {&kSum, &kMean, &kMax, &kMin, &kSoftmax, &kExpand, &kOffsets}; }
}  // namespace detail

NDArray segment_sum(const Arg& x, const NDArray& offsets) { return call_on_segments(kSum, {}, x, offsets); }
NDArray segment_mean(const Arg& x, const NDArray& offsets) { return call_on_segments(kMean, {}, x, offsets); }
NDArray segment_max(const Arg& x, const NDArray& offsets) { return call_on_segments(kMax, {}, x, offsets); }
NDArray segment_min(const Arg& x, const NDArray& offsets) { return call_on_segments(kMin, {}, x, offsets); }

NDArray segment_expand(const Arg& x, const NDArray& offsets, IntArg rows) {
  return call_on_segments(kExpand, ExpandAttrs{rows}, x, offsets);
}

NDArray segment_softmax(const Arg& x, const NDArray& offsets) {
  return call_on_segments(kSoftmax, {}, x, offsets);
}

NDArray segment_offsets(const Arg& ids, IntArg segments) {
  const NDArray converted = detail::as_indices(ids.array, "segment_offsets", ids.where);
  return call(kOffsets, OffsetsAttrs{segments}, {converted, ids.where});
}

}  // namespace mx
