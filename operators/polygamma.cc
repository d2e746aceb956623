// The operator polygamma: higher derivatives of lgamma.
#include "operators/kernels/polygamma.h"

#include <limits>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"

namespace mx {
namespace {

struct PolygammaAttrs {
  int64_t order = 0;
  template <class V>
  static void fields(V&& v) {
    v("order", &PolygammaAttrs::order, "the order of the derivative; 0: digamma itself");
  }
};

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
    .kernel = {"polygamma", run, nullptr, 32},
    .doc =
        "Polygamma function: the derivative of digamma of the given order. Digamma is the derivative of "
        "lgamma.",
    .family = "elementwise",
    .inputs = {"x"},
    .attrs = &kAttrType<PolygammaAttrs>,
    .infer = infer,
    .gradient = gradient,
    .gradient_uses = {.inputs = 1},
    .in_place = 1,
    .elementwise = true,
};

}  // namespace

namespace detail {
OperatorFamily family_polygamma() { return {&kPolygamma}; }
}  // namespace detail

NDArray polygamma(const Arg& x, int64_t order) { return call(kPolygamma, PolygammaAttrs{order}, x); }
NDArray digamma(const Arg& x) { return polygamma(x, 0); }

}  // namespace mx
