// Indices along one axis. Advanced indexing and masks are in advanced_indexing.cc.
#include "operators/indexing.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "ndarray/detail/place.h"
#include "ndarray/kernels/copy.h"
#include "operators/cuda_kernels.h"
#include "operators/indexing_records.h"

namespace mx {

using detail::EmbeddingAttrs;
using detail::EmbeddingGradientAttrs;
using detail::GatherAttrs;
using detail::OneHotAttrs;
using detail::TakeAttrs;
using detail::UpdateAttrs;

namespace {

constexpr int64_t kDirectElements = 1024, kDirectTaken = 4096, kDirectUpdates = 256;

/// Returns the work of an operator that reads only some elements of x.
int64_t work_of_result(const InferContext& c) {
  return std::max(c.output_shape(0).numel(), c.shape(1).numel());
}

void check_same_type(const InferContext& c, size_t i) {
  MX_CHECK(c.dtype(i) == c.dtype(0), InvalidArgument, "[", c.name(), "] expected values of x's type ",
           c.dtype(0), ", got ", c.dtype(i));
}

void check_widens(const InferContext& c, size_t i, const Shape& shape) {
  MX_CHECK(c.shape(i).rank() <= shape.rank() && broadcast_shapes(c.shape(i), shape, c.name()) == shape,
           InvalidArgument, "[", c.name(), "] expected updates that broadcast to ", shape, ", got ",
           c.shape(i));
}

void start_from(const Tensor& out, const Tensor& x) {
  if (out.data != x.data) kernels::copy(out, x);
}

// take

void infer_take(InferContext& c) {
  const auto& attrs = c.attr<TakeAttrs>();
  detail::index_mode(attrs.mode, c.name());
  detail::check_index_type(c, 1);
  normalize_axis(attrs.axis, c.shape(0).rank(), c.name());
  c.output(kernels::take_shape(c.shape(0), c.shape(1), attrs.axis), c.dtype(0));
}

void run_take(const KernelArgs& args) {
  const auto& attrs = args.attr<TakeAttrs>();
  kernels::take(args.out[0], args.in[0], args.in[1], attrs.axis, detail::index_mode(attrs.mode, "take"));
}

// gather

void infer_gather(InferContext& c) {
  detail::check_index_type(c, 1);
  const int axis = normalize_axis(c.attr<GatherAttrs>().axis, c.shape(0).rank(), c.name());
  bool fits = c.shape(1).rank() == c.shape(0).rank();
  for (int i = 0; fits && i < c.shape(0).rank(); ++i) fits = i == axis || c.shape(1)[i] <= c.shape(0)[i];
  MX_CHECK(fits, InvalidArgument, "[", c.name(), "] expected indices no larger than shape ", c.shape(0),
           " except along axis ", axis, ", got shape ", c.shape(1));
  c.output(c.shape(1), c.dtype(0));
}

void run_gather(const KernelArgs& args) {
  kernels::gather(args.out[0], args.in[0], args.in[1], args.attr<GatherAttrs>().axis);
}

// scatter and index_update

void infer_scatter(InferContext& c) {
  const auto& attrs = c.attr<UpdateAttrs>();
  detail::scatter_how(attrs.how, c.name());
  detail::check_index_type(c, 1);
  check_same_type(c, 2);
  const int axis = normalize_axis(attrs.axis, c.shape(0).rank(), c.name());
  bool fits = c.shape(1).rank() == c.shape(0).rank();
  for (int i = 0; fits && i < c.shape(0).rank(); ++i) fits = i == axis || c.shape(1)[i] <= c.shape(0)[i];
  MX_CHECK(fits, InvalidArgument, "[", c.name(), "] expected indices no larger than shape ", c.shape(0),
           " except along axis ", axis, ", got shape ", c.shape(1));
  check_widens(c, 2, c.shape(1));
  c.output(c.shape(0), c.dtype(0));
}

void run_scatter(const KernelArgs& args) {
  const auto& attrs = args.attr<UpdateAttrs>();
  start_from(args.out[0], args.in[0]);
  kernels::scatter(args.out[0], args.in[1], args.in[2].broadcast(args.in[1].shape), attrs.axis,
                   detail::scatter_how(attrs.how, "scatter"));
}

Shape index_update_shape(const Shape& x, const Shape& indices, int axis) {
  Shape shape = x;
  shape[axis] = indices[0];
  return shape;
}

void infer_index_update(InferContext& c) {
  const auto& attrs = c.attr<UpdateAttrs>();
  detail::scatter_how(attrs.how, c.name());
  detail::check_index_type(c, 1);
  check_same_type(c, 2);
  const int axis = normalize_axis(attrs.axis, c.shape(0).rank(), c.name());
  MX_CHECK(c.shape(1).rank() == 1, InvalidArgument, "[", c.name(), "] expected indices of rank 1, got shape ",
           c.shape(1));
  check_widens(c, 2, index_update_shape(c.shape(0), c.shape(1), axis));
  c.output(c.shape(0), c.dtype(0));
}

void run_index_update(const KernelArgs& args) {
  const auto& attrs = args.attr<UpdateAttrs>();
  const Tensor &x = args.in[0], &indices = args.in[1];
  const int axis = normalize_axis(attrs.axis, x.rank(), "index_update");
  start_from(args.out[0], x);
  kernels::index_update(args.out[0], indices,
                        args.in[2].broadcast(index_update_shape(x.shape, indices.shape, axis)), axis,
                        detail::scatter_how(attrs.how, "index_update"));
}

// one_hot and embedding

void infer_one_hot(InferContext& c) {
  const auto& attrs = c.attr<OneHotAttrs>();
  detail::check_index_type(c, 0);
  MX_CHECK(attrs.classes >= 0, InvalidArgument, "[", c.name(),
           "] expected a number of classes of 0 or more, got ", attrs.classes);
  Shape shape = c.shape(0);
  shape.push_back(attrs.classes);
  c.output(shape, attrs.dtype);
}

void run_one_hot(const KernelArgs& args) { kernels::one_hot(args.out[0], args.in[0]); }

void infer_embedding(InferContext& c) {
  MX_CHECK(c.shape(0).rank() == 2, InvalidArgument, "[", c.name(), "] expected a table of rank 2, got shape ",
           c.shape(0));
  detail::check_index_type(c, 1);
  const int64_t padding = c.attr<EmbeddingAttrs>().padding;
  MX_CHECK(padding >= -1 && padding < std::max<int64_t>(1, c.shape(0)[0]), InvalidArgument, "[", c.name(),
           "] expected a padding row of the table (or -1), which has ", c.shape(0)[0], " rows, got ",
           padding);
  c.output(kernels::take_shape(c.shape(0), c.shape(1), 0), c.dtype(0));
}

void run_embedding(const KernelArgs& args) {
  kernels::embedding(args.out[0], args.in[0], args.in[1], args.attr<EmbeddingAttrs>().from_end);
}

void infer_embedding_gradient(InferContext& c) {
  const auto& attrs = c.attr<EmbeddingGradientAttrs>();
  const Shape &indices = c.shape(0), &head = c.shape(1);
  detail::check_index_type(c, 0);
  bool fits = head.rank() == indices.rank() + 1;
  for (int i = 0; fits && i < indices.rank(); ++i) fits = head[i] == indices[i];
  MX_CHECK(fits, InvalidArgument, "[", c.name(), "] expected a head of the indices' shape ", indices,
           " followed by one more dimension, got shape ", head);
  MX_CHECK(attrs.rows >= 0 && attrs.skip_row < attrs.rows, InvalidArgument, "[", c.name(),
           "] expected rows of 0 or more and skip_row below rows, got rows ", attrs.rows, " and skip_row ",
           attrs.skip_row);
  c.output({attrs.rows, head.back()}, c.dtype(1));
}

void run_embedding_gradient(const KernelArgs& args) {
  kernels::embedding_gradient(args.out[0], args.in[0], args.in[1],
                              args.attr<EmbeddingGradientAttrs>().skip_row);
}

constexpr Operator kTake = {
    .kernel = {"take", run_take, cuda::take, kDirectTaken},
    .doc = "Entries of x at `indices` along one axis. The dimensions of `indices` replace that axis.",
    .family = "indexing",
    .inputs = {"x", "indices"},
    .attrs = &kAttrType<TakeAttrs>,
    .infer = infer_take,
    .gradient = detail::gradient_take,
    .gradient_uses = {.inputs = bit_set(1)},
    .work = work_of_result};
constexpr Operator kGather = {.kernel = {"gather", run_gather, cuda::gather, kDirectElements},
                              .doc =
                                  "Elements of x, each at an index of its own along one axis: y[.., j, ..] = "
                                  "x[.., indices[.., j, ..], ..].",
                              .family = "indexing",
                              .inputs = {"x", "indices"},
                              .attrs = &kAttrType<GatherAttrs>,
                              .infer = infer_gather,
                              .gradient = detail::gradient_gather,
                              .gradient_uses = {.inputs = bit_set(1)},
                              .work = work_of_result};
constexpr Operator kScatter = {
    .kernel = {"scatter", run_scatter, cuda::scatter, kDirectUpdates},
    .doc =
        "Copy of x in which x[.., indices[.., j, ..], ..] is set to updates[.., j, ..], or combined with it.",
    .family = "indexing",
    .inputs = {"x", "indices", "updates"},
    .attrs = &kAttrType<UpdateAttrs>,
    .infer = infer_scatter,
    .gradient = detail::gradient_scatter,
    .gradient_uses = {.inputs = bit_set(0, 1, 2), .outputs = bit_set(0)},
    .narrowed_uses = detail::uses_of_update,
    .in_place = bit_set(0)};
constexpr Operator kIndexUpdate = {
    .kernel = {"index_update", run_index_update, cuda::index_update, kDirectUpdates},
    .doc =
        "Copy of x in which the entries at `indices` (n,) along one axis are "
        "set to the entries of `updates`, or combined with them.",
    .family = "indexing",
    .inputs = {"x", "indices", "updates"},
    .attrs = &kAttrType<UpdateAttrs>,
    .infer = infer_index_update,
    .gradient = detail::gradient_index_update,
    .gradient_uses = {.inputs = bit_set(0, 1, 2), .outputs = bit_set(0)},
    .narrowed_uses = detail::uses_of_update,
    .in_place = bit_set(0)};
constexpr Operator kOneHot = {
    .kernel = {"one_hot", run_one_hot, cuda::one_hot, kDirectElements},
    .doc =
        "One-hot encoding along a new last dimension: 1 at the position that the index gives, 0 elsewhere.",
    .family = "indexing",
    .inputs = {"indices"},
    .attrs = &kAttrType<OneHotAttrs>,
    .infer = infer_one_hot,
    .dtypes = {i32, i64}};
constexpr Operator kEmbedding = {.kernel = {"embedding", run_embedding, cuda::embedding, kDirectElements},
                                 .doc = "Rows of a table (rows, width) at `indices`: shape (.., width).",
                                 .family = "indexing",
                                 .inputs = {"table", "indices"},
                                 .attrs = &kAttrType<EmbeddingAttrs>,
                                 .infer = infer_embedding,
                                 .gradient = detail::gradient_embedding,
                                 .gradient_uses = {.inputs = bit_set(1)},
                                 .work = work_of_result};
constexpr Operator kEmbeddingGradient = {
    .kernel = {"embedding_gradient", run_embedding_gradient, cuda::embedding_gradient, kDirectUpdates},
    .doc =
        "Gradient of embedding with respect to the table: for each row, the sum of `head` over the positions "
        "that took this row.",
    .family = "indexing",
    .inputs = {"indices", "head"},
    .attrs = &kAttrType<EmbeddingGradientAttrs>,
    .infer = infer_embedding_gradient,
    .gradient = detail::gradient_embedding_gradient,
    .gradient_uses = {.inputs = bit_set(0)},
    .dtypes = {i32, i64}};

void update_in_place(NDArray& x, const Operator& op, const NDArray& indices, const NDArray& updates,
                     int64_t axis, Scatter how, std::source_location where) {
  const NDArray inputs[] = {x, detail::as_indices(indices, op.name(), where), updates.to(x.dtype(), where)};
  call_into(x, op, UpdateAttrs{axis, to_string(how)}, inputs, where);
}

// Throws the current exception with the name of the function that the program has called, in place of that of
// the operator. Errors that the kernel throws later, such as that of a bad index, have the operator's name.
[[noreturn]] void rethrow_named(const char* called) {
  std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
    constexpr std::string_view kOperator = "[index_update]";
    return text.starts_with(kOperator)
               ? detail::concat('[', called, ']', std::string_view(text).substr(kOperator.size()))
               : text;
  }));
}

}  // namespace

