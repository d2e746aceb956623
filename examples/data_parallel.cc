// Training by several processes in a page: a linear model learns to read digits.
//
//   mxrun -n 4 build/release/examples/data_parallel          # four processes on this machine
//   mxrun -n 4 -s 2 build/release/examples/data_parallel     # with two parameter servers
//   build/release/examples/data_parallel                     # alone: the same program, the same loop
//
// Each process takes its part of every batch. The trainer adds the gradients up over all processes and
// updates the model, so all processes keep equal weights.
#include <mx/mx.h>

#include <cstdio>
#include <memory>
#include <string>

#include "comm/world.h"
#include "examples/support/command_line.h"

using namespace mx;

namespace {

struct Options {
  std::string data = "examples/data/mnist";
  int64_t epochs = 3;
  int64_t batch = 64;
};

// Pixels between 0 and 1, in a row.
data::Transform preparation() { return data::compose({data::normalise({0}, {1}), data::reshape({784})}); }

double accuracy_of(nn::Linear& model, const Options& options) {
  const NoGrad pause;
  metric::Accuracy accuracy;
  data::Loader loader(data::mnist(options.data, data::Split::test, {.shape = {28, 28}}),
                      {.batch_size = 500, .transform = preparation()});
  for (auto& [images, labels] : loader) accuracy.update(model(images), labels);
  return accuracy.value();
}

void train(const Options& options) {
  // In a process that mxrun has started as a server, create() serves until the workers have ended.
  const std::shared_ptr<KVStore> store =
      KVStore::create(comm::place().servers > 0 ? "dist_sync" : "dist_allreduce");
  data::Loader loader(data::mnist(options.data, data::Split::train, {.shape = {28, 28}}),
                      {.batch_size = options.batch,
                       .shuffle = true,
                       .drop_last = true,
                       .part = store->rank(),
                       .parts = store->size(),
                       .transform = preparation()});
  nn::Linear model{784, 10};
  nn::Trainer trainer(model, optim::SGDOptions{.lr = 0.5}, store);
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch)
    for (auto& [images, labels] : loader) {
      // A share of the batch's mean: the sum of the shares is the mean over all processes' images.
      const NDArray loss =
          nn::cross_entropy(model(images), labels, {.reduction = "sum"}) / static_cast<float>(options.batch);
      trainer.zero_grad();
      loss.backward();
      trainer.step();
    }
  if (store->rank() == 0)
    std::printf("%d process%s, test accuracy: %.4f\n", store->size(), store->size() > 1 ? "es" : "",
                accuracy_of(model, options));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  examples::CommandLine line("A linear model learns to read digits, by any number of processes");
  line.option("--data", &options.data, "folder with the MNIST files");
  line.option("--epochs", &options.epochs, "passes over the training images").within(1, 1000);
  line.option("--batch", &options.batch, "images in a step, of all processes together").within(1, 20000);
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("data_parallel", [&] { train(options); });
}
