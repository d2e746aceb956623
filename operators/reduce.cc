#include "operators/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/base/check.h"
#include "ndarray/detail/numerics.h"
#include "ndarray/kernels/copy.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/reduce.h"
#include "operators/kernels/unary.h"
#include "operators/reduce_gradient.h"
#include "operators/reduce_shape.h"
#include "operators/temporary.h"

namespace mx {

using kernels::ReduceOp;

namespace {

// Numbers of elements that take about two microseconds.
constexpr int64_t kDirectSimple = 4096, kDirectSlow = 1024;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Entry {
  ReduceOp op;
  const char* doc;
};

// In the order of the reference page.
constexpr Entry kEntries[] = {
    {ReduceOp::sum, "Sum of the elements."},
    {ReduceOp::prod, "Product of the elements."},
    {ReduceOp::mean, "Arithmetic mean of the elements."},
    {ReduceOp::max, "Largest element; NaN if an element is NaN."},
    {ReduceOp::min, "Smallest element; NaN if an element is NaN."},
    {ReduceOp::argmax,
     "Index of the largest element in the row-major order of the reduced dimensions; of equal elements the "
     "first."},
    {ReduceOp::argmin,
     "Index of the smallest element in the row-major order of the reduced dimensions; of equal elements the "
     "first."},
    {ReduceOp::any, "True if at least one element is not zero."},
    {ReduceOp::all, "True if all elements are not zero."},
    {ReduceOp::count_nonzero, "Number of elements that are not zero."},
    {ReduceOp::logsumexp,
     "Logarithm of the sum of exponentials, log(sum(exp(x))), without intermediate overflow."},
};

bool chooses(ReduceOp op) {
  return op == ReduceOp::max || op == ReduceOp::min || op == ReduceOp::argmax || op == ReduceOp::argmin;
}

constexpr bool totals(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::prod || op == ReduceOp::mean;
}

}  // namespace

Shape detail::reduced_shape(InferContext& c, const Shape& axes, bool keep_dims, bool choosing) {
  const Shape& in = c.shape(0);
  const Shape dropped = normalize_axes(axes, in.rank(), c.name());
  Shape result;
  int64_t count = 1;
  for (int i = 0, next = 0; i < in.rank(); ++i) {
    if (next == dropped.rank() || dropped[next] != i) {
      result.push_back(in[i]);
      continue;
    }
    ++next;
    count *= in[i];
    if (keep_dims) result.push_back(1);
  }
  MX_CHECK(count > 0 || !choosing, InvalidArgument, "[", c.name(),
           "] expected at least one element to choose from, got shape ", in, " and axes ", dropped);
  return result;
}

namespace {

using detail::reduced_shape;

template <ReduceOp kOp>
void infer(InferContext& c) {
  const ReduceAttrs& attrs = c.attr<ReduceAttrs>();
  c.output(reduced_shape(c, attrs.axes, attrs.keep_dims, chooses(kOp)),
           kernels::reduce_result(kOp, c.dtype(0)));
}

template <ReduceOp kOp>
void run(const KernelArgs& args) {
  kernels::reduce(kOp, args.out[0], args.in[0], args.attr<ReduceAttrs>().axes);
  // That of no elements is -infinity, as it should be.
  if (kOp == ReduceOp::logsumexp && args.in[0].shape.numel() != 0) detail::check_outputs(args, 1);
}

template <ReduceOp kOp>
void infer_total(InferContext& c) {
  const TotalAttrs& attrs = c.attr<TotalAttrs>();
  const bool real = kOp == ReduceOp::mean;
  MX_CHECK(!attrs.dtype || (real ? is_floating(*attrs.dtype) : *attrs.dtype != bool_), InvalidArgument, "[",
           c.name(), "] expected a ", real ? "floating-point type" : "numeric type", " for dtype, got ",
           *attrs.dtype);
  c.output(reduced_shape(c, attrs.axes, attrs.keep_dims, false),
           attrs.dtype.value_or(kernels::reduce_result(kOp, c.dtype(0))));
}

template <ReduceOp kOp>
void run_total(const KernelArgs& args) {
  const TotalAttrs& attrs = args.attr<TotalAttrs>();
  const Tensor& in = args.in[0];
  if (attrs.dtype && is_floating(in.dtype) && !is_floating(*attrs.dtype) && *attrs.dtype != i64) {
    // Elements that do not fit the integer type saturate one by one, before they are accumulated. i64 needs
    // no separate conversion, because the kernel accumulates integers in i64.
    const detail::Temporary converted(*attrs.dtype, in.shape);
    kernels::copy(*converted, in);
    kernels::reduce(kOp, args.out[0], *converted, attrs.axes);
  } else {
    kernels::reduce(kOp, args.out[0], in, attrs.axes, {.in = attrs.dtype});
  }
}

template <ReduceOp kOp>
void infer_variance(InferContext& c) {
  const VarianceAttrs& attrs = c.attr<VarianceAttrs>();
  c.output(reduced_shape(c, attrs.axes, attrs.keep_dims, false), kernels::reduce_result(kOp, c.dtype(0)));
}

template <ReduceOp kOp>
void run_variance(const KernelArgs& args) {
  const VarianceAttrs& attrs = args.attr<VarianceAttrs>();
  kernels::reduce(kOp, args.out[0], args.in[0], attrs.axes, {.correction = attrs.correction});
}

void infer_norm(InferContext& c) {
  const NormAttrs& attrs = c.attr<NormAttrs>();
  MX_CHECK(!std::isnan(attrs.p), InvalidArgument, "[norm] expected a number for p, got NaN");
  c.output(reduced_shape(c, attrs.axes, attrs.keep_dims, attrs.p == -kInfinity),
           is_floating(c.dtype(0)) ? c.dtype(0) : f32);
}

Tensor number(const double& value, const Shape& like) {
  return {const_cast<double*>(&value), f64, like, Strides::filled(like.rank(), 0)};
}

// A sum of powers can overflow a narrow type or an integer type even if its root does not. So intermediate
// results are f32 for f32, f16 and bf16, and f64 for f64 and integers.
void run_norm(const KernelArgs& args) {
  const NormAttrs& attrs = args.attr<NormAttrs>();
  const Tensor &in = args.in[0], &out = args.out[0];
  const DType wide = is_floating(in.dtype) && in.dtype != f64 ? f32 : f64;
  const detail::Temporary total(wide, out.shape);
  const double p = attrs.p;
  if (is_floating(in.dtype) && (p == 1 || p == 2 || p == kInfinity)) {
    const ReduceOp op = p == 1 ? ReduceOp::sum_abs : p == 2 ? ReduceOp::sum_squares : ReduceOp::max_abs;
    kernels::reduce(op, *total, in, attrs.axes);
  } else if (p == 0) {
    kernels::reduce(ReduceOp::count_nonzero, *total, in, attrs.axes);
  } else {
    const detail::Temporary powers(wide, in.shape);
    kernels::copy(*powers, in);
    kernels::unary(kernels::UnaryOp::abs, *powers, *powers);
    if (p == 2) {
      kernels::unary(kernels::UnaryOp::square, *powers, *powers);
    } else if (std::isfinite(p) && p != 1) {
      kernels::binary(kernels::BinaryOp::pow, *powers, *powers, number(p, in.shape));
    }
    const ReduceOp op = p == -kInfinity ? ReduceOp::min : p == kInfinity ? ReduceOp::max_abs : ReduceOp::sum;
    kernels::reduce(op, *total, *powers, attrs.axes);
  }
  if (p == 2) {
    kernels::unary(kernels::UnaryOp::sqrt, *total, *total);
  } else if (p != 0 && p != 1 && std::isfinite(p)) {
    kernels::binary(kernels::BinaryOp::pow, *total, *total, number(1 / p, out.shape));
  }
  kernels::copy(out, *total);
}

// A power costs as much as dozens of additions.
int64_t work_norm(const InferContext& c) {
  const double p = c.attr<NormAttrs>().p;
  const bool plain = is_floating(c.dtype(0)) && (p == 0 || p == 1 || p == 2 || p == kInfinity);
  const int64_t n = std::max(c.shape(0).numel(), c.output_shape(0).numel());
  return plain ? n : n > INT64_MAX / 64 ? INT64_MAX : n * 64;
}

constexpr KernelFn cuda_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return cuda::sum;
    case ReduceOp::prod:
      return cuda::prod;
    case ReduceOp::mean:
      return cuda::mean;
    case ReduceOp::max:
      return cuda::max;
    case ReduceOp::min:
      return cuda::min;
    case ReduceOp::argmax:
      return cuda::argmax;
    case ReduceOp::argmin:
      return cuda::argmin;
    case ReduceOp::any:
      return cuda::any;
    case ReduceOp::all:
      return cuda::all;
    case ReduceOp::count_nonzero:
      return cuda::count_nonzero;
    case ReduceOp::logsumexp:
      return cuda::logsumexp;
    default:
      return nullptr;
  }
}

