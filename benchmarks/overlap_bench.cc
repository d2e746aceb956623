// overlap_bench: how far communication hides behind computation. Trains an MLP of ten layers of 512 units on
// random data, in processes that mxrun has started:
//
//   MX_NUM_THREADS=1 mxrun -n 2 overlap_bench
//
// JSON lines of rank 0 with bench "overlap"; `threads` is the number of ranks, `system` the transport. Every
// rank has a batch of its own, whose size follows the case: "step_on/128". Cases, in milliseconds per step:
//   step_alone     rank 0 trains without a store while the other ranks wait
//   step_compute   each rank trains alone, all at the same time
//   step_comm      allreduces of as many bytes as the parameters have, and nothing else
//   step_wire      two ranks: bare sockets that carry the bytes of these allreduces
//   step_off       the backward pass ends before the sums begin, and these end before the next forward pass
//   step_on        sums and updates run beside the backward pass: what a Trainer does
//   step_sharded   the same with shard_optimizer
//   step_priority  step_on with a store whose calls start by priority (KVOrder::priority), first layers first
// All modes run in turn, round after round; a round of a mode is a group of steps with one wait at its end.
// cpu_alone, cpu_compute, ... are the processor time of rank 0 per step, which includes polling. Ratios are
// medians over the rounds of the ratio within a round:
//   on_to_bound    step_on / max(step_compute, step_comm)
//   on_to_wire     step_on / max(step_compute, step_wire)
//   off_to_on, sharded_to_on, priority_to_on
//   speedup        samples per second of all ranks in step_on, to those of step_alone
//   sharded_memory the bytes that Adam allocates on rank 0 beyond plain SGD, sharded to not sharded
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "comm/net/interface.h"
#include "comm/net/socket.h"
#include "comm/start.h"
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
  std::vector<std::string> modes;
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

size_t parameter_bytes(const OverlapOptions& options) {
  return static_cast<size_t>(options.layers * options.units * (options.units + 1)) * sizeof(float);
}

/// Two ranks: a connection that carries the bytes of the sums of a step, and does nothing else.
class Wire {
 public:
  Wire(const OverlapOptions& options, const comm::Place& place)
      : out_(parameter_bytes(options)), in_(out_.size()) {
    const comm::Deadline deadline = comm::Deadline::after_ms(30000);
    if (place.rank == 0) {
      const std::string here = comm::address_towards(comm::parse_endpoint(place.rendezvous), deadline);
      const comm::Listener listener = comm::listen_at(here);
      comm::rendezvous()->put("overlap_bench", comm::to_string(listener.at));
      socket_ = comm::accept_one(listener.socket, deadline);
    } else {
      socket_ = comm::connect_to(comm::parse_endpoint(comm::rendezvous()->get("overlap_bench", deadline)),
                                 deadline);
    }
  }

