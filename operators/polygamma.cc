// The operator polygamma: higher derivatives of lgamma.
#include "operators/kernels/polygamma.h"

#include <limits>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/polygamma_attrs.h"

namespace mx {
namespace {

using detail::PolygammaAttrs;

void infer(InferContext& c) {
  const int64_t order = c.attr<PolygammaAttrs>().order;
  MX_CHECK(order >= 0, InvalidArgument, "[", c.name(), "] expected an order of 0 or more, got ", order);
  c.output(c.shape(0), is_floating(c.dtype(0)) ? c.dtype(0) : f32);
}

void run(const KernelArgs& args) {
  kernels::polygamma(args.out[0], args.in[0], args.attr<PolygammaAttrs>().order);
}

void gradient(GradientContext& g) {
  const int64_t order = g.attr<PolygammaAttrs>().order;
  MX_CHECK(order < std::numeric_limits<int64_t>::max(), InvalidArgument,
           "[polygamma] expected an order below 2^63 - 1 for a derivative, got ", order);
  g.set(0, g.head() * polygamma(g.input(0), order + 1));
}

constexpr Operator kPolygamma = {
    .kernel = {"polygamma", run, cuda::polygamma, 32},
    .doc =
        "Polygamma function: the derivative of digamma of the given order. Digamma is the derivative of "
        "lgamma.",
    .family = "elementwise",
    .inputs = {"x"},
    .attrs = &kAttrType<PolygammaAttrs>,
    .infer = infer,
    .gradient = gradient,
    .gradient_uses = {.inputs = bit_set(0)},
    .in_place = bit_set(0),
    .elementwise = true,
};

}  // namespace

namespace detail {
OperatorFamily family_polygamma() { return {&kPolygamma}; }
}  // namespace detail

NDArray polygamma(const Arg& x, IntArg order) { return call(kPolygamma, PolygammaAttrs{order}, x); }
NDArray digamma(const Arg& x) { return polygamma(x, 0); }

}  // namespace mx
