// A multilayer perceptron with batch normalisation and dropout learns to read handwritten digits, which are
// changed at random in each epoch.
#include <mx/mx.h>

#include <cstdio>

#include "examples/support/command_line.h"
#include "examples/support/digits.h"
#include "examples/support/training_run.h"

using namespace mx;

void run(const examples::RunOptions& options) {
  manual_seed(static_cast<uint64_t>(options.seed));
  nn::Sequential net{
      nn::Flatten{},                                                             //
      nn::Linear{784, 512}, nn::BatchNorm1d{512}, nn::ReLU{}, nn::Dropout{0.1},  //
      nn::Linear{512, 256}, nn::BatchNorm1d{256}, nn::ReLU{}, nn::Dropout{0.1},  //
      nn::Linear{256, 10},
  };
  data::Loader loader = examples::digit_loader(options, examples::augment_digits());
  optim::AdamW optimizer(net.parameters(), {.lr = options.rate, .weight_decay = 0.01});
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
  examples::RunOptions options{.epochs = 25, .batch = 64, .rate = 2e-3};
  examples::CommandLine line("A perceptron with batch normalisation and dropout learns to read digits");
  options.add_to(line);
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("mnist_mlp", [&] { run(options); });
}
