// The algorithms of the collectives, on a Call. Internal; comm/collectives.h chooses among them.
//
// Each starts with the headers. Calls with little data post header and data together and receive the data
// into the workspace, so that no result is written before the headers have been compared. Calls with much
// data compare the headers first.
//
// Reductions with Order::rank are the left fold over the ranks in all algorithms except ring and two-level.
//
// Thread-safety: one thread per Call.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/call.h"

namespace mx::comm {

/// Messages up to this size are posted together with the header.
inline constexpr size_t kJoinedBytes = 16 * 1024;
/// Large messages are cut into pieces of about this size, so that a rank folds one piece while the next
/// arrives.
inline constexpr size_t kPieceBytes = 256 * 1024;

/// Every rank sends everything to every rank and folds everything. One message time; for small calls.
void allreduce_gather(Call& call);
/// Every rank gets its slice from all ranks, folds it and sends the result to all: the bytes of a ring, in
/// two message times. Pieces of the slices follow one another.
void allreduce_direct(Call& call);
/// Reduce-scatter and allgather around a ring. Each slice is folded from the rank after its owner on.
void allreduce_ring(Call& call);
/// The ranks of each host send to the first of them, which combines with those of the other hosts. For groups
/// in which hosts have several ranks and a slow network connects them.
void allreduce_two_level(Call& call);

void reduce_scatter_direct(Call& call);
void allgather_direct(Call& call);
void broadcast_tree(Call& call);
void all_to_all_direct(Call& call);
void barrier_dissemination(Call& call);
/// Send or receive. A send ends when the receiver has confirmed that it makes the matching call.
void point_to_point(Call& call);

}  // namespace mx::comm
