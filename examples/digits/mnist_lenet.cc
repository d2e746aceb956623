// LeNet-5 learns to read handwritten digits: convolutions, pooling, and images that are changed at random.
//
// Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document
// recognition", 1998; here with ReLU and the largest value of a window, as is usual today.
#include <mx/mx.h>

#include <cstdio>

#include "examples/support/command_line.h"
#include "examples/support/digits.h"
#include "examples/support/training_run.h"

using namespace mx;

void run(const examples::RunOptions& options) {
  manual_seed(static_cast<uint64_t>(options.seed));
  nn::Sequential net{
      nn::Conv2d{1, 6, 5, {.padding = 2}},
      nn::ReLU{},
      nn::MaxPool2d{2},
      nn::Conv2d{6, 16, 5},
      nn::ReLU{},
      nn::MaxPool2d{2},
      nn::Flatten{},  //
      nn::Linear{16 * 5 * 5, 120},
      nn::ReLU{},  //
      nn::Linear{120, 84},
      nn::ReLU{},  //
      nn::Linear{84, 10},
  };
  data::Loader loader = examples::digit_loader(options, examples::augment_digits());
  optim::SGD optimizer(net.parameters(), {.lr = options.rate, .momentum = 0.9, .weight_decay = 5e-4});
  examples::TrainingRun run(options, loader);
  optim::CosineLR schedule(optimizer, {.steps = run.steps(), .warmup = run.steps() / 20});
  run.keep("model", net).keep("optimizer", optimizer).keep("schedule", schedule);
  run.train([&](const NDArray& images, const NDArray& labels) {
    const NDArray loss = nn::cross_entropy(net(images), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    schedule.step();
    return loss;
  });
  std::printf("test accuracy: %.4f\n", examples::test_accuracy(net, options));
}

int main(int argc, char** argv) {
  examples::RunOptions options{.epochs = 15, .batch = 64, .rate = 0.05};
  examples::CommandLine line("LeNet-5 learns to read handwritten digits");
  options.add_to(line);
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("mnist_lenet", [&] { run(options); });
}
