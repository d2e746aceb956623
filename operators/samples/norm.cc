#include "operators/norm.h"

#include "operators/samples/table.h"

namespace mx::detail {
namespace {

/// Numbers between -2 and 2 that are exact in every floating-point type.
NDArray some(const Shape& shape, int64_t seed) {
  std::vector<float> values;
  uint64_t state = static_cast<uint64_t>(seed) * 7919 + 17;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back(static_cast<float>((state >> 40) % 33) / 8 - 2);
  }
  return from_data(values.data(), shape);
}

NDArray positive(const Shape& shape, int64_t seed) {
  const NDArray x = some(shape, seed);
  std::vector<float> values = x.to_vector<float>();
  for (float& v : values) v = v < 0 ? 0.5f - v : 0.5f + v;
  return from_data(values.data(), shape);
}

std::vector<Sample> samples_batch_norm() {
  const NDArray x = some({4, 3, 2}, 1), w = some({3}, 2), b = some({3}, 3);
  return {{{x}, BatchNormAttrs{}, "plain"},
          {{x, w}, BatchNormAttrs{0.25}, "with weight"},
          {{x.transpose(), some({3}, 4), b}, BatchNormAttrs{0.25}, "transposed, with weight and bias"},
          {{some({5, 3}, 5), w, b}, BatchNormAttrs{}, "rank 2"},
          {{some({2, 2, 3, 6}, 6), some({2}, 7), some({2}, 8)}, BatchNormAttrs{}, "rank 4"}};
}

std::vector<Sample> samples_batch_norm_backward() {
  const NDArray x = some({4, 3, 2}, 1), dy = some({4, 3, 2}, 9), mean = some({3}, 10),
                rstd = positive({3}, 11);
  return {{{dy, x, mean, rstd}, BatchNormBackwardAttrs{}, "plain"},
          {{dy, x, mean, rstd, some({3}, 2)}, BatchNormBackwardAttrs{}, "with weight"},
          {{dy, x, mean, rstd, some({3}, 2)}, BatchNormBackwardAttrs{false}, "without parameters"},
          {{some({2, 2, 17}, 12), some({2, 2, 17}, 13), some({2}, 14), positive({2}, 15), some({2}, 16)},
           BatchNormBackwardAttrs{},
           "long runs"}};
}

std::vector<Sample> samples_batch_norm_inference() {
  const NDArray x = some({4, 3, 2}, 1), mean = some({3}, 10), var = positive({3}, 11);
  return {{{x, mean, var}, BatchNormAttrs{}, "plain"},
          {{x, mean, var, some({3}, 2)}, BatchNormAttrs{0.5}, "with weight"},
          {{x, mean, var, some({3}, 2), some({3}, 3)}, BatchNormAttrs{}, "with weight and bias"},
          {{some({2, 2, 3, 6}, 6), some({2}, 7), positive({2}, 8)}, BatchNormAttrs{}, "long runs"}};
}

std::vector<Sample> samples_update_running_statistics() {
  const auto inputs = [](DType type, int64_t batches) {
    return std::vector<NDArray>{some({3}, 1).to(type), positive({3}, 2).to(type), array<int64_t>({batches}),
                                some({3}, 3), positive({3}, 4)};
  };
  const auto attrs = [](double momentum, bool cumulative, double eps, int64_t elements) {
    return attrs_of(
        "update_running_statistics",
        {{"momentum", momentum}, {"cumulative", cumulative}, {"eps", eps}, {"elements", elements}});
  };
  return {{inputs(f32, 0), attrs(0.1, false, 1e-5, 8), "momentum"},
          {inputs(f32, 4), attrs(0.25, true, 1e-3, 2), "cumulative"},
          {inputs(bf16, 4), attrs(1, false, 1e-5, 2), "bf16"}};
}

std::vector<Sample> samples_group_norm() {
  const NDArray x = some({2, 6, 2}, 1), w = some({6}, 2), b = some({6}, 3);
  return {{{x}, GroupNormAttrs{2}, "2 groups"},
          {{x, w}, GroupNormAttrs{3, 0.25}, "with weight"},
          {{x, w, b}, GroupNormAttrs{1}, "with weight and bias"},
          {{some({2, 12}, 4), some({12}, 5), some({12}, 6)}, GroupNormAttrs{3}, "rank 2"},
          {{some({2, 2, 3, 6}, 7), some({2}, 8), some({2}, 9)}, GroupNormAttrs{2}, "each channel"}};
}

std::vector<Sample> samples_group_norm_backward() {
  const NDArray x = some({2, 6, 2}, 1), dy = some({2, 6, 2}, 10), mean = some({2, 3}, 11),
                rstd = positive({2, 3}, 12), w = some({6}, 2);
  return {
      {{dy, x, mean, rstd}, GroupNormBackwardAttrs{3}, "3 groups"},
      {{dy, x, mean, rstd, w}, GroupNormBackwardAttrs{3}, "with weight"},
      {{dy, x, mean, rstd, w}, GroupNormBackwardAttrs{3, false}, "without parameters"},
      {{some({2, 4, 17}, 13), some({2, 4, 17}, 14), some({2, 1}, 15), positive({2, 1}, 16), some({4}, 17)},
       GroupNormBackwardAttrs{1},
       "long runs"}};
}

std::vector<Sample> samples_layer_norm() {
  const NDArray x = some({3, 4, 5}, 1);
  return {{{x}, LayerNormAttrs{}, "plain"},
          {{x, some({5}, 2)}, LayerNormAttrs{1, 0.25}, "with weight"},
          {{x, some({4, 5}, 3), some({4, 5}, 4)}, LayerNormAttrs{2}, "2 dims, with weight and bias"},
          {{x.transpose(), some({3}, 5), some({3}, 6)}, LayerNormAttrs{}, "transposed"},
          {{some({7}, 7)}, LayerNormAttrs{}, "rank 1"}};
}

std::vector<Sample> samples_layer_norm_backward() {
  const NDArray x = some({3, 4, 5}, 1), dy = some({3, 4, 5}, 8), mean = some({3, 4}, 9),
                rstd = positive({3, 4}, 10);
  return {{{dy, x, mean, rstd}, LayerNormBackwardAttrs{}, "plain"},
          {{dy, x, mean, rstd, some({5}, 2)}, LayerNormBackwardAttrs{}, "with weight"},
          {{dy, x, mean, rstd, some({5}, 2)}, LayerNormBackwardAttrs{1, false}, "without parameters"},
          {{dy, x, some({3}, 11), positive({3}, 12), some({4, 5}, 3)}, LayerNormBackwardAttrs{2}, "2 dims"}};
}

std::vector<Sample> samples_rms_norm() {
  const NDArray x = some({3, 4, 5}, 1);
  return {{{x}, LayerNormAttrs{}, "plain"},
          {{x, some({4, 5}, 3)}, LayerNormAttrs{2, 0.25}, "2 dims, with weight"},
          {{x.transpose(), some({3}, 5)}, LayerNormAttrs{}, "transposed"}};
}

std::vector<Sample> samples_rms_norm_backward() {
  const NDArray x = some({3, 4, 5}, 1), dy = some({3, 4, 5}, 8), rstd = positive({3, 4}, 10);
  return {{{dy, x, rstd}, LayerNormBackwardAttrs{}, "plain"},
          {{dy, x, rstd, some({5}, 2)}, LayerNormBackwardAttrs{}, "with weight"},
          {{dy, x, rstd, some({5}, 2)}, LayerNormBackwardAttrs{1, false}, "without parameters"},
          {{dy, x, positive({3}, 12), some({4, 5}, 3)}, LayerNormBackwardAttrs{2}, "2 dims"}};
}

}  // namespace

void add_norm_samples(SampleTable& table) {
  table["batch_norm"] = samples_batch_norm;
  table["batch_norm_backward"] = samples_batch_norm_backward;
  table["batch_norm_inference"] = samples_batch_norm_inference;
  table["update_running_statistics"] = samples_update_running_statistics;
  table["group_norm"] = samples_group_norm;
  table["group_norm_backward"] = samples_group_norm_backward;
  table["layer_norm"] = samples_layer_norm;
  table["layer_norm_backward"] = samples_layer_norm_backward;
  table["rms_norm"] = samples_rms_norm;
  table["rms_norm_backward"] = samples_rms_norm_backward;
}

}  // namespace mx::detail
