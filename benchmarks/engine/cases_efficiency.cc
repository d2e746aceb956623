// Efficiency as a function of the length of the body: serial time / (threads x parallel time). Serial time is
// measured in the same process directly before the parallel run, so a drifting clock rate affects both.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/measure.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

constexpr double kBodiesUs[] = {0.2, 0.5, 1, 2, 5, 10, 20, 50, 100};
constexpr double kQuickBodiesUs[] = {0.5, 5};
constexpr double kSpeedupBodiesUs[] = {0.5, 5};

std::string us_name(double body_us) {
  char text[32];
  std::snprintf(text, sizeof text, "%gus", body_us);
  return text;
}

double serial_ns(uint32_t n) {
  const int64_t start = now_ns();
  for (uint32_t i = 0; i < n; ++i) run_body(i);
  return static_cast<double>(now_ns() - start);
}

// Enough operations for 20 ms of serial work, and for `random` to use every variable several times.
uint32_t ops_of_body(double body_us, bool quick) {
  const double total_us = quick ? 2e3 : 2e4;
  return std::max(512u, static_cast<uint32_t>(total_us / body_us));
}

double speedup(System& system, const Pattern& pattern, int runs) {
  std::vector<double> ratios;
  system.inside([&] {
    run_once_ns(system, pattern.size());
    for (int i = 0; i < runs; ++i) {
      const double serial = serial_ns(pattern.size());
      ratios.push_back(serial / run_once_ns(system, pattern.size()));
    }
  });
  return median(std::move(ratios));
}

void run_efficiency(const Job& job) {  // eff_<pattern>
  const std::string pattern_name = job.case_name.substr(4);
  const auto system = job.system->make(job.threads);
  if (job.verify) {  // the checker replaces the body and takes about a microsecond
    const Pattern pattern = make_pattern(pattern_name, ops_of_body(1, job.quick));
    system->prepare(pattern);
    return emit_violations(job.case_name, pattern, true,
                           [&] { system->inside([&] { run_once_ns(*system, pattern.size()); }); });
  }
  const double rate = spins_per_ns();
  std::vector<double> bodies(std::begin(kBodiesUs), std::end(kBodiesUs));
  if (job.quick) bodies.assign(std::begin(kQuickBodiesUs), std::end(kQuickBodiesUs));
  g_body.kind = BodyKind::spin;
  for (double body_us : bodies) {
    g_body.spins = static_cast<uint64_t>(std::llround(body_us * 1000 * rate));
    const Pattern pattern = make_pattern(pattern_name, ops_of_body(body_us, job.quick));
    system->prepare(pattern);
    const double times = speedup(*system, pattern, job.quick ? 1 : 3);
    emit(job.case_name + "_" + us_name(body_us), times / job.threads, "ratio");
    if (std::find(std::begin(kSpeedupBodiesUs), std::end(kSpeedupBodiesUs), body_us) ==
        std::end(kSpeedupBodiesUs)) {
      continue;
    }
    // speedup_5us is that of independent operations; for other patterns the name contains the pattern.
    const std::string middle = pattern_name == "indep" ? "" : pattern_name + "_";
    emit("speedup_" + middle + us_name(body_us), times, "x");
  }
  g_body.kind = BodyKind::empty;
}

bool parallel_system(const SystemInfo& info) { return info.name != "serial"; }
bool parallel_with_order(const SystemInfo& info) { return parallel_system(info) && !info.loop; }

}  // namespace

void add_efficiency_cases(std::vector<Case>& all) {
  all.push_back({"eff_indep", "efficiency", parallel_system, run_efficiency, true});
  for (const char* name : {"eff_random", "eff_wave"}) {
    all.push_back({name, "efficiency", parallel_with_order, run_efficiency, true});
  }
}

}  // namespace mx::bench