namespace detail {

OperatorFamily family_indexing() {
  return {&kTake, &kGather, &kScatter, &kIndexUpdate, &kOneHot, &kEmbedding, &kEmbeddingGradient};
}

IndexMode index_mode(const std::string& text, const char* op) {
  if (text == "raise") return IndexMode::raise;
  if (text == "clip") return IndexMode::clip;
  MX_CHECK(text == "wrap", InvalidArgument, "[", op, "] expected mode raise, clip or wrap, got \"", text,
           "\"");
  return IndexMode::wrap;
}

Scatter scatter_how(const std::string& text, const char* op) {
  for (Scatter how : {Scatter::set, Scatter::add, Scatter::mul, Scatter::max, Scatter::min})
    if (text == to_string(how)) return how;
  throw InvalidArgument(
      concat("[", op, "] expected the update mode set, add, mul, max or min, got \"", text, "\""));
}

NDArray as_indices(const NDArray& indices, const char* op, std::source_location where) {
  const DType type = indices.dtype();
  if (type == i32 || type == i64) return indices;
  MX_CHECK(is_integral(type), InvalidArgument, "[", op, "] expected indices of an integer type, got ", type,
           called_at(where));
  return indices.to(i64, where);
}

void check_index_type(const InferContext& c, size_t i) {
  MX_CHECK(c.dtype(i) == i32 || c.dtype(i) == i64, InvalidArgument, "[", c.name(),
           "] expected indices of type i32 or i64, got ", c.dtype(i));
}

}  // namespace detail

