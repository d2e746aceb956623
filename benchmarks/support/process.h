// Processors and child processes. Each measurement runs in its own process, which is confined to its
// processors before it starts, so that the thread pools of all libraries in it are confined too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::bench {

/// Returns the processors that this process may run on, ascending.
std::vector<int> allowed_cpus();

/// Confines the calling thread, and the threads and processes that it starts later, to these processors.
void pin_to(const std::vector<int>& cpus);

struct ChildResult {
  std::string output;  ///< its output on stdout
  int status = 0;      ///< exit status; 128 + signal number if a signal ended it
  bool timed_out = false;
  int64_t first_output_ns = 0;  ///< from its start to its first output; 0 without output
};

/// Runs a program confined to `cpus` and returns when it has ended; kills it after `timeout_s`. stderr is
/// passed through. `environment` holds NAME=VALUE entries, which are set unless the caller's environment has
/// NAME.
ChildResult run_child(const std::vector<std::string>& argv, const std::vector<int>& cpus, int timeout_s,
                      const std::vector<std::string>& environment = {});

/// Returns the path of the running program.
std::string self_path();

/// Resident memory of this process, present and peak, in bytes.
struct Memory {
  double resident_bytes = 0, peak_bytes = 0;
};
Memory process_memory();

/// Returns the processor time that all threads of this process have used.
double process_cpu_s();

}  // namespace mx::bench
