// Calls every collective in a process of a job and compares with the serial fold. For programs that a
// launcher starts once per rank; conformance.h has the tests for ranks that are threads.
#pragma once

#include <cstddef>
#include <string>

#include "comm/communicator.h"

namespace mx::comm {

/// Where the buffers of the calls are.
struct MemoryKind {
  const char* name;
  void* (*make)(size_t bytes);
  void (*free)(void* memory);
  void (*copy)(void* to, const void* from, size_t bytes);  ///< to and from this memory
};
extern const MemoryKind kHostMemory;

/// The number of checks that have failed in this process.
int failed_checks();
/// Prints `what` and counts a failure if the condition is false.
void expect(bool condition, const std::string& what);

/// Calls every collective with every type and many counts.
void check_collectives(Communicator& group, const MemoryKind& memory);
/// Prints "rank R of N: passed" or "rank R of N: FAILED", and returns the exit status.
int report_checks(int rank, int size);

}  // namespace mx::comm
