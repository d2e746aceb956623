// Every layer with one input, as tests/nn/every_layer_test.py checks. Tests over all layers iterate over this
// list.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "nn/parametrize.h"
#include "nn/recurrent.h"
#include "tests/nn/models.h"

namespace mx::test {

struct LayerCase {
  std::string name;  ///< begins with the name of the type
  std::function<nn::AnyModule()> make;
  Shape input;
};

inline void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.name; }

/// The results of a recurrent layer without its state.
template <class Layer>
struct ResultsOf : nn::ModuleOf<ResultsOf<Layer>> {
  Layer layer;
  explicit ResultsOf(const Layer& l) : layer(l) { this->add("layer", layer); }
  NDArray forward(const NDArray& x) override { return layer(x).first; }
};
template <class Cell>
struct StateOf : nn::ModuleOf<StateOf<Cell>> {
  Cell cell;
  explicit StateOf(const Cell& c) : cell(c) { this->add("cell", cell); }
  NDArray forward(const NDArray& x) override {
    if constexpr (std::is_same_v<Cell, nn::LSTMCell>) {
      const nn::LSTMState state = cell(x);
      return state.h + state.c;
    } else {
      return cell(x);
    }
  }
};

inline std::vector<LayerCase> layer_cases() {
  const Shape x = {2, 6};
  std::vector<LayerCase> cases = {
      {"Linear", [] { return nn::Linear(6, 5); }, x},
      {"Linear of rank 3", [] { return nn::Linear(6, 5); }, {2, 3, 6}},
      {"Linear without bias", [] { return nn::Linear(6, 5, {.bias = false}); }, x},
      {"Linear with weight_norm", [] { return nn::weight_norm(nn::Linear(6, 5)); }, x},
      {"Linear with weight_norm of all", [] { return nn::weight_norm(nn::Linear(6, 5), "weight", -1); }, x},
      // In training mode, each call would do a step of the power iteration.
      {"Linear with spectral_norm", [] { return nn::spectral_norm(nn::Linear(6, 5)).eval(); }, x},
      {"Linear with both", [] { return nn::spectral_norm(nn::weight_norm(nn::Linear(6, 5)), "bias"); }, x},
      {"Conv2d with weight_norm",
       [] { return nn::weight_norm(nn::Conv2d(2, 3, 2), "weight", 1); },
       {2, 2, 3, 4}},
      {"ConvTranspose1d with spectral_norm",
       [] {
         return nn::spectral_norm(nn::ConvTranspose1d(2, 3, 3), "weight", {.n_power_iterations = 2}).eval();
       },
       {2, 2, 4}},
      {"MixtureOfExperts",
       [] { return nn::MixtureOfExperts(6, {.experts = 3, .top_k = 2}, [] { return nn::Linear(6, 4); }); },
       x},
      {"Identity", [] { return nn::Identity(); }, x},
      {"Flatten", [] { return nn::Flatten(); }, {2, 3, 4}},
      {"Unflatten",
       [] {
         return nn::Unflatten(1, {2, -1});
       },
       x},
      {"Dropout", [] { return nn::Dropout(0.5); }, x},
      {"Sequential",
       [] {
         return nn::Sequential{nn::Linear{6, 4}, nn::Tanh{}, Block{4}};
       },
       x},
      {"Sequential of nothing", [] { return nn::Sequential(); }, x},
      {"Residual",
       [] {
         return nn::Residual(nn::Linear{6, 6});
       },
       x},
      {"Residual with a shortcut",
       [] {
         return nn::Residual(nn::Linear{6, 3}, nn::Linear{6, 3});
       },
       x},
      {"ReLU", [] { return nn::ReLU(); }, x},
      {"ReLU6", [] { return nn::ReLU6(); }, x},
      {"SELU", [] { return nn::SELU(); }, x},
      {"SiLU", [] { return nn::SiLU(); }, x},
      {"Mish", [] { return nn::Mish(); }, x},
      {"Sigmoid", [] { return nn::Sigmoid(); }, x},
      {"LogSigmoid", [] { return nn::LogSigmoid(); }, x},
      {"Hardsigmoid", [] { return nn::Hardsigmoid(); }, x},
      {"Hardswish", [] { return nn::Hardswish(); }, x},
      {"Hardtanh", [] { return nn::Hardtanh(-0.5, 0.75); }, x},
      {"Tanh", [] { return nn::Tanh(); }, x},
      {"Softsign", [] { return nn::Softsign(); }, x},
      {"LeakyReLU", [] { return nn::LeakyReLU(0.2); }, x},
      {"PReLU", [] { return nn::PReLU(); }, x},
      {"PReLU by channel", [] { return nn::PReLU(6, 0.125); }, {2, 6, 3}},
      {"ELU", [] { return nn::ELU(1.5); }, x},
      {"CELU", [] { return nn::CELU(1.5); }, x},
      {"GELU", [] { return nn::GELU(); }, x},
      {"GELU with tanh", [] { return nn::GELU("tanh"); }, x},
      {"Softplus", [] { return nn::Softplus(2); }, x},
      {"Softmax", [] { return nn::Softmax(); }, x},
      {"Softmax of the first", [] { return nn::Softmax(0); }, x},
      {"LogSoftmax", [] { return nn::LogSoftmax(); }, x},
      {"GLU", [] { return nn::GLU(); }, x},
      {"Tanhshrink", [] { return nn::Tanhshrink(); }, x},
      {"Softshrink", [] { return nn::Softshrink(); }, x},
      {"Hardshrink", [] { return nn::Hardshrink(); }, x},
      {"Threshold", [] { return nn::Threshold(0.25, -2); }, x},
      {"Softmin", [] { return nn::Softmin(); }, x},
      {"Softmax2d", [] { return nn::Softmax2d(); }, {2, 3, 2, 2}},
      {"RReLU", [] { return nn::RReLU(); }, x},
      {"Dropout1d", [] { return nn::Dropout1d(); }, {2, 3, 2}},
      {"Dropout2d", [] { return nn::Dropout2d(); }, {2, 3, 2, 2}},
      {"Dropout3d", [] { return nn::Dropout3d(); }, {2, 3, 2, 1, 2}},
      {"AlphaDropout", [] { return nn::AlphaDropout(); }, x},
      {"FeatureAlphaDropout", [] { return nn::FeatureAlphaDropout(); }, {2, 3, 2}},
      {"BatchNorm1d", [] { return nn::BatchNorm1d(6); }, {4, 6}},
      {"BatchNorm2d", [] { return nn::BatchNorm2d(3); }, {2, 3, 2, 2}},
      {"BatchNorm3d", [] { return nn::BatchNorm3d(2); }, {2, 2, 2, 1, 2}},
      {"InstanceNorm1d", [] { return nn::InstanceNorm1d(3, {.affine = true}); }, {2, 3, 4}},
      {"InstanceNorm2d", [] { return nn::InstanceNorm2d(2, {.track_running_stats = true}); }, {2, 2, 2, 3}},
      {"InstanceNorm3d", [] { return nn::InstanceNorm3d(2); }, {2, 2, 2, 1, 2}},
      {"LayerNorm", [] { return nn::LayerNorm(6); }, x},
      {"RMSNorm", [] { return nn::RMSNorm(6); }, x},
      {"GroupNorm", [] { return nn::GroupNorm(2, 6); }, {2, 6, 2}},
      {"LocalResponseNorm", [] { return nn::LocalResponseNorm(3); }, {2, 4, 2}},
      {"SyncBatchNorm", [] { return nn::SyncBatchNorm(3); }, {2, 3, 2, 2}},
      {"Unfold",
       [] {
         return nn::Unfold({2, 3}, {.dilation = {2, 1}, .padding = 1, .stride = {1, 2}});
       },
       {2, 3, 4, 5}},
      {"Fold",
       [] {
         return nn::Fold({4, 5}, 2, {.padding = 1, .stride = {2, 1}});
       },
       {2, 8, 18}},
      {"Conv1d", [] { return nn::Conv1d(2, 3, 3, {.stride = 2, .padding = 1}); }, {2, 2, 7}},
      {"Conv2d",
       [] {
         return nn::Conv2d(2, 4, {3, 2}, {.padding = {1, 0}, .groups = 2});
       },
       {2, 2, 4, 5}},
      {"Conv2d same", [] { return nn::Conv2d(2, 3, 2, {.padding = "same", .bias = false}); }, {2, 2, 3, 4}},
      {"Conv2d reflect",
       [] { return nn::Conv2d(1, 2, 3, {.padding = 1, .padding_mode = "reflect"}); },
       {2, 1, 3, 4}},
      {"Conv3d",
       [] {
         return nn::Conv3d(1, 2, 2, {.dilation = {1, 2, 1}});
       },
       {2, 1, 2, 3, 3}},
      {"ConvTranspose1d",
       [] { return nn::ConvTranspose1d(2, 3, 3, {.stride = 2, .output_padding = 1}); },
       {2, 2, 4}},
      {"ConvTranspose2d",
       [] { return nn::ConvTranspose2d(2, 4, 3, {.padding = 1, .groups = 2}); },
       {2, 2, 3, 4}},
      {"ConvTranspose3d",
       [] { return nn::ConvTranspose3d(1, 2, 2, {.stride = 2, .bias = false}); },
       {2, 1, 2, 2, 2}},
      {"MaxPool1d", [] { return nn::MaxPool1d(2); }, {2, 3, 6}},
      {"MaxPool2d",
       [] {
         return nn::MaxPool2d({3, 2}, {.stride = 2, .padding = 1});
       },
       {2, 2, 5, 4}},
      {"MaxPool3d", [] { return nn::MaxPool3d(2); }, {2, 1, 2, 4, 2}},
      {"AvgPool1d", [] { return nn::AvgPool1d(3, {.stride = 1, .padding = 1}); }, {2, 3, 6}},
      {"AvgPool2d",
       [] { return nn::AvgPool2d(2, {.ceil_mode = true, .count_include_pad = false}); },
       {2, 2, 5, 4}},
      {"AvgPool3d", [] { return nn::AvgPool3d(2); }, {2, 1, 2, 4, 2}},
      {"AdaptiveAvgPool1d", [] { return nn::AdaptiveAvgPool1d(3); }, {2, 2, 5}},
      {"AdaptiveAvgPool2d",
       [] {
         return nn::AdaptiveAvgPool2d({2, 3});
       },
       {2, 2, 5, 4}},
      {"AdaptiveAvgPool3d", [] { return nn::AdaptiveAvgPool3d(1); }, {2, 1, 2, 4, 2}},
      {"AdaptiveMaxPool1d", [] { return nn::AdaptiveMaxPool1d(3); }, {2, 2, 5}},
      {"AdaptiveMaxPool2d",
       [] {
         return nn::AdaptiveMaxPool2d({2, 3});
       },
       {2, 2, 5, 4}},
      {"AdaptiveMaxPool3d", [] { return nn::AdaptiveMaxPool3d(1); }, {2, 1, 2, 4, 2}},
      {"Upsample", [] { return nn::Upsample({.size = 5, .mode = "linear"}); }, {2, 2, 3}},
      {"PixelShuffle", [] { return nn::PixelShuffle(2); }, {2, 4, 2, 3}},
      {"PixelUnshuffle", [] { return nn::PixelUnshuffle(2); }, {2, 1, 4, 2}},
      {"ZeroPad2d", [] { return nn::ZeroPad2d(1); }, {2, 1, 3, 2}},
      {"ConstantPad2d",
       [] {
         return nn::ConstantPad2d({1, 0, 2, 1}, 0.5);
       },
       {2, 1, 3, 2}},
      {"ReflectionPad2d",
       [] {
         return nn::ReflectionPad2d({1, 1, 2, 0});
       },
       {2, 1, 3, 2}},
      {"ReplicationPad2d",
       [] {
         return nn::ReplicationPad2d({2, 1, 1, 0});
       },
       {2, 1, 3, 2}},
      {"TransformerEncoderLayer",
       [] { return nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 3, .batch_first = true}); },
       {2, 3, 4}},
      {"TransformerEncoderLayer that normalises first",
       [] {
         return nn::TransformerEncoderLayer(4, 2,
                                            {.dim_feedforward = 3,
                                             .dropout = 0,
                                             .activation = "gelu",
                                             .batch_first = true,
                                             .norm_first = true});
       },
       {2, 3, 4}},
      {"TransformerEncoder",
       [] {
         return nn::TransformerEncoder(
             nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 3, .dropout = 0, .batch_first = true}), 2,
             nn::LayerNorm(4));
       },
       {2, 3, 4}},
      {"SinusoidalPositions", [] { return nn::SinusoidalPositions(4, {.max_length = 5}); }, {3, 2, 4}},
      {"LearnedPositions",
       [] { return nn::LearnedPositions(4, {.max_length = 3, .batch_first = true}); },
       {2, 3, 4}},
      {"RotaryEmbedding", [] { return nn::RotaryEmbedding(); }, {2, 1, 3, 4}},
      {"GlobalAvgPool", [] { return nn::GlobalAvgPool(); }, {2, 3, 4, 2}},
      {"RNN",
       [] { return ResultsOf(nn::RNN(3, 4, {.nonlinearity = "relu", .batch_first = true})); },
       {2, 3, 3}},
      {"LSTM stacked",
       [] {
         return ResultsOf(
             nn::LSTM(3, 2, {.num_layers = 2, .batch_first = true, .dropout = 0.5, .bidirectional = true}));
       },
       {2, 3, 3}},
      {"GRU", [] { return ResultsOf(nn::GRU(3, 4, {.batch_first = true})); }, {2, 3, 3}},
      {"GRU with weight_norm",
       [] { return ResultsOf(nn::weight_norm(nn::GRU(3, 4, {.batch_first = true}), "weight_hh_l0")); },
       {2, 3, 3}},
      {"RNNCell", [] { return StateOf(nn::RNNCell(6, 4)); }, x},
      {"LSTMCell", [] { return StateOf(nn::LSTMCell(6, 4)); }, x},
      {"GRUCell", [] { return StateOf(nn::GRUCell(6, 4, {.bias = false})); }, x},
      {"GlobalMaxPool", [] { return nn::GlobalMaxPool(); }, {2, 3, 4, 2}},
  };
  return cases;
}

}  // namespace mx::test