std::string to_string(IndexMode mode) {
  return mode == IndexMode::raise ? "raise" : mode == IndexMode::clip ? "clip" : "wrap";
}

std::string to_string(Scatter how) {
  switch (how) {
    case Scatter::set:
      return "set";
    case Scatter::add:
      return "add";
    case Scatter::mul:
      return "mul";
    case Scatter::max:
      return "max";
    case Scatter::min:
      break;
  }
  return "min";
}

NDArray take(const Arg& x, const NDArray& indices, IntArg axis, IndexMode mode) {
  return call(kTake, TakeAttrs{axis, to_string(mode)}, x, detail::as_indices(indices, "take", x.where));
}

NDArray gather(const Arg& x, const NDArray& indices, IntArg axis) {
  return call(kGather, GatherAttrs{axis}, x, detail::as_indices(indices, "gather", x.where));
}

NDArray take_along_axis(const Arg& x, const NDArray& indices, IntArg axis) try {
  const char* const op = "take_along_axis";
  const NDArray& a = x.array;
  MX_CHECK(a.rank() == indices.rank(), InvalidArgument, "[", op, "] expected indices of x's rank ", a.rank(),
           ", got shape ", indices.shape());
  const int d = normalize_axis(axis, a.rank(), op);
  Shape rest = a.shape(), other = indices.shape();
  rest[d] = other[d] = 1;
  const Shape both = broadcast_shapes(rest, other, op);
  Shape wide_x = both, wide_indices = both;
  wide_x[d] = a.shape()[d];
  wide_indices[d] = indices.shape()[d];
  return gather({a.broadcast_to(wide_x), x.where}, indices.broadcast_to(wide_indices), d);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray scatter(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis, Scatter how) {
  return call(kScatter, UpdateAttrs{axis, to_string(how)}, x, detail::as_indices(indices, "scatter", x.where),
              updates.to(x.array.dtype(), x.where));
}

NDArray& scatter_(NDArray& x, const NDArray& indices, const NDArray& updates, IntArg axis, Scatter how,
                  std::source_location where) {
  update_in_place(x, kScatter, indices, updates, axis, how, where);
  return x;
}

NDArray index_update(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis, Scatter how) {
  return call(kIndexUpdate, UpdateAttrs{axis, to_string(how)}, x,
              detail::as_indices(indices, "index_update", x.where), updates.to(x.array.dtype(), x.where));
}

NDArray index_add(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis) try {
  return index_update(x, indices, updates, axis, Scatter::add);
} catch (const Error&) {
  rethrow_named("index_add");
}

NDArray index_copy(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis) try {
  return index_update(x, indices, updates, axis, Scatter::set);
} catch (const Error&) {
  rethrow_named("index_copy");
}

NDArray& index_add_(NDArray& x, const NDArray& indices, const NDArray& updates, IntArg axis,
                    std::source_location where) try {
  update_in_place(x, kIndexUpdate, indices, updates, axis, Scatter::add, where);
  return x;
} catch (const Error&) {
  rethrow_named("index_add");
}

NDArray& index_copy_(NDArray& x, const NDArray& indices, const NDArray& updates, IntArg axis,
                     std::source_location where) try {
  update_in_place(x, kIndexUpdate, indices, updates, axis, Scatter::set, where);
  return x;
} catch (const Error&) {
  rethrow_named("index_copy");
}

NDArray one_hot(const Arg& indices, IntArg classes, DType dtype) {
  const NDArray converted = detail::as_indices(indices.array, "one_hot", indices.where);
  return call(kOneHot, OneHotAttrs{classes, dtype}, {converted, indices.where});
}

NDArray embedding(const Arg& table, const NDArray& indices, IntArg padding, bool sparse, bool from_end) {
  return call(kEmbedding, EmbeddingAttrs{padding, sparse, from_end}, table,
              detail::as_indices(indices, "embedding", table.where));
}

NDArray embedding_gradient(const Arg& indices, const NDArray& head, IntArg rows, IntArg skip_row) {
  const NDArray converted = detail::as_indices(indices.array, "embedding_gradient", indices.where);
  return call(kEmbeddingGradient, EmbeddingGradientAttrs{rows, skip_row}, {converted, indices.where}, head);
}

}  // namespace mx
