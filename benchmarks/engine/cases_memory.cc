// Heap allocations per operation, in steady state.
#include "benchmarks/engine/measure.h"
#include "benchmarks/support/malloc_count.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

bool parallel_system(const SystemInfo& info) { return info.name != "serial" && !info.loop; }

void run_allocs_per_op(const Job& job) {
  if (!can_count_allocations()) {
    note("allocs_per_op: this build cannot count allocations");
    return;
  }
  const Pattern pattern = pattern_for(job, "random");
  const auto system = job.system->make(job.threads);
  system->prepare(pattern);
  unsigned long calls = 0;
  system->inside([&] {
    run_once_ns(*system, pattern.size());  // pools grow to their final size
    run_once_ns(*system, pattern.size());
    start_counting_allocations();
    run_once_ns(*system, pattern.size());
    calls = stop_counting_allocations();
  });
  emit("allocs_per_op", static_cast<double>(calls) / pattern.size(), "allocs/op");
}

}  // namespace

void add_memory_cases(std::vector<Case>& all) {
  all.push_back({"allocs_per_op", "memory", parallel_system, run_allocs_per_op});
}

}  // namespace mx::bench
