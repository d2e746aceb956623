// Layers for images against PyTorch's, and a network of them that trains.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "nn/data/loader.h"
#include "nn/data/mnist.h"
#include "nn/nn.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

constexpr const char* kGoldenImages =
#include <golden_images.inc>
    ;

/// The numbers of tests/nn/golden/make_images.py.
NDArray image_numbers(const Shape& shape, int64_t step) {
  std::vector<double> list(static_cast<size_t>(shape.numel()));
  for (size_t n = 0; n < list.size(); ++n) {
    const auto i = static_cast<int64_t>(n);
    list[n] = static_cast<double>((i * step * 7 + i * i * 3 + step) % 17 - 8) / 8;
  }
  return from_data(list.data(), shape);
}

struct ImageCase {
  nn::AnyModule layer;
  Shape input;
};

std::map<std::string, ImageCase> image_cases() {
  using namespace nn;
  return {
      {"conv1d", {Conv1d(2, 3, 3, {.stride = 2, .padding = 1}), {2, 2, 7}}},
      {"conv2d",
       {Conv2d(4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2}),
        {2, 4, 5, 6}}},
      {"conv2d_same", {Conv2d(2, 3, {2, 3}, {.padding = "same", .dilation = {3, 1}}), {2, 2, 5, 4}}},
      {"conv2d_reflect", {Conv2d(2, 3, 3, {.padding = {1, 2}, .padding_mode = "reflect"}), {2, 2, 4, 4}}},
      {"conv2d_replicate", {Conv2d(2, 3, 3, {.padding = {1, 2}, .padding_mode = "replicate"}), {2, 2, 4, 4}}},
      {"conv2d_circular", {Conv2d(2, 3, 3, {.padding = {1, 2}, .padding_mode = "circular"}), {2, 2, 4, 4}}},
      {"conv3d", {Conv3d(2, 2, {2, 1, 3}, {.padding = {0, 0, 1}, .bias = false}), {1, 2, 3, 2, 4}}},
      {"transpose1d",
       {ConvTranspose1d(2, 3, 3, {.stride = 2, .padding = 1, .output_padding = 1}), {2, 2, 4}}},
      {"transpose2d",
       {ConvTranspose2d(4, 6, {3, 2}, {.stride = {2, 3}, .groups = 2, .dilation = {1, 2}}), {2, 4, 3, 2}}},
      {"transpose3d", {ConvTranspose3d(2, 1, 2, {.stride = {1, 2, 1}}), {1, 2, 2, 2, 3}}},
      {"max2d", {MaxPool2d({3, 2}, {.stride = 2, .padding = 1, .ceil_mode = true}), {2, 2, 6, 5}}},
      {"max1d", {MaxPool1d(2, {.stride = 3, .dilation = 2}), {2, 2, 9}}},
      {"avg2d", {AvgPool2d(3, {.stride = 2, .padding = 1, .ceil_mode = true}), {2, 2, 6, 6}}},
      {"avg2d_exclude",
       {AvgPool2d(3, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}),
        {2, 2, 6, 6}}},
      {"avg3d", {AvgPool3d(2, {.stride = 1, .divisor_override = 3}), {1, 2, 3, 3, 2}}},
      {"adaptive_avg", {AdaptiveAvgPool2d({2, 3}), {2, 2, 5, 4}}},
      {"adaptive_max", {AdaptiveMaxPool2d({2, 3}), {2, 2, 5, 4}}},
      {"up_nearest", {Upsample({.scale_factor = {2.5}}), {1, 2, 3}}},
      {"up_linear", {Upsample({.size = 7, .mode = "linear"}), {1, 2, 3}}},
      {"up_bilinear", {Upsample({.scale_factor = {2, 1.5}, .mode = "bilinear"}), {1, 2, 3, 4}}},
      {"up_bilinear_corners",
       {Upsample({.size = PerAxis{5, 2}, .mode = "bilinear", .align_corners = true}), {1, 2, 3, 4}}},
      {"up_bicubic", {Upsample({.size = PerAxis{5, 3}, .mode = "bicubic"}), {1, 2, 3, 4}}},
      {"up_trilinear", {Upsample({.scale_factor = {2}, .mode = "trilinear"}), {1, 1, 2, 2, 3}}},
      {"shuffle", {PixelShuffle(2), {1, 8, 2, 3}}},
      {"unshuffle", {PixelUnshuffle(2), {1, 2, 4, 6}}},
  };
}

TEST(ImageLayers, GiveTheOutputsAndGradientsOfPyTorch) {
  const std::map<std::string, ImageCase> cases = image_cases();
  std::istringstream golden(kGoldenImages);
  size_t lines = 0;
  for (std::string line; std::getline(golden, line); ++lines) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    SCOPED_TRACE(name);
    const ImageCase& c = cases.at(name);
    nn::AnyModule layer = c.layer;
    layer->to(f64);
    int64_t step = 3;
    for (const NDArray& parameter : layer->parameters()) {
      const NoGrad pause;
      NDArray(parameter).copy_from(image_numbers(parameter.shape(), step++));
    }
    NDArray x = image_numbers(c.input, 2).requires_grad_();
    const NDArray y = layer(x);
    sum(y * image_numbers(y.shape(), 5)).backward();
    std::vector<NDArray> results{y, x.grad()};
    for (const NDArray& parameter : layer->parameters()) results.push_back(parameter.grad());
    size_t compared = 0;
    for (const NDArray& result : results)
      for (const double value : test::values(result)) {
        double want = 0;
        ASSERT_TRUE(words >> want) << "PyTorch has fewer numbers than " << compared;
        // PyTorch multiplies a factor of interpolation in float.
        ASSERT_NEAR(want, value, 1e-6) << "number " << compared;
        ++compared;
      }
    double more = 0;
    EXPECT_FALSE(words >> more) << "PyTorch has more numbers";
  }
  EXPECT_EQ(cases.size(), lines);
}

