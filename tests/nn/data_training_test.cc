// A model that learns from a loader, with its accuracy from a metric.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "nn/data/loader.h"
#include "nn/data/mnist.h"
#include "nn/metric/metric.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/softmax.h"

namespace mx {
namespace {

struct Result {
  double training = 0, test = 0;
  std::vector<float> weights;
};

/// Softmax regression, its gradient written by hand, for one epoch.
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

}  // namespace
}  // namespace mx
