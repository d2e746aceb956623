#include "benchmarks/train/runner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#ifdef MX_BENCH_PEAK
#  include "benchmarks/op/bandwidth.h"
#  include "benchmarks/op/team.h"
#endif
#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"

namespace mx::bench {
namespace {

constexpr int kTimeoutS = 600;
constexpr int kCallers = 8;  // threads in mlp_infer_8
constexpr double kMiB = 1024.0 * 1024.0;
const std::vector<std::string> kCases = {"mlp_train",         "mlp_infer",      "mlp_infer_8",
                                         "lenet_train",       "resnet18_train", "lstm_train",
                                         "transformer_train", "gpt_decode",     "first_step"};

struct Plan {
  std::vector<std::string> cases = kCases;
  std::vector<std::string> systems;
  std::vector<int> threads = {1, 2};
  int64_t steps = kMlpSteps;  // per block of mlp
  int samples = 9;
  bool smoke = false;
};

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Returns the network of a case.
const TrainNet& net_of(const std::string& case_name) {
  for (const TrainNet& net : kTrainNets)
    if (case_name.starts_with(std::string(net.name) + "_")) return net;
  return kTrainNets[0];
}

// Returns the steps of a block: whole turns of the network's batches.
int64_t steps_of(const Plan& plan, const TrainNet& net) {
  const int64_t steps = plan.steps * net.steps / kMlpSteps;
  return std::max<int64_t>(1, (steps + net.batches - 1) / net.batches) * net.batches;
}

// Returns the samples per second of each block.
std::vector<double> rates(const Plan& plan, int64_t samples, const std::function<void()>& block) {
  std::vector<double> values;
  for (int i = 0; i < plan.samples; ++i) {
    const int64_t start = now_ns();
    block();
    values.push_back(static_cast<double>(samples) * 1e9 / static_cast<double>(now_ns() - start));
  }
  return values;
}

// Returns the floating-point operations of the products of one sample's forward pass.
double operations(const std::string& net) {
  const auto conv = [](int64_t side, int64_t in, int64_t out, int64_t kernel) {
    return side * side * in * out * kernel * kernel;
  };
  int64_t products = 0;
  if (net == "mlp")
    for (int i = 0; i < 3; ++i) products += kMlpSizes[i] * kMlpSizes[i + 1];
  if (net == "lenet") products = conv(28, 1, 6, 5) + conv(10, 6, 16, 5) + 400 * 120 + 120 * 84 + 84 * 10;
  if (net == "resnet18") {
    products = conv(32, 3, 64, 3) + 4 * conv(32, 64, 64, 3) + 512 * 10;
    for (int64_t in = 64, side = 16; side >= 4; in *= 2, side /= 2)
      products += conv(side, in, 2 * in, 3) + conv(side, in, 2 * in, 1) + 3 * conv(side, 2 * in, 2 * in, 3);
  }
  if (net == "lstm") products = kLstmSteps * 4 * kLstmHidden * (kLstmInputs + kLstmHidden) + kLstmHidden * 10;
  if (net == "transformer")
    products = kLayers * kTokens * (4 * kWidth * kWidth + 2 * kWidth * kFeedForward + 2 * kTokens * kWidth) +
               kWidth * 10;
  return 2 * static_cast<double>(products);
}

// Returns the floating-point operations per second of multiply-adds in registers, on all threads at once; 0
// if that is not known. Of each thread the best of many short rounds counts, in some of which no other
// program has interrupted it.
double peak(int threads) {
#ifdef MX_BENCH_PEAK
  constexpr int kRounds = 500;
  constexpr int64_t kRoundLength = 1000;
  std::vector<double> best(static_cast<size_t>(threads));
  Team team(threads);
  team.run([&](int thread) {
    float value = 1;
    double& most = best[static_cast<size_t>(thread)];
    for (int i = 0; i < kRounds; ++i) {
      const int64_t start = now_ns();
      const double operations = static_cast<double>(kRoundLength) * fma_rounds(1, &value);
      fma_rounds(kRoundLength - 1, &value);
      most = std::max(most, operations * 1e9 / static_cast<double>(now_ns() - start));
    }
    asm volatile("" ::"m"(value));
  });
  return std::accumulate(best.begin(), best.end(), 0.0);
#else
  (void)threads;
  return 0;
#endif
}

// Runs inference in `callers` threads at once, each with its share of the steps.
void infer_from(TrainJob& job, int callers, int64_t steps) {
  if (callers == 1) return job.infer(steps);
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i)
    threads.emplace_back([&job, part = steps * (i + 1) / callers - steps * i / callers] { job.infer(part); });
  for (std::thread& t : threads) t.join();
}

void check_learns(double first, double last) {
  if (std::isfinite(last) && last < first) return;
  throw std::runtime_error("the loss went from " + std::to_string(first) + " to " + std::to_string(last));
}

// Runs in the measuring process.
int measure(const TrainSystem& system, const std::string& case_name, int threads, const Plan& plan) {
  if (system.start) system.start(threads);
  const TrainNet& net = net_of(case_name);
  if (case_name == "first_step") {
    std::printf("loss %g\n", system.make(net, 1)->train(1));
    std::fflush(stdout);
    return 0;
  }
  if (case_name == "gpt_decode") {
    const std::function<void()> decode = system.make_decoder();
    decode();
    print({"train", case_name, system.name, threads, "tokens/s", summarize(rates(plan, kDecoded, decode))});
    print({"train", case_name + "_rss", system.name, threads, "MB",
           summarize({process_memory().peak_bytes / kMiB})});
    return 0;
  }
  const std::unique_ptr<TrainJob> job = system.make(net, net.batches);
  const int64_t steps = steps_of(plan, net);
  std::vector<double> values;
  if (case_name.ends_with("_train")) {
    // Blocks are whole epochs: they end on the same batch, so that losses can be compared.
    const double first = job->train(net.batches);
    double last = job->train(steps);
    values = rates(plan, steps * net.batch, [&] { last = job->train(steps); });
    check_learns(first, last);
  } else {
    const int callers = case_name == "mlp_infer_8" ? kCallers : 1;
    infer_from(*job, callers, steps);
    values = rates(plan, steps * net.batch, [&] { infer_from(*job, callers, steps); });
  }
  print({"train", case_name, system.name, threads, "samples/s", summarize(values)});
  print({"train", case_name + "_rss", system.name, threads, "MB",
         summarize({process_memory().peak_bytes / kMiB})});
  if (const double most = peak(threads); most > 0) {
    const double passes = case_name.ends_with("_train") ? 3 : 1;
    for (double& value : values) value *= passes * operations(net.name) / most;
    print({"train", case_name + "_peak", system.name, threads, "ratio", summarize(values)});
  }
  return 0;
}

class Runs {
 public:
  Runs(const Plan& plan, const std::vector<TrainSystem>& systems) : plan_(plan), systems_(systems) {}