  /// An allreduce of two ranks sends half of the bytes twice, and receives as many.
  void step() {
    for (size_t sent = 0, received = 0; sent < out_.size() || received < in_.size();) {
      pollfd entry{socket_.get(), static_cast<short>(POLLIN | (sent < out_.size() ? POLLOUT : 0)), 0};
      if (::poll(&entry, 1, -1) < 0) continue;
      if ((entry.revents & POLLOUT) != 0) {
        const ssize_t put =
            ::send(socket_.get(), out_.data() + sent, out_.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put > 0) sent += static_cast<size_t>(put);
      }
      if ((entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        const ssize_t got = ::recv(socket_.get(), in_.data() + received, in_.size() - received, MSG_DONTWAIT);
        if (got == 0) throw CommunicationError("[overlap_bench] the connection of step_wire ended");
        if (got > 0) received += static_cast<size_t>(got);
      }
    }
  }

 private:
  std::vector<std::byte> out_, in_;
  comm::Fd socket_;
};

/// The traffic of a step without its computation.
class Traffic {
 public:
  explicit Traffic(const OverlapOptions& options) : group_(comm::world()) {
    const size_t bytes = parameter_bytes(options);
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
  /// `by_priority` is a second store of the same type.
  OverlapRun(const OverlapOptions& options, std::shared_ptr<KVStore> store,
             std::shared_ptr<KVStore> by_priority)
      : options_(options),
        store_(std::move(store)),
        traffic_(options),
        alone_(options, kMomentum, nullptr, false),
        off_(options, kMomentum, store_, false),
        on_(options, kMomentum, store_, false),
        sharded_(options, kMomentum, store_, true),
        priority_(options, kMomentum, std::move(by_priority), false) {
    if (store_->size() == 2) wire_ = std::make_unique<Wire>(options, comm::place());
  }

  void run() {
    for (int64_t round = 0; round < options_.rounds; ++round) {
      measure(
          "alone", [this] { step(alone_); }, store_->rank() == 0);
      measure("compute", [this] { step(alone_); });
      measure("comm", [this] { traffic_.step(); });
      if (wire_) measure("wire", [this] { wire_->step(); });
      measure("off", [this] {
        off_.backward();
        wait_all();
        off_.update();
        wait_all();
      });
      measure("on", [this] { step(on_); });
      measure("sharded", [this] { step(sharded_); });
      measure("priority", [this] { step(priority_); });
    }
    if (options_.modes.empty()) compare_memory();
    if (store_->rank() == 0) report();
  }

 private:
  static void step(Training& training) {
    training.backward();
    training.update();
  }

  /// Takes one group of steps of a mode. Ranks that take no part wait in the barrier.
  void measure(const std::string& mode, const std::function<void()>& step, bool takes_part = true) {
    if (!options_.modes.empty() &&
        std::find(options_.modes.begin(), options_.modes.end(), mode) == options_.modes.end())
      return;
    store_->barrier();
    if (takes_part) {
      for (int i = 0; i < 2; ++i) step();
      wait_all();
    }
    if (mode != "alone") store_->barrier();
    if (takes_part) {
      const double cpu = bench::process_cpu_s();
      const int64_t begin = bench::now_ns();
      for (int64_t i = 0; i < options_.steps; ++i) step();
      wait_all();
      cpu_ms_[mode].push_back((bench::process_cpu_s() - cpu) * 1e3 / static_cast<double>(options_.steps));
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

  void compare_memory() {
    const double plain = trained_bytes(false, optim::SGDOptions{.lr = 1e-4}),
                 adam = trained_bytes(false, optim::AdamOptions{.lr = 1e-4}),
                 plain_sharded = trained_bytes(true, optim::SGDOptions{.lr = 1e-4}),
                 adam_sharded = trained_bytes(true, optim::AdamOptions{.lr = 1e-4});
    if (store_->rank() != 0) return;
    print("optimizer_bytes", "bytes", {adam - plain});
    print("sharded_memory", "x", {(adam_sharded - plain_sharded) / (adam - plain)});
  }

  void report() {
    for (const auto& [mode, ms] : ms_) print("step_" + mode, "ms", ms);
    for (const auto& [mode, ms] : cpu_ms_) print("cpu_" + mode, "ms", ms);
    print_ratio("on_to_bound", ms_["on"], larger(ms_["compute"], ms_["comm"]));
    print_ratio("on_to_wire", ms_["on"], larger(ms_["compute"], ms_["wire"]));
    print_ratio("off_to_on", ms_["off"], ms_["on"]);
    print_ratio("sharded_to_on", ms_["sharded"], ms_["on"]);
    print_ratio("priority_to_on", ms_["priority"], ms_["on"]);
    print_ratio("speedup", ms_["alone"], ms_["on"], store_->size());
  }

  static std::vector<double> larger(std::vector<double> a, const std::vector<double>& b) {
    if (a.size() != b.size()) return {};
    for (size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], b[i]);
    return a;
  }

  /// Prints nothing if a mode was not measured.
  void print_ratio(const std::string& name, const std::vector<double>& a, const std::vector<double>& b,
                   double factor = 1) {
    if (!a.empty() && a.size() == b.size()) print(name, "x", ratios(a, b, factor));
  }

  static std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b,
                                    double factor = 1) {
    std::vector<double> result;
    for (size_t i = 0; i < a.size(); ++i) result.push_back(factor * a[i] / b[i]);
    return result;
  }

  void print(const std::string& name, const std::string& unit, std::vector<double> values) {
    bench::print({.bench = "overlap",
                  .case_name = name + '/' + std::to_string(options_.batch),
                  .system = "mx_" + traffic_.transport(),
                  .threads = store_->size(),
                  .unit = unit,
                  .value = bench::summarize(std::move(values))});
  }

  const OverlapOptions options_;
  const std::shared_ptr<KVStore> store_;
  Traffic traffic_;
  std::unique_ptr<Wire> wire_;
  Training alone_, off_, on_, sharded_, priority_;
  std::map<std::string, std::vector<double>> ms_, cpu_ms_;  // per step, of each round
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
  line.option("--modes", &options.modes, "alone, compute, ...; default: all").called("NAME,...");
  line.option("--store", &options.store, "type of store");
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("overlap_bench", [&] {
    const auto store = KVStore::create(options.store);
    OverlapRun(options, store, KVStore::create(options.store, {.order = KVOrder::priority})).run();
  });
}
