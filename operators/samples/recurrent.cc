#include "operators/recurrent.h"

#include "operators/operators.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

constexpr int64_t kRecurrentHidden = 3;

/// Numbers between -1 and 1 without a pattern.
NDArray recurrent_numbers(const Shape& shape, double phase) {
  return sin(arange(shape.numel()).to(f32) * 1.7 + phase).reshape(shape);
}

/// The products of the inputs, the weights and the initial state, for a sequence or a packed one.
std::vector<NDArray> recurrent_operands(int64_t gates, bool packed) {
  const Shape x = packed ? Shape{7, gates * kRecurrentHidden} : Shape{3, 2, gates * kRecurrentHidden};
  return {recurrent_numbers(x, 0.1), recurrent_numbers({gates * kRecurrentHidden, kRecurrentHidden}, 0.7),
          recurrent_numbers({packed ? 3 : 2, kRecurrentHidden}, 1.3)};
}

std::vector<int64_t> packed_sizes() { return {3, 2, 1, 1}; }

std::vector<Sample> samples_rnn() {
  return {{recurrent_operands(1, false), RnnAttrs{}, "tanh"},
          {recurrent_operands(1, false), RnnAttrs{.nonlinearity = "relu", .reverse = true}, "relu, reverse"},
          {recurrent_operands(1, true), RnnAttrs{.batch_sizes = packed_sizes()}, "packed"}};
}

std::vector<Sample> samples_of_gates(int64_t gates) {
  std::vector<Sample> samples = {
      {recurrent_operands(gates, false), RecurrentAttrs{}, "3 steps"},
      {recurrent_operands(gates, false), RecurrentAttrs{.reverse = true}, "reverse"},
      {recurrent_operands(gates, true), RecurrentAttrs{.batch_sizes = packed_sizes()}, "packed"},
      {recurrent_operands(gates, true), RecurrentAttrs{.reverse = true, .batch_sizes = packed_sizes()},
       "packed, reverse"}};
  return samples;
}

std::vector<Sample> samples_lstm() {
  std::vector<Sample> samples = samples_of_gates(4);
  for (Sample& sample : samples) sample.inputs.push_back(recurrent_numbers(sample.inputs[2].shape(), 1.9));
  return samples;
}

std::vector<Sample> samples_gru() {
  std::vector<Sample> samples = samples_of_gates(3);
  for (size_t i = 1; i < samples.size(); ++i)
    samples[i].inputs.push_back(recurrent_numbers({3 * kRecurrentHidden}, 2.3));
  return samples;
}

std::vector<Sample> samples_rnn_backward() {
  std::vector<Sample> samples;
  for (const Sample& s : samples_rnn()) {
    const NDArray y = call(*find_operator("rnn"), s.attrs, s.inputs)[0];
    samples.push_back({{recurrent_numbers(y.shape(), 2.1), s.inputs[1], y}, s.attrs, s.label});
  }
  return samples;
}

std::vector<Sample> samples_lstm_backward() {
  std::vector<Sample> samples;
  for (const Sample& s : samples_lstm()) {
    const std::vector<NDArray> results = call(*find_operator("lstm"), s.attrs, s.inputs);
    const NDArray dy = recurrent_numbers(results[0].shape(), 2.1);
    samples.push_back({{dy, s.inputs[1], results[1], results[2], s.inputs[3]}, s.attrs, s.label});
    if (samples.size() > 1) samples.back().inputs.push_back(recurrent_numbers(dy.shape(), 2.9));
  }
  return samples;
}

std::vector<Sample> samples_gru_backward() {
  std::vector<Sample> samples;
  for (const Sample& s : samples_gru()) {
    const std::vector<NDArray> results = call(*find_operator("gru"), s.attrs, s.inputs);
    const NDArray dy = recurrent_numbers(results[0].shape(), 2.1);
    samples.push_back({{dy, s.inputs[1], results[0], results[1], s.inputs[2]}, s.attrs, s.label});
  }
  return samples;
}

/// The operands of a whole layer of two inputs, from those of its steps.
std::vector<Sample> samples_of_layers(const std::vector<Sample>& steps, int64_t gates) {
  std::vector<Sample> samples;
  for (const Sample& s : steps) {
    Shape x = s.inputs[0].shape();
    x[x.rank() - 1] = 2;
    std::vector<NDArray> inputs{recurrent_numbers(x, 0.3),
                                recurrent_numbers({gates * kRecurrentHidden, 2}, 0.9), s.inputs[1],
                                s.inputs[2]};
    if (gates == 4) inputs.push_back(s.inputs[3]);
    if (!samples.empty()) inputs.push_back(recurrent_numbers({gates * kRecurrentHidden}, 1.1));
    if (!samples.empty() && gates == 3) inputs.push_back(s.inputs[3]);
    samples.push_back({inputs, s.attrs, s.label});
  }
  return samples;
}

std::vector<Sample> samples_rnn_inference() { return samples_of_layers(samples_rnn(), 1); }
std::vector<Sample> samples_lstm_inference() { return samples_of_layers(samples_lstm(), 4); }
std::vector<Sample> samples_gru_inference() { return samples_of_layers(samples_gru(), 3); }

}  // namespace

void add_recurrent_samples(SampleTable& table) {
  table["rnn"] = samples_rnn;
  table["lstm"] = samples_lstm;
  table["gru"] = samples_gru;
  table["rnn_inference"] = samples_rnn_inference;
  table["lstm_inference"] = samples_lstm_inference;
  table["gru_inference"] = samples_gru_inference;
  table["rnn_backward"] = samples_rnn_backward;
  table["lstm_backward"] = samples_lstm_backward;
  table["gru_backward"] = samples_gru_backward;
}

}  // namespace mx::detail
