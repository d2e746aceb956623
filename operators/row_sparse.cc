#include "operators/row_sparse.h"

#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/kernels/row_sparse.h"
#include "operators/row_sparse_attrs.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx {
namespace {

using detail::SumRowsAttrs;

constexpr int64_t kDirectElements = 1024;

void infer(InferContext& c) {
  const auto& attrs = c.attr<SumRowsAttrs>();
  const Shape &indices = c.shape(0), &values = c.shape(1);
  detail::check_index_type(c, 0);
  MX_CHECK(is_floating(c.dtype(1)) && indices.rank() == 1 && values.rank() == 2 && values[0] == indices[0],
           InvalidArgument, "[", c.name(),
           "] expected indices (n,) and values (n, width) in floating point for a table of ", attrs.size,
           " rows, got shape ", indices, " and ", c.dtype(1), ' ', values);
  MX_CHECK(attrs.size >= 0 && attrs.skip_row >= -1 && attrs.skip_row < attrs.size + 1, InvalidArgument, "[",
           c.name(), "] expected a size of 0 or more and a skip_row of the table (or -1), got size ",
           attrs.size, " and skip_row ", attrs.skip_row);
  c.output(indices, i64);
  c.output(values, c.dtype(1));
}

void run(const KernelArgs& args) {
  const auto& attrs = args.attr<SumRowsAttrs>();
  kernels::sum_rows(args, args.out[0], args.out[1], args.in[0], args.in[1], attrs.size, attrs.skip_row);
}

// Each row of `values` gets the gradient of the sum that it is part of; one that was left out gets 0.
void gradient(GradientContext& g) {
  if (!g.wanted(1)) return;
  const int64_t size = g.attr<SumRowsAttrs>().size;
  const NDArray given = g.input(0).to(i64), &rows = g.output(0);
  const NDArray index = where(given < 0, given + size, given);
  const NDArray place = searchsorted(rows, index);
  const NDArray part = logical_and(take(rows, place, 0, IndexMode::clip) == index, index != size);
  g.set(1, where(part.expand_dims(1), take(g.head_or_zeros(1), place, 0, IndexMode::clip), 0));
}

constexpr Operator kSumRows = {
    .kernel = {"sum_rows", run, cuda::sum_rows, kDirectElements},
    .doc =
        "Sums of the rows of `values` with the same index: `rows` has the indices in ascending order, each "
        "once, "
        "then `size` as often as rows are left; `sums` has their sums, and 0 for what is left.",
    .family = "row_sparse",
    .inputs = {"indices", "values"},
    .outputs = {"rows", "sums"},
    .attrs = &kAttrType<SumRowsAttrs>,
    .infer = infer,
    .gradient = gradient,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
    .dtypes = {i32, i64},
    .sized_by_values = true,
};

void run_put(const KernelArgs& args) { kernels::put_rows(args.out[0], args.in[0], args.in[1]); }
const Kernel kPut = {"put_rows", run_put, cuda::put_rows, kDirectElements};

bool has_gpu_kernel(const Operator& op) { return op.kernel.cuda != nullptr; }

/// A row-sparse array; its memory is made when it is read.
struct DeferredRows final : detail::DeferredValue {
  RowSparse rows;

  DeferredRows(const RowSparse& r, Context c) : DeferredValue(c), rows(r) {}

  void fill(detail::ArrayImpl& array) override {
    const NoGrad pause;
    NDArray dense = zeros(array.shape, array.dtype, context);
    put_rows(dense, rows);
    array.storage = dense.impl().storage;  // no other code has used the array's own memory yet
    array.storage->set_has_been_gradient();
    rows = {};
  }
};

}  // namespace

namespace detail {

OperatorFamily family_row_sparse() { return {&kSumRows}; }

NDArray make_row_sparse(const RowSparse& rows, int64_t size) {
  const NDArray& values = rows.values;
  auto made = new_array({size, values.shape()[1]}, values.dtype(), values.context(), "row_sparse");
  made->deferred = std::make_unique<DeferredRows>(rows, values.context());
  made->flags.fetch_or(kDeferred, std::memory_order_relaxed);
  return NDArray(std::move(made));
}

NDArray sum_row_sparse(std::span<const NDArray> arrays, Context context) {
  const NoGrad pause;
  std::vector<NDArray> rows, values;
  int64_t count = 0;
  for (const NDArray& array : arrays) {
    const auto part = row_sparse(array);
    if (!part) return {};
    rows.push_back(part->rows.to(context));
    values.push_back(part->values.to(context));
    count += part->rows.numel();
  }
  if (rows.empty() || count >= arrays[0].shape()[0]) return {};
  const int64_t size = arrays[0].shape()[0];
  return make_row_sparse(sum_rows(mx::concat(rows), mx::concat(values), size), size);
}

bool has_row_sparse(Context context) { return context.kind != DeviceKind::gpu || has_gpu_kernel(kSumRows); }

}  // namespace detail

std::optional<RowSparse> row_sparse(const NDArray& array) {
  if (!array.defined()) return std::nullopt;
  detail::ArrayImpl& impl = *array.ref();
  const auto* const deferred = dynamic_cast<const DeferredRows*>(impl.deferred.get());
  if (deferred == nullptr) return std::nullopt;
  const std::lock_guard lock(impl.deferred->mutex);
  if ((impl.flags.load(std::memory_order_acquire) & detail::kDeferred) == 0) return std::nullopt;
  return deferred->rows;
}

RowSparse sum_rows(const Arg& indices, const NDArray& values, IntArg size, IntArg skip_row) {
  const NDArray inputs[] = {detail::as_indices(indices.array, "sum_rows", indices.where), values};
  std::vector<NDArray> results = call(kSumRows, SumRowsAttrs{size, skip_row}, inputs, indices.where);
  return {std::move(results[0]), std::move(results[1])};
}

void put_rows(NDArray& target, const RowSparse& rows, std::source_location where) try {
  const NDArray &indices = rows.rows, &values = rows.values;
  MX_CHECK(target.rank() == 2 && indices.rank() == 1 && indices.dtype() == i64 &&
               values.shape() == (Shape{indices.shape()[0], target.shape()[1]}),
           InvalidArgument, "[put_rows] expected rows i64 (n,) and values (n, ",
           target.rank() == 2 ? target.shape()[1] : 0, ") for a table of rank 2, got ", indices.dtype(), ' ',
           indices.shape(), " and ", values.shape(), " for a table ", target.shape());
  const bool recorded_target = target.impl().recorded();
  MX_CHECK(!recorded_target && !values.impl().recorded(), InvalidState,
           "[put_rows] expected a table and values that are not recorded, since no gradient flows through "
           "this function, got recorded ",
           recorded_target ? "a table" : "values", "; use index_copy_(), or NoGrad");
  detail::ArrayImpl* const in[] = {&indices.impl(), &values.impl()};
  detail::ArrayImpl* const out[] = {&target.impl()};
  launch({.kernel = &kPut,
          .inputs = in,
          .outputs = out,
          .partial_outputs = true,
          .work = values.numel(),
          .where = where});
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace mx
