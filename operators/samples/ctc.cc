#include "operators/ctc.h"

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/samples/table.h"
#include "operators/softmax.h"

namespace mx::detail {
namespace {

NDArray log_probabilities(const Shape& shape) {
  return log_softmax(sin(arange(shape.numel()).to(f32) * 1.7f).reshape(shape) * 2.f);
}

std::vector<NDArray> padded() {
  return {log_probabilities({5, 2, 4}), array<int64_t>({{1, 1, 3}, {2, 3, 0}}), array<int64_t>({5, 4}),
          array<int64_t>({3, 1})};
}

std::vector<NDArray> joined() {
  return {log_probabilities({4, 2, 3}), array<int64_t>({0, 0, 1}), array<int64_t>({4, 2}),
          array<int64_t>({2, 1})};
}

std::vector<NDArray> too_short() {
  return {log_probabilities({3, 2, 3}), array<int64_t>({{1, 1}, {1, 2}}), array<int64_t>({2, 3}),
          array<int64_t>({2, 2})};
}

std::vector<Sample> samples_ctc_loss() {
  return {{padded(), CtcAttrs{}, "padded targets"},
          {joined(), CtcAttrs{2}, "joined targets"},
          {too_short(), CtcAttrs{0, true}, "an input that is too short"}};
}

std::vector<Sample> samples_ctc_loss_backward() {
  std::vector<Sample> samples = samples_ctc_loss();
  for (Sample& sample : samples) {
    sample.inputs.insert(sample.inputs.begin(), array({0.5f, -1.5f}));
    sample.differentiable = false;
  }
  return samples;
}

}  // namespace

void add_ctc_samples(SampleTable& table) {
  table["ctc_loss"] = samples_ctc_loss;
  table["ctc_loss_backward"] = samples_ctc_loss_backward;
}

}  // namespace mx::detail
