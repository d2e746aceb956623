// The group of all workers of the job, and the job's rendezvous.
//
// Forks. A child that a process of the job forks is no process of the job: the functions except place() throw
// InvalidState there.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/place.h"
#include "comm/rendezvous.h"

namespace mx::comm {

/// Returns the place of this process, found at the first call.
const Place& place();

/// Returns the group of all workers of the job. The first call connects them and so is collective; it throws
/// Timeout naming the ranks that did not come. A process that is alone gets a group of one. The transport is
/// that of `MX_TRANSPORT` ("auto", "shm", "tcp", "shm+tcp", "mpi", "nccl"): by default shared memory within a
/// host, and TCP between hosts.
std::shared_ptr<Communicator> world();
/// Makes another group of the same workers. All must call it in the same order.
std::shared_ptr<Communicator> new_group(const std::string& transport = "auto");

/// Returns the connection to the job's rendezvous, which also sends the heartbeats of this process; null if
/// the process is alone.
std::shared_ptr<Rendezvous> rendezvous();

/// Throws PeerLost if a process of the job is known to be lost.
void check_processes();
struct LostProcess;
/// Names the process because of which a lost one has failed: "; it failed because of server 1 on host n0".
/// Returns "" if the process was lost by itself, as far as the rendezvous knows.
std::string cause_of_loss(const LostProcess& lost);

/// Tells the heartbeats which step the program is at. Errors of other ranks name it.
void report_step(int64_t step);

}  // namespace mx::comm
