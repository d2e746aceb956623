// A new structured operator needs only this file and the declaration of its function.
#include "engine/base/check.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/row_convert.h"
#include "operators/operator.h"
#include "operators/scratch.h"

namespace mx {
namespace {

struct CenterAttrs {
  int64_t axis = -1;
  template <class V>
  static void fields(V&& v) {
    v("axis", &CenterAttrs::axis, "the dimension along which the mean is subtracted");
  }
};

void infer(InferContext& c) {
  MX_CHECK(is_floating(c.dtype(0)), InvalidArgument, "[center] expected floating point, got ", c.dtype(0));
  normalize_axis(c.attr<CenterAttrs>().axis, c.shape(0).rank(), "center");
  c.output(c.shape(0), c.dtype(0));
}

void run(const KernelArgs& args) {
  const Tensor &x = args.in[0], &y = args.out[0];
  const int axis = normalize_axis(args.attr<CenterAttrs>().axis, x.rank(), "center");
  const int64_t n = x.shape[axis];
  if (x.numel() == 0) return;
  const int64_t rows = x.numel() / n;
  const Scratch memory(args, static_cast<size_t>(rows * n) * sizeof(double));
  parallel_for(rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t from = 0, to = 0, rest = row;
      for (int i = x.rank() - 1; i >= 0; --i) {
        if (i == axis) continue;
        from += rest % x.shape[i] * x.strides[i];
        to += rest % x.shape[i] * y.strides[i];
        rest /= x.shape[i];
      }
      double* const values = memory.as<double>() + row * n;
      kernels::load_run(values, x.data, x.dtype, from, x.strides[axis], n);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += values[i];
      for (int64_t i = 0; i < n; ++i) values[i] -= sum / static_cast<double>(n);
      kernels::store_run(y.data, y.dtype, to, y.strides[axis], values, n);
    }
  });
}

void gradient(GradientContext& g);

std::vector<Sample> samples() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x}, CenterAttrs{}, "rows"}, {{x}, CenterAttrs{0}, "columns"}};
}

const Operator& record() {
  static const Operator op = {.kernel = {"center", run},
                              .doc = "Difference of x and its mean along an axis.",
                              .family = "reduction",
                              .inputs = {"x"},
                              .attrs = &kAttrType<CenterAttrs>,
                              .infer = infer,
                              .gradient = gradient,
                              .samples = samples,
                              .dtypes = {f32, f64, f16, bf16},
                              .in_place = bit_set(0)};
  return op;
}

void gradient(GradientContext& g) { g.set(0, call(record(), g.attr<CenterAttrs>(), g.head())); }

}  // namespace

NDArray center(const Arg& x, int64_t axis) { return call(record(), CenterAttrs{axis}, x); }

namespace detail {
OperatorFamily family_center() { return {&record()}; }
}  // namespace detail

}  // namespace mx
