// Regression on handwritten digits: one linear layer, whose ten outputs are read either as the scores of one
// choice among ten (softmax) or as ten answers, each yes or no (sigmoid).
#include <mx/mx.h>

#include <cstdio>
#include <string>

#include "examples/support/command_line.h"
#include "examples/support/digits.h"
#include "examples/support/training_run.h"

using namespace mx;

void run(const examples::RunOptions& options, bool softmax) {
  manual_seed(static_cast<uint64_t>(options.seed));
  nn::Sequential net{nn::Flatten{}, nn::Linear{784, 10}};
  data::Loader loader = examples::digit_loader(options, examples::normalise_digits());
  optim::SGD optimizer(net.parameters(), {.lr = options.rate, .weight_decay = 1e-4});
  examples::TrainingRun run(options, loader, softmax ? "loss=softmax" : "loss=sigmoid");
  optim::CosineLR schedule(optimizer, {.steps = run.steps()});
  run.keep("model", net).keep("optimizer", optimizer).keep("schedule", schedule);
  run.train([&](const NDArray& images, const NDArray& labels) {
    const NDArray scores = net(images);
    const NDArray loss =
        softmax ? nn::cross_entropy(scores, labels) : nn::bce_with_logits(scores, one_hot(labels, 10)) * 10.f;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    schedule.step();
    return loss;
  });
  std::printf("test accuracy: %.4f\n", examples::test_accuracy(net, options));
}

int main(int argc, char** argv) {
  examples::RunOptions options{.epochs = 10, .batch = 64, .rate = 0.02};
  std::string loss = "softmax";
  examples::CommandLine line("Softmax or sigmoid regression on handwritten digits");
  options.add_to(line);
  line.option("--loss", &loss, "softmax or sigmoid")
      .checked("softmax or sigmoid", [](const std::string& text) {
        return text == "softmax" || text == "sigmoid" ? "" : "expected softmax or sigmoid, got " + text;
      });
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("mnist_regression", [&] { run(options, loss == "softmax"); });
}
