#include "operators/cast.h"

#include "ndarray/kernels/copy.h"

namespace mx {
namespace {

void infer(InferContext& c) { c.output(c.shape(0), c.attr<CastAttrs>().dtype); }

void run(const KernelArgs& args) { kernels::copy(args.out[0], args.in[0]); }

// (Converted to the type of x on the way.)
void gradient(GradientContext& g) { g.set(0, g.head()); }

std::vector<Sample> samples() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 300.75f}});
  std::vector<Sample> result;
  for (const DType dtype : kAllDTypes)
    result.push_back({{x}, CastAttrs{dtype}, std::string("dtype=") + to_string(dtype), dtype == f64});
  result.push_back({{x.transpose()}, CastAttrs{f64}, "dtype=f64, transposed"});
  return result;
}

const Operator kCast = {.kernel = {"cast", run, nullptr, 4096},
                        .doc = "The elements in another type.",
                        .family = "conversion",
                        .inputs = {"x"},
                        .attrs = &kAttrType<CastAttrs>,
                        .infer = infer,
                        .gradient = gradient,
                        .samples = samples,
                        .elementwise = true};

}  // namespace

namespace detail {
OperatorFamily family_cast() { return {&kCast}; }
}  // namespace detail

NDArray cast(const Arg& x, DType dtype) { return call(kCast, CastAttrs{dtype}, x); }

}  // namespace mx
