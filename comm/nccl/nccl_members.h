// The communicators over NCCL of this process: which of them fail together, and which end together. Internal.
//
// Failures. The abort of one NCCL communicator may wait for another process that aborts a different one. So
// when a communicator fails, all others of its GPU are marked as failed before the first one is aborted.
//
// Ends. The end of an NCCL communicator waits for the other ranks of its group. If several ranks of a group
// are in this process, one thread may destroy them one after the other, and the first would wait for ever.
// So the rank that is destroyed last ends all of them.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace mx::comm {

class NcclCommunicator;

/// The objects of CUDA and NCCL that a rank owns.
struct NcclHandles {
  int device = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  std::vector<std::pair<void*, size_t>> rooms{};  // memory of the device, by slot

  /// Gives memory and stream back. Never waits for the device.
  void release() noexcept;
};

/// Registers a rank of the group with this id. Called before NCCL connects the ranks, so every rank of the
/// group that is in this process is registered before the first one can end.
void join_members(const std::string& id, NcclCommunicator* communicator);
/// The same communicator ends. Returns what the caller has to end, or nothing if other ranks of the group are
/// still in this process.
std::vector<NcclHandles> leave_members(const std::string& id, NcclCommunicator* communicator,
                                       NcclHandles handles);
/// Marks all communicators of a GPU as failed.
void interrupt_members(int device, const std::exception_ptr& reason);

}  // namespace mx::comm
