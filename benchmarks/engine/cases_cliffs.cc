// State that an engine must not keep. A chain must cost the same before and after an operation that declares
// its memory, or one on a device. Workers that have only run short operations must start long ones at once.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/measure.h"
#include "benchmarks/engine/system_mx.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

bool only_mx(const SystemInfo& info) { return info.name == "mx"; }

double chain_ns(Engine& engine, const Job& job) {
  const Var v = engine.new_var();
  std::vector<double> samples;
  for (int k = -1; k < (job.quick ? 1 : 5); ++k) {  // the first run is a warm-up
    const int64_t start = now_ns();
    for (uint32_t i = 0; i < job.ops; ++i) engine.push([i](RunContext) { run_body(i); }, {.updates = {v}});
    engine.wait_all();
    if (k >= 0) samples.push_back(static_cast<double>(now_ns() - start) / job.ops);
  }
  engine.delete_var(v);
  return median(samples);
}

// chain_before_*, chain_after_*: the same chain in one engine, before and after one unusual operation.
void run_chain_around(const Job& job, const std::string& what, const PushOptions& unusual) {
  Engine engine(bench_options(job.threads));
  emit("chain_before_" + what, chain_ns(engine, job), "ns/op");
  engine.push([](RunContext) {}, unusual);
  engine.wait_all();
  emit("chain_after_" + what, chain_ns(engine, job), "ns/op");
}

void run_after_bytes(const Job& job) { run_chain_around(job, "bytes", {.bytes = 1 << 20}); }
void run_after_device(const Job& job) { run_chain_around(job, "device", {.context = virt(0)}); }

// Measures from the first push to the start of the last of 16 operations of 20 ms, on 16 workers that are all
// free, after many short operations. The operations sleep, so it does not matter if there are fewer
// processors than workers.
void run_start_16(const Job& job) {
  constexpr int kWorkers = 16;
  Engine engine(bench_options(kWorkers));
  std::array<Var, kWorkers> vars;
  for (Var& v : vars) v = engine.new_var();
  std::array<int64_t, kWorkers> started_ns{};
  std::vector<double> samples;
  for (int k = 0; k < (job.quick ? 1 : 9); ++k) {
    for (uint32_t i = 0; i < 10'000; ++i) {
      engine.push([i](RunContext) { run_body(i); }, {.writes = {vars[i % kWorkers]}});
    }
    engine.wait_all();
    const int64_t start = now_ns();
    for (size_t i = 0; i < kWorkers; ++i) {
      engine.push(
          [i, &started_ns](RunContext) {
            started_ns[i] = now_ns();
            usleep(20'000);
          },
          {.writes = {vars[i]}});
    }
    engine.wait_all();
    samples.push_back(static_cast<double>(*std::max_element(started_ns.begin(), started_ns.end()) - start) *
                      1e-3);
  }
  for (const Var v : vars) engine.delete_var(v);
  emit("start_16", median(samples), "us");
}

}  // namespace

void add_cliff_cases(std::vector<Case>& all) {
  all.push_back({"chain_after_bytes", "cliffs", only_mx, run_after_bytes});
  all.push_back({"chain_after_device", "cliffs", only_mx, run_after_device});
  all.push_back({"start_16", "cliffs", only_mx, run_start_16});
}

}  // namespace mx::bench
