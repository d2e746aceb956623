#include "operators/scan.h"

#include <algorithm>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/scan.h"
#include "operators/scan_gradient.h"

namespace mx {

using kernels::ScanOp;

namespace {

struct Entry {
  ScanOp op;
  const char* doc;
};

// In the order of the reference page.
constexpr Entry kEntries[] = {
    {ScanOp::cumsum, "Cumulative sum along an axis."},
    {ScanOp::cumprod, "Cumulative product along an axis."},
    {ScanOp::cummax, "Cumulative maximum along an axis; NaN from the first NaN on."},
    {ScanOp::cummin, "Cumulative minimum along an axis; NaN from the first NaN on."},
    {ScanOp::logcumsumexp, "Logarithm of the cumulative sum of exp(x) along an axis."},
};

template <ScanOp kOp>
void infer(InferContext& c) {
  normalize_axis(c.attr<ScanAttrs>().axis, std::max(c.shape(0).rank(), 1), c.name());
  c.output(c.shape(0), kernels::scan_result(kOp, c.dtype(0)));
}

template <ScanOp kOp>
void run(const KernelArgs& args) {
  const ScanAttrs& attrs = args.attr<ScanAttrs>();
  kernels::scan(kOp, args.out[0], args.in[0], attrs.axis, {attrs.exclusive, attrs.reverse});
}

// Exclusive scans of these begin with an infinity. They make no other one from finite numbers.
constexpr bool neutral_is_infinite(ScanOp op) {
  return op == ScanOp::cummax || op == ScanOp::cummin || op == ScanOp::logcumsumexp;
}

constexpr KernelFn cuda_kernel(ScanOp op) {
  switch (op) {
    case ScanOp::cumsum:
      return cuda::cumsum;
    case ScanOp::cumprod:
      return cuda::cumprod;
    case ScanOp::cummax:
      return cuda::cummax;
    case ScanOp::cummin:
      return cuda::cummin;
    case ScanOp::logcumsumexp:
      break;
  }
  return cuda::logcumsumexp;
}

template <size_t kIndex>
const Operator& record() {
  constexpr ScanOp kOp = kEntries[kIndex].op;
  static const Operator op = {
      .kernel = {kernels::to_string(kOp), run<kOp>, cuda_kernel(kOp), kOp == ScanOp::logcumsumexp ? 32 : 512,
                 !neutral_is_infinite(kOp)},
      .doc = kEntries[kIndex].doc,
      .family = "scan",
      .inputs = {"x"},
      .attrs = &kAttrType<ScanAttrs>,
      .infer = infer<kOp>,
      .gradient = detail::scan_gradient(kOp).gradient,
      .gradient_uses = detail::scan_gradient(kOp).uses,
      .in_place = bit_set(0),
  };
  return op;
}

void infer_recurrence(InferContext& c) {
  MX_CHECK(is_floating(c.dtype(0)) && is_floating(c.dtype(1)), InvalidArgument, "[", c.name(),
           "] expected floating-point elements, got ", c.dtype(0), " and ", c.dtype(1));
  MX_CHECK(c.shape(0) == c.shape(1), InvalidArgument, "[", c.name(),
           "] expected a and b of the same shape, got ", c.shape(0), " and ", c.shape(1));
  normalize_axis(c.attr<RecurrenceAttrs>().axis, std::max(c.shape(0).rank(), 1), c.name());
  c.output(c.shape(0), promote(c.dtype(0), c.dtype(1)));
}

void run_recurrence(const KernelArgs& args) {
  const auto& attrs = args.attr<RecurrenceAttrs>();
  kernels::linear_recurrence(args.out[0], args.in[0], args.in[1], attrs.axis, attrs.reverse);
}

constexpr Operator kLinearRecurrence = {
    .kernel = {"linear_recurrence", run_recurrence, cuda::linear_recurrence, 512},
    .doc = "Linear recurrence y[i] = a[i] * y[i - 1] + b[i] along an axis, with y[0] = b[0].",
    .family = "scan",
    .inputs = {"a", "b"},
    .attrs = &kAttrType<RecurrenceAttrs>,
    .infer = infer_recurrence,
    .gradient = detail::gradient_linear_recurrence,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
    .dtypes = {f32, f64, f16, bf16},
    .in_place = bit_set(0, 1),
};

template <ScanOp kOp>
NDArray apply(const Arg& x, int64_t axis, bool exclusive, bool reverse) {
  static_assert(kEntries[static_cast<size_t>(kOp)].op == kOp);
  return call(record<static_cast<size_t>(kOp)>(), ScanAttrs{axis, exclusive, reverse}, x);
}

// A scan of integers is computed in i64. Converting the result to a narrower type takes it modulo the range
// of that type, which is the same as a scan in that type.
template <ScanOp kOp>
NDArray apply(const Arg& x, const ScanAttrs& attrs, std::optional<DType> dtype) {
  const auto scan = [&](const Arg& a) { return apply<kOp>(a, attrs.axis, attrs.exclusive, attrs.reverse); };
  if (!dtype) return scan(x);
  MX_CHECK(*dtype != bool_, InvalidArgument, "[", kernels::to_string(kOp),
           "] expected a numeric type for dtype, got bool");
  return scan({x.array.to(*dtype, x.where), x.where}).to(*dtype, x.where);
}

template <size_t... kIndex>
OperatorFamily family(std::index_sequence<kIndex...>) {
  return {&record<kIndex>()..., &kLinearRecurrence};
}

}  // namespace

namespace detail {
OperatorFamily family_scan() { return family(std::make_index_sequence<std::size(kEntries)>()); }
}  // namespace detail

NDArray cumsum(const Arg& x, IntArg axis, bool exclusive, bool reverse, std::optional<DType> dtype) {
  return apply<ScanOp::cumsum>(x, {axis, exclusive, reverse}, dtype);
}
NDArray cumprod(const Arg& x, IntArg axis, bool exclusive, bool reverse, std::optional<DType> dtype) {
  return apply<ScanOp::cumprod>(x, {axis, exclusive, reverse}, dtype);
}
NDArray cummax(const Arg& x, IntArg axis, bool exclusive, bool reverse) {
  return apply<ScanOp::cummax>(x, axis, exclusive, reverse);
}
NDArray cummin(const Arg& x, IntArg axis, bool exclusive, bool reverse) {
  return apply<ScanOp::cummin>(x, axis, exclusive, reverse);
}
NDArray logcumsumexp(const Arg& x, IntArg axis, bool exclusive, bool reverse) {
  return apply<ScanOp::logcumsumexp>(x, axis, exclusive, reverse);
}
NDArray linear_recurrence(const Arg& a, const NDArray& b, IntArg axis, bool reverse) {
  return call(kLinearRecurrence, RecurrenceAttrs{axis, reverse}, a, b);
}

}  // namespace mx
