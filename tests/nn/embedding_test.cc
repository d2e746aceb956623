// Embedding, EmbeddingBag and Bilinear: PyTorch's values and gradients; dropout of channels.
#include "nn/embedding.h"

#include <gtest/gtest.h>

#include "ndarray/grad_mode.h"
#include "nn/dropout.h"
#include "tests/nn/golden.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::golden_numbers;
using test::inputs;

const char* const kEmbeddingGolden =
#include <golden_losses.inc>
    ;

/// Compares the layer's output and the gradient of sum(output * golden_numbers(7)) in its weight.
void expect_golden_table(const std::string& name, const NDArray& y, const Parameter& weight) {
  test::GoldenFile golden(kEmbeddingGolden);
  sum(y * golden_numbers(y.shape(), 7)).backward();
  golden.expect(name, y.detach());
  golden.expect(name + "/d0", weight.grad());
}

void set_table(const Parameter& weight) {
  const NoGrad pause;
  weight.copy_from(golden_numbers(weight.shape(), 1));
}

const NDArray& golden_indices() {
  static const NDArray indices = array<int64_t>({{1, 4, 0}, {4, 4, 5}});
  return indices;
}

TEST(EmbeddingLayer, AgreesWithPyTorch) {
  const auto run = [](const std::string& name, const nn::EmbeddingOptions& given) {
    nn::EmbeddingOptions options = given;
    options.dtype = f64;
    nn::Embedding layer(6, 3, options);
    set_table(layer.weight);
    expect_golden_table(name, layer(golden_indices()), layer.weight);
  };
  run("Embedding", {});
  run("Embedding with padding", {.padding_idx = -2});
  run("Embedding with a largest norm", {.max_norm = 1.0});
}

TEST(EmbeddingLayer, TheTableStartsNormalWithZerosForPadding) {
  const nn::Embedding layer(200, 50, {.padding_idx = 3});
  EXPECT_EQ((std::vector<float>(50, 0.f)), layer.weight[3].to_vector<float>());
  EXPECT_NEAR(0, mean(layer.weight).item<float>(), 0.05);
  EXPECT_NEAR(1, var(layer.weight).item<float>(), 0.05);
  EXPECT_EQ(std::vector<std::string>{"weight"}, test::names(layer.state_dict()));
}

TEST(EmbeddingLayer, ANegativeIndexIsOutOfRangeAsInPyTorch) {
  nn::Embedding layer(4, 2), sparse(4, 2, {.sparse = true});
  nn::EmbeddingBag bag(4, 2);
  const NDArray wrong = array<int64_t>({{0, -1}});
  const auto refused = [](const NDArray& y) {
    const std::string message = error_of<InvalidArgument>([&] { y.wait(); });
    EXPECT_TRUE(contains(message, "indices from 0 to 3") && contains(message, "got -1 at position"))
        << message;
    EXPECT_TRUE(contains(message, "embedding_test.cc:")) << message;
  };
  refused(layer(wrong));
  refused(sparse(wrong));
  refused(bag(wrong));
  refused(bag(wrong.reshape({-1}), array<int64_t>({0, 1})));
  EXPECT_EQ(content_of(layer.weight[3]), content_of(embedding(layer.weight, array<int64_t>({-1}))[0]))
      << "the operator counts from the end";
}

TEST(EmbeddingLayer, ALargestNormChangesTheRowsThatAreTaken) {
  nn::Embedding layer(4, 2, {.max_norm = 1});
  {
    const NoGrad pause;
    layer.weight.copy_from(array({{3.f, 4.f}, {0.3f, 0.4f}, {3.f, 4.f}, {3.f, 4.f}}));
  }
  layer(array<int64_t>({0, 1, 0, 3}));
  test::expect_values({0.6, 0.8, 0.3, 0.4, 3, 4, 0.6, 0.8}, layer.weight.detach(), "table");
}

