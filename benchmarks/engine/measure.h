// A case is one question for one system in one process; it may emit several values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/engine/system.h"

namespace mx::bench {

/// The task of a child process.
struct Job {
  const SystemInfo* system = nullptr;
  std::string case_name;
  int threads = 1;
  uint32_t ops = 1'000'000;
  uint32_t wave_side = 0;  ///< 0: the largest square within `ops`
  bool quick = false;      ///< shorter, to check that everything works
  bool verify = false;     ///< count violations instead of measuring time
};

/// Returns how many operations of this pattern the system runs: fewer for slow systems.
uint32_t ops_for(const Job& job, const std::string& pattern);

/// Returns the pattern in the size for the job's system.
Pattern pattern_for(const Job& job, const std::string& pattern);

struct Case {
  std::string name;
  std::string group;  ///< basic, gated, efficiency, pushers, latency, memory, cliffs; also selects cases
  bool (*applies)(const SystemInfo&);
  void (*run)(const Job&);
  bool verifies = false;  ///< can be checked with --verify
  int min_threads = 1;
};

const std::vector<Case>& cases();
const Case* find_case(const std::string& name);

/// Sends a value from the child to the parent, which collects the values of all rounds.
void emit(const std::string& case_name, double value, const std::string& unit);

// Functions for the cases.

/// Runs the prepared pattern once and returns the time from the first submit to the return of wait_all().
double run_once_ns(System& system, uint32_t ops);

/// After one warm-up run, repeats the run until a quarter of a second has been timed. Returns the median in
/// ns per run.
double timed_run_ns(System& system, uint32_t ops, bool quick);

/// With --verify: uses the checker as body, calls run(), which runs the pattern once, three times, and emits
/// the number of violations. A system that keeps state between runs must get the later runs right too.
/// `ordered` as in Checker.
void emit_violations(const std::string& case_name, const Pattern& pattern, bool ordered,
                     const std::function<void()>& run);

void add_throughput_cases(std::vector<Case>& all);
void add_efficiency_cases(std::vector<Case>& all);
void add_latency_cases(std::vector<Case>& all);
void add_memory_cases(std::vector<Case>& all);
void add_mx_cases(std::vector<Case>& all);
void add_cliff_cases(std::vector<Case>& all);

}  // namespace mx::bench
