// The kernels of the tests' operations, as host functions, and the memory of a meeting.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace mx::test {

constexpr int kMostAttendees = 256;

// Lives in page-locked host memory that every device sees. Each attendee has a counter of its own, because
// not every machine can change host memory atomically from a device.
struct MeetingState {
  int expected;
  int attendees;  // host only: counters that are in use
  int gave_up;
  int host_arrived;
  int arrived[kMostAttendees];
};

/// out[i] = value.
void launch_fill(double* out, size_t size, double value, cudaStream_t stream);
/// out[i] = a[i] + b[i].
void launch_add(const double* a, const double* b, double* out, size_t size, cudaStream_t stream);
/// Multiplies square matrices of n rows. Rounds like the loop of the host: no fused multiply-add.
void launch_matmul(const double* a, const double* b, double* out, size_t n, cudaStream_t stream);
/// Counts the attendee as arrived, and waits in one thread for the others.
void launch_attend(MeetingState* state, int attendee, cudaStream_t stream);

}  // namespace mx::test
