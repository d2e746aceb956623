#include "examples/support/digits.h"

namespace mx::examples {
namespace {

constexpr double kMean = 0.1307, kDeviation = 0.3081;
const data::MnistOptions kImages{.shape = {1, 28, 28}};

}  // namespace

data::Transform normalise_digits() { return data::normalise({kMean}, {kDeviation}); }

data::Transform augment_digits() {
  return data::compose(
      {data::random_rotate(12), data::random_scale(0.88, 1.12), data::random_shift(2), normalise_digits()});
}

data::Loader digit_loader(const RunOptions& options, const data::Transform& transform) {
  return data::Loader(data::mnist(options.data, data::Split::train, kImages), {.batch_size = options.batch,
                                                                               .shuffle = true,
                                                                               .drop_last = true,
                                                                               .seed = options.seed,
                                                                               .transform = transform});
}

double test_accuracy(nn::Module& net, const RunOptions& options) {
  const NoGrad pause;
  const PredictMode predict;
  data::Loader loader(data::mnist(options.data, data::Split::test, kImages),
                      {.batch_size = 500, .transform = normalise_digits()});
  metric::Accuracy accuracy;
  for (auto& [images, labels] : loader) accuracy.update(net(images), labels);
  return accuracy.value();
}

}  // namespace mx::examples
