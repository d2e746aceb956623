// Normalisation layers: PyTorch's outputs, gradients and running statistics, the mode, and errors.
#include "nn/norm.h"

#include <gtest/gtest.h>

#include "ndarray/grad_mode.h"
#include "tests/nn/golden.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::all_values;
using test::contains;
using test::content_of;
using test::error_of;
using test::golden_numbers;
using test::inputs;

const char* const kNormGolden =
#include <golden_norm.inc>
    ;

TEST(NormLayers, AgreeWithPyTorch) {
  test::GoldenFile golden(kNormGolden);
  const auto run = [&](const std::string& name, nn::AnyModule layer, const Shape& shape, int calls = 1) {
    layer->to(f64);
    int64_t step = 3;
    {
      const NoGrad pause;
      for (NDArray p : layer->parameters()) p.copy_from(golden_numbers(p.shape(), step++) + 1);
    }
    NDArray x, y;
    for (int call = 0; call < calls; ++call) {
      x = golden_numbers(shape, call + 1).requires_grad_();
      layer->zero_grad();
      y = layer(x);
      sum(y * golden_numbers(y.shape(), 7)).backward();
    }
    golden.expect(name + "/y", y);
    golden.expect(name + "/dx", x.grad());
    for (const auto& [key, p] : layer->parameters()) golden.expect(name + "/d" + key, p.grad());
    for (const auto& [key, buffer] : layer->named_buffers()) golden.expect(name + '/' + key, buffer);
    layer->eval();
    golden.expect(name + "/eval", layer(golden_numbers(shape, 1)));
  };
  run("BatchNorm1d", nn::BatchNorm1d(3), {5, 3}, 3);
  run("BatchNorm1d of rank 3", nn::BatchNorm1d(3, {.eps = 1e-3, .momentum = {}}), {2, 3, 17}, 3);
  run("BatchNorm2d", nn::BatchNorm2d(2, {.momentum = 0.25}), {2, 2, 3, 2}, 2);
  run("BatchNorm2d without affine", nn::BatchNorm2d(2, {.affine = false}), {2, 2, 3, 2}, 2);
  run("BatchNorm2d without statistics", nn::BatchNorm2d(2, {.track_running_stats = false}), {2, 2, 3, 2});
  run("BatchNorm3d", nn::BatchNorm3d(2), {2, 2, 2, 1, 3});
  run("InstanceNorm1d", nn::InstanceNorm1d(3), {2, 3, 4});
  run("InstanceNorm1d of one sample", nn::InstanceNorm1d(3, {.affine = true}), {3, 4});
  run("InstanceNorm2d", nn::InstanceNorm2d(2, {.affine = true, .track_running_stats = true}), {3, 2, 2, 3},
      2);
  run("InstanceNorm3d", nn::InstanceNorm3d(2, {.affine = true}), {2, 2, 2, 3, 3});
  run("LayerNorm", nn::LayerNorm(5), {2, 3, 5});
  run("LayerNorm of two dimensions", nn::LayerNorm(Shape{3, 5}, {.eps = 1e-2}), {2, 3, 5});
  run("LayerNorm without bias", nn::LayerNorm(5, {.bias = false}), {4, 5});
  run("LayerNorm without affine", nn::LayerNorm(5, {.elementwise_affine = false}), {4, 5});
  run("RMSNorm", nn::RMSNorm(5), {2, 3, 5});
  run("RMSNorm with eps", nn::RMSNorm(Shape{3, 5}, {.eps = 0.1}), {2, 3, 5});
  run("GroupNorm", nn::GroupNorm(2, 6), {2, 6, 3});
  run("GroupNorm without affine", nn::GroupNorm(3, 6, {.affine = false}), {2, 6});
  run("LocalResponseNorm", nn::LocalResponseNorm(3, {.alpha = 0.5, .beta = 0.5, .k = 2}), {2, 5, 3});
  EXPECT_EQ(0u, golden.unused());
}

TEST(NormLayers, StateHasTheNamesAndTypesOfPyTorch) {
  const nn::BatchNorm2d layer(3);
  const NamedArrays state = layer.state_dict();
  EXPECT_EQ(
      (std::vector<std::string>{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}),
      test::names(state));
  EXPECT_EQ(i64, layer.num_batches_tracked.dtype());
  EXPECT_EQ(Shape{}, layer.num_batches_tracked.shape());
  EXPECT_EQ((std::vector<float>{0, 0, 0}), layer.running_mean.to_vector<float>());
  EXPECT_EQ((std::vector<float>{1, 1, 1}), layer.running_var.to_vector<float>());
  nn::BatchNorm2d half(3);
  half.to(bf16);
  EXPECT_EQ(bf16, half.running_var.dtype());
  EXPECT_EQ(i64, half.num_batches_tracked.dtype());
}

