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
#include "kvstore/device_gate.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

/// Returns the type of elements for collectives; bool is sent as u8.
comm::Type comm_type(DType type);

/// Returns the address of the first element; allocates the memory if there is none. Only for running
/// operations that have declared the array, which is contiguous. `stream` is that of the operation, null on
/// the CPU.
void* memory_of(const NDArray& array, Stream* stream = nullptr);

/// An operation that makes one collective call. The arrays that it sends or receives are all on the
/// CPU, or all on the device of the group.
///
/// On a device the operation runs as soon as the work that it depends on has been *enqueued*. The call then
/// waits for that work on the device (DeviceGate), and the operation ends with the call.
struct CollectiveOp {
  const char* name;  ///< a literal
  std::string what;  ///< the key, for errors
  std::vector<NDArray> reads{};
  std::vector<NDArray> writes{};  ///< those that cover their whole memory are healed; others are updated
  int priority = 0;
  bool fence = false;            ///< starts after all earlier calls and before all later ones
  std::source_location where{};  ///< the line of the program, for errors
  /// Called when the operation runs, with its stream (null on the CPU): returns the call, without `done`.
  std::function<CallSequence::Call(Stream* stream)> call;
};

/// Takes the next ticket and pushes the operation. Precondition: the caller holds the lock of the store.
/// Throws InvalidState while the thread records a segment: a replay would make calls that the other ranks do
/// not make. `gate` is that of the group's device.
void push_collective(CallSequence& sequence, const std::shared_ptr<DeviceGate>& gate, CollectiveOp op);

/// Returns the requests for `count` elements, cut to pieces of at most `cut_bytes`; 0: not cut. For
/// allreduce and broadcast.
std::vector<comm::Request> cut_request(const comm::Request& request, int64_t cut_bytes);

}  // namespace mx::detail
