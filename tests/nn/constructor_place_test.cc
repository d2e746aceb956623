// Errors of the constructors of layers name the line of the program, once, also if a part of the layer
// throws.
#include <gtest/gtest.h>

#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "nn/nn.h"
#include "nn/sync_norm.h"
#include "tests/support/called_at.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

using Wrong = test::WrongCall;

// Each is on one line, the one that its error must name.
// clang-format off
std::vector<Wrong> wrong_constructors() {
  return {
      Wrong([] { nn::Linear(-1, 2); }),
      Wrong([] { nn::Linear(1, -2, false); }),
      Wrong([] { nn::Linear(1, 2, {.dtype = i64}); }),
      Wrong([] { nn::GELU("cubic"); }),
      Wrong([] { nn::Hardtanh(1, 0); }),
      Wrong([] { nn::RReLU(1, 0); }),
      Wrong([] { nn::PReLU(-1); }),
      Wrong([] { nn::MultiheadAttention(3, 2); }),
      Wrong([] { nn::Sequential{{"a", nn::ReLU()}, {"a", nn::ReLU()}}; }),
      Wrong([] { nn::ModuleDict{{"a.b", nn::ReLU()}}; }),
      Wrong([] { nn::Lambda(std::function<NDArray(const NDArray&)>()); }),
      Wrong([] { nn::Conv1d(1, 1, 0); }),
      Wrong([] { nn::Conv2d(3, 2, 1, {.groups = 2}); }),
      Wrong([] { nn::Conv2d(3, 2, 1, {.padding = "some"}); }),
      Wrong([] { nn::Conv3d(1, 1, 1, {.padding_mode = "some"}); }),
      Wrong([] { nn::ConvTranspose1d(1, 1, 0); }),
      Wrong([] { nn::ConvTranspose2d(-1, 1, 1); }),
      Wrong([] { nn::ConvTranspose3d(3, 2, 1, {.groups = 2}); }),
      Wrong([] { nn::MaxPool1d(-1); }),
      Wrong([] { nn::MaxPool2d({1, 2, 3}); }),
      Wrong([] { nn::MaxPool3d(0); }),
      Wrong([] { nn::AvgPool1d(-1); }),
      Wrong([] { nn::AvgPool2d({1, 2, 3}); }),
      Wrong([] { nn::AvgPool3d(0); }),
      Wrong([] { nn::AdaptiveAvgPool2d({1, 2, 3}); }),
      Wrong([] { nn::AdaptiveMaxPool1d({1, 2}); }),
      Wrong([] { nn::Dropout(2); }),
      Wrong([] { nn::Dropout2d(-1); }),
      Wrong([] { nn::AlphaDropout(2); }),
      Wrong([] { nn::Embedding(-1, 2); }),
      Wrong([] { nn::EmbeddingBag(1, -2); }),
      Wrong([] { nn::Bilinear(-1, 2, 3); }),
      Wrong([] { nn::GCNConv(-1, 2); }),
      Wrong([] { nn::SAGEConv(-1, 2); }),
      Wrong([] { nn::GATConv(-1, 2); }),
      Wrong([] { nn::MixtureOfExperts(2, {.experts = 2, .top_k = 3}, [] { return nn::Linear(2, 2); }); }),
      Wrong([] { nn::MixtureOfExperts(-1, std::vector<nn::AnyModule>{nn::Linear(2, 2)}, {}); }),
      Wrong([] { nn::BatchNorm1d(-1); }),
      Wrong([] { nn::BatchNorm2d(1, {.momentum = 2}); }),
      Wrong([] { nn::InstanceNorm1d(-1); }),
      Wrong([] { nn::LayerNorm(-1); }),
      Wrong([] { nn::LayerNorm({2, 3}, {.dtype = i64}); }),
      Wrong([] { nn::RMSNorm(-1); }),
      Wrong([] { nn::GroupNorm(2, 3); }),
      Wrong([] { nn::LocalResponseNorm(0); }),
      Wrong([] { nn::SyncBatchNorm(-1); }),
      Wrong([] { nn::SinusoidalPositions(0); }),
      Wrong([] { nn::LearnedPositions(0); }),
      Wrong([] { nn::RNN(-1, 2); }),
      Wrong([] { nn::GRU(1, 2, {.num_layers = 0}); }),
      Wrong([] { nn::LSTM(1, 2, {.dropout = 2}); }),
      Wrong([] { nn::RNNCell(1, 2, {.nonlinearity = "some"}); }),
      Wrong([] { nn::GRUCell(-1, 2); }),
      Wrong([] { nn::LSTMCell(1, 0); }),
      Wrong([] { nn::ZeroPad2d(-1); }),
      Wrong([] { nn::ConstantPad2d({0, -1, 0, 0}, 1); }),
      Wrong([] { nn::ReflectionPad2d(-1); }),
      Wrong([] { nn::ReplicationPad2d(-1); }),
      Wrong([] { nn::TransformerEncoderLayer(3, 2); }),
      Wrong([] { nn::TransformerDecoderLayer(4, 2, {.dropout = 2}); }),
      Wrong([] { nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2), -1); }),
      Wrong([] { nn::TransformerDecoder(nn::TransformerDecoderLayer(4, 2), -1); }),
      Wrong([] { nn::Transformer({.d_model = 3, .nhead = 2}); }),
      Wrong([] { nn::Unfold({1, 2, 3}); }),
      Wrong([] { nn::Fold(2, 0); }),
      Wrong([] { nn::Conv1D(-1, 2); }),
      Wrong([] { nn::GPT({.n_embd = 3, .n_head = 2}); }),
  };
}
// clang-format on

TEST(ConstructorPlace, IsThatOfTheProgram) {
  for (const Wrong& wrong : wrong_constructors()) test::expect_named_once(wrong, "constructor_place_test.cc");
}

// The line of a member of a program's own module is the line of its constructor.
struct Own : nn::Module {
  nn::Linear fc;
  explicit Own(int64_t d) : fc(d, d) { add("fc", fc); }
};

TEST(ConstructorPlace, OfAPartOfAModuleOfTheProgramIsTheLineThatMakesThePart) {
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { Own(-1); }), "constructor_place_test.cc:"));
}

struct Inherits : nn::Linear {
  using nn::Linear::Linear;
};

TEST(ConstructorPlace, OfAnInheritedConstructorIsTheLineThatCallsIt) {
  unsigned line = 0;
  const std::string text = error_of<InvalidArgument>([&] {
    line = std::source_location::current().line() + 1;
    Inherits(-1, 2);
  });
  EXPECT_TRUE(contains(text, "constructor_place_test.cc:" + std::to_string(line) + ')')) << text;
}

}  // namespace
}  // namespace mx
