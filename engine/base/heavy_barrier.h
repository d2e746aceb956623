// One side of a fence that costs the other side nothing. Linux.
//
// Two threads that each write a word and then read the other's need a fence between the write and the read,
// or both may miss the other. Where one of them does so millions of times a second and the other hardly ever,
// the rare one calls heavy_barrier(), and for the frequent one it is enough that the compiler keeps the order
// (std::atomic_signal_fence).
#pragma once

namespace mx {

/// Does heavy_barrier() work in this process? Decided by the first call, which registers the process with
/// the kernel. Where it does not (an old kernel, a sandbox that refuses the call) both sides need real
/// fences.
bool heavy_barrier_works();

/// When it returns, every other thread of the process has passed a full fence since the call. Takes
/// microseconds. Only where heavy_barrier_works().
void heavy_barrier();

}  // namespace mx
