#include "operators/softmax.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray softmax_input() { return array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}); }

std::vector<Sample> samples_softmax() {
  const NDArray x = softmax_input();
  return {{{x}, SoftmaxAttrs{}, "axis=-1"},
          {{x}, SoftmaxAttrs{0}, "axis=0"},
          {{x.transpose()}, SoftmaxAttrs{1}, "axis=1, transposed"},
          {{x.reshape({1, 2, 3})}, SoftmaxAttrs{-2}, "axis=-2 of (1, 2, 3)"},
          {{x[0].select(0, 1)}, SoftmaxAttrs{0}, "rank 0"}};
}

template <NDArray (*kForward)(const Arg&, IntArg)>
std::vector<Sample> samples_softmax_backward() {
  const NDArray x = softmax_input(), dy = array({{0.5f, 1.f, -1.f}, {2.f, 0.25f, -0.75f}});
  return {{{dy, kForward(x, -1)}, SoftmaxAttrs{}, "axis=-1"},
          {{dy.transpose(), kForward(x, 1).transpose()}, SoftmaxAttrs{0}, "axis=0, transposed"}};
}

}  // namespace

void add_softmax_samples(SampleTable& table) {
  table["softmax"] = samples_softmax;
  table["log_softmax"] = samples_softmax;
  table["softmax_backward"] = samples_softmax_backward<softmax>;
  table["log_softmax_backward"] = samples_softmax_backward<log_softmax>;
}

}  // namespace mx::detail