TEST(NormLayers, CopiesShareTheRunningStatistics) {
  nn::BatchNorm1d layer(3);
  nn::Sequential net{layer, nn::Tanh{}};
  net(inputs({4, 3}));
  EXPECT_EQ(1, layer.num_batches_tracked.item<int64_t>());
  EXPECT_NE((std::vector<float>{0, 0, 0}), layer.running_mean.to_vector<float>());
  net.to(f64);
  net(inputs({4, 3}, f64));
  EXPECT_EQ(2, layer.num_batches_tracked.item<int64_t>());
  EXPECT_EQ(f64, layer.running_mean.dtype());
}

TEST(NormLayers, TheModeOfTheThreadDecides) {
  nn::BatchNorm1d layer(3);
  const NDArray x = inputs({4, 3});
  layer(x);
  const std::vector<double> state = all_values(layer.state_dict());
  layer.eval();
  const NDArray predicted = layer(x);
  layer.train();
  {
    const PredictMode predict;
    EXPECT_EQ(content_of(predicted), content_of(layer(x)));
  }
  EXPECT_EQ(state, all_values(layer.state_dict())) << "predicting changes nothing";
  layer.eval();
  {
    const TrainMode train;
    EXPECT_NE(content_of(predicted), content_of(layer(x)));
  }
  EXPECT_NE(state, all_values(layer.state_dict()));
}

// The update must not be part of the graph, and must not disturb a backward pass that comes later.
TEST(NormLayers, RunningStatisticsAreNotRecorded) {
  nn::BatchNorm1d layer(3);
  NDArray x = inputs({4, 3}).requires_grad_();
  const NDArray first = layer(x), second = layer(x * 2);
  EXPECT_FALSE(layer.running_mean.requires_grad());
  sum(first * first * first + second).backward();
  EXPECT_TRUE(bool(all(isfinite(x.grad()))));
  EXPECT_EQ(2, layer.num_batches_tracked.item<int64_t>());
}

TEST(NormLayers, AnEmptyBatchChangesNothing) {
  nn::BatchNorm2d layer(2);
  const std::vector<double> state = all_values(layer.state_dict());
  EXPECT_EQ(Shape({0, 2, 3, 3}), layer(zeros({0, 2, 3, 3})).shape());
  EXPECT_EQ(state, all_values(layer.state_dict()));
}

TEST(NormLayers, ErrorsNameTheLayer) {
  const auto message = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(message([] {
                         nn::BatchNorm1d(3)(ones({2, 4}));
                       }),
                       "[BatchNorm1d] expected an array of rank 2 or 3 with 3 channels, got shape (2, 4)"));
  EXPECT_TRUE(contains(message([] { nn::BatchNorm2d(3)(ones({2, 3})); }), "rank 4"));
  EXPECT_TRUE(contains(message([] { nn::BatchNorm1d(3)(ones({1, 3})); }), "more than one value"));
  EXPECT_TRUE(contains(message([] { nn::InstanceNorm1d(3)(ones({2, 3, 1})); }), "more than one value"));
  EXPECT_TRUE(contains(message([] { nn::InstanceNorm2d(3)(ones({2, 3})); }), "rank 3 or 4"));
  EXPECT_TRUE(contains(message([] { nn::LayerNorm(3)(ones({2, 4})); }), "[layer_norm]"));
  EXPECT_TRUE(contains(message([] { nn::GroupNorm(4, 6); }), "4 groups and 6 channels"));
  EXPECT_THROW(nn::BatchNorm1d(-1), InvalidArgument);
  EXPECT_THROW(nn::BatchNorm1d(1, {.momentum = 1.5}), InvalidArgument);
  EXPECT_THROW(nn::BatchNorm1d(1, {.eps = -1}), InvalidArgument);
  EXPECT_THROW(nn::BatchNorm1d(1, {.dtype = i32}), InvalidArgument);
  EXPECT_THROW(nn::LocalResponseNorm(0), InvalidArgument);
  nn::BatchNorm1d one(3);
  one.eval();
  EXPECT_EQ(Shape({1, 3}), one(ones({1, 3})).shape()) << "predicting needs no variance";
}

}  // namespace
}  // namespace mx
