#include "nn/metric/rows.h"

#include "ndarray/detail/place.h"
#include "nn/metric/inputs.h"

namespace mx::metric::detail {

using mx::detail::ArrayImpl;

void add_counts(const Kernel& kernel, const NDArray& counts, const NDArray& logits, const NDArray& labels,
                const ClassOptions& options, int64_t k, int64_t classes, std::source_location where) try {
  const char* const op = kernel.name;
  MX_CHECK(logits.defined() && labels.defined(), InvalidArgument, "[", op,
           "] expected logits and labels, got ", describe(logits), " and ", describe(labels));
  MX_CHECK(is_floating(logits.dtype()) && logits.rank() >= 1, InvalidArgument, "[", op,
           "] expected floating-point logits of rank 1 or more, with a dimension of classes, got ",
           describe(logits));
  const int axis = normalize_axis(options.axis, logits.rank(), op);
  Shape rows = logits.shape();
  rows.erase(axis);
  MX_CHECK(is_integral(labels.dtype()) && labels.shape() == rows, InvalidArgument, "[", op,
           "] expected integer labels of shape ", rows, " for logits ", logits.shape(),
           " with classes in dimension ", axis, ", got ", describe(labels));
  const int64_t got = logits.size(axis);
  MX_CHECK(classes == -1 ? got >= k : got == classes, InvalidArgument, "[", op, "] expected ",
           classes == -1 ? k : classes, classes == -1 ? " classes or more" : " classes",
           ", got logits of shape ", logits.shape());
  if (labels.numel() == 0) return;
  const NDArray scores = input_of(logits, logits.dtype(), op, "logits", where);
  const NDArray classes_of = input_of(labels, i64, op, "labels", where);
  const Attrs attrs = ClassAttrs{axis, options.ignore_index, k};
  ArrayImpl* const in[] = {&scores.impl(), &classes_of.impl()};
  ArrayImpl* const out[] = {&counts.impl()};
  launch({.kernel = &kernel,
          .attrs = &attrs,
          .inputs = in,
          .outputs = out,
          .partial_outputs = true,  // the kernel adds to their old values
          .work = logits.numel(),
          .where = where});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::metric::detail
