// Where the processes of a job meet if no mxrun has started them: under srun, in an Indexed Job, under
// mpirun. Internal.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "comm/module.h"
#include "comm/net/interface.h"
#include "comm/place.h"

namespace mx::comm {

/// Returns the first name in Slurm's list of nodes: "n[07-9,12],m1" gives "n07". Throws InvalidArgument if it
/// is malformed.
std::string first_node(const std::string& list);

/// The ports for jobs: below those that the system hands out, and above most of those of services.
inline constexpr uint16_t kFirstJobPort = 15000, kLastJobPort = 31999;
/// Returns a port for the rendezvous, which follows from the name of the job.
uint16_t port_of_job(const std::string& job);

/// Returns where rank 0 runs the rendezvous: MX_RDZV, and without it (under srun) the first node and the port
/// of the job.
Endpoint rendezvous_of_rank_zero(const Place& place, const Environment& environment);

/// Where the rendezvous of a job is, and the secret of its connections.
struct SharedRendezvous {
  std::string address, secret;
};
/// Finds the rendezvous of a job that mpirun has started without an mxrun: rank 0 runs it, and MPI passes its
/// address on, with a secret that rank 0 makes if the job has none. A collective call of all workers. `start`
/// is called on rank 0 with the secret, and returns the address of the rendezvous that it has started. If it
/// throws, all ranks throw, the others CommunicationError with its text.
///
/// What MPI passes on can be read on the network. With `keeps_secret`, the secret is not among it; then all
/// ranks have it already, otherwise rank 0 throws InvalidArgument.
SharedRendezvous share_over_mpi(Module& mpi, const Place& place, bool keeps_secret,
                                const std::function<std::string(const std::string& secret)>& start);

}  // namespace mx::comm
