// A case is one question, asked of one system in one process; it may give several values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/engine/system.h"

namespace mx::bench {

/// What a child process is asked to do.
struct Job {
  const SystemInfo* system = nullptr;
  std::string case_name;
  int threads = 1;
  uint32_t ops = 1'000'000;
  uint32_t wave_side = 0;  ///< 0: the largest square within `ops`
  bool quick = false;      ///< shorter, for checking that everything works
  bool verify = false;     ///< count violations instead of timing
};

/// How many operations of this pattern a system is given: fewer for slow ones.
uint32_t ops_for(const Job& job, const std::string& pattern);

/// The pattern, at the size that suits the job's system.
Pattern pattern_for(const Job& job, const std::string& pattern);

struct Case {
  std::string name;
  std::string group;  ///< basic, gated, efficiency, pushers, latency, memory, cliffs; also selects cases
  bool (*applies)(const SystemInfo&);
  void (*run)(const Job&);
  bool verifies = false;  ///< has something to check with --verify
  int min_threads = 1;
};

const std::vector<Case>& cases();
const Case* find_case(const std::string& name);

/// Sends a value from the child to the parent, which collects the rounds.
void emit(const std::string& case_name, double value, const std::string& unit);

// Used by the cases.

/// Runs the prepared pattern once and returns its time: first submit to the return of wait_all().
double run_once_ns(System& system, uint32_t ops);

/// After one warm-up run, repeats until a quarter of a second has been timed; the median, in ns per run.
double timed_run_ns(System& system, uint32_t ops, bool quick);

/// With --verify: calls run(), which runs the pattern once, three times with the checker as body, and emits
/// the violations. (A system that keeps state between runs has to get the later ones right as well.)
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
