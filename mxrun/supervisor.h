// The supervisor: what mxrun itself does while a job runs.
//
// It starts the agents, sends them their plans, watches them and the rendezvous, and ends or restarts the
// whole group at the first failure. The survivors get a second to report their own errors first.
//
// Thread-safety: one thread. It waits for all children of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "mxrun/launcher.h"
#include "mxrun/options.h"
#include "mxrun/plan.h"

namespace mx::launch {

struct Job {
  Options options;
  std::vector<NodePlan> nodes;
  std::string secret;
  std::shared_ptr<const comm::TlsContext> tls;  ///< of mxrun itself; null: connections are in clear text
  std::string listen_address = "127.0.0.1";     ///< numeric; where the rendezvous listens
  int listen_port = 0;
};

/// Tries whether the rendezvous of a job can listen. Throws BindFailed if not.
void check_listen_address(const Job& job);
class BindFailed : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Runs a job to its end and returns the exit code of mxrun. Prints what went wrong to standard error.
int run_job(Job job, Launcher& launcher);

/// Returns 32 random bytes as hexadecimal digits.
std::string new_secret();
/// Returns the secret in a file. Throws InvalidArgument if the file is missing, empty, or readable by others.
std::string secret_from_file(const std::string& path);

}  // namespace mx::launch
