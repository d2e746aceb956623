// Cost of an operation with an empty body: push and run at the same time, gated (push, then drain), and
// pushes from several threads at once.
#include <atomic>
#include <thread>

#include "benchmarks/engine/measure.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

const char* const kPatterns[] = {"chain", "indep", "random", "fan", "wave", "streaming"};

bool any_system(const SystemInfo&) { return true; }
bool has_order(const SystemInfo& info) { return !info.loop; }
bool has_pause(const SystemInfo& info) { return info.make_pausing != nullptr; }
bool has_many_pushers(const SystemInfo& info) { return info.many_pushers; }

std::string until_underscore(const std::string& name) { return name.substr(0, name.find('_')); }

void run_pattern(const Job& job, const Pattern& pattern) {
  const auto system = job.system->make(job.threads);
  system->prepare(pattern);
  const uint32_t n = pattern.size();
  if (job.verify) {
    emit_violations(job.case_name, pattern, true, [&] { system->inside([&] { run_once_ns(*system, n); }); });
  } else {
    emit(job.case_name, timed_run_ns(*system, n, job.quick) / n, "ns/op");
  }
}

void run_basic(const Job& job) { run_pattern(job, pattern_for(job, job.case_name)); }

// The size of a training step: the pending operations fit into the second-level cache.
void run_random_10k(const Job& job) { run_pattern(job, make_pattern("random", 10'000)); }

struct GatedTimes {
  double push_ns = 0, drain_ns = 0;
};

GatedTimes run_gated_once(System& system, uint32_t n) {
  system.pause();
  const int64_t start = now_ns();
  system.submit(0, n);
  const int64_t pushed = now_ns();
  system.resume();
  system.wait_all();
  return {static_cast<double>(pushed - start), static_cast<double>(now_ns() - pushed)};
}

void run_gated(const Job& job) {
  const Pattern pattern = pattern_for(job, until_underscore(job.case_name));
  const uint32_t n = pattern.size();
  const auto system = job.system->make_pausing(job.threads, n);
  system->prepare(pattern);
  if (job.verify) {
    emit_violations(job.case_name, pattern, true,
                    [&] { system->inside([&] { run_gated_once(*system, n); }); });
    return;
  }
  std::vector<double> push, drain, total;
  for (int i = -1; i < (job.quick ? 1 : 3); ++i) {  // the first run is a warm-up
    const GatedTimes times = run_gated_once(*system, n);
    if (i < 0) continue;
    push.push_back(times.push_ns / n);
    drain.push_back(times.drain_ns / n);
    total.push_back((times.push_ns + times.drain_ns) / n);
  }
  emit(job.case_name, median(total), "ns/op");
  emit(job.case_name + "_push", median(push), "ns/op");
  emit(job.case_name + "_drain", median(drain), "ns/op");
}

// Splits the pattern over `pushers` threads, which start together; returns the ns from their start to the end
// of all work.
double run_split_ns(System& system, uint32_t n, uint32_t pushers) {
  std::atomic<uint32_t> arrived{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (uint32_t p = 0; p < pushers; ++p) {
    threads.emplace_back([&, p] {
      arrived.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      system.submit(static_cast<uint32_t>(uint64_t{n} * p / pushers),
                    static_cast<uint32_t>(uint64_t{n} * (p + 1) / pushers));
    });
  }
  while (arrived.load() != pushers) std::this_thread::yield();
  const int64_t start = now_ns();
  go.store(true, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();
  system.wait_all();
  return static_cast<double>(now_ns() - start);
}

void run_pushers(const Job& job) {  // push<N>_<pattern>
  const uint32_t pushers = static_cast<uint32_t>(std::stoul(job.case_name.substr(4)));
  const Pattern pattern = pattern_for(job, job.case_name.substr(job.case_name.find('_') + 1));
  const auto system = job.system->make(job.threads);
  system->prepare(pattern);
  const uint32_t n = pattern.size();
  if (job.verify) {
    emit_violations(job.case_name, pattern, /*ordered=*/false,
                    [&] { system->inside([&] { run_split_ns(*system, n, pushers); }); });
    return;
  }
  std::vector<double> samples;
  for (int i = -1; i < (job.quick ? 1 : 3); ++i) {
    const double time_ns = run_split_ns(*system, n, pushers);
    if (i >= 0) samples.push_back(time_ns / n);
  }
  emit(job.case_name, median(samples), "ns/op");
}

}  // namespace

void add_throughput_cases(std::vector<Case>& all) {
  for (const std::string pattern : kPatterns) {
    all.push_back({pattern, "basic", pattern == "indep" ? any_system : has_order, run_basic, true});
  }
  all.push_back({"random_10k", "basic", has_order, run_random_10k, true});
  for (const char* pattern : kPatterns) {
    all.push_back({std::string(pattern) + "_gated", "gated", has_pause, run_gated, true});
  }
  for (const char* pushers : {"push2", "push4", "push8"}) {
    for (const char* pattern : {"_indep", "_random"}) {
      all.push_back({std::string(pushers) + pattern, "pushers", has_many_pushers, run_pushers, true});
    }
  }
}

}  // namespace mx::bench
