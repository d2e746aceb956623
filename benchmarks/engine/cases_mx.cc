// Cases for our engine only: memory of pending operations, constant memory over many pushes, variables
// created and deleted between pushes, and waiting for one variable.
#include <algorithm>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/measure.h"
#include "benchmarks/engine/system_mx.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

bool only_mx(const SystemInfo& info) { return info.name == "mx"; }

void run_bytes_per_pending_op(const Job& job) {
  constexpr uint32_t kOps = 100'000;
  const Pattern pattern = make_pattern("quad", kOps);
  EngineOptions options = bench_options(job.threads);
  options.max_ops_in_flight = 2 * kOps;
  MxSystem system(options);
  system.prepare(pattern);
  system.pause();
  system.submit(0, kOps);
  const EngineStats stats = system.engine().stats();
  system.resume();
  system.wait_all();
  emit("bytes_per_pending_op",
       static_cast<double>(stats.op_pool_bytes) / static_cast<double>(stats.in_flight), "bytes");
}

// Growth of peak memory over ten million pushes without a wait, after a warm-up with a million.
void run_rss_10m(const Job& job) {
  const uint32_t kChunk = job.quick ? 100'000 : 1'000'000;
  const Pattern pattern = make_pattern("random", kChunk);
  MxSystem system(bench_options(job.threads));
  system.prepare(pattern);
  run_once_ns(system, kChunk);
  const double before = process_memory().peak_bytes;
  for (int i = 0; i < 10; ++i) system.submit(0, kChunk);
  system.wait_all();
  emit(job.quick ? "rss_1M" : "rss_10M", (process_memory().peak_bytes - before) / kMiB, "MB");
}

// Creates a temporary for every operation, as array programs do: new_var, push, delete_var.
double run_temporaries_ns(Engine& engine, uint32_t ops) {
  const int64_t start = now_ns();
  Var last = engine.new_var();
  for (uint32_t i = 0; i < ops; ++i) {
    const Var next = engine.new_var();
    engine.push([i](RunContext) { run_body(i); }, {.reads = {last}, .writes = {next}});
    engine.delete_var(last);
    last = next;
  }
  engine.delete_var(last);
  engine.wait_all();
  return static_cast<double>(now_ns() - start);
}

void run_temporaries(const Job& job) {
  Engine engine(bench_options(job.threads));
  if (job.verify) {
    Pattern pattern{"temporaries", job.ops + 1, {}};
    for (uint32_t i = 0; i < job.ops; ++i) pattern.ops.push_back({i + 1, {i, 0, 0}, 1, true});
    return emit_violations(job.case_name, pattern, true, [&] { run_temporaries_ns(engine, job.ops); });
  }
  run_temporaries_ns(engine, job.ops);
  const double before = process_memory().peak_bytes;
  std::vector<double> samples;
  for (int i = 0; i < (job.quick ? 1 : 3); ++i)
    samples.push_back(run_temporaries_ns(engine, job.ops) / job.ops);
  emit("temporaries", median(samples), "ns/op");
  emit("temporaries_rss", (process_memory().peak_bytes - before) / kMiB, "MB");
}

void run_push_wait_var(const Job& job) {
  Engine engine(bench_options(job.threads));
  const Var v = engine.new_var();
  const uint32_t cycles = job.quick ? 1'000 : 200'000;
  const auto run = [&] {
    for (uint32_t k = 0; k < cycles; ++k) {
      engine.push([k](RunContext) { run_body(k); }, {.writes = {v}});
      engine.wait(v);
    }
  };
  if (job.verify) {
    emit_violations(job.case_name, make_pattern("chain", cycles), true, run);
  } else {
    run();  // warm-up
    const int64_t start = now_ns();
    run();
    emit("push_wait_var_1", static_cast<double>(now_ns() - start) / cycles, "ns");
  }
  engine.delete_var(v);
}

}  // namespace

void add_mx_cases(std::vector<Case>& all) {
  all.push_back({"push_wait_var_1", "latency", only_mx, run_push_wait_var, true});
  all.push_back({"bytes_per_pending_op", "memory", only_mx, run_bytes_per_pending_op});
  all.push_back({"rss_10M", "memory", only_mx, run_rss_10m});
  all.push_back({"temporaries", "memory", only_mx, run_temporaries, true});
}

}  // namespace mx::bench
