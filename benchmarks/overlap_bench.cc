// overlap_bench: how far communication hides behind computation. Trains an MLP of ten layers of 512 units on
// random data, in processes that mxrun has started:
//
//   MX_NUM_THREADS=1 mxrun -n 2 overlap_bench
//
// JSON lines of rank 0 with bench "overlap"; `threads` is the number of ranks, `system` the transport. Every
// rank has a batch of its own. Cases, in milliseconds per step:
//   step_alone     rank 0 trains without a store while the other ranks wait
//   step_compute   each rank trains alone, all at the same time
//   step_comm      allreduces of as many bytes as the parameters have, and nothing else
//   step_off       the backward pass ends before the sums begin, and these end before the next forward pass
//   step_on        sums and updates run beside the backward pass: what a Trainer does
//   step_sharded   the same with shard_optimizer
// All modes run in turn, round after round; a round of a mode is a group of steps with one wait at its end.
// Ratios are medians over the rounds of the ratio within a round:
//   on_to_bound    step_on / max(step_compute, step_comm)
//   off_to_on, sharded_to_on
//   speedup        samples per second of all ranks in step_on, to those of step_alone
//   sharded_memory the bytes that Adam allocates on rank 0 beyond plain SGD, sharded to not sharded
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"
#include "comm/world.h"
#include "engine/device/registry.h"
#include "examples/support/command_line.h"
#include "kvstore/kvstore.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"

namespace {

using namespace mx;

struct OverlapOptions {
  int64_t rounds = 7, steps = 10, batch = 128, layers = 10, units = 512;
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

const optim::SGDOptions kMomentum{.lr = 1e-4, .momentum = 0.9};

/// A model with its trainer.
class Training {
 public:
  Training(const OverlapOptions& options, const nn::OptimizerChoice& optimizer,
           const std::shared_ptr<KVStore>& store, bool sharded)
      : net_(options),
        trainer_(net_, optimizer, store, {.shard_optimizer = sharded}),
        x_(randn({options.batch, options.units})) {}

  void backward() {
    trainer_.zero_grad();
    mean(net_(x_)).backward();
  }
  void update() { trainer_.step(); }

 private:
  DeepMlp net_;
  nn::Trainer trainer_;
  const NDArray x_;
};

/// The traffic of a step without its computation.
class Traffic {
 public:
  explicit Traffic(const OverlapOptions& options) : group_(comm::world()) {
    const auto bytes =
        static_cast<size_t>(options.layers * options.units * (options.units + 1)) * sizeof(float);
    const auto piece = static_cast<size_t>(nn::TrainerOptions{}.bucket_bytes);
    for (size_t done = 0; done < bytes; done += piece) {
      counts_.push_back(std::min(piece, bytes - done) / sizeof(float));
      buffers_.push_back(group_->allocate(counts_.back() * sizeof(float)));
    }
  }
  std::string transport() const { return group_->type(); }
  void step() {
    for (size_t i = 0; i < buffers_.size(); ++i)
      group_->allreduce(buffers_[i].get(), buffers_[i].get(), counts_[i], comm::Type::f32);
  }

 private:
  const std::shared_ptr<comm::Communicator> group_;
  std::vector<std::shared_ptr<void>> buffers_;
  std::vector<size_t> counts_;
};

class OverlapRun {
 public:
  OverlapRun(const OverlapOptions& options, std::shared_ptr<KVStore> store)
      : options_(options),
        store_(std::move(store)),
        traffic_(options),
        alone_(options, kMomentum, nullptr, false),
        off_(options, kMomentum, store_, false),
        on_(options, kMomentum, store_, false),
        sharded_(options, kMomentum, store_, true) {}

