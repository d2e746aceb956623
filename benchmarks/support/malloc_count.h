// Counts heap allocations of the whole process, on demand.
#pragma once

namespace mx::bench {

/// Returns true if this program can count: not under sanitizers, and only with glibc.
bool can_count_allocations();

/// Starts counting the calls of malloc and its relatives, which operator new also calls. While counting is
/// off, an allocation costs one predicted branch, so that timed cases are not disturbed.
void start_counting_allocations();

/// Stops counting and returns the number of calls since the start.
unsigned long stop_counting_allocations();

}  // namespace mx::bench
