// Communicator over MPI. Internal to the module.
//
// Order::rank: small values are gathered from all ranks (MPI_Allgather) and folded on each; large ones are
// exchanged in slices (MPI_Alltoallv), folded, and gathered (MPI_Allgatherv). Order::any: MPI_Allreduce.
//
// Before a call moves data, the ranks compare descriptions of it. In small calls of Order::rank the
// description travels with the data. Calls of Order::any below kUnchecked bytes are not compared, because
// that would double their time; MPI itself reports some differences as truncated messages.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/mpi/mpi_thread.h"

namespace mx::comm {

class MpiGroup;

class MpiCommunicator final : public Communicator {
 public:
  /// Duplicates MPI_COMM_WORLD. A collective call.
  explicit MpiCommunicator(int64_t timeout_ms);
  ~MpiCommunicator() override;

  const std::string& type() const override;
  int rank() const override;
  int size() const override;
  std::string host(int rank) const override { return hosts_.at(static_cast<size_t>(rank)); }
  int64_t default_timeout_ms() const override { return timeout_ms_; }
  void start(Request request) override;
  void abort(std::exception_ptr reason) override { thread_.abort(std::move(reason)); }
  std::exception_ptr failure() const override { return thread_.failure(); }

 private:
  MpiThread& thread_;
  const int64_t timeout_ms_;
  std::shared_ptr<MpiGroup> group_;  // shared with jobs, which may outlive the communicator
  std::vector<std::string> hosts_;
};

}  // namespace mx::comm
