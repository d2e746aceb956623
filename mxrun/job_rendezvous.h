// The rendezvous that mxrun runs for a job, and what it learns from it.
//
// Thread-safety: one thread at a time. The rendezvous has threads of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/place.h"

namespace mx::comm {
class Rendezvous;
class TlsContext;
}  // namespace mx::comm

namespace mx::launch {

/// A process that the rendezvous has found lost: no heartbeats, or its connection broke.
struct LostRank {
  int64_t epoch = 0;
  comm::Role role = comm::Role::worker;
  int rank = 0;
  int64_t step = -1;
  std::string reason;
};

/// A process fails because another one failed before; it says so itself.
struct FailsBecause {
  int64_t epoch = 0;
  comm::Role role = comm::Role::worker;
  int rank = 0;
  comm::Role cause_role = comm::Role::worker;
  int cause_rank = 0;
  bool late = false;  ///< it waited for the other process until a time limit
};

class JobRendezvous {
 public:
  struct Settings {
    std::string job;
    std::string secret;
    std::shared_ptr<const comm::TlsContext> tls;  ///< null: connections are in clear text
    std::string address = "127.0.0.1";            ///< to listen at; numeric, never a wildcard
    uint16_t port = 0;                            ///< 0: any free one
    int64_t heartbeat_ms = 500, dead_after_ms = 5000;
  };

  /// Listens. Throws CommunicationError if the port is taken, InvalidArgument for a bad address.
  explicit JobRendezvous(const Settings& settings);
  ~JobRendezvous();

  /// "host:port" for MX_RDZV.
  const std::string& address() const;
  /// The table, for channels to agents on other machines.
  comm::Rendezvous* table();
  /// Admits processes of this epoch from now on.
  void set_epoch(int64_t epoch);
  /// Tells all processes of the epoch that one is lost, with what mxrun knows about its end.
  void put_lost(int64_t epoch, comm::Role role, int rank, const std::string& host, const std::string& reason);
  /// Tells those that wait for a process of the epoch that it has ended with exit status 0.
  void put_ended(int64_t epoch, comm::Role role, int rank, const std::string& host);

  /// The step of a worker's last heartbeat; -1: not known.
  int64_t step_of(int64_t epoch, comm::Role role, int rank) const;

  /// Readable when take_lost() or take_causes() has something new.
  int lost_fd() const;
  std::vector<LostRank> take_lost();
  std::vector<FailsBecause> take_causes();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mx::launch