template <size_t kIndex>
const Operator& record() {
  constexpr ReduceOp kOp = kEntries[kIndex].op;
  constexpr bool kTotal = totals(kOp);
  using Attrs = std::conditional_t<kTotal, TotalAttrs, ReduceAttrs>;
  static const Operator op = {
      .kernel = {kernels::to_string(kOp), kTotal ? run_total<kOp> : run<kOp>, cuda_kernel(kOp),
                 kOp == ReduceOp::logsumexp ? kDirectSlow : kDirectSimple,
                 kOp != ReduceOp::logsumexp},  // run() checks it
      .doc = kEntries[kIndex].doc,
      .family = "reduction",
      .inputs = {"x"},
      .attrs = &kAttrType<Attrs>,
      .infer = kTotal ? infer_total<kOp> : infer<kOp>,
      .gradient = detail::reduce_gradient(kOp).gradient,
      .gradient_uses = detail::reduce_gradient(kOp).uses,
  };
  return op;
}

constexpr Operator kVar = {
    .kernel = {"var", run_variance<ReduceOp::var>, cuda::var, kDirectSlow},
    .doc = "Variance: the sum of squared deviations from the mean, divided by max(0, count - correction).",
    .family = "reduction",
    .inputs = {"x"},
    .attrs = &kAttrType<VarianceAttrs>,
    .infer = infer_variance<ReduceOp::var>,
    .gradient = detail::gradient_var,
    .gradient_uses = {.inputs = bit_set(0)},
};

