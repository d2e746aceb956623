// limits_bench: the limits of this machine, so that figures of the engine can be given as ratios to the
// limits of the same minute. Prints JSON lines with bench "limits".
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/support/limits.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"

namespace {

struct Limit {
  const char* name;
  int threads;  // 2: the case needs two processors
  std::function<double()> measure;
};

}  // namespace

int main(int argc, char** argv) {
  using namespace mx::bench;
  int rounds = 5;
  mx::examples::CommandLine line("Measures the machine's limits that bound an engine; JSON lines on stdout");
  line.option("--rounds", &rounds, "measurements of each; the median is printed").positive();
  if (const auto status = line.parse(argc, argv)) return *status;

  const std::vector<int> cpus = allowed_cpus();
  const int a = cpus.front(), b = cpus.size() > 1 ? cpus[1] : a;
  const std::vector<Limit> limits = {
      {"handoff", 2, [=] { return handoff_ns(a, b, 200'000); }},
      {"atomic_own", 1, [] { return atomic_add_own_ns(); }},
      {"atomic_shared", 2, [=] { return atomic_add_shared_ns(a, b); }},
      {"mutex_free", 1, [] { return mutex_free_ns(); }},
      {"mutex_contended", 2, [=] { return mutex_contended_ns(a, b); }},
      {"futex_wake", 2, [=] { return futex_wake_ns(a, b); }},
      {"futex_wake_idle", 2, [=] { return futex_wake_idle_ns(a, b); }},
      {"futex_wake_same_core", 1, [=] { return futex_wake_ns(a, a); }},
      {"malloc_free_64", 1, [] { return malloc_free_ns(64); }},
      {"malloc_free_4096", 1, [] { return malloc_free_ns(4096); }},
      {"malloc_free_elsewhere", 2, [=] { return malloc_free_elsewhere_ns(a, b); }},
      {"clock", 1, [] { return clock_ns(); }},
      {"function_16", 1, [] { return function_ns_16(); }},
      {"function_48", 1, [] { return function_ns_48(); }},
      {"first_touch", 1, [] { return first_touch_ns(); }},
      {"thread_start", 1, [] { return thread_start_ns(); }},
      {"loop", 1, [] { return loop_ns(); }},
      {"loop_beside", 2, [=] { return loop_beside_ns(a, b); }},
  };
  if (cpus.size() < 2) note("limits_bench: one processor only; cases with two threads are left out");

  std::vector<std::vector<double>> samples(limits.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < limits.size(); ++i) {
      if (limits[i].threads <= static_cast<int>(cpus.size())) samples[i].push_back(limits[i].measure());
    }
  }
  for (size_t i = 0; i < limits.size(); ++i) {
    if (samples[i].empty()) continue;
    print({"limits", limits[i].name, "machine", limits[i].threads, "ns", summarize(samples[i])});
  }
}
