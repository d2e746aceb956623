#include "operators/unfold.h"

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/unfold.h"
#include "operators/unfold_axes.h"

namespace mx {
namespace {

using kernels::UnfoldAxes;

/// The product of two numbers of elements. Throws InvalidArgument if there is none below 2^63.
int64_t unfold_product(const char* op, const char* what, int64_t a, int64_t b) {
  int64_t product = 0;
  MX_CHECK(!__builtin_mul_overflow(a, b, &product), InvalidArgument, "[", op, "] expected fewer than 2^63 ",
           what, ", got ", a, " times ", b);
  return product;
}

int64_t unfold_windows(const char* op, const UnfoldAxes& axes) {
  return unfold_product(op, "windows", axes[0].windows, axes[1].windows);
}

int64_t unfold_elements(const char* op, const UnfoldAxes& axes) {
  return unfold_product(op, "elements of a window", axes[0].kernel, axes[1].kernel);
}

void check_unfold_input(const InferContext& c, int rank, const char* axes) {
  MX_CHECK(is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected floating-point elements, got ", c.dtype(0));
  MX_CHECK(c.shape(0).rank() == rank, InvalidArgument, "[", c.name(), "] expected ", axes, ", got shape ",
           c.shape(0));
}

void infer_unfold(InferContext& c) {
  check_unfold_input(c, 4, "images, channels, height and width");
  const Shape& x = c.shape(0);
  const UnfoldAxes axes = detail::unfold_axes(c.name(), c.attr<UnfoldAttrs>(), x[2], x[3]);
  const int64_t rows = unfold_product(c.name(), "rows", x[1], unfold_elements(c.name(), axes));
  c.output({x[0], rows, unfold_windows(c.name(), axes)}, c.dtype(0));
}

void infer_fold(InferContext& c) {
  check_unfold_input(c, 3, "images, rows and windows");
  const FoldAttrs& attrs = c.attr<FoldAttrs>();
  attrs.size.check(c.name(), "size", 2, 0);
  const Shape& x = c.shape(0);
  const UnfoldAxes axes = detail::unfold_axes(c.name(), attrs, attrs.size[0], attrs.size[1]);
  const int64_t elements = unfold_elements(c.name(), axes), windows = unfold_windows(c.name(), axes);
  MX_CHECK(x[1] % elements == 0 && x[2] == windows, InvalidArgument, "[", c.name(),
           "] expected a multiple of ", elements, " rows, the elements of a window, and ", windows,
           " windows, got shape ", x);
  c.output({x[0], x[1] / elements, attrs.size[0], attrs.size[1]}, c.dtype(0));
}

void run_unfold(const KernelArgs& args) {
  const Shape& x = args.in[0].shape;
  kernels::unfold(args.out[0], args.in[0],
                  detail::unfold_axes("unfold", args.attr<UnfoldAttrs>(), x[2], x[3]));
}

void run_fold(const KernelArgs& args) {
  const auto& attrs = args.attr<FoldAttrs>();
  kernels::fold(args, args.out[0], args.in[0],
                detail::unfold_axes("fold", attrs, attrs.size[0], attrs.size[1]));
}

void gradient_unfold(GradientContext& g) {
  const auto& a = g.attr<UnfoldAttrs>();
  const Shape& x = g.input_shape(0);
  g.set(0, fold(g.head(), {{x[2], x[3]}, a.kernel, a.dilation, a.padding, a.stride}));
}

void gradient_fold(GradientContext& g) {
  const auto& a = g.attr<FoldAttrs>();
  g.set(0, unfold(g.head(), {a.kernel, a.dilation, a.padding, a.stride}));
}

constexpr detail::RecordList<DType, kDTypes> kUnfoldTypes = {f32, f64, f16, bf16};

constexpr Operator kUnfold = {
    .kernel = {"unfold", run_unfold, cuda::unfold},
    .doc = "Windows of images as columns: (images, channels * elements of a window, windows).",
    .family = "convolution",
    .inputs = {"x"},
    .attrs = &kAttrType<UnfoldAttrs>,
    .infer = infer_unfold,
    .gradient = gradient_unfold,
    .dtypes = kUnfoldTypes,
};

constexpr Operator kFold = {
    .kernel = {"fold", run_fold, cuda::fold},
    .doc = "Images from columns of their windows, whose elements are added up: the transpose of unfold.",
    .family = "convolution",
    .inputs = {"columns"},
    .attrs = &kAttrType<FoldAttrs>,
    .infer = infer_fold,
    .gradient = gradient_fold,
    .dtypes = kUnfoldTypes,
};

}  // namespace

namespace detail {
OperatorFamily family_unfold() { return {&kUnfold, &kFold}; }
}  // namespace detail

NDArray unfold(const Arg& x, const UnfoldAttrs& attrs) {
  if (x.array.rank() != 3) return call(kUnfold, attrs, x);
  return call(kUnfold, attrs, Arg(x.array.expand_dims(0), x.where)).squeeze(0);
}

NDArray fold(const Arg& columns, const FoldAttrs& attrs) {
  if (columns.array.rank() != 2) return call(kFold, attrs, columns);
  return call(kFold, attrs, Arg(columns.array.expand_dims(0), columns.where)).squeeze(0);
}

}  // namespace mx
