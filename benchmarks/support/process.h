// Processors and child processes: a measurement runs in a process of its own that is confined to its
// processors before it starts, so that every thread pool in it, of whatever library, is confined too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::bench {

/// The processors that this process may run on, ascending.
std::vector<int> allowed_cpus();

/// Confines the calling thread, and what it starts from now on, to these processors.
void pin_to(const std::vector<int>& cpus);

struct ChildResult {
  std::string output;  ///< what it wrote to stdout
  int status = 0;      ///< exit status; 128 + signal number if a signal ended it
  bool timed_out = false;
  int64_t first_output_ns = 0;  ///< from its start until it wrote something; 0: it never did
};

/// Runs a program confined to `cpus` and returns when it has ended; killed after `timeout_s`. stderr passes
/// through. `environment` holds NAME=VALUE entries that are set where the caller's environment has no NAME.
ChildResult run_child(const std::vector<std::string>& argv, const std::vector<int>& cpus, int timeout_s,
                      const std::vector<std::string>& environment = {});

/// The path of the running program.
std::string self_path();

/// Resident memory of this process, now and at most so far, in bytes.
struct Memory {
  double resident_bytes = 0, peak_bytes = 0;
};
Memory process_memory();

/// Processor time this process has used, all threads.
double process_cpu_s();

}  // namespace mx::bench
