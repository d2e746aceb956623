// Every layer against PyTorch: the same parameters, read from a safetensors file with the names that PyTorch
// gives them, and random inputs give the same outputs and gradients. golden/layers.safetensors has what
// PyTorch computed once; where PyTorch is installed, it also computes with new random numbers.
// tests/nn/torch_layers.py has PyTorch's side.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ndarray/save.h"
#include "nn/nn.h"
#include "operators/operators.h"
#include "tests/ndarray/io_temp.h"
#include "tests/nn/layers.h"

namespace mx {
namespace {

using test::TempFolder;

const char kScript[] =
#include <torch_layers_py.inc>
    ;

using Arrays = std::vector<NDArray>;
struct Case {
  std::string name;
  std::string shape;  ///< of the input, as torch_layers.py reads it
  std::function<nn::AnyModule()> make;
  std::function<Arrays(const nn::AnyModule&, const Arrays&)> call;
};

template <class M>
Case several(const std::string& name, const M& layer,
             std::function<Arrays(const M&, const Arrays& inputs)> call) {
  return {
      name, "-", [layer] { return layer.clone(); },
      [call](const nn::AnyModule& module, const Arrays& inputs) { return call(*module.as<M>(), inputs); }};
}

Arrays arrays_of(const std::pair<NDArray, nn::LSTMState>& result) {
  return {result.first, result.second.h, result.second.c};
}
Arrays arrays_of(const std::pair<NDArray, NDArray>& result) { return {result.first, result.second}; }

NDArray padding() { return array({{0, 0, 0}, {0, 0, 1}}).to(DType::bool_); }
// True where a key comes after the query.
NDArray later(int64_t size) { return arange(size).reshape({1, size}) > arange(size).reshape({size, 1}); }
const std::vector<int64_t> kLengths = {2, 4, 1};

// The entries of CALLS in torch_layers.py.
std::vector<Case> calls() {
  return {
      several<nn::Bilinear>("Bilinear", nn::Bilinear(3, 4, 5),
                            [](const auto& m, const Arrays& in) { return Arrays{m(in[0], in[1])}; }),
      several<nn::Embedding>("Embedding", nn::Embedding(7, 3, {.padding_idx = 6}),
                             [](const auto& m, const Arrays& in) { return Arrays{m(in[0])}; }),
      several<nn::EmbeddingBag>("EmbeddingBag", nn::EmbeddingBag(7, 3),
                                [](const auto& m, const Arrays& in) { return Arrays{m(in[0])}; }),
      several<nn::RNN>("RNN with state", nn::RNN(3, 5),
                       [](const auto& m, const Arrays& in) { return arrays_of(m(in[0], in[1])); }),
      several<nn::GRU>("GRU with state", nn::GRU(3, 5, {.num_layers = 2, .bidirectional = true}),
                       [](const auto& m, const Arrays& in) { return arrays_of(m(in[0], in[1])); }),
      several<nn::LSTM>("LSTM with state", nn::LSTM(3, 5, {.num_layers = 2}),
                        [](const auto& m, const Arrays& in) {
                          return arrays_of(m(in[0], nn::LSTMState{in[1], in[2]}));
                        }),
      several<nn::LSTM>("LSTM packed", nn::LSTM(3, 5, {.bidirectional = true}),
                        [](const auto& m, const Arrays& in) {
                          const auto packed =
                              nn::pack_padded_sequence(in[0], kLengths, {.enforce_sorted = false});
                          const auto [y, end] = m(packed, nn::LSTMState{in[1], in[2]});
                          return Arrays{nn::pad_packed_sequence(y).first, end.h, end.c};
                        }),
      several<nn::GRU>("GRU packed", nn::GRU(3, 5),
                       [](const auto& m, const Arrays& in) {
                         const auto packed =
                             nn::pack_padded_sequence(in[0], kLengths, {.enforce_sorted = false});
                         const auto [y, end] = m(packed, in[1]);
                         return Arrays{nn::pad_packed_sequence(y).first, end};
                       }),
      several<nn::LSTMCell>("LSTMCell with state", nn::LSTMCell(3, 5),
                            [](const auto& m, const Arrays& in) {
                              const nn::LSTMState end = m(in[0], nn::LSTMState{in[1], in[2]});
                              return Arrays{end.h, end.c};
                            }),
      several<nn::MultiheadAttention>(
          "MultiheadAttention", nn::MultiheadAttention(4, 2, {.batch_first = true}),
          [](const auto& m, const Arrays& in) {
            return arrays_of(m(in[0], in[1], in[2], {.key_padding_mask = padding()}));
          }),
      several<nn::MultiheadAttention>(
          "MultiheadAttention causal", nn::MultiheadAttention(4, 2, {.bias = false}),
          [](const auto& m, const Arrays& in) {
            return Arrays{m(in[0], in[1], in[2], {.need_weights = false, .attn_mask = later(3)}).first};
          }),
      several<nn::MultiheadAttention>(
          "MultiheadAttention of other widths",
          nn::MultiheadAttention(4, 2, {.add_bias_kv = true, .add_zero_attn = true, .kdim = 3, .vdim = 5}),
          [](const auto& m, const Arrays& in) {
            return arrays_of(m(in[0], in[1], in[2], {.average_attn_weights = false}));
          }),
      several<nn::TransformerDecoderLayer>(
          "TransformerDecoderLayer", nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 3, .dropout = 0}),
          [](const auto& m, const Arrays& in) {
            return Arrays{m(in[0], in[1], nn::DecoderMasks{.tgt_mask = later(3)})};
          }),
      several<nn::TransformerDecoder>(
          "TransformerDecoder",
          nn::TransformerDecoder(
              nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 3, .dropout = 0, .norm_first = true}), 2),
          [](const auto& m, const Arrays& in) { return Arrays{m(in[0], in[1])}; }),
      several<nn::Transformer>("Transformer",
                               nn::Transformer({.d_model = 4,
                                                .nhead = 2,
                                                .num_encoder_layers = 1,
                                                .num_decoder_layers = 2,
                                                .dim_feedforward = 3,
                                                .dropout = 0,
                                                .batch_first = true}),
                               [](const auto& m, const Arrays& in) {
                                 return Arrays{m(in[0], in[1],
                                                 nn::TransformerMasks{.tgt_mask = later(5),
                                                                      .src_key_padding_mask = padding(),
                                                                      .memory_key_padding_mask = padding()})};
                               }),
  };
}

