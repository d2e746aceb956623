// Two optimisers for one network: SGD updates the features, Adam updates the head. One backward() computes
// all gradients, and each optimiser updates only its own parameters. So parts of a network can use different
// rules and rates, or stay frozen for a while.
#include <mx/mx.h>

#include <cstdio>
#include <string>

#include "examples/support/command_line.h"

namespace {

using namespace mx;

struct Net : nn::Module {
  nn::Linear features{2, 3, {.dtype = f64}}, head{3, 1, {.dtype = f64}};
  Net() {
    add("features", features);
    add("head", head);
  }
  NDArray forward(const NDArray& x) { return head(tanh(features(x))); }
};

void show(const std::string& when, const Net& net, const NDArray& loss) {
  std::printf("%s: loss = %.15g\n", when.c_str(), loss.item<double>());
  for (const auto& [name, array] : net.named_parameters()) {
    std::printf("  %s =", name.c_str());
    for (const double v : array.to_vector<double>()) std::printf(" %.15g", v);
    std::printf("\n");
  }
}

void run(int64_t steps, int64_t seed) {
  manual_seed(static_cast<uint64_t>(seed));
  const NDArray x = array({{0.0, 0.0}, {0.0, 1.0}, {1.0, 0.0}, {1.0, 1.0}});
  const NDArray y = array({{0.0}, {1.0}, {1.0}, {0.0}});  // exclusive or
  Net net;
  optim::SGD slow(net.features.parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::Adam fast(net.head.parameters(), {.lr = 0.05});

  show("start", net, nn::mse_loss(net(x), y));
  const auto phase = [&](const std::string& name, bool move_features, bool move_head) {
    for (int64_t step = 0; step < steps; ++step) {
      net.zero_grad();
      nn::mse_loss(net(x), y).backward();
      if (move_features) slow.step();
      if (move_head) fast.step();
    }
    show(name, net, nn::mse_loss(net(x), y));
  };
  phase("features only", true, false);
  phase("head only", false, true);
  phase("both", true, true);
}

}  // namespace

int main(int argc, char** argv) {
  int64_t steps = 100, seed = 1;
  mx::examples::CommandLine line("Two optimisers on parts of one network");
  line.option("--steps", &steps, "steps in each of the three phases").within(1, 100000);
  line.option("--seed", &seed, "of the first weights").at_least(0);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("two_optimizers", [&] { run(steps, seed); });
}