TEST(ImageLayers, ConvolutionsStartAsPyTorchSays) {
  manual_seed(2);
  const nn::Conv2d layer(4, 64, 5, {.groups = 2});
  EXPECT_EQ(Shape({64, 2, 5, 5}), layer.weight.shape());
  const float bound = 1 / std::sqrt(2.f * 25);
  for (const nn::Parameter& parameter : {layer.weight, layer.bias}) {
    EXPECT_LE(max(abs(parameter)).item<float>(), bound);
    EXPECT_GT(max(abs(parameter)).item<float>(), 0.9f * bound);
  }
  const nn::ConvTranspose2d up(6, 4, 3, {.groups = 2});
  EXPECT_EQ(Shape({6, 2, 3, 3}), up.weight.shape());
  EXPECT_LE(max(abs(up.bias)).item<float>(), 1 / std::sqrt(2.f * 9));
}

TEST(ImageLayers, BadOptionsAreErrors) {
  const auto text = [](const auto& f) { return test::error_of<InvalidArgument>(f); };
  using test::contains;
  EXPECT_TRUE(contains(text([] { nn::Conv2d(3, 4, 3, {.groups = 2}); }),
                       "[Conv2d] expected groups that divide in = 3"));
  EXPECT_TRUE(contains(text([] { nn::Conv2d(0, 4, 3); }), "in = 0"));
  EXPECT_TRUE(contains(text([] { nn::Conv2d(3, 4, 0); }), "a kernel of at least 1"));
  EXPECT_TRUE(contains(text([] { nn::Conv2d(3, 4, {1, 2, 3}); }), "a kernel of 1 or 2 numbers"));
  EXPECT_TRUE(contains(text([] { nn::Conv2d(3, 4, 3, {.padding = "full"}); }),
                       "\"same\" or \"valid\", got \"full\""));
  EXPECT_TRUE(contains(text([] { nn::Conv2d(3, 4, 3, {.stride = 2, .padding = "same"}); }), "a stride of 1"));
  EXPECT_TRUE(contains(text([] { nn::Conv2d(3, 4, 3, {.padding_mode = "wrap"}); }), "got \"wrap\""));
  EXPECT_TRUE(contains(text([] { nn::Conv2d(3, 4, 3, {.dtype = i32}); }), "floating-point"));
  EXPECT_TRUE(contains(text([] {
                         nn::Conv2d(3, 4, 3)(zeros({2, 3}));
                       }),
                       "[Conv2d] expected x of 4 dimensions"));
  EXPECT_TRUE(
      contains(text([] { nn::ConvTranspose1d(3, 4, 3, {.output_padding = 1}); }), "an output padding less"));
  EXPECT_TRUE(contains(text([] {
                         nn::MaxPool2d(2)(zeros({2, 3}));
                       }),
                       "[MaxPool2d] expected x of 4 dimensions"));
  EXPECT_TRUE(contains(text([] { nn::Upsample({.mode = "linear"})(zeros({1, 1, 4})); }), "got neither"));
  EXPECT_TRUE(contains(text([] {
                         nn::Upsample({.size = 2, .mode = "linear"})(zeros({1, 1, 4, 4}));
                       }),
                       "got \"linear\""));
  EXPECT_TRUE(contains(text([] { nn::PixelShuffle(2)(zeros({1, 3, 4, 4})); }), "[pixel_shuffle]"));
  EXPECT_TRUE(contains(text([] { nn::ZeroPad2d(-1); }), "[ZeroPad2d] expected widths of 0 or more"));
}

/// LeNet-5 with the layers of today: LeCun et al., "Gradient-based learning applied to document recognition"
/// (1998).
nn::Sequential lenet() {
  return nn::Sequential{nn::Conv2d(1, 6, 5, {.padding = 2}),
                        nn::ReLU{},
                        nn::MaxPool2d(2),
                        nn::Conv2d(6, 16, 5),
                        nn::ReLU{},
                        nn::MaxPool2d(2),
                        nn::Flatten(),
                        nn::Linear(400, 120),
                        nn::ReLU{},
                        nn::Linear(120, 84),
                        nn::ReLU{},
                        nn::Linear(84, 10)};
}

TEST(ImageLayers, ASmallLeNetLearnsTheDigits) {
  if (!std::filesystem::exists(MX_MNIST)) GTEST_SKIP() << MX_MNIST << " is not here";
  manual_seed(1);
  nn::Sequential net = lenet();
  optim::SGD optimizer(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  data::Loader loader(data::mnist(MX_MNIST, data::Split::train),
                      {.batch_size = 64, .shuffle = true, .seed = 1});
  std::vector<float> losses;
  for (auto& [images, labels] : loader) {
    const NDArray loss = nn::cross_entropy(net(images.reshape({-1, 1, 28, 28})), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<float>());
    if (losses.size() == 60) break;
  }
  const auto mean_of = [&](size_t from, size_t to) {
    float total = 0;
    for (size_t i = from; i < to; ++i) total += losses[i];
    return total / static_cast<float>(to - from);
  };
  const size_t n = losses.size();
  ASSERT_GE(n, 20u);
  EXPECT_NEAR(2.3, losses[0], 0.2);
  EXPECT_LT(mean_of(n - 5, n), 0.7f * mean_of(0, 5));
}

}  // namespace
}  // namespace mx