std::vector<Case> cases() {
  std::vector<Case> all = calls();
  for (const test::LayerCase& layer : test::layer_cases()) {
    std::string shape;
    for (int i = 0; i < layer.input.rank(); ++i)
      shape += (i == 0 ? "" : ",") + std::to_string(layer.input[i]);
    all.push_back({layer.name, shape, layer.make, [](const nn::AnyModule& module, const Arrays& inputs) {
                     return Arrays{module(inputs[0])};
                   }});
  }
  return all;
}

/// PyTorch computes the gradients of these two with a sixth of type float.
double tolerance_of(const Case& c) { return c.name == "Hardsigmoid" || c.name == "Hardswish" ? 1e-7 : 1e-10; }

void expect_close(const std::string& name, const NDArray& expected, const NDArray& got, double tolerance) {
  SCOPED_TRACE(name);
  ASSERT_TRUE(got.defined());
  ASSERT_EQ(expected.shape(), got.shape());
  const std::vector<double> e = expected.to(f64).to_vector<double>(), g = got.to(f64).to_vector<double>();
  for (size_t i = 0; i < e.size(); ++i) ASSERT_NEAR(e[i], g[i], tolerance * (1 + std::abs(e[i]))) << i;
}

/// The arrays of a file whose names begin with `prefix`, under the rest of their names.
NamedArrays part_of(const NamedArrays& file, const std::string& prefix) {
  NamedArrays part;
  for (const auto& [name, value] : file)
    if (name.starts_with(prefix)) part.push_back({name.substr(prefix.size()), value});
  return part;
}

void compare(const Case& c, const NamedArrays& file) {
  const double tolerance = tolerance_of(c);
  nn::AnyModule module = c.make();
  module->to(f64);
  module->train(file.at("training").item<bool>());
  module->load_state_dict(part_of(file, "state."));
  Arrays inputs;
  for (const auto& [name, value] : part_of(file, "in"))
    inputs.push_back(is_floating(value.dtype()) ? value.clone().requires_grad_() : value);
  const Arrays outputs = c.call(module, inputs);
  NDArray loss = zeros({}, f64);
  ASSERT_EQ(part_of(file, "out").size(), outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    expect_close("output " + std::to_string(i), file.at("out" + std::to_string(i)), outputs[i], tolerance);
    loss = loss + sum(outputs[i] * file.at("g" + std::to_string(i)));
  }
  loss.backward();
  for (const auto& [index, gradient] : part_of(file, "d"))
    expect_close("gradient of input " + index, gradient, inputs.at(std::stoul(index)).grad(), tolerance);
  for (const auto& [name, gradient] : part_of(file, "grad."))
    expect_close("gradient of " + name, gradient, module->parameter(name).grad(), tolerance);
  for (const auto& [name, value] : part_of(file, "after."))
    expect_close(name + " after the call", value, module->parameter(name), tolerance);
}

// Four kinds of layers are not PyTorch's. torch_layers.py lists them, and fails for a name that it does not
// know.
constexpr size_t kNotOfPyTorch = 4;

void compare_all(const std::string& path) {
  const NamedArrays file = load_safetensors(path);
  size_t compared = 0, arrays = 0;
  for (const Case& c : cases()) {
    const NamedArrays of_layer = part_of(file, c.name + "/");
    if (of_layer.empty()) continue;
    SCOPED_TRACE(c.name);
    compare(c, of_layer);
    ++compared;
    arrays += of_layer.size();
  }
  EXPECT_EQ(cases().size() - kNotOfPyTorch, compared);
  EXPECT_EQ(file.size(), arrays);
}

TEST(TorchLayers, HaveTheNamesOutputsAndGradientsOfTheGoldenFile) { compare_all(MX_GOLDEN_LAYERS); }

TEST(TorchLayers, HaveTheNamesOutputsAndGradientsOfPyTorch) {
  const std::string python = test::python_with("numpy, torch");
  if (python.empty()) GTEST_SKIP() << "needs a Python with numpy and torch (set MX_TEST_PYTHON)";
  const TempFolder folder;
  std::string list;
  for (const Case& c : cases()) list += c.name + "\t" + c.shape + "\n";
  test::spill(folder / "cases.txt", list);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("SEED=" + std::to_string(seed));
  ASSERT_TRUE(test::run_python("SEED=" + std::to_string(seed) + " " + python, folder, kScript));
  compare_all(folder / "layers.safetensors");
  if (const char* const golden = std::getenv("MX_GOLDEN"); golden != nullptr)
    std::filesystem::copy_file(folder / "layers.safetensors", golden,
                               std::filesystem::copy_options::overwrite_existing);
}

}  // namespace
}  // namespace mx
