#include "operators/scan.h"

#include <algorithm>

#include "operators/kernels/scan.h"

namespace mx {

using kernels::ScanOp;

namespace {

struct Entry {
  ScanOp op;
  const char* doc;
};

// In the order of the reference page.
constexpr Entry kEntries[] = {
    {ScanOp::cumsum, "The running sum."},
    {ScanOp::cumprod, "The running product."},
    {ScanOp::cummax, "The largest so far; NaN from the first one on."},
    {ScanOp::cummin, "The smallest so far; NaN from the first one on."},
    {ScanOp::logcumsumexp, "The logarithm of the running sum of exp(x)."},
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

std::vector<Sample> samples() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, ScanAttrs{}, "axis=0"},
          {{x}, ScanAttrs{-1}, "axis=-1"},
          {{x.transpose()}, ScanAttrs{0, false, true}, "reverse, transposed"},
          {{x}, ScanAttrs{1, true}, "axis=1, exclusive"},
          {{x}, ScanAttrs{1, true, true}, "axis=1, exclusive, reverse"}};
}

template <size_t kIndex>
const Operator& record() {
  constexpr ScanOp kOp = kEntries[kIndex].op;
  static const Operator op = {
      .kernel = {kernels::to_string(kOp), run<kOp>, nullptr, kOp == ScanOp::logcumsumexp ? 32 : 512},
      .doc = kEntries[kIndex].doc,
      .family = "scan",
      .inputs = {"x"},
      .attrs = &kAttrType<ScanAttrs>,
      .infer = infer<kOp>,
      .samples = samples,
      .in_place = 1,
  };
  return op;
}

template <ScanOp kOp>
NDArray apply(const Arg& x, int64_t axis, bool exclusive, bool reverse) {
  static_assert(kEntries[static_cast<size_t>(kOp)].op == kOp);
  return call(record<static_cast<size_t>(kOp)>(), ScanAttrs{axis, exclusive, reverse}, x);
}

template <size_t... kIndex>
OperatorFamily family(std::index_sequence<kIndex...>) {
  return {&record<kIndex>()...};
}

}  // namespace

namespace detail {
OperatorFamily family_scan() { return family(std::make_index_sequence<std::size(kEntries)>()); }
}  // namespace detail

NDArray cumsum(const Arg& x, int64_t axis, bool exclusive, bool reverse) {
  return apply<ScanOp::cumsum>(x, axis, exclusive, reverse);
}
NDArray cumprod(const Arg& x, int64_t axis, bool exclusive, bool reverse) {
  return apply<ScanOp::cumprod>(x, axis, exclusive, reverse);
}
NDArray cummax(const Arg& x, int64_t axis, bool exclusive, bool reverse) {
  return apply<ScanOp::cummax>(x, axis, exclusive, reverse);
}
NDArray cummin(const Arg& x, int64_t axis, bool exclusive, bool reverse) {
  return apply<ScanOp::cummin>(x, axis, exclusive, reverse);
}
NDArray logcumsumexp(const Arg& x, int64_t axis, bool exclusive, bool reverse) {
  return apply<ScanOp::logcumsumexp>(x, axis, exclusive, reverse);
}

}  // namespace mx