TEST(EmbeddingLayer, ComesFromAnArray) {
  const NDArray table = inputs({4, 3}, f64);
  nn::Embedding frozen = nn::Embedding::from_pretrained(table),
                free = nn::Embedding::from_pretrained(table, false);
  EXPECT_EQ(content_of(table[2]), content_of(frozen(array<int64_t>({2}))[0]));
  EXPECT_FALSE(frozen.weight.requires_grad());
  EXPECT_TRUE(free.weight.requires_grad());
}

TEST(EmbeddingLayer, BadInputsAreErrors) {
  EXPECT_THROW(nn::Embedding(-1, 2), InvalidArgument);
  EXPECT_THROW(nn::Embedding(3, 2, {.padding_idx = 3}), InvalidArgument);
  EXPECT_THROW(nn::Embedding(3, 2, {.max_norm = -1}), InvalidArgument);
  EXPECT_THROW(nn::Embedding(3, 2, {.dtype = i32}), InvalidArgument);
  EXPECT_THROW(nn::Embedding(3, 2)(array<int64_t>({3})).wait(), Error);
  EXPECT_THROW(nn::Embedding(3, 2)(ones({2})), InvalidArgument);
  EXPECT_THROW(nn::Embedding::from_pretrained(ones({3})), InvalidArgument);
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { nn::EmbeddingBag(3, 2, {.mode = "min"}); }), "\"min\""));
  nn::EmbeddingBag largest(3, 2, {.mode = "max"});
  const NDArray indices = array<int64_t>({0, 1}), offsets = array<int64_t>({0});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { largest(indices, offsets); }), "got \"max\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { largest(indices); }), "(bags, size)"));
}

TEST(EmbeddingBagLayer, TakesOffsetsOfAnyKind) {
  const nn::EmbeddingBag bag(4, 2, {.mode = "sum"});
  NDArray indices = array({0, 1, 2}), offsets = array({0, 2});
  const NDArray want = bag(indices, offsets);
  EXPECT_EQ(want.shape(), (Shape{2, 2}));
  EXPECT_EQ(want.to_vector<float>(), bag(array({0, 1, 2}), array({0, 2})).to_vector<float>());
}

TEST(EmbeddingBagLayer, AgreesWithPyTorch) {
  const NDArray offsets = array<int64_t>({0, 2, 2}), flat = golden_indices().reshape({-1}),
                padded = array<int64_t>({{1, 4, 0}, {4, 4, 4}});
  for (const std::string mode : {"sum", "mean", "max"}) {
    const auto layer = [&](std::optional<int64_t> padding) {
      nn::EmbeddingBag bag(6, 3, {.mode = mode, .padding_idx = padding, .dtype = f64});
      set_table(bag.weight);
      return bag;
    };
    const nn::EmbeddingBag plain = layer({}), with = layer(4);
    expect_golden_table("EmbeddingBag/" + mode, plain(golden_indices()), plain.weight);
    expect_golden_table("EmbeddingBag with padding/" + mode, with(padded), with.weight);
    if (mode == "max") continue;
    const nn::EmbeddingBag again = layer({}), again_with = layer(4);
    expect_golden_table("EmbeddingBag with offsets/" + mode, again(flat, offsets), again.weight);
    expect_golden_table("EmbeddingBag with offsets and padding/" + mode, again_with(flat, offsets),
                        again_with.weight);
  }
}

TEST(BilinearLayer, AgreesWithPyTorch) {
  nn::Bilinear layer(4, 2, 3, {.dtype = f64});
  {
    const NoGrad pause;
    layer.weight.copy_from(golden_numbers({3, 4, 2}, 3));
    layer.bias.copy_from(golden_numbers({3}, 4));
  }
  NDArray a = golden_numbers({2, 3, 4}, 1).requires_grad_(),
          b = golden_numbers({2, 3, 2}, 2).requires_grad_();
  const NDArray y = layer(a, b);
  sum(y * golden_numbers(y.shape(), 7)).backward();
  test::GoldenFile golden(kEmbeddingGolden);
  golden.expect("Bilinear", y.detach());
  golden.expect("Bilinear/d0", a.grad());
  golden.expect("Bilinear/d1", b.grad());
  golden.expect("Bilinear/d2", layer.weight.grad());
  golden.expect("Bilinear/d3", layer.bias.grad());
  EXPECT_EQ(Shape({0, 3}), layer(zeros({0, 4}, f64), zeros({0, 2}, f64)).shape());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { layer(a, a); }), "[Bilinear]"));
  EXPECT_FALSE(nn::Bilinear(1, 2, 3, {.bias = false}).bias.defined());
}

