// Communicator over MPI. Internal to the module.
//
// Small values go to all ranks, and each folds them. Large ones are exchanged in slices, folded, and
// gathered; with Order::any, MPI_Allreduce adds them.
//
// Before a call moves data, the ranks compare descriptions of it. In small calls the description travels with
// the data.
//
// Forks. As of QueuedCommunicator: in a child, all but the destructor throws InvalidState.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/mpi_thread.h"
#include "engine/base/process_mark.h"

namespace mx::comm {

class MpiGroup;

class MpiCommunicator final : public Communicator {
 public:
  /// Duplicates MPI_COMM_WORLD. A collective call.
  explicit MpiCommunicator(int64_t timeout_ms);
  /// Waits for the calls, unless it runs in a callback.
  ~MpiCommunicator() override;

  const std::string& type() const override;
  int rank() const override;
  int size() const override;
  std::string host(int rank) const override;
  int64_t default_timeout_ms() const override { return timeout_ms_; }
  void start(Request request) override;
  void abort(std::exception_ptr reason) override;
  std::exception_ptr failure() const override;
  std::shared_ptr<void> allocate(size_t bytes) override;

 private:
  class Calls;

  void check_process(const char* op) const;

  const ProcessMark process_;
  MpiThread& thread_;
  const int64_t timeout_ms_;
  const std::shared_ptr<Calls> calls_;
  std::shared_ptr<MpiGroup> group_;  // shared with jobs, which may outlive the communicator
};

}  // namespace mx::comm
