// Collective calls as operations of the engine. Internal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kvstore/call_sequence.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

/// Returns the type of elements for collectives; bool is sent as u8.
comm::Type comm_type(DType type);

/// Returns the address of the first element. Only for running operations that have declared the array, which
/// is contiguous and on the CPU.
void* host_memory(const NDArray& array);

/// An operation that makes one collective call.
struct CollectiveOp {
  const char* name;  ///< a literal
  std::string what;  ///< the key, for errors
  std::vector<NDArray> reads{};
  std::vector<NDArray> writes{};  ///< those that cover their whole memory are healed; others are updated
  int priority = 0;
  bool fence = false;            ///< starts after all earlier calls and before all later ones
  std::source_location where{};  ///< the line of the program, for errors
  /// Called when the operation runs: returns the call, without `done`.
  std::function<CallSequence::Call()> call;
};

/// Takes the next ticket and pushes the operation. Precondition: the caller holds the lock of the store.
/// Throws InvalidState while the thread records a segment: a replay would make calls that the other ranks do
/// not make.
void push_collective(CallSequence& sequence, CollectiveOp op);

/// Returns the requests for `count` elements, cut to pieces of at most `cut_bytes`; 0: not cut. For
/// allreduce and broadcast.
std::vector<comm::Request> cut_request(const comm::Request& request, int64_t cut_bytes);

}  // namespace mx::detail
