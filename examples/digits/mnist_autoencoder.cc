// Learning without labels: an autoencoder gets images with half of their pixels missing, and learns to draw
// the whole image from a code of fewer numbers than pixels. Then a linear layer, the probe, learns to read
// the digits from the codes. Its accuracy shows how much the codes know of the digits; the same layer on the
// pixels reads about 92% (mnist_regression).
//
// Source: P. Vincent, H. Larochelle, Y. Bengio, P. Manzagol, "Extracting and composing robust features with
// denoising autoencoders", 2008.
#include <mx/mx.h>

#include <cstdio>

#include "examples/support/command_line.h"
#include "examples/support/digits.h"
#include "examples/support/training_run.h"

using namespace mx;

constexpr int64_t kCode = 512;  // fewer than the 784 pixels

struct Autoencoder : nn::Module {
  nn::Sequential encoder{nn::Flatten{}, nn::Linear{784, kCode}, nn::ReLU{}};
  nn::Sequential decoder{nn::Linear{kCode, 784}, nn::Unflatten{1, {1, 28, 28}}};
  nn::Dropout hide{0.5};
  Autoencoder() {
    add("encoder", encoder);
    add("decoder", decoder);
    add("hide", hide);
  }
  NDArray forward(const NDArray& x) { return decoder(encoder(hide(x))); }
};

// Returns the codes of all images, and their labels.
data::ArrayDataset encode(const nn::Sequential& encoder, const examples::RunOptions& options,
                          data::Split split) {
  const NoGrad pause;
  std::vector<NDArray> codes, labels;
  data::Loader loader(data::mnist(options.data, split, {.shape = {1, 28, 28}}),
                      {.batch_size = 500, .transform = examples::normalise_digits()});
  for (auto& batch : loader) {
    codes.push_back(encoder(batch[0]));
    labels.push_back(batch[1]);
  }
  return data::ArrayDataset({concat(codes, 0), concat(labels, 0)});
}

double probe_accuracy(const nn::Sequential& encoder, const examples::RunOptions& options, int64_t epochs) {
  nn::Sequential probe{nn::BatchNorm1d{kCode, {.affine = false}}, nn::Linear{kCode, 10}};
  optim::AdamW optimizer(probe.parameters(), {.lr = 5e-3});
  data::Loader loader(encode(encoder, options, data::Split::train),
                      {.batch_size = 200, .shuffle = true, .seed = options.seed});
  optim::CosineLR schedule(optimizer, {.steps = epochs * loader.batches()});
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (auto& [codes, labels] : loader) {
      const NDArray loss = nn::cross_entropy(probe(codes), labels);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      schedule.step();
    }
  }
  probe.eval();
  const NoGrad pause;
  const data::ArrayDataset test = encode(encoder, options, data::Split::test);
  metric::Accuracy accuracy;
  accuracy.update(probe(test.array(0)), test.array(1));
  return accuracy.value();
}

void run(const examples::RunOptions& options, int64_t probe_epochs) {
  manual_seed(static_cast<uint64_t>(options.seed));
  Autoencoder net;
  data::Loader loader = examples::digit_loader(options, examples::augment_digits());
  optim::AdamW optimizer(net.parameters(), {.lr = options.rate});
  examples::TrainingRun run(options, loader);
  optim::CosineLR schedule(optimizer, {.steps = run.steps(), .warmup = run.steps() / 20});
  run.keep("model", net).keep("optimizer", optimizer).keep("schedule", schedule);
  run.train([&](const NDArray& images, const NDArray&) {
    const NDArray loss = nn::mse_loss(net(images), images);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    schedule.step();
    return loss;
  });
  net.eval();
  std::printf("test accuracy of a linear layer on the codes: %.4f\n",
              probe_accuracy(net.encoder, options, probe_epochs));
}

int main(int argc, char** argv) {
  examples::RunOptions options{.epochs = 8, .batch = 64, .rate = 2e-3};
  int64_t probe_epochs = 20;
  examples::CommandLine line("An autoencoder learns the digits without labels");
  options.add_to(line);
  line.option("--probe-epochs", &probe_epochs, "passes over the codes").within(1, 1000);
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("mnist_autoencoder", [&] { run(options, probe_epochs); });
}
