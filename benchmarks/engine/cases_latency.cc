// Latency: push and wait, from the push to the run on another core, and the cost of an idle system.
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/measure.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

bool any_system(const SystemInfo&) { return true; }
bool parallel_system(const SystemInfo& info) { return info.name != "serial" && !info.loop; }

// push_wait_<K>: pushes K independent operations, then waits; repeated. In ns for all K.
void run_push_wait(const Job& job) {
  const uint32_t k = static_cast<uint32_t>(std::stoul(job.case_name.substr(10)));
  const Pattern pattern = make_pattern("indep", k);
  const auto system = job.system->make(job.threads);
  system->prepare(pattern);
  if (job.verify) {
    return emit_violations(job.case_name, pattern, true,
                           [&] { system->inside([&] { run_once_ns(*system, k); }); });
  }
  const int64_t enough_ns = job.quick ? 5'000'000 : 100'000'000;
  double result = 0;
  system->inside([&] {
    const auto cycles_for = [&](int64_t duration_ns) {
      constexpr int kBetweenLooks = 16;  // checks the clock rarely, so that its cost is negligible
      const int64_t start = now_ns();
      int64_t cycles = 0, now = start;
      for (; now - start < duration_ns; now = now_ns()) {
        for (int i = 0; i < kBetweenLooks; ++i) {
          system->submit(0, k);
          system->wait_all();
        }
        cycles += kBetweenLooks;
      }
      return static_cast<double>(now - start) / static_cast<double>(cycles);
    };
    cycles_for(enough_ns / 5);
    result = cycles_for(enough_ns);
  });
  emit(job.case_name, result, "ns");
}

// Pushes one operation after `rest` has let the workers spin or fall asleep. The pusher does not wait in the
// system, which might run the operation itself. It polls the time stamp instead, so another core has to run
// the operation.
template <class Rest>
void measure_push_to_run(const Job& job, int samples_wanted, Rest&& rest) {
  const Pattern pattern = make_pattern("chain", 1);
  const auto system = job.system->make(job.threads);
  system->prepare(pattern);
  g_body.kind = BodyKind::stamp;
  std::vector<double> samples;
  system->inside([&] {
    // The deadline limits the run: if the worker shares the pusher's core, each sample takes milliseconds.
    const int64_t deadline = now_ns() + 3'000'000'000;
    for (int i = 0; i < samples_wanted && now_ns() < deadline; ++i) {
      rest();
      g_body.stamp_ns.store(0, std::memory_order_relaxed);
      const int64_t start = now_ns();
      system->submit(0, 1);
      while (g_body.stamp_ns.load(std::memory_order_acquire) == 0) relax();
      samples.push_back(static_cast<double>(g_body.stamp_ns.load() - start));
      system->wait_all();
    }
  });
  g_body.kind = BodyKind::empty;
  const auto warmup = static_cast<std::ptrdiff_t>(samples.size() / 10);  // thread starts and cold caches
  samples.erase(samples.begin(), samples.begin() + warmup);
  emit(job.case_name, median(samples), "ns");
}

void run_push_to_run_spinning(const Job& job) {
  measure_push_to_run(job, job.quick ? 100 : 2000, [] { busy_wait_ns(5'000); });
}

void run_push_to_run_asleep(const Job& job) {
  measure_push_to_run(job, job.quick ? 20 : 200, [] { usleep(3'000); });
}

// Measures the processor time of the process during a second without work, after a run with work.
void run_idle_cpu(const Job& job) {
  const Pattern pattern = make_pattern("random", 10'000);
  const auto system = job.system->make(job.threads);
  system->prepare(pattern);
  system->inside([&] { run_once_ns(*system, pattern.size()); });
  usleep(100'000);  // workers may spin for a while before they sleep
  const useconds_t duration_us = job.quick ? 200'000 : 999'999;
  const double cpu_before_s = process_cpu_s();
  const int64_t start = now_ns();
  usleep(duration_us);
  const double used_s = process_cpu_s() - cpu_before_s;
  emit("idle_cpu", 100 * used_s / (static_cast<double>(now_ns() - start) * 1e-9), "%");
}

}  // namespace

void add_latency_cases(std::vector<Case>& all) {
  for (const char* name : {"push_wait_1", "push_wait_10", "push_wait_100"}) {
    all.push_back({name, "latency", any_system, run_push_wait, true});
  }
  all.push_back({"push_to_run_spinning", "latency", parallel_system, run_push_to_run_spinning, false, 2});
  all.push_back({"push_to_run_asleep", "latency", parallel_system, run_push_to_run_asleep, false, 2});
  all.push_back({"idle_cpu", "latency", parallel_system, run_idle_cpu});
}

}  // namespace mx::bench
