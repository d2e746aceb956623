// overlap_bench: how far communication hides behind computation. Trains an MLP of ten layers of 512 units on
// random data, started by mxrun:
//
//   MX_NUM_THREADS=1 mxrun -n 2 overlap_bench
//
// Rank 0 prints one JSON line for each mode, with the median time of a step and the samples per second of all
// processes together:
//   compute    no communication: each process trains alone
//   comm       the sums of all gradients, and nothing else
//   off        the backward pass ends before the sums begin, and these end before the next forward pass
//   on         sums and updates run beside the backward pass; what a Trainer does
//   sharded    the same with shard_optimizer
// A step of `on` should take at most 1.25 x max(compute, comm).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/clock.h"
#include "examples/support/command_line.h"
#include "kvstore/kvstore.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"

namespace {

using namespace mx;

struct OverlapOptions {
  int64_t steps = 30, warmup = 5, batch = 128, layers = 10, units = 512;
  std::string store = "dist_allreduce";
};

struct DeepMlp : nn::Module {
  std::vector<nn::Linear> parts;
  explicit DeepMlp(const OverlapOptions& options) {
    for (int64_t i = 0; i < options.layers; ++i) {
      parts.emplace_back(options.units, options.units);
      add("fc" + std::to_string(i), parts.back());
    }
  }
  NDArray forward(const NDArray& x) {
    NDArray y = x;
    for (nn::Linear& part : parts) y = relu(part(y));
    return y;
  }
};

class OverlapRun {
 public:
  OverlapRun(const OverlapOptions& options, std::shared_ptr<KVStore> store)
      : options_(options), store_(std::move(store)), x_(randn({options.batch, options.units})) {}

  void measure(const std::string& mode) {
    manual_seed(1);
    DeepMlp net(options_);
    nn::Trainer trainer(net, optim::SGDOptions{.lr = 1e-4, .momentum = 0.9},
                        mode == "compute" ? nullptr : store_, {.shard_optimizer = mode == "sharded"});
    std::vector<double> ms;
    store_->barrier();
    for (int64_t step = 0; step < options_.warmup + options_.steps; ++step) {
      const int64_t begin = bench::now_ns();
      if (mode == "comm") {
        if (step == 0) backward(net, trainer);
        trainer.step();
      } else {
        backward(net, trainer);
        if (mode == "off") wait_all();
        trainer.step();
      }
      // The next forward pass may overlap with the end of this step, so only some modes wait for it.
      if (mode != "on" && mode != "sharded") wait_all();
      if (step % 5 == 4) wait_all();
      ms.push_back(static_cast<double>(bench::now_ns() - begin) / 1e6);
    }
    wait_all();
    report(mode, ms);
  }

 private:
  void backward(DeepMlp& net, nn::Trainer& trainer) {
    trainer.zero_grad();
    mean(net(x_)).backward();
  }

  void report(const std::string& mode, const std::vector<double>& ms) {
    // Steps in groups of five, because only the last of five waits.
    std::vector<double> groups;
    for (size_t i = static_cast<size_t>(options_.warmup); i + 5 <= ms.size(); i += 5) {
      double sum = 0;
      for (size_t k = i; k < i + 5; ++k) sum += ms[k];
      groups.push_back(sum / 5);
    }
    std::sort(groups.begin(), groups.end());
    if (store_->rank() != 0 || groups.empty()) return;
    const double median = groups[groups.size() / 2];
    std::printf(
        "{\"bench\": \"overlap\", \"mode\": \"%s\", \"ranks\": %d, \"step_ms\": %.3f, \"samples_per_s\": "
        "%.0f}\n",
        mode.c_str(), store_->size(), median,
        1000 / median * static_cast<double>(options_.batch) * store_->size());
    std::fflush(stdout);
  }

  const OverlapOptions options_;
  const std::shared_ptr<KVStore> store_;
  const NDArray x_;
};

}  // namespace

int main(int argc, char** argv) {
  OverlapOptions options;
  mx::examples::CommandLine line(
      "Measures how far communication hides behind computation; JSON lines on stdout");
  line.option("--steps", &options.steps, "measured steps of each mode").within(5, 100000);
  line.option("--batch", &options.batch, "samples of each process in a step").within(1, 100000);
  line.option("--layers", &options.layers, "number of layers").within(1, 1000);
  line.option("--units", &options.units, "units of each layer").within(1, 100000);
  line.option("--store", &options.store, "type of store");
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("overlap_bench", [&] {
    OverlapRun run(options, KVStore::create(options.store));
    for (const char* mode : {"compute", "comm", "off", "on", "sharded"}) run.measure(mode);
  });
}
