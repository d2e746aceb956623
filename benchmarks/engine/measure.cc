#include "benchmarks/engine/measure.h"

#include <algorithm>
#include <cstdio>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/checker.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"

namespace mx::bench {

uint32_t ops_for(const Job& job, const std::string& pattern) {
  const bool dense = pattern == "fan" || pattern == "streaming";
  const uint32_t divisor = dense ? job.system->dense_divisor : job.system->ops_divisor;
  return std::max(1u, job.ops / divisor);
}

Pattern pattern_for(const Job& job, const std::string& pattern) {
  uint32_t ops = ops_for(job, pattern);
  if (pattern == "wave" && job.wave_side != 0) ops = job.wave_side * job.wave_side;
  return make_pattern(pattern, ops);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list;
    add_throughput_cases(list);
    add_efficiency_cases(list);
    add_latency_cases(list);
    add_memory_cases(list);
#ifdef MX_BENCH_MX
    add_mx_cases(list);
    add_cliff_cases(list);
#endif
    return list;
  }();
  return all;
}

const Case* find_case(const std::string& name) {
  for (const Case& c : cases()) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

void emit(const std::string& case_name, double value, const std::string& unit) {
  // The mark "@" is needed because libraries may write to stdout too.
  std::printf("@ %s %.9g %s\n", case_name.c_str(), value, unit.c_str());
  std::fflush(stdout);
}

void emit_violations(const std::string& case_name, const Pattern& pattern, bool ordered,
                     const std::function<void()>& run) {
  Checker checker(pattern, ordered);
  g_body.kind = BodyKind::check;
  g_body.checker = &checker;
  uint64_t violations = 0;
  for (int i = 0; i < 3; ++i) {
    checker.reset();
    run();
    violations += checker.violations();
  }
  g_body.kind = BodyKind::empty;
  emit(case_name, static_cast<double>(violations), "violations");
}

double run_once_ns(System& system, uint32_t ops) {
  const int64_t start = now_ns();
  system.submit(0, ops);
  system.wait_all();
  return static_cast<double>(now_ns() - start);
}

double timed_run_ns(System& system, uint32_t ops, bool quick) {
  constexpr size_t kMostRuns = 500;
  const double enough_ns = quick ? 1e7 : 2.5e8;
  std::vector<double> samples;
  system.inside([&] {
    run_once_ns(system, ops);
    double total = 0;
    while (total < enough_ns && samples.size() < kMostRuns) {
      samples.push_back(run_once_ns(system, ops));
      total += samples.back();
    }
  });
  return median(std::move(samples));
}

}  // namespace mx::bench
