// Two networks against each other: a generator draws digits from random numbers, and a discriminator learns
// to tell them from real ones. Each has its own optimiser. The samples are written as a picture.
//
// A third network, the judge, is trained to read real digits and then reads the samples. It shows whether the
// generator draws all ten digits; a generator that has collapsed draws a few of them only.
//
// Sources: I. Goodfellow et al., "Generative adversarial networks", 2014; A. Radford, L. Metz, S. Chintala,
// "Unsupervised representation learning with deep convolutional generative adversarial networks", 2015.
#include <mx/mx.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "examples/support/command_line.h"
#include "examples/support/digits.h"
#include "examples/support/picture.h"
#include "examples/support/training_run.h"
#include "examples/support/writable.h"

using namespace mx;

constexpr int64_t kNoise = 64;
const nn::ConvOptions kHalve{.stride = 2, .padding = 1};
const nn::ConvTransposeOptions kDouble{.stride = 2, .padding = 1};

// Draws digits (n, 1, 28, 28), from -1 to 1, from noise (n, kNoise).
nn::Sequential make_generator() {
  return nn::Sequential{nn::Linear{kNoise, 64 * 7 * 7},
                        nn::Unflatten{1, {64, 7, 7}},
                        nn::BatchNorm2d{64},
                        nn::ReLU{},
                        nn::ConvTranspose2d{64, 32, 4, kDouble},
                        nn::BatchNorm2d{32},
                        nn::ReLU{},
                        nn::ConvTranspose2d{32, 1, 4, kDouble},
                        nn::Tanh{}};
}

// Returns a score for each image; positive means real.
nn::Sequential make_discriminator() {
  return nn::Sequential{nn::Conv2d{1, 32, 4, kHalve}, nn::LeakyReLU{0.2}, nn::Conv2d{32, 64, 4, kHalve},
                        nn::BatchNorm2d{64},          nn::LeakyReLU{0.2}, nn::Flatten{},
                        nn::Linear{64 * 7 * 7, 1}};
}

data::Transform from_minus_one_to_one() { return data::normalise({0.5}, {0.5}); }

// Returns a network that has learned to read real digits, in predict mode.
nn::Sequential train_judge(const examples::RunOptions& options) {
  nn::Sequential judge{
      nn::Conv2d{1, 16, 5, kHalve}, nn::ReLU{}, nn::Conv2d{16, 32, 5, kHalve}, nn::ReLU{}, nn::Flatten{},
      nn::Linear{32 * 6 * 6, 10}};
  optim::Adam optimizer(judge.parameters());
  data::Loader loader = examples::digit_loader(options, from_minus_one_to_one());
  for (auto& [images, labels] : loader) {
    optimizer.zero_grad();
    nn::cross_entropy(judge(images), labels).backward();
    optimizer.step();
  }
  judge.eval();
  return judge;
}

void run(const examples::RunOptions& options, const std::string& picture) {
  examples::require_writable(picture);
  manual_seed(static_cast<uint64_t>(options.seed));
  nn::Sequential generator = make_generator(), discriminator = make_discriminator();
  optim::Adam generator_optimizer(generator.parameters(), {.lr = options.rate, .beta1 = 0.5});
  optim::Adam discriminator_optimizer(discriminator.parameters(), {.lr = options.rate, .beta1 = 0.5});
  data::Loader loader = examples::digit_loader(options, from_minus_one_to_one());
  examples::TrainingRun run(options, loader);
  run.keep("generator", generator).keep("generator optimizer", generator_optimizer);
  run.keep("discriminator", discriminator).keep("discriminator optimizer", discriminator_optimizer);

  const NDArray real = ones({options.batch, 1}), drawn = zeros({options.batch, 1});
  run.train([&](const NDArray& images, const NDArray&) {
    const NDArray samples = generator(randn({options.batch, kNoise}));

    // The discriminator learns from samples that are constants, so the generator gets no gradient here.
    discriminator_optimizer.zero_grad();
    const NDArray discriminator_loss = nn::bce_with_logits(discriminator(images), real) +
                                       nn::bce_with_logits(discriminator(samples.detach()), drawn);
    discriminator_loss.backward();
    discriminator_optimizer.step();

    // The generator learns to draw what the discriminator takes for real.
    generator_optimizer.zero_grad();
    const NDArray generator_loss = nn::bce_with_logits(discriminator(samples), real);
    generator_loss.backward();
    generator_optimizer.step();
    return discriminator_loss + generator_loss;
  });

  generator.eval();
  const nn::Sequential judge = train_judge(options);
  const NoGrad pause;
  const NDArray samples = generator(randn({1000, kNoise}));
  examples::write_sheet(picture, (samples.slice(0, {0, 100}) + 1.f) / 2.f, 10);
  const NDArray probabilities = softmax(judge(samples), 1);
  const std::vector<int64_t> counts = sum(one_hot(argmax(probabilities, 1), 10, i64), 0).to_vector<int64_t>();
  std::printf("picture: %s\n", picture.c_str());
  std::printf("mean certainty of the judge: %.4f\n", mean(max(probabilities, 1)).item<float>());
  std::printf("rarest digit: %.4f of the samples\n",
              static_cast<double>(*std::min_element(counts.begin(), counts.end())) / 1000);
}

int main(int argc, char** argv) {
  examples::RunOptions options{.epochs = 10, .batch = 64, .rate = 5e-4};
  std::string picture = "mnist_gan.png";
  examples::CommandLine line("A generator learns to draw digits against a discriminator");
  options.add_to(line);
  line.option("--picture", &picture, "samples, a PNG file");
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("mnist_gan", [&] { run(options, picture); });
}
