// The collectives of one group over MPI, as blocking calls. Internal to the module.
//
// Thread-safety: only MpiThread calls it.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/parts.h"

namespace mx::comm {

class MpiGroup {
 public:
  /// Duplicates MPI_COMM_WORLD. A collective call.
  MpiGroup();

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns the name of each rank's host. A collective call.
  std::vector<std::string> hosts();
  /// Frees the duplicate. A collective call.
  void free();

  /// Runs one call. Throws ProtocolError if the ranks make different calls.
  void execute(const Request& request);

 private:
  void compare(const Request& request);
  void allreduce(const Request& request);
  void fold_small(const Request& request);
  void reduce_scatter(const Request& request, void* out);
  void allgather(const Request& request, const void* in);
  void broadcast(const Request& request);
  void all_to_all(const Request& request);
  void exchange(const std::vector<Part>& parts);
  char* workspace(size_t bytes);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<char> workspace_;
  std::vector<MPI_Request> pending_;
};

}  // namespace mx::comm
