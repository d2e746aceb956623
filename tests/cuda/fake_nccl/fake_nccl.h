// A stand-in for NCCL on a machine without GPUs, over the stand-in for the CUDA runtime
// (tests/cuda/fake/fake_cuda.h). A test program that compiles these sources into itself gets them in place of
// the library.
//
// Ranks are threads of one process, each with a device of its own, or one thread that groups the calls of
// several communicators. An operation is a kernel on the caller's stream: it starts in the order of the
// stream, and ends when the operations of all ranks that belong to it have started. The values of a sum are
// added in a random order that the seed determines, so a test cannot rely on one.
//
// Breaking a rule of NCCL's documentation is a *violation*: the call fails if NCCL would find the mistake,
// otherwise the operation hangs or goes wrong as NCCL's would. Either way violations() describes it. Rules:
//
//   - the operations of a communicator have the same order, kind, count, type, reduction and root on all
//     ranks; a receive has the count and type of its send
//   - buffers are memory of the communicator's device, are not freed while an operation uses them, and
//     overlap only in the ways that NCCL allows
//   - memory of a pool is accessible to the devices of all ranks of the process, because NCCL accesses it
//     directly unless the environment has NCCL_P2P_DIRECT_DISABLE=1
//   - the stream belongs to the communicator's device
//   - the ranks of a communicator are 0 to n-1, each once, each with another device
//   - a call of a non-blocking communicator may stay ncclInProgress: until ncclCommGetAsyncError() says
//     otherwise, no other call may follow, and *nothing has been enqueued on the stream*
//   - every ncclGroupStart() has its ncclGroupEnd() on the same thread
//   - nothing follows ncclCommFinalize() but ncclCommDestroy(), and nothing ncclCommAbort() or
//     ncclCommDestroy()
//
// Where NCCL may wait for other ranks, the stand-in does: in the making of a communicator, in its first
// operation (which connects the ranks), and in ncclCommFinalize(). ncclCommAbort() ends this rank's kernels
// only; the other ranks are not told.
//
// An operation that waits longer than Options::hang_ms is a violation too, which lists what each rank waits
// for; its communicator then fails with ncclRemoteError.
//
// Not shown: speed, transports, processes, what NCCL's kernels do to memory when they are aborted.
//
// Thread-safety: everything is safe from any thread.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace mx::fake_nccl {

struct Options {
  uint64_t seed = 1;        ///< of the orders of sums, and of delays
  int most_polls = 3;       ///< how often ncclCommGetAsyncError() may say ncclInProgress without a reason
  int64_t hang_ms = 90000;  ///< after which an operation that waits for other ranks counts as hanging
};

/// Sets the options. The environment variable MX_FAKE_NCCL_SEED replaces the seed at the start.
void set_options(const Options& options);

/// Returns the rules that were broken since the last call, one description each.
std::vector<std::string> take_violations();
/// Returns a line for each operation that has not ended, of communicators that have not been aborted: its
/// rank, and whether its kernel has started.
std::string waiting();
/// Returns how many communicators have been made, and neither destroyed nor aborted.
int live_communicators();
/// Returns how many operations the ranks have given to NCCL so far.
uint64_t operations();

}  // namespace mx::fake_nccl
