#include "operators/cast.h"

#include "ndarray/cuda_kernels.h"
#include "ndarray/kernels/copy.h"

namespace mx {
namespace {

void infer(InferContext& c) { c.output(c.shape(0), c.attr<CastAttrs>().dtype); }

void run(const KernelArgs& args) { kernels::copy(args.out[0], args.in[0]); }

// set() converts the head to the type of x.
void gradient(GradientContext& g) { g.set(0, g.head()); }

constexpr Operator kCast = {.kernel = {"cast", run, cuda::copy, 4096},
                            .doc = "Elements of x converted to another type.",
                            .family = "conversion",
                            .inputs = {"x"},
                            .attrs = &kAttrType<CastAttrs>,
                            .infer = infer,
                            .gradient = gradient,
                            .elementwise = true};

}  // namespace

namespace detail {
OperatorFamily family_cast() { return {&kCast}; }
}  // namespace detail

NDArray cast(const Arg& x, DType dtype) { return call(kCast, CastAttrs{dtype}, x); }

}  // namespace mx
