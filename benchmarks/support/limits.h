// The limits of this machine: costs that bound any engine. All in nanoseconds. Cases with two threads need
// two processors and pin the threads to the given ones.
#pragma once

#include <string>
#include <vector>

namespace mx::bench {

/// One way of a cache line between two spinning cores. The control of every two-core measurement.
double handoff_ns(int cpu_a, int cpu_b, int round_trips);

double atomic_add_own_ns();
double atomic_add_shared_ns(int cpu_a, int cpu_b);  ///< per addition of one thread
double mutex_free_ns();
double mutex_contended_ns(int cpu_a, int cpu_b);  ///< per lock and unlock of one thread
double futex_wake_ns(int cpu_a, int cpu_b);       ///< from the wake-up call to the run of the woken thread
double futex_wake_idle_ns(int cpu_a, int cpu_b);  ///< the same after the thread has slept for a millisecond
double malloc_free_ns(size_t size);
double malloc_free_elsewhere_ns(int cpu_a, int cpu_b);  ///< allocated by one thread, freed by another
double clock_ns();
double function_ns_16();  ///< std::function with a capture of 16 bytes: construct, call, destroy
double function_ns_48();
double first_touch_ns();   ///< of a 4 KiB page
double thread_start_ns();  ///< create and join
/// A loop of a million iterations in registers, alone and while the other processor runs the same loop. The
/// difference comes from what two processors share (clock rate, caches, a core), not from a scheduler.
double loop_ns();
double loop_beside_ns(int cpu_a, int cpu_b);

}  // namespace mx::bench
