// Training on several GPUs of one process: a perceptron learns to read digits.
//
//   build/release/examples/train_multi_gpu --devices 4
//
// Without enough GPUs, simulated devices of the same number take their place. Each device has a copy of the
// model (a replica) and computes the gradients of its part of every batch. The trainer adds the gradients up
// on the devices, updates the first replica, and copies its parameters to the others.
//
// With --parts, a batch is cut into more parts than there are devices, which take turns. The parts are added
// up in their order wherever they were computed, so the losses depend on the number of parts only: those of
// `--devices 4` are, bit for bit, those of `--devices 1 --parts 4`.
#include <mx/mx.h>

#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "examples/support/command_line.h"

using namespace mx;

namespace {

struct Options {
  std::string data = "examples/data/mnist";
  int devices = 2;
  int parts = 0;
  int64_t batch = 64;
  int64_t epochs = 2;
  int64_t steps = 0;
};

/// The device of each part.
std::vector<Context> places_of(const Options& options) {
  const bool real = num_gpus() >= options.devices;
  MX_CHECK(real || num_devices(DeviceKind::virt) >= options.devices, InvalidArgument,
           "[--devices] expected at most ", num_gpus(), " GPUs or ", num_devices(DeviceKind::virt),
           " simulated devices (MX_VIRTUAL_DEVICES), got ", options.devices);
  const int parts = options.parts > 0 ? options.parts : options.devices;
  MX_CHECK(parts % options.devices == 0, InvalidArgument, "[--parts] expected a multiple of the ",
           options.devices, " devices, got ", parts);
  MX_CHECK(options.batch % parts == 0, InvalidArgument, "[--batch] expected a multiple of the ", parts,
           " parts of a batch, got ", options.batch);
  std::vector<Context> places;
  for (int part = 0; part < parts; ++part)
    places.push_back(real ? gpu(part % options.devices) : virt(part % options.devices));
  return places;
}

/// Returns the loss of the batch. When it returns, the device may not have begun.
NDArray train_batch(std::vector<nn::Sequential>& replicas, nn::Trainer& trainer, const NDArray& images,
                    const NDArray& labels, const std::vector<Context>& places) {
  const std::vector<NDArray> inputs = nn::split_batch(images, places),
                             wanted = nn::split_batch(labels, places);
  trainer.zero_grad();
  NDArray sum;
  for (size_t part = 0; part < places.size(); ++part) {
    // A share of the batch's mean: the gradients of the shares add up to that of the mean.
    const NDArray loss = nn::cross_entropy(replicas[part](inputs[part]), wanted[part], {.reduction = "sum"}) /
                         static_cast<float>(images.size(0));
    loss.backward();
    const NDArray share = loss.detach().to(places[0]);
    sum = part == 0 ? share : sum + share;
  }
  trainer.step();
  return sum;
}

void train(const Options& options) {
  const std::vector<Context> places = places_of(options);
  manual_seed(1);
  nn::Sequential net{nn::Linear{784, 128}, nn::ReLU{}, nn::Linear{128, 10}};
  std::vector<nn::Sequential> replicas = nn::replicate(net, places);
  nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, KVStore::create("device"));
  data::Loader digits(data::mnist(options.data, data::Split::train),
                      {.batch_size = options.batch, .shuffle = true, .drop_last = true});
  std::printf("%d devices from %s, %zu parts\n", options.devices, to_string(places[0]).c_str(),
              places.size());
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch)
    for (auto& [images, labels] : digits) {
      const NDArray loss = train_batch(replicas, trainer, images, labels, places);
      if (++step % 100 == 0 || step == 1 || step == options.steps)
        std::printf("step %lld: loss %.9g\n", static_cast<long long>(step), loss.item<double>());
      if (step == options.steps) return;
    }

  const NoGrad pause;
  data::Loader tests(data::mnist(options.data, data::Split::test), {.batch_size = 1000});
  metric::Accuracy accuracy;
  for (auto& [images, labels] : tests) accuracy.update(replicas[0](images.to(places[0])).to(cpu()), labels);
  std::printf("test accuracy: %.4f\n", accuracy.value());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  examples::CommandLine line("A perceptron learns to read digits on several GPUs of one process");
  line.option("--data", &options.data, "folder with the MNIST files");
  line.option("--devices", &options.devices, "number of GPUs, or of simulated devices").within(1, 64);
  line.option("--parts", &options.parts, "parts of a batch; 0: as many as devices").within(0, 4096);
  line.option("--batch", &options.batch, "images in a step, of all devices together").within(1, 20000);
  line.option("--epochs", &options.epochs, "passes over the training images").within(1, 1000);
  line.option("--steps", &options.steps, "ends after so many steps; 0: after the epochs").at_least(0);
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("train_multi_gpu", [&] { train(options); });
}
