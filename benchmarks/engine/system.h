// System: one way of executing a pattern. Each is in its own file and is used by one child process.
//
// Dynamic systems get the variables of an operation when it is submitted, and find the dependencies at run
// time. The others get the whole program in prepare() and can only submit all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/engine/pattern.h"

namespace mx::bench {

class System {
 public:
  virtual ~System() = default;

  /// Creates variables, edges or recordings for the pattern, which must outlive their use. Never timed. May
  /// be called again when nothing is pending.
  virtual void prepare(const Pattern& pattern) = 0;

  /// Calls `program` in a context in which submit() and wait_all() may be called.
  virtual void inside(const std::function<void()>& program) { program(); }

  /// Submits operations [begin, end) in order. Systems that are not dynamic accept only the whole pattern.
  virtual void submit(uint32_t begin, uint32_t end) = 0;

  /// Returns when all submitted operations have run.
  virtual void wait_all() = 0;

  /// While the system is paused, submitted operations do not start. Only for systems from
  /// SystemInfo::make_pausing.
  virtual void pause() {}
  virtual void resume() {}
};

struct SystemInfo {
  std::string name;
  bool dynamic = false;        ///< infers dependencies at run time
  bool many_pushers = false;   ///< submit() may be called by several threads at once, for any pattern
  bool loop = false;           ///< a parallel loop: only for independent operations
  uint32_t ops_divisor = 1;    ///< a slow system runs this many times fewer operations in the long cases
  uint32_t dense_divisor = 1;  ///< the same for fan and streaming, where some systems take quadratic time
  bool own_program = false;    ///< its cases run in the helper program of that name, in the same folder
  std::vector<std::string> environment = {};  ///< NAME=VALUE for its process
  std::function<std::unique_ptr<System>(int threads)> make;
  /// Makes a system that can be paused and then accepts `ops` operations; null if there is none.
  std::function<std::unique_ptr<System>(int threads, uint32_t ops)> make_pausing = nullptr;
};

/// Returns the systems that this program was built with, in the order of the reports.
const std::vector<SystemInfo>& systems();
const SystemInfo* find_system(const std::string& name);

/// Returns the names of the systems of a build that found every peer.
const std::vector<std::string>& known_systems();

std::unique_ptr<System> make_serial();
std::unique_ptr<System> make_mx(int threads);
std::unique_ptr<System> make_mx_pausing(int threads, uint32_t ops);
std::unique_ptr<System> make_mx_replay(int threads);
std::unique_ptr<System> make_tbb(int threads);
std::unique_ptr<System> make_tbb_for(int threads);
std::unique_ptr<System> make_omp(int threads);
std::unique_ptr<System> make_starpu(int threads);
std::unique_ptr<System> make_taskflow(int threads);

}  // namespace mx::bench