constexpr Operator kStddev = {
    .kernel = {"stddev", run_variance<ReduceOp::std>, cuda::stddev, kDirectSlow},
    .doc = "Standard deviation: the square root of var.",
    .family = "reduction",
    .inputs = {"x"},
    .attrs = &kAttrType<VarianceAttrs>,
    .infer = infer_variance<ReduceOp::std>,
    .gradient = detail::gradient_stddev,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
};

constexpr Operator kNorm = {
    .kernel = {"norm", run_norm, cuda::norm, kDirectSlow},
    .doc = "Vector norm of order p, (sum |x|^p)^(1/p).",
    .family = "reduction",
    .inputs = {"x"},
    .attrs = &kAttrType<NormAttrs>,
    .infer = infer_norm,
    .gradient = detail::gradient_norm,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
    .work = work_norm,
};

constexpr size_t index_of(ReduceOp op) {
  size_t i = 0;
  while (kEntries[i].op != op) ++i;
  return i;
}

template <ReduceOp kOp>
NDArray apply(const Arg& x, const Axes& axes, bool keep_dims) {
  return call(record<index_of(kOp)>(), ReduceAttrs{axes, keep_dims}, x);
}

template <ReduceOp kOp>
NDArray apply(const Arg& x, const Axes& axes, bool keep_dims, std::optional<DType> dtype) {
  return call(record<index_of(kOp)>(), TotalAttrs{axes, keep_dims, dtype}, x);
}

template <size_t... kIndex>
OperatorFamily family(std::index_sequence<kIndex...>) {
  return {&record<kIndex>()..., &kVar, &kStddev, &kNorm};
}

}  // namespace

namespace detail {
OperatorFamily family_reduce() { return family(std::make_index_sequence<std::size(kEntries)>()); }
}  // namespace detail

NDArray sum(const Arg& x, const Axes& axes, bool keep, std::optional<DType> dtype) {
  return apply<ReduceOp::sum>(x, axes, keep, dtype);
}
NDArray prod(const Arg& x, const Axes& axes, bool keep, std::optional<DType> dtype) {
  return apply<ReduceOp::prod>(x, axes, keep, dtype);
}
NDArray mean(const Arg& x, const Axes& axes, bool keep, std::optional<DType> dtype) {
  return apply<ReduceOp::mean>(x, axes, keep, dtype);
}
NDArray max(const Arg& x, const Axes& axes, bool keep) { return apply<ReduceOp::max>(x, axes, keep); }
NDArray min(const Arg& x, const Axes& axes, bool keep) { return apply<ReduceOp::min>(x, axes, keep); }
NDArray argmax(const Arg& x, const Axes& axes, bool keep) { return apply<ReduceOp::argmax>(x, axes, keep); }
NDArray argmin(const Arg& x, const Axes& axes, bool keep) { return apply<ReduceOp::argmin>(x, axes, keep); }
NDArray any(const Arg& x, const Axes& axes, bool keep) { return apply<ReduceOp::any>(x, axes, keep); }
NDArray all(const Arg& x, const Axes& axes, bool keep) { return apply<ReduceOp::all>(x, axes, keep); }
NDArray count_nonzero(const Arg& x, const Axes& axes, bool keep) {
  return apply<ReduceOp::count_nonzero>(x, axes, keep);
}
NDArray logsumexp(const Arg& x, const Axes& axes, bool keep) {
  return apply<ReduceOp::logsumexp>(x, axes, keep);
}
NDArray var(const Arg& x, const Axes& axes, RealArg correction, bool keep) {
  return call(kVar, VarianceAttrs{axes, correction, keep}, x);
}
NDArray stddev(const Arg& x, const Axes& axes, RealArg correction, bool keep) {
  return call(kStddev, VarianceAttrs{axes, correction, keep}, x);
}
NDArray norm(const Arg& x, RealArg p, const Axes& axes, bool keep) {
  return call(kNorm, NormAttrs{axes, p, keep}, x);
}

}  // namespace mx
