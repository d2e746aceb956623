#include "benchmarks/op/runner.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/malloc_count.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"

namespace mx::bench {
namespace {

constexpr const char* kConfined = "--confined";
constexpr int kTimeoutS = 1800;

struct Plan {
  std::vector<std::string> cases;
  std::vector<int> threads;
  std::string name;
  double min_ms = 20;
  int samples = 5;
  bool smoke = false;
};

bool wanted(const Plan& plan, const OpCase& c) {
  // The smoke test runs some cases of each operation, and none that takes long.
  if (plan.smoke && c.elements > (4 << 10)) return false;
  if (plan.cases.empty()) return true;
  return std::any_of(plan.cases.begin(), plan.cases.end(),
                     [&](const std::string& text) { return text == c.name || text == c.op; });
}

double batch_ns(const OpCall& call, int64_t calls) {
  const int64_t start = now_ns();
  for (int64_t i = 0; i < calls; ++i) call();
  return static_cast<double>(now_ns() - start);
}

/// Returns how many consecutive calls take about `enough_ns`, after a warm-up.
int64_t calls_within(const OpCall& call, double enough_ns) {
  call();
  int64_t calls = 1;
  double spent = batch_ns(call, calls);
  while (spent < enough_ns / 4) {
    const double times = spent > 0 ? enough_ns / 2 / spent : 16;
    calls = std::max(calls + 1, static_cast<int64_t>(static_cast<double>(calls) * std::min(times, 16.0)));
    spent = batch_ns(call, calls);
  }
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(calls) * enough_ns / spent));
}

// Returns several times of one call in nanoseconds. Calls are timed in batches long enough for the clock's
// cost to be negligible.
std::vector<double> time_call(const OpCall& call, const Plan& plan) {
  const double enough_ns = plan.min_ms * 1e6;
  const int64_t calls = calls_within(call, enough_ns);
  // Long calls are timed less often.
  std::vector<double> each = {batch_ns(call, calls) / static_cast<double>(calls)};
  const int samples = each[0] > 20 * enough_ns ? std::min(plan.samples, 2) : plan.samples;
  while (static_cast<int>(each.size()) < samples)
    each.push_back(batch_ns(call, calls) / static_cast<double>(calls));
  return each;
}

// Returns the time of `other` divided by that of `call`, measured alternately, so that a slow machine slows
// both.
std::vector<double> time_ratio(const OpCall& call, const OpCall& other, const Plan& plan) {
  const int64_t calls = calls_within(call, plan.min_ms * 1e6);
  other();
  std::vector<double> each;
  for (int i = 0; i < plan.samples; ++i) {
    const double ns = batch_ns(call, calls);
    each.push_back(batch_ns(other, calls) / ns);
  }
  return each;
}

// Prints the number of allocations of one operation in steady state.
void print_allocations(const OpSystem& system, const Plan& plan, const OpCase& c, const OpCall& call) {
  if (!can_count_allocations()) return;
  constexpr int kCalls = 1000;
  for (int i = 0; i < kCalls; ++i) call();
  start_counting_allocations();
  for (int i = 0; i < kCalls; ++i) call();
  const auto each = static_cast<double>(stop_counting_allocations()) / (kCalls * c.work);
  print({system.bench, c.name + "_allocs", plan.name, plan.threads.front(), "allocs/op", summarize({each})});
}

int measure(const OpSystem& system, const Plan& plan) {
  const int threads = plan.threads.front();
  if (system.start) system.start(threads);
  std::string missing;
  for (const OpCase& c : system.cases) {
    if (!wanted(plan, c)) continue;
    OpCall call;
    try {
      call = system.prepare(c, threads);
      if (!call) {
        missing += ' ' + c.name;
        continue;
      }
      if (c.unit == std::string("x")) {
        const std::vector<double> values = time_ratio(call, system.prepare_other(c, threads), plan);
        print({system.bench, c.name, plan.name, threads, c.unit, summarize(values)});
        continue;
      }
      std::vector<double> values;
      const bool is_time = std::strncmp(c.unit, "ns", 2) == 0;
      const double work = system.work ? system.work(c) : c.work;
      for (const double ns : time_call(call, plan)) values.push_back(is_time ? ns / work : work / ns);
      print({system.bench, c.name, plan.name, threads, c.unit, summarize(values)});
      if (is_time) print_allocations(system, plan, c, call);
    } catch (const std::exception& error) {
      note(plan.name + " " + c.name + ": " + error.what());
      return 1;
    }
  }
  if (!missing.empty()) note(plan.name + " with " + std::to_string(threads) + " threads has no" + missing);
  return 0;
}

