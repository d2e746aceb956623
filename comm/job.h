// Job: what this process knows of the job that it belongs to. One object per process, behind comm/world.h.
//
// It connects to the rendezvous (and runs it, if nobody else does), watches for lost processes, makes groups
// and aborts them all if a process is lost.
//
// At the end of the process. The destructors of static objects may still run operations of the default
// engine, which drains at exit; they may use the groups. Therefore Job is never destroyed. leave() runs at
// exit after the engine has drained: it ends the groups and says farewell to the rendezvous, so that the end
// is not published as a loss.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/cost_model.h"
#include "comm/deadline.h"
#include "comm/place.h"
#include "comm/rendezvous.h"
#include "comm/rendezvous/client.h"
#include "comm/rendezvous/departures.h"
#include "comm/rendezvous/group_failures.h"
#include "comm/rendezvous/lost.h"
#include "comm/rendezvous/server.h"
#include "comm/transports.h"
#include "engine/base/process_mark.h"

namespace mx::comm {

class Job {
 public:
  explicit Job(Place place);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Place& place() const { return place_; }
  const ProcessMark& process() const { return process_; }
  std::shared_ptr<Rendezvous> rendezvous();
  std::shared_ptr<Communicator> world();
  std::shared_ptr<Communicator> new_group(const std::string& transport);
  void report_step(int64_t step);
  /// Throws PeerLost if a process of the job is known to be lost.
  void check();
  /// Returns whether a process is known to be lost or too late, or a group has failed.
  bool knows_failure() noexcept;
  /// Names the process because of which a lost one has failed: "; it failed because of rank 1 on host n0".
  /// Returns "" if the process was lost by itself, as far as the rendezvous knows.
  std::string cause_of(const LostProcess& lost);
  /// Ends the groups that nobody else holds. If `success`, leaves the others and says farewell. A process
  /// that runs the rendezvous waits until all others have left or are lost; after a failure, at most the
  /// job's time limit. A loss meanwhile is one for knows_failure(). Later calls throw.
  void leave(bool success) noexcept;
  /// For the end of a process that has failed: the group gets an error, but the connection to the rendezvous
  /// stays open until the kernel closes it. Otherwise the process would be lost while it still runs its
  /// handlers at exit, and mxrun would kill it before its exit status is known.
  void abort_at_exit() noexcept;

 private:
  Identity identity() const;
  std::string listen_address();
  std::string find_rendezvous(Deadline deadline);
  std::string share_rendezvous(Deadline deadline);
  std::string start_rendezvous(const std::string& host, uint16_t port, Deadline deadline);
  std::shared_ptr<Communicator> make_group(const std::string& transport, const std::string& key);
  /// `may_use_tcp`: uses TCP if the host gives the ranks no shared memory.
  std::shared_ptr<Communicator> connect_group_of(GroupRequest& request, GroupMaker make, bool may_use_tcp);
  void check_failures(GroupFailures& failures);
  void wait_for_first(GroupFailures& failures, const GroupRequest& request);
  void check_told(GroupFailures& failures);
  void add_group(const std::shared_ptr<Communicator>& group);
  /// Gives a group with messages the cost model of its type, which the first such group measures.
  void set_cost_model(Communicator& group);
  void on_consequence(std::string_view key, std::string_view value);
  void on_lost(std::string_view key, std::string_view value);
  /// Makes `error` the reason of all groups, present and later.
  void fail(std::exception_ptr error);
  std::string explain_loss(int rank);
  std::string host_of(int rank);
  /// Throws PeerLost if a worker has ended without having joined the group.
  void check_departures(Departures& departures, const std::string& group);
  /// Tells the rendezvous that this process fails because a worker is lost or comes too late.
  void report_cause(int rank, bool late = false) noexcept;

  const ProcessMark process_;
  const Place place_;
  const std::string host_;

  /// Held while a group is made, so that the groups of all ranks get equal numbers. Taken before making_.
  std::mutex groups_making_;
  std::mutex making_;                         ///< held while the connection is made. Taken before mutex_.
  std::string address_;                       ///< of the rendezvous; guarded by making_
  std::shared_ptr<RendezvousClient> client_;  ///< guarded by making_ and mutex_
  std::unique_ptr<RendezvousServer> server_;  ///< guarded by making_
  std::string secret_;                        ///< that MPI passed on, or empty; guarded by making_
  uint64_t watch_ = 0, causes_watch_ = 0;     ///< guarded by making_
  std::shared_ptr<Communicator> world_;       ///< guarded by groups_making_
  std::exception_ptr world_failure_;          ///< guarded by groups_making_
  int next_group_ = 1;                        ///< guarded by groups_making_
  std::map<std::string, std::optional<CostModel>> cost_models_;  ///< by type; guarded by groups_making_
  std::atomic<bool> warned_of_clear_text_{false};
  std::atomic<bool> noticed_failure_{false};  ///< by a group, which may have ended since
  bool left_ = false;                         ///< written under both, read under one of them

  std::mutex mutex_;
  std::condition_variable lost_;
  std::optional<std::string> loss_;                  ///< text of the first loss; guarded by mutex_
  std::map<ProcessName, Consequence> causes_;        ///< of processes that fail; guarded by mutex_
  std::exception_ptr failure_;                       ///< guarded by mutex_
  std::vector<std::weak_ptr<Communicator>> groups_;  ///< guarded by mutex_
  /// Of the workers, as the last group has told; empty before the first one. Copies, because host_of() runs
  /// on the threads of groups, which must not become the owners of their group. Guarded by mutex_.
  std::vector<std::string> hosts_;
  int64_t step_ = -1;  ///< guarded by mutex_; -1: none was reported
};

}  // namespace mx::comm
