// Communicator over NCCL. Internal to the module. docs/gpu-status.md says what has run.
//
// Buffers may be memory of the device or of the host; host memory is copied through buffers on the device.
// Calls run on a stream of the communicator. If a call comes with work ahead of it (Request::work_ahead), the
// stream waits for that work on the device; no thread does.
// NCCL chooses the order of sums, so calls of Order::any use ncclAllReduce. Calls of Order::rank exchange
// slices, which are folded on the host.
//
// The communicator is non-blocking: no call of NCCL waits for other processes. The thread of the communicator
// polls NCCL's state and its stream until the deadline. When a call fails or abort() is called, all
// communicators of the GPU are first marked as failed, and then each aborts its NCCL communicator on a thread
// of its own (nccl_members.h). A rank is a process, or a thread of a process with several GPUs.
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
#include <vector>

#include "comm/call_comparison.h"
#include "comm/check_rank.h"
#include "comm/module.h"
#include "comm/nccl/nccl_members.h"
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
  std::string host(int rank) const override {
    check_rank("host", rank, size_);
    return hosts_[static_cast<size_t>(rank)];
  }
  int64_t default_timeout_ms() const override { return timeout_ms_; }
  Context device() const override { return gpu(device_id()); }

  int device_id() const { return handles_.device; }
  /// Makes the running call and every later one throw `reason`.
  void mark_as_failed(const std::exception_ptr& reason);

 protected:
  void execute(const Request& request, Deadline deadline) override;
  void interrupt(std::exception_ptr reason) override;
  void disconnect() noexcept override {
    if (comparison_) comparison_->leave();
  }
  void check(const Request& request) const override;

 private:
  void connect(const ModuleRequest& request);
  ncclUniqueId exchange_id(const ModuleRequest& request);
  void order_after(const Request& request);
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
  /// Returns a copy on the device in room `slot`.
  const void* copied(const void* data, size_t bytes, size_t slot);
  void* room(size_t slot, size_t bytes);
  void wait_for_stream();
  void wait_for_nccl(ncclComm_t comm);
  void check_alive() const;
  void check_nccl(ncclResult_t result, const char* call);
  void abandon(NcclHandles& handles);
  void end(std::vector<NcclHandles>& members);

  int rank_ = 0, size_ = 1;
  std::string id_;  // of NCCL's group
  int64_t timeout_ms_ = 0;
  Deadline deadline_;    // of the running call
  std::string running_;  // describes the running call
  std::vector<std::string> hosts_;
  std::optional<CallComparison> comparison_;  // in groups of several ranks
  NcclHandles handles_;
  std::atomic<bool> interrupted_{false};
  mutable std::mutex mutex_;
  std::exception_ptr reason_;  // guarded by mutex_
};

}  // namespace mx::comm