/// Keeps only those names in --cases that belong to cases of limits alone. If none is left, all cases run.
void leave_limits_theirs(const OpSystem& system, Plan& plan) {
  const std::vector<OpCase> others = op_cases();
  const auto in = [](const std::vector<OpCase>& cases, const std::string& text) {
    return std::any_of(cases.begin(), cases.end(),
                       [&](const OpCase& c) { return text == c.name || text == c.op; });
  };
  std::erase_if(plan.cases,
                [&](const std::string& text) { return in(others, text) || !in(system.cases, text); });
}

int run_confined(const OpSystem& system, const Plan& plan, int argc, char** argv) {
  const std::vector<int> cpus = allowed_cpus();
  bool failed = false;
  for (const int threads : plan.threads) {
    if (threads > static_cast<int>(cpus.size())) {
      note("threads " + std::to_string(threads) + ": left out, there are fewer processors");
      continue;
    }
    std::vector<std::string> child = {self_path(), kConfined, std::to_string(threads)};
    child.insert(child.end(), argv + 1, argv + argc);
    const std::vector<int> first(cpus.begin(), cpus.begin() + threads);
    const std::vector<std::string> environment =
        system.environment ? system.environment(threads) : std::vector<std::string>();
    const ChildResult result = run_child(child, first, kTimeoutS, environment);
    std::fputs(result.output.c_str(), stdout);
    std::fflush(stdout);
    if (result.timed_out || result.status != 0) {
      note(plan.name + " with " + std::to_string(threads) + " threads: " +
           (result.timed_out ? "no result in time" : "ended with status " + std::to_string(result.status)));
      failed = true;
    }
  }
  return failed ? 1 : 0;
}

}  // namespace

int run_op_bench(int argc, char** argv, const OpSystem& system) {
  Plan plan;
  plan.threads = system.threads;
  plan.name = system.name;
  int confined = 0;
  bool list = false;
  mx::examples::CommandLine line("Speed of single operations in " + system.name + "; JSON lines on stdout");
  line.option("--cases", &plan.cases, "names or operations (see --list); all by default");
  line.option("--threads", &plan.threads, "processors the process is confined to, each in turn").positive();
  line.option("--as", &plan.name, "the system's name in the records");
  line.option("--min-ms", &plan.min_ms, "milliseconds of one sample at least");
  line.option("--samples", &plan.samples, "samples of each case; the median is printed").positive();
  line.flag("--smoke", plan.smoke, "small and short: shows that everything works, measures little");
  line.flag("--list", list, "list the cases");
  line.option(kConfined, &confined, "what this program starts itself with").hidden();
  if (const auto status = line.parse(argc, argv)) return *status;

  if (list) {
    for (const OpCase& c : system.cases) std::printf("%s\n", c.name.c_str());
    return 0;
  }
  if (system.limits) leave_limits_theirs(system, plan);
  // Names known only to other programs are ignored, so that all programs can get one list.
  std::vector<OpCase> known = op_cases();
  known.insert(known.end(), system.cases.begin(), system.cases.end());
  for (const std::string& text : plan.cases) {
    if (std::none_of(known.begin(), known.end(),
                     [&](const OpCase& c) { return text == c.name || text == c.op; })) {
      note("no case or operation is called '" + text + "'; --list lists them");
      return 2;
    }
  }
  if (plan.smoke) {
    plan.min_ms = 0.1;
    plan.samples = 1;
  }
  try {
    if (confined == 0) return run_confined(system, plan, argc, argv);
    plan.threads = {confined};
    return measure(system, plan);
  } catch (const std::exception& error) {
    note(plan.name + ": " + error.what());
    return 2;
  }
}

void fill_op_input(float* out, int64_t count, uint32_t seed) {
  uint32_t state = seed * 2654435761u + 12345u;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    out[i] = static_cast<float>(static_cast<int32_t>(state)) * (1.0f / (1u << 30));
  }
}

std::vector<float> op_input(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  fill_op_input(values.data(), count, seed);
  return values;
}

std::vector<int64_t> op_indices(int64_t count, int64_t limit, uint32_t seed) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  uint64_t state = seed;
  for (int64_t& index : indices) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    index = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(limit));
  }
  return indices;
}

}  // namespace mx::bench