  void run() {
    for (int64_t round = 0; round < options_.rounds; ++round) {
      measure(
          "alone", [this] { step(alone_); }, store_->rank() == 0);
      measure("compute", [this] { step(alone_); });
      measure("comm", [this] { traffic_.step(); });
      measure("off", [this] {
        off_.backward();
        wait_all();
        off_.update();
        wait_all();
      });
      measure("on", [this] { step(on_); });
      measure("sharded", [this] { step(sharded_); });
    }
    const double plain = trained_bytes(false, optim::SGDOptions{.lr = 1e-4}),
                 adam = trained_bytes(false, optim::AdamOptions{.lr = 1e-4}),
                 plain_sharded = trained_bytes(true, optim::SGDOptions{.lr = 1e-4}),
                 adam_sharded = trained_bytes(true, optim::AdamOptions{.lr = 1e-4});
    if (store_->rank() != 0) return;
    for (const auto& [mode, ms] : ms_) print("step_" + mode, "ms", ms);
    std::vector<double> bound;
    for (size_t i = 0; i < ms_["on"].size(); ++i)
      bound.push_back(std::max(ms_["compute"][i], ms_["comm"][i]));
    print("on_to_bound", "x", ratios(ms_["on"], bound));
    print("off_to_on", "x", ratios(ms_["off"], ms_["on"]));
    print("sharded_to_on", "x", ratios(ms_["sharded"], ms_["on"]));
    print("speedup", "x", ratios(ms_["alone"], ms_["on"], store_->size()));
    print("optimizer_bytes", "bytes", {adam - plain});
    print("sharded_memory", "x", {(adam_sharded - plain_sharded) / (adam - plain)});
  }

 private:
  static void step(Training& training) {
    training.backward();
    training.update();
  }

  /// Takes one group of steps of a mode. Ranks that take no part wait in the barrier.
  void measure(const std::string& mode, const std::function<void()>& step, bool takes_part = true) {
    store_->barrier();
    if (takes_part) {
      for (int i = 0; i < 2; ++i) step();
      wait_all();
    }
    if (mode != "alone") store_->barrier();
    if (takes_part) {
      const int64_t begin = bench::now_ns();
      for (int64_t i = 0; i < options_.steps; ++i) step();
      wait_all();
      ms_[mode].push_back(static_cast<double>(bench::now_ns() - begin) / 1e6 /
                          static_cast<double>(options_.steps));
    }
    store_->barrier();
  }

  /// Returns the memory that a model occupies after two steps, with its trainer.
  double trained_bytes(bool sharded, const nn::OptimizerChoice& optimizer) {
    wait_all();
    const auto in_use = [] { return static_cast<double>(get_device(cpu()).memory_stats().in_use_bytes); };
    const double before = in_use();
    Training training(options_, optimizer, store_, sharded);
    for (int i = 0; i < 2; ++i) step(training);
    wait_all();
    return in_use() - before;
  }

  static std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b,
                                    double factor = 1) {
    std::vector<double> result;
    for (size_t i = 0; i < a.size(); ++i) result.push_back(factor * a[i] / b[i]);
    return result;
  }

  void print(const std::string& name, const std::string& unit, std::vector<double> values) {
    bench::print({.bench = "overlap",
                  .case_name = name,
                  .system = "mx_" + traffic_.transport(),
                  .threads = store_->size(),
                  .unit = unit,
                  .value = bench::summarize(std::move(values))});
  }

  const OverlapOptions options_;
  const std::shared_ptr<KVStore> store_;
  Traffic traffic_;
  Training alone_, off_, on_, sharded_;
  std::map<std::string, std::vector<double>> ms_;  // per step, of each round
};

}  // namespace

int main(int argc, char** argv) {
  OverlapOptions options;
  mx::examples::CommandLine line(
      "Measures how far communication hides behind computation; JSON lines on stdout");
  line.option("--rounds", &options.rounds, "rounds over all modes").within(1, 100000);
  line.option("--steps", &options.steps, "steps of each mode in a round").within(1, 100000);
  line.option("--batch", &options.batch, "samples of each process in a step").within(1, 100000);
  line.option("--layers", &options.layers, "number of layers").within(1, 1000);
  line.option("--units", &options.units, "units of each layer").within(1, 100000);
  line.option("--store", &options.store, "type of store");
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("overlap_bench",
                                   [&] { OverlapRun(options, KVStore::create(options.store)).run(); });
}
