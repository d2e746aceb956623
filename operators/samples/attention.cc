#include "operators/attention.h"

#include "operators/operators.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

/// Numbers between -1 and 1 without a pattern.
NDArray numbers(const Shape& shape, double phase) {
  return sin(arange(shape.numel()).to(f32) * 1.7 + phase).reshape(shape);
}

std::vector<NDArray> operands(int64_t heads, int64_t groups, int64_t rows, int64_t keys) {
  return {numbers({1, heads, rows, 2}, 0.1), numbers({1, groups, keys, 2}, 0.7),
          numbers({1, groups, keys, 3}, 1.3)};
}

std::vector<NDArray> with(std::vector<NDArray> list, const NDArray& more) {
  list.push_back(more);
  return list;
}

NDArray bool_mask() { return array({{true, false, true}, {false, true, true}}); }
NDArray added_mask() { return array({{0.5f, -1.f, 0.25f}, {0.f, 1.5f, -0.5f}}); }

std::vector<Sample> samples_attention() {
  return {{operands(2, 2, 2, 3), AttentionAttrs{}, "2 heads"},
          {operands(4, 2, 2, 3), AttentionAttrs{.scale = 0.5}, "scale=0.5, 4 heads of 2 groups"},
          {operands(1, 1, 3, 3), AttentionAttrs{.causal = true}, "causal"},
          {operands(1, 1, 2, 4), AttentionAttrs{.causal = true, .causal_offset = 2}, "causal_offset=2"},
          {with(operands(2, 1, 2, 3), bool_mask()), AttentionAttrs{}, "mask of bool"},
          {with(operands(2, 2, 2, 3), added_mask()), AttentionAttrs{.scale = 2}, "mask that is added"}};
}

std::vector<Sample> samples_attention_backward() {
  std::vector<Sample> samples;
  for (const Sample& sample : samples_attention()) {
    const std::vector<NDArray> results = call(*find_operator("attention"), sample.attrs, sample.inputs);
    const NDArray dy = numbers(results[0].shape(), 2.1);
    std::vector<NDArray> inputs{dy,         sample.inputs[0],        sample.inputs[1], sample.inputs[2],
                                results[1], sum(dy * results[0], -1)};
    if (sample.inputs.size() > 3) inputs.push_back(sample.inputs[3]);
    samples.push_back({std::move(inputs), sample.attrs, sample.label});
  }
  return samples;
}

NDArray dropout_key() { return array({int64_t{5}, int64_t{9}}); }

std::vector<Sample> samples_attention_dropout() {
  std::vector<Sample> samples;
  for (const Sample& sample : samples_attention()) {
    const auto& a = sample.attrs.get<AttentionAttrs>();
    std::vector<NDArray> inputs = sample.inputs;
    inputs.insert(inputs.begin() + 3, dropout_key());
    samples.push_back(
        {std::move(inputs), AttentionDropoutAttrs{0.3, a.scale, a.causal, a.causal_offset}, sample.label});
  }
  samples[0].attrs = AttentionDropoutAttrs{.p = 0};
  return samples;
}

std::vector<Sample> samples_attention_dropout_backward() {
  std::vector<Sample> samples;
  for (const Sample& sample : samples_attention_dropout()) {
    const std::vector<NDArray> y = call(*find_operator("attention_dropout"), sample.attrs, sample.inputs);
    const NDArray dy = numbers(y[0].shape(), 2.1);
    std::vector<NDArray> inputs{dy,   sample.inputs[0],   sample.inputs[1], sample.inputs[2],
                                y[1], sum(dy * y[0], -1), sample.inputs[3]};
    if (sample.inputs.size() > 4) inputs.push_back(sample.inputs[4]);
    samples.push_back({std::move(inputs), sample.attrs, sample.label});
  }
  return samples;
}

std::vector<Sample> samples_attention_packed() {
  return {
      {{numbers({2, 3, 12}, 0.1)}, AttentionPackedAttrs{.heads = 2}, "2 heads"},
      {{numbers({3, 2, 16}, 0.4)},
       AttentionPackedAttrs{.heads = 4, .groups = 2, .batch_first = false, .scale = 0.5},
       "scale=0.5, 4 heads of 2 groups, length first"},
      {{numbers({1, 3, 6}, 0.7)}, AttentionPackedAttrs{.causal = true}, "causal"},
      {with({numbers({2, 3, 6}, 0.7)}, array({{true, false, true}, {false, true, true}, {true, true, true}})),
       AttentionPackedAttrs{}, "mask of bool"},
      {with({numbers({1, 2, 12}, 1.1)}, array({{0.5f, -1.f}, {0.f, 1.5f}})),
       AttentionPackedAttrs{.heads = 2, .scale = 2}, "mask that is added"}};
}

std::vector<Sample> samples_attention_packed_backward() {
  std::vector<Sample> samples;
  for (const Sample& sample : samples_attention_packed()) {
    const std::vector<NDArray> y = call(*find_operator("attention_packed"), sample.attrs, sample.inputs);
    std::vector<NDArray> inputs{numbers(y[0].shape(), 2.1), sample.inputs[0], y[0], y[1]};
    if (sample.inputs.size() > 1) inputs.push_back(sample.inputs[1]);
    samples.push_back({std::move(inputs), sample.attrs, sample.label});
  }
  return samples;
}

}  // namespace

void add_attention_samples(SampleTable& table) {
  table["attention"] = samples_attention;
  table["attention_dropout"] = samples_attention_dropout;
  table["attention_dropout_backward"] = samples_attention_dropout_backward;
  table["attention_backward"] = samples_attention_backward;
  table["attention_packed"] = samples_attention_packed;
  table["attention_packed_backward"] = samples_attention_packed_backward;
}

}  // namespace mx::detail
