// A real job on arrays: softmax regression learns to read handwritten digits. The gradient is written by
// hand.
//
// The loop only pushes operations; it waits only when it reads the loss for the progress display. The result
// is the same with any number of threads.
#include <mx/mx.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "examples/digits/progress.h"
#include "examples/support/command_line.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/softmax.h"

namespace {

using namespace mx;

struct Options {
  std::string data = "examples/data/mnist";
  int64_t epochs = 10;
  int64_t batch = 100;
  double rate = 0.5;
  double momentum = 0;
};

/// Returns 0 .. n - 1 in an order that depends only on the state.
std::vector<int64_t> shuffled(int64_t n, uint64_t& state) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto j = static_cast<size_t>((state >> 33) % static_cast<uint64_t>(i + 1));
    order[static_cast<size_t>(i)] = order[j];
    order[j] = i;
  }
  return order;
}

struct Digits {
  NDArray images;  ///< (n, 784) f32, from 0 to 1
  NDArray labels;  ///< (n,) i64, 0 to 9
};

Digits read_digits(const std::string& folder, data::Split split) {
  const data::ArrayDataset set = data::mnist(folder, split);
  return {set.array(0), set.array(1)};
}

double accuracy(const NDArray& logits, const NDArray& labels) {
  return mean((argmax(logits, 1) == labels).to(f32)).item<float>();
}

void run(const Options& options) {
  const Digits train = read_digits(options.data, data::Split::train);
  const Digits test = read_digits(options.data, data::Split::test);
  const int64_t count = train.labels.size(0), features = train.images.size(1), classes = 10;
  std::printf("softmax regression: %lld training images, %lld test images\n", static_cast<long long>(count),
              static_cast<long long>(test.labels.size(0)));

  NDArray w = zeros({features, classes}), b = zeros({classes});
  const NDArray kinds = arange(classes), rate = full({}, options.rate);
  const optim::SgdRule rule{.momentum = options.momentum};
  optim::UpdateState velocity;
  if (options.momentum != 0) velocity = {{zeros_like(w), zeros_like(b)}};

  uint64_t random = 1;
  const int64_t batches = (count + options.batch - 1) / options.batch;
  constexpr int64_t kLook = 50;  // batches between two reads of the loss
  for (int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    examples::Progress progress(epoch, options.epochs, batches, options.batch);
    NDArray total = zeros({}), right = zeros({}, i64);
    int64_t done = 0;
    for (const int64_t k : shuffled(batches, random)) {
      const Slice rows{k * options.batch, std::min((k + 1) * options.batch, count)};
      const NDArray x = train.images.slice(0, rows);
      const NDArray labels = train.labels.slice(0, rows), t = (labels.expand_dims(1) == kinds).to(f32);
      const NDArray p = softmax(matmul(x, w) + b, 1);
      const NDArray g = (p - t) / static_cast<float>(x.size(0));  // d(loss)/d(logits)
      total += sum(t * log(maximum(p, 1e-30f))) * -1.f;
      right += sum(argmax(p, 1) == labels);
      optim::sgd_update({{w, b}, {matmul(x.transpose(), g), sum(g, 0)}}, velocity, {rate}, rule);
      if (++done % kLook == 0) {
        const auto seen = static_cast<double>(done * options.batch);
        progress.show(done, total.item<float>() / seen, static_cast<double>(right.item<int64_t>()) / seen);
      }
    }
    progress.epoch_done(total.item<float>() / static_cast<double>(count),
                        accuracy(matmul(train.images, w) + b, train.labels));
  }
  std::printf("test accuracy: %.4f\n", accuracy(matmul(test.images, w) + b, test.labels));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  mx::examples::CommandLine line("Softmax regression on handwritten digits");
  line.option("--data", &options.data, "folder with the MNIST files");
  line.option("--epochs", &options.epochs, "passes over the training images").within(1, 10000);
  line.option("--batch", &options.batch, "images in a step").within(1, 20000);
  line.option("--rate", &options.rate, "learning rate").positive();
  line.option("--momentum", &options.momentum, "share of the last step").within(0.0, 0.9999);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("softmax_regression", [&] { run(options); });
}
