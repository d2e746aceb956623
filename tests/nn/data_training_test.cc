// Trains a model from a loader and measures its accuracy with a metric.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "executor/autograd/autograd.h"
#include "nn/data/loader.h"
#include "nn/data/mnist.h"
#include "nn/metric/metric.h"
#include "operators/elementwise_binary.h"
#include "operators/loss.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/softmax.h"

namespace mx {
namespace {

struct Result {
  double training = 0, test = 0;
  std::vector<float> weights;
};

/// Softmax regression with a hand-written gradient, for one epoch.
Result train(int64_t prefetch, Context context) {
  data::Loader loader(
      data::mnist(MX_MNIST, data::Split::train),
      {.batch_size = 64, .shuffle = true, .seed = 1, .prefetch = prefetch, .context = context});
  NDArray w = zeros({784, 10}, f32, context);
  const NDArray kinds = arange(10).to(context);
  metric::Accuracy training, test;
  for (auto& [images, labels] : loader) {
    const NDArray logits = matmul(images, w);
    const NDArray error = softmax(logits, 1) - (labels.expand_dims(1) == kinds).to(f32);
    w -= matmul(images.transpose(), error) * (0.3f / 64);
    training.update(logits, labels);
  }
  data::Loader tests(data::mnist(MX_MNIST, data::Split::test), {.batch_size = 1000, .prefetch = prefetch});
  for (auto& [images, labels] : tests) test.update(matmul(images.to(context), w), labels);
  return {training.value(), test.value(), w.to_vector<float>()};
}

TEST(LoaderTraining, LearnsTheDigitsWithTheSameBitsWhateverIsLoadedAheadAndWhere) {
  if (!std::filesystem::exists(MX_MNIST)) GTEST_SKIP() << MX_MNIST << " is not here";
  const Result first = train(0, cpu());
  EXPECT_GT(first.training, 0.8);
  EXPECT_GT(first.test, 0.88);
  for (const Result& other : {train(4, cpu()), train(2, virt(0))}) {
    EXPECT_EQ(first.training, other.training);
    EXPECT_EQ(first.test, other.test);
    EXPECT_EQ(first.weights, other.weights);
  }
}

// When the loader moves to the next batch, nothing that a gradient may need changes. Updating a metric
// records nothing.
TEST(LoaderTraining, GradientsMayBeAskedForBehindTheNextBatch) {
  const NDArray x = (arange(24 * 50).to(f32) * 0.01f).reshape({24, 50}), t = arange(24) % 10;
  data::Loader loader(data::ArrayDataset({x, t}), {.batch_size = 4, .prefetch = 1});
  NDArray w = zeros({50, 10}).requires_grad_(), waiting;
  metric::Accuracy accuracy;
  metric::MeanLoss mean;
  for (auto& [images, labels] : loader) {
    const NDArray logits = matmul(images, w), loss = cross_entropy(logits, labels);
    accuracy.update(logits, labels);
    mean.update(loss, images.size(0));
    if (waiting.defined()) waiting.backward();
    waiting = loss;
  }
  waiting.backward();
  NDArray once = zeros({50, 10}).requires_grad_();
  const NDArray whole = cross_entropy(matmul(x, once), t);
  (whole * 6).backward();
  const std::vector<float> expected = once.grad().to_vector<float>(), got = w.grad().to_vector<float>();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], got[i], 1e-4);
  EXPECT_NEAR(whole.item<float>(), mean.value(), 1e-5);
  EXPECT_EQ(24, accuracy.count());
}

}  // namespace
}  // namespace mx
