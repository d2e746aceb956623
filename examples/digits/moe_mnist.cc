// A mixture of experts reads handwritten digits: a router sends each image to one or two of several experts.
//
// The load-balance loss keeps the router from sending all images to a few experts. The program prints the
// share of the choices that each expert got in the last epoch: no expert should be idle.
#include <mx/mx.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/command_line.h"
#include "examples/support/training_run.h"

namespace {

using namespace mx;

struct Options : examples::RunOptions {
  int64_t experts = 8;
  int64_t top_k = 2;
  double balance = 0.01;

  Options() : RunOptions{.epochs = 15, .batch = 100, .rate = 2e-3} {}
  /// A run can be resumed only if these options are equal too.
  std::string text() const {
    return detail::concat("experts=", experts, " top-k=", top_k, " balance=", balance);
  }
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
  examples::TrainingRun run(o, loader, o.text());
  optim::CosineLR schedule(optimizer,
                           {.steps = run.steps(), .warmup = std::min<int64_t>(50, run.steps() / 10)});
  const NDArray counts = net.mixture.counts;  // the choices of the last epoch
  run.keep("model", net).keep("optimizer", optimizer).keep("schedule", schedule).keep("counts", counts);
  int64_t steps = 0;
  run.train([&](const NDArray& images, const NDArray& labels) {
    if (steps++ % loader.batches() == 0) {
      const NoGrad pause;
      net.mixture.counts.fill_(0);
    }
    const auto [scores, balance] = net.classify(images);
    const NDArray loss = nn::cross_entropy(scores, labels);
    optimizer.zero_grad();
    (loss + o.balance * balance).backward();
    optimizer.step();
    schedule.step();
    return loss;
  });
  std::vector<double> shares = counts.to_vector<double>();
  const double choices = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::printf("shares of the experts in the last epoch:");
  for (double& share : shares) std::printf(" %.3f", share /= choices);
  std::printf("\nsmallest share of an expert: %.4f\n", *std::min_element(shares.begin(), shares.end()));
  std::printf("test accuracy: %.4f\n", test_accuracy(net, o.data, prepare));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  mx::examples::CommandLine line("A mixture of experts reads handwritten digits");
  o.add_to(line);
  line.option("--experts", &o.experts, "number of experts").within(1, 1000);
  line.option("--top-k", &o.top_k, "experts for each image").within(1, 1000);
  line.option("--balance", &o.balance, "weight of the load-balance loss").at_least(0);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("moe_mnist", [&] { run(o); });
}
