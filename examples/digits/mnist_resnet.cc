// A small residual network learns to read handwritten digits.
//
// Sources: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", 2015 (--block v1:
// ReLU after the sum) and "Identity mappings in deep residual networks", 2016 (--block v2: normalisation and
// ReLU before each convolution, and nothing after the sum).
#include <mx/mx.h>

#include <cstdio>
#include <string>

#include "examples/support/command_line.h"
#include "examples/support/digits.h"
#include "examples/support/training_run.h"

using namespace mx;

// A convolution of 3 x 3. The normalisation after it has a bias, so it needs none.
nn::Conv2d conv(int64_t in, int64_t out, int64_t stride = 1) {
  return nn::Conv2d{in, out, 3, {.stride = stride, .padding = 1, .bias = false}};
}

// Brings the input of a block to the channels and the size of its output.
nn::Conv2d shortcut(int64_t in, int64_t out, int64_t stride) {
  return nn::Conv2d{in, out, 1, {.stride = stride, .bias = false}};
}

nn::AnyModule block_v1(int64_t in, int64_t out, int64_t stride) {
  const nn::Sequential body{conv(in, out, stride), nn::BatchNorm2d{out}, nn::ReLU{}, conv(out, out),
                            nn::BatchNorm2d{out}};
  const nn::Sequential around{shortcut(in, out, stride), nn::BatchNorm2d{out}};
  return nn::Sequential{nn::Residual{body, around}, nn::ReLU{}};
}

nn::AnyModule block_v2(int64_t in, int64_t out, int64_t stride) {
  const nn::Sequential body{nn::BatchNorm2d{in},  nn::ReLU{}, conv(in, out, stride),
                            nn::BatchNorm2d{out}, nn::ReLU{}, conv(out, out)};
  return nn::Residual{body, shortcut(in, out, stride)};
}

nn::Sequential resnet(bool v2) {
  const auto block = v2 ? block_v2 : block_v1;
  nn::Sequential net{conv(1, 16), nn::BatchNorm2d{16}, nn::ReLU{}, nn::MaxPool2d{2}};  // 14 x 14
  net.push_back(block(16, 32, 1)).push_back(block(32, 64, 2));                         // 7 x 7
  if (v2) net.push_back(nn::BatchNorm2d{64}).push_back(nn::ReLU{});
  return net.push_back(nn::GlobalAvgPool{}).push_back(nn::Flatten{}).push_back(nn::Linear{64, 10});
}

void run(const examples::RunOptions& options, bool v2) {
  manual_seed(static_cast<uint64_t>(options.seed));
  nn::Sequential net = resnet(v2);
  data::Loader loader = examples::digit_loader(options, examples::augment_digits());
  optim::SGD optimizer(net.parameters(),
                       {.lr = options.rate, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
  examples::TrainingRun run(options, loader, v2 ? "block=v2" : "block=v1");
  optim::CosineLR schedule(optimizer, {.steps = run.steps(), .warmup = run.steps() / 10});
  run.keep("model", net).keep("optimizer", optimizer).keep("schedule", schedule);
  run.train([&](const NDArray& images, const NDArray& labels) {
    const NDArray loss = nn::cross_entropy(net(images), labels, {.label_smoothing = 0.05});
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    schedule.step();
    return loss;
  });
  std::printf("test accuracy: %.4f\n", examples::test_accuracy(net, options));
}

int main(int argc, char** argv) {
  examples::RunOptions options{.epochs = 12, .batch = 64, .rate = 0.1};
  std::string block = "v2";
  examples::CommandLine line("A residual network learns to read handwritten digits");
  options.add_to(line);
  line.option("--block", &block, "v1: ReLU after the sum; v2: before the convolutions")
      .checked("v1 or v2", [](const std::string& text) {
        return text == "v1" || text == "v2" ? "" : "expected v1 or v2, got " + text;
      });
  if (const auto status = line.parse(argc, argv)) return *status;
  return examples::run_program("mnist_resnet", [&] { run(options, block == "v2"); });
}
