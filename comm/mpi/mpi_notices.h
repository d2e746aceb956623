// Notices: short messages with which a process tells the others that it takes no further part in a group, or
// asks, at its deadline, which of them have come to the call. Internal to the module.
//
// They travel on a communicator of their own, which is never freed. On the communicator of a group, a notice
// that nobody reads could show up in a later group that gets the same number within MPI.
//
// Thread-safety: only MpiThread calls it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <list>
#include <string>

namespace mx::comm {

struct MpiNotice {
  enum Kind : uint64_t {
    left,      ///< the sender has destroyed its group
    failed,    ///< `text` says why
    asks,      ///< whether the receiver is in this collective, or beyond it
    is_there,  ///< the answer, only if it is
  };
  uint64_t group = 0;        ///< its number, equal in all processes
  uint64_t collectives = 0;  ///< in how many the sender has taken part
  uint64_t pairs = 0;        ///< the same of its messages with the one that reads this
  Kind kind = left;
  std::string text;
};

class MpiNotices {
 public:
  /// The first call duplicates MPI_COMM_WORLD, which is collective.
  static MpiNotices& get();

  void send(int to, const MpiNotice& notice);
  /// Gives MPI a moment to bring the notices on their way. A notice to a process that does nothing at present
  /// may stay until that process calls MPI, so there is no waiting for that.
  void flush();
  /// Passes on the notices that have come.
  void read(const std::function<void(int from, const MpiNotice& notice)>& take);

 private:
  struct Message;
  MpiNotices();

  MPI_Comm comm_ = MPI_COMM_NULL;
  struct Sending {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::list<Sending> sending_;  // addresses that stay, for MPI
};

}  // namespace mx::comm
