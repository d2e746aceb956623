// What the supervisor keeps of nodes and carriers, and small helpers. Internal.
//
// Thread-safety: one thread at a time.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/deadline.h"
#include "mxrun/channel.h"
#include "mxrun/job_rendezvous.h"
#include "mxrun/launcher.h"
#include "mxrun/plan.h"
#include "mxrun/supervisor.h"

namespace mx::launch {

/// A node, as its agent reports it.
struct Node {
  NodePlan* plan = nullptr;
  std::unique_ptr<Channel> channel;
  bool ready = false;  ///< its agent has said hello
  bool ended = false;  ///< none of its processes runs
  bool gone = false;   ///< its agent is lost
  std::string host;
  pid_t agent = -1;
  comm::Deadline silent_at{comm::Deadline::Clock::time_point::max()};
  std::optional<comm::Deadline> gone_at;  ///< its carrier has ended
};

/// A carrier and its end.
struct CarrierState {
  Carrier carrier;
  bool ended = false;
  int status = 0;
};

/// Writes to standard error.
void print_error(const std::string& text);
/// Writes "mxrun: " and the message of an error as a line to standard error.
void print_message(std::string_view message);

/// Returns a port of the loopback interface that was free a moment ago, for programs that listen at
/// MASTER_PORT themselves; 0 if there is none.
int free_port();

/// Starts the rendezvous of a job. Throws BindFailed if it cannot listen, InvalidArgument if the limit of
/// open files is too low.
std::unique_ptr<JobRendezvous> open_rendezvous(const Job& job);

}  // namespace mx::launch
