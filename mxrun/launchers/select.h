// Which launcher, which hosts, and where the rendezvous listens.
//
// Thread-safety: any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mxrun/hosts/hosts.h"
#include "mxrun/launcher.h"
#include "mxrun/launchers/carriers.h"
#include "mxrun/options.h"

namespace mx::launch {

/// Looks up an environment variable.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
/// That of this process; an empty variable counts as none.
std::optional<std::string> own_variable(const std::string& name);

struct Selection {
  std::string launcher;     ///< "local", "ssh", "slurm" or "mpi"
  std::vector<Host> hosts;  ///< empty for "local" without a number of slots
  std::string program;      ///< the carrier with its first arguments: MX_SSH, MX_SRUN or MX_MPIRUN
};

/// Chooses the launcher. "auto" means: ssh if hosts are given, unless this machine alone is; srun within an
/// allocation of Slurm; else this machine. Each host gets its slots, or --nproc-per-node. Throws
/// InvalidArgument if options and environment do not fit together, and if this mxrun is one of several
/// that srun or mpirun has started.
Selection select_launcher(const Options& options, const Lookup& lookup = own_variable);

/// Returns the launcher of a selection.
std::unique_ptr<Launcher> make_launcher(const Selection& selection);
/// Returns the commands that it would run for these nodes; none for "local".
std::vector<CarrierCommand> carrier_commands(const Selection& selection, const std::vector<NodePlan>& nodes,
                                             const NodeLine& line);

/// Returns the path of mxrun on the nodes: MX_MXRUN, or the path of this program, which should be the same
/// everywhere.
std::string program_on_nodes(const Lookup& lookup = own_variable);

/// Where the rendezvous listens.
struct ListenAt {
  std::string address = "127.0.0.1";  ///< numeric
  int port = 0;                       ///< 0: any free one
};
/// Reads --rdzv: HOST:PORT, where HOST is an address or a name of this machine, or one of its network
/// interfaces. Throws InvalidArgument for a wildcard, and if the nodes of the selection could not reach the
/// address: other machines need one beyond loopback.
ListenAt listen_address(const Options& options, const Selection& selection);

/// Runs on every node a check that mxrun (at the path `mxrun`) and the program exist there. Prints a line per
/// node to standard output and returns 0 if all is well, else the exit code of mxrun.
int check_nodes(const Options& options, const Selection& selection, const std::vector<NodePlan>& nodes,
                const std::string& mxrun);

}  // namespace mx::launch
