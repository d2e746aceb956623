// A mixture of experts reads handwritten digits: a router sends each image to one or two of several experts.
//
// The load-balance loss keeps the router from sending all images to a few experts. The program prints the
// share of the images that each expert got in the last epoch: no expert should be idle.
#include <mx/mx.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/command_line.h"

namespace {

using namespace mx;

struct Options {
  std::string data = "examples/data/mnist";
  int64_t epochs = 15;
  int64_t batch = 100;
  int64_t experts = 8;
  int64_t top_k = 2;
  double balance = 0.01;
  double rate = 2e-3;
  int64_t seed = 1;
};

struct Net : nn::ModuleOf<Net> {
  nn::Linear first;
  nn::BatchNorm1d norm{128};
  nn::MixtureOfExperts mixture;
  nn::Linear last{128, 10};

  explicit Net(const Options& o)
      : first(784, 128), mixture(128, {.experts = o.experts, .top_k = o.top_k}, [] {
          return nn::Sequential{nn::Linear{128, 64}, nn::ReLU{}, nn::Linear{64, 128}};
        }) {
    add("first", first);
    add("norm", norm);
    add("mixture", mixture);
    add("last", last);
  }
  NDArray forward(const NDArray& images) override { return classify(images).first; }
  /// Returns the scores of the classes, and the load-balance loss.
  std::pair<NDArray, NDArray> classify(const NDArray& images) {
    const NDArray x = dropout(relu(norm(first(images))), 0.2, train_mode());
    const nn::MixtureResult r = mixture.route(x);
    return {last(relu(x + r.output)), r.balance_loss};
  }
};

double test_accuracy(Net& net, const std::string& folder, const data::Transform& prepare) {
  const NoGrad pause;
  net.eval();
  data::Loader loader(data::mnist(folder, data::Split::test, {.shape = {28, 28}}),
                      {.batch_size = 500, .transform = prepare});
  metric::Accuracy accuracy;
  for (auto& [images, labels] : loader) accuracy.update(net(images), labels);
  net.train();
  return accuracy.value();
}

void run(const Options& o) {
  manual_seed(static_cast<uint64_t>(o.seed));
  Net net(o);
  const data::Transform prepare = data::compose({data::normalise({0.1307}, {0.3081}), data::reshape({784})});
  const data::Transform augment = data::compose(
      {data::random_rotate(10), data::random_scale(0.9, 1.1), data::random_shift(1.5), prepare});
  data::Loader loader(data::mnist(o.data, data::Split::train, {.shape = {28, 28}}),
                      {.batch_size = o.batch, .shuffle = true, .seed = o.seed, .transform = augment});
  optim::AdamW optimizer(net.parameters(), {.lr = o.rate});
  optim::CosineLR schedule(optimizer, {.steps = o.epochs * loader.batches(), .warmup = 50});
  for (int64_t epoch = 1; epoch <= o.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    metric::MeanLoss mean_loss, mean_balance;
    int64_t images_seen = 0;
    {
      const NoGrad pause;
      net.mixture.counts.fill_(0);
    }
    for (auto& [images, labels] : loader) {
      const auto [scores, balance] = net.classify(images);
      const NDArray loss = nn::cross_entropy(scores, labels);
      optimizer.zero_grad();
      (loss + o.balance * balance).backward();
      optimizer.step();
      schedule.step();
      mean_loss.update(loss.detach(), labels.size(0));
      mean_balance.update(balance.detach(), labels.size(0));
      images_seen += labels.size(0);
    }
    const double loss = mean_loss.value(), balance = mean_balance.value();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("epoch %lld: loss %.4f, balance %.3f, %.0f images/s, shares of the experts:",
                static_cast<long long>(epoch), loss, balance,
                static_cast<double>(images_seen) / seconds.count());
    const auto counts = net.mixture.counts.to_vector<double>();
    for (const double count : counts)
      std::printf(" %.3f", count / static_cast<double>(images_seen * o.top_k));
    std::printf("\n");
  }
  std::printf("test accuracy: %.4f\n", test_accuracy(net, o.data, prepare));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  mx::examples::CommandLine line("A mixture of experts reads handwritten digits");
  line.option("--data", &o.data, "folder with the MNIST files");
  line.option("--epochs", &o.epochs, "passes over the training images").within(1, 10000);
  line.option("--batch", &o.batch, "images in a step").within(2, 20000);
  line.option("--experts", &o.experts, "number of experts").within(1, 1000);
  line.option("--top-k", &o.top_k, "experts for each image").within(1, 1000);
  line.option("--balance", &o.balance, "weight of the load-balance loss").at_least(0);
  line.option("--rate", &o.rate, "learning rate").positive();
  line.option("--seed", &o.seed, "of the weights and of the order of the images").at_least(0);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("moe_mnist", [&] { run(o); });
}