// Dropout of channels.

TEST(ChannelDropout, DropsWholeChannelsOfEachSample) {
  const auto expect_channels = [](nn::AnyModule layer, const Shape& shape, int channel_dims) {
    manual_seed(4);
    const NDArray y = layer(ones(shape));
    int64_t run = 1;
    for (int i = channel_dims; i < shape.rank(); ++i) run *= shape[i];
    const std::vector<float> values = y.to_vector<float>();
    int64_t dropped = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(values[i] == 0 || values[i] == 1 / 0.75f) << values[i];
      EXPECT_EQ(values[i - i % static_cast<size_t>(run)], values[i]) << i;
      dropped += values[i] == 0;
    }
    EXPECT_NEAR(0.25, static_cast<double>(dropped) / static_cast<double>(values.size()), 0.04);
    layer->eval();
    EXPECT_EQ(content_of(ones(shape)), content_of(layer(ones(shape))));
  };
  expect_channels(nn::Dropout1d(0.25), {50, 40, 3}, 2);
  expect_channels(nn::Dropout1d(0.25), {2000, 3}, 1);
  expect_channels(nn::Dropout2d(0.25), {50, 40, 2, 3}, 2);
  expect_channels(nn::Dropout3d(0.25), {50, 40, 2, 1, 3}, 2);
  expect_channels(nn::Dropout3d(0.25), {2000, 2, 1, 3}, 1);
  EXPECT_THROW(nn::Dropout2d()(ones({2, 3, 4})), InvalidArgument);
  EXPECT_THROW(nn::Dropout1d(1.5), InvalidArgument);
}

TEST(AlphaDropoutLayer, KeepsMeanAndVariance) {
  manual_seed(4);
  const NDArray x = randn({200, 100, 4});
  for (nn::AnyModule layer :
       {nn::AnyModule(nn::AlphaDropout(0.3)), nn::AnyModule(nn::FeatureAlphaDropout(0.3))}) {
    const NDArray y = layer(x);
    EXPECT_NEAR(0, mean(y).item<float>(), 0.03);
    EXPECT_NEAR(1, var(y).item<float>(), 0.03);
    layer->eval();
    EXPECT_EQ(content_of(x), content_of(layer(x)));
  }
  EXPECT_EQ(content_of(zeros({2, 2})), content_of(nn::AlphaDropout(1)(ones({2, 2}))));
  EXPECT_EQ(content_of(x), content_of(nn::AlphaDropout(0)(x)));
  EXPECT_THROW(nn::AlphaDropout(-0.5), InvalidArgument);
  EXPECT_THROW(nn::FeatureAlphaDropout()(ones({3})), InvalidArgument);
}

TEST(EmbeddingBagOffsets, OffsetsThatDoNotAscendFromZeroAreRefused) {
  nn::EmbeddingBag bag(3, 1, {.mode = "sum"});
  const NDArray indices = array<int64_t>({0, 1, 2});
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{1, 2}, {0, 9}, {0, 2, 1}, {-1, 2}, std::vector<int64_t>{}})
    test::expect_error<InvalidArgument>("[EmbeddingBag] expected", [&] { bag(indices, array(offsets)); });
  // Narrow offsets count as far as wide ones.
  const NDArray many = zeros({300}, i64);
  EXPECT_EQ(bag(many, array<int64_t>({0, 100})).to_vector<float>(),
            bag(many, array<int64_t>({0, 100}).to(i8)).to_vector<float>());
}

}  // namespace
}  // namespace mx
