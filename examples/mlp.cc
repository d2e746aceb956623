// A multilayer perceptron learns to read handwritten digits: the loop that every training program has.
#include <mx/mx.h>

#include <cstdio>
#include <string>

#include "examples/support/command_line.h"

using namespace mx;

void train(const std::string& folder, int64_t epochs) {
  manual_seed(1);
  nn::Sequential net{nn::Linear{784, 128}, nn::ReLU{}, nn::Dropout{0.1}, nn::Linear{128, 10}};
  optim::AdamW optimizer(net.parameters(), {.lr = 2e-3});
  data::Loader digits(data::mnist(folder, data::Split::train), {.batch_size = 64, .shuffle = true});
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    metric::MeanLoss mean;
    for (auto& [images, labels] : digits) {  // the next batches are loaded meanwhile
      const NDArray loss = nn::cross_entropy(net(images), labels);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      mean.update(loss, labels.size(0));  // none of these lines waits
    }
    std::printf("epoch %lld: loss %.4f\n", static_cast<long long>(epoch), mean.value());  // this one does
  }

  net.eval();  // no dropout from here on
  const NoGrad pause;
  data::Loader tests(data::mnist(folder, data::Split::test), {.batch_size = 1000});
  metric::Accuracy accuracy;
  for (auto& [images, labels] : tests) accuracy.update(net(images), labels);
  std::printf("test accuracy: %.4f\n", accuracy.value());
}

int main(int argc, char** argv) {
  std::string folder = "examples/data/mnist";
  int64_t epochs = 5;
  examples::CommandLine line("A multilayer perceptron learns to read handwritten digits");
  line.option("--data", &folder, "folder with the MNIST files");
  line.option("--epochs", &epochs, "passes over the training images").within(1, 1000);
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("mlp", [&] { train(folder, epochs); });
}