  int all() {
    const std::vector<int> cpus = allowed_cpus();
    for (const int threads : plan_.threads) {
      if (threads > static_cast<int>(cpus.size())) {
        note("threads " + std::to_string(threads) + ": left out, there are fewer processors");
        continue;
      }
      cpus_.assign(cpus.begin(), cpus.begin() + threads);
      for (const std::string& name : plan_.cases) {
        if (name == "first_step") {
          time_starts();
        } else {
          for (const TrainSystem& system : systems_)
            if (name == "gpt_decode" ? bool(system.make_decoder) : contains(system.nets, net_of(name).name))
              std::fputs(run(system, name).output.c_str(), stdout);
        }
        std::fflush(stdout);
      }
    }
    return failed_ ? 1 : 0;
  }

 private:
  ChildResult run(const TrainSystem& system, const std::string& case_name) {
    const auto threads = static_cast<int>(cpus_.size());
    const std::vector<std::string> child = {self_path(),
                                            "--confined",
                                            case_name,
                                            "--systems",
                                            system.name,
                                            "--threads",
                                            std::to_string(threads),
                                            "--steps",
                                            std::to_string(plan_.steps),
                                            "--samples",
                                            std::to_string(plan_.samples)};
    const ChildResult result =
        run_child(child, cpus_, kTimeoutS,
                  system.environment ? system.environment(threads) : std::vector<std::string>());
    if (result.timed_out || result.status != 0) {
      note(system.name + " " + case_name + " with " + std::to_string(threads) + " threads: " +
           (result.timed_out ? "no result in time" : "ended with status " + std::to_string(result.status)));
      failed_ = true;
    }
    return result;
  }

  void time_starts() {
    std::vector<std::vector<double>> values(systems_.size());
    // The first start is not counted, because it reads files that later starts find in the page cache.
    for (int round = plan_.smoke ? 0 : -1; round < plan_.samples; ++round) {
      for (size_t i = 0; i < systems_.size(); ++i) {
        const ChildResult result = run(systems_[i], "first_step");
        if (round >= 0 && result.first_output_ns > 0)
          values[i].push_back(static_cast<double>(result.first_output_ns) * 1e-6);
      }
    }
    for (size_t i = 0; i < systems_.size(); ++i) {
      if (!values[i].empty())
        print({"train", "first_step", systems_[i].name, static_cast<int>(cpus_.size()), "ms",
               summarize(values[i])});
    }
  }

  const Plan& plan_;
  const std::vector<TrainSystem>& systems_;
  std::vector<int> cpus_;
  bool failed_ = false;
};

}  // namespace

int run_train_bench(int argc, char** argv, const std::vector<TrainSystem>& systems) {
  Plan plan;
  std::string confined;
  bool list = false;
  mx::examples::CommandLine line("Training of small networks; JSON lines on stdout");
  line.option("--cases", &plan.cases, "see --list");
  line.option("--threads", &plan.threads, "processors a process is confined to, each in turn").positive();
  line.option("--systems", &plan.systems, "see --list; all by default");
  line.option("--steps", &plan.steps,
              "steps of a block of mlp; larger networks take fewer; rounded up to whole turns")
      .positive();
  line.option("--samples", &plan.samples, "blocks, and starts of a process; the median is printed")
      .positive();
  line.flag("--smoke", plan.smoke, "short: shows that everything works, measures little");
  line.flag("--list", list, "list cases and systems");
  line.option("--confined", &confined, "what this program starts itself with").hidden();
  if (const auto status = line.parse(argc, argv)) return *status;

  if (list) {
    for (const std::string& name : kCases) std::printf("%s\n", name.c_str());
    for (const TrainSystem& system : systems) std::printf("system %s\n", system.name.c_str());
    return 0;
  }
  for (const std::string& name : plan.cases) {
    if (contains(kCases, name)) continue;
    note("no case is called '" + name + "'; --list lists them");
    return 2;
  }
  // Names known only to other programs are ignored, so that all programs can get one list.
  std::vector<TrainSystem> chosen;
  for (const TrainSystem& system : systems)
    if (plan.systems.empty() || contains(plan.systems, system.name)) chosen.push_back(system);
  if (plan.smoke) {
    plan.steps = 1;
    plan.samples = 1;
  }
  try {
    if (confined.empty()) return Runs(plan, chosen).all();
    return measure(chosen.at(0), confined, plan.threads.at(0), plan);
  } catch (const std::exception& error) {
    note((chosen.empty() ? std::string("train_bench") : chosen[0].name) + ": " + error.what());
    return 1;
  }
}

}  // namespace mx::bench
