#include "operators/rotary.h"

#include <cmath>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/rotary.h"

namespace mx {
namespace {

void infer_rotary(InferContext& c) {
  const auto& attrs = c.attr<RotaryAttrs>();
  const Shape& x = c.shape(0);
  MX_CHECK(is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected floating-point elements, got ", c.dtype(0));
  MX_CHECK(x.rank() >= 2, InvalidArgument, "[", c.name(),
           "] expected an array (.., length, width), got shape ", x);
  const int64_t width = x[x.rank() - 1];
  const int64_t dims = attrs.dims == 0 ? width : attrs.dims;
  MX_CHECK(dims >= 0 && dims <= width && dims % 2 == 0, InvalidArgument, "[", c.name(),
           "] expected an even number of dims up to the width, ", width, ", got ", dims);
  MX_CHECK(attrs.theta > 0 && std::isfinite(attrs.theta), InvalidArgument, "[", c.name(),
           "] expected a positive finite theta, got ", attrs.theta);
  c.output(x, c.dtype(0));
}

void run_rotary(const KernelArgs& args) {
  const auto& attrs = args.attr<RotaryAttrs>();
  const Shape& x = args.in[0].shape;
  kernels::rotary(args, args.out[0], args.in[0],
                  {.theta = attrs.theta,
                   .offset = attrs.offset,
                   .dims = attrs.dims == 0 ? x[x.rank() - 1] : attrs.dims,
                   .interleaved = attrs.interleaved,
                   .inverse = attrs.inverse});
}

// The matrix of a rotation is orthogonal, so its transpose rotates in the opposite direction.
void gradient_rotary(GradientContext& g) {
  RotaryAttrs attrs = g.attr<RotaryAttrs>();
  attrs.inverse = !attrs.inverse;
  g.set(0, rotary_embedding(g.head(), attrs));
}

constexpr detail::RecordList<DType, kDTypes> kRotaryTypes = {f32, f64, f16, bf16};

constexpr Operator kRotary = {
    .kernel = {"rotary_embedding", run_rotary, cuda::rotary_embedding},
    .doc =
        "Rotary position embedding: rotates pairs of numbers of each row by angles that grow with the row's "
        "position.",
    .family = "attention",
    .inputs = {"x"},
    .attrs = &kAttrType<RotaryAttrs>,
    .infer = infer_rotary,
    .gradient = gradient_rotary,
    .dtypes = kRotaryTypes,
    .in_place = bit_set(0),
};

}  // namespace

namespace detail {
OperatorFamily family_rotary() { return {&kRotary}; }
}  // namespace detail

NDArray rotary_embedding(const Arg& x, const RotaryOptions& options) { return call(kRotary, options, x); }

}  // namespace mx
