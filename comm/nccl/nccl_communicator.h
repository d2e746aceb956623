// Communicator over NCCL. Internal to the module. docs/gpu-status.md says what has run.
//
// Buffers may be memory of the device or of the host; host memory is copied through buffers on the device.
// NCCL chooses the order of sums, so calls of Order::any use ncclAllReduce. Calls of Order::rank exchange
// slices, which are folded on the host.
//
// The communicator is non-blocking: no call of NCCL waits for other processes. The thread of the communicator
// polls NCCL's state and its stream until the deadline. When a call fails or abort() is called, all
// communicators of the process are first marked as failed, and then each aborts its NCCL communicator on a
// thread that nobody waits for. Otherwise the abort of one could wait for another process that is aborting a
// different one.
//
// NCCL compares nothing, so the ranks compare each call over TCP before they start it (call_comparison.h).
// Because of that, a rank that is gone is also noticed at once, unless the others are within a call of NCCL.
//
// Thread-safety: like Communicator.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/call_comparison.h"
#include "comm/module.h"
#include "comm/parts.h"
#include "comm/queued_communicator.h"

namespace mx::comm {

class NcclCommunicator final : public QueuedCommunicator {
 public:
  explicit NcclCommunicator(const ModuleRequest& request);
  ~NcclCommunicator() override;

  const std::string& type() const override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override { return hosts_.at(static_cast<size_t>(rank)); }
  int64_t default_timeout_ms() const override { return timeout_ms_; }

 protected:
  void execute(const Request& request, Deadline deadline) override;
  void interrupt(std::exception_ptr reason) override;

 private:
  void connect(const ModuleRequest& request);
  void release() noexcept;
  ncclUniqueId exchange_id(const ModuleRequest& request);
  void run_request(const Request& request);
  void allreduce_any(const Request& request);
  void allreduce_in_rank_order(const Request& request);
  void fold_slice(const Request& request, const void* in, void* out);
  void gather_slices(const Request& request, const void* in, void* out);
  /// Sends and receives all parts, between buffers of the device.
  void exchange(const std::vector<Part>& parts);
  /// Returns the buffer itself if it is on the device, otherwise a copy in room `slot`.
  const void* on_device(const void* data, size_t bytes, size_t slot);
  /// Returns the buffer itself if it is on the device, otherwise room `slot`, to be copied by to_user().
  void* for_result(void* data, size_t bytes, size_t slot);
  void to_user(const void* from, void* to, size_t bytes);
  void* room(size_t slot, size_t bytes);
  void wait_for_stream();
  void wait_for_nccl();
  void check_alive() const;
  void mark_as_failed(const std::exception_ptr& reason);
  void check_nccl(ncclResult_t result, const char* call);
  void abandon();

  int rank_ = 0, size_ = 1, device_ = 0;
  int64_t timeout_ms_ = 0;
  Deadline deadline_;    // of the running call
  std::string running_;  // describes the running call
  std::vector<std::string> hosts_;
  std::optional<CallComparison> comparison_;  // in groups of several ranks
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  std::vector<std::pair<void*, size_t>> rooms_;  // memory of the device, by slot
  std::atomic<bool> interrupted_{false};
  mutable std::mutex mutex_;
  std::exception_ptr reason_;  // guarded by mutex_
};

}  // namespace mx::comm
