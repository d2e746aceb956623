// Counts heap allocations of the whole process, on demand.
#pragma once

namespace mx::bench {

/// Whether this program can count: not under sanitizers, nor without glibc.
bool can_count_allocations();

/// From here on, calls of malloc and its relatives are counted (operator new ends there). While counting is
/// off an allocation pays one predicted branch, so that timed cases are not disturbed.
void start_counting_allocations();

/// Stops and returns how many there were since the start.
unsigned long stop_counting_allocations();

}  // namespace mx::bench
