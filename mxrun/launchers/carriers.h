// Carriers: the commands (ssh, srun, mpirun) that put agents on the nodes, and their processes.
//
// What a launcher starts is made by pure functions, so that --dry-run prints, and tests compare, exactly the
// commands that would run. The secret is never among the arguments or in the environment: it goes through
// the standard input of the carrier.
//
// Thread-safety: pure functions from any thread; sessions one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mxrun/launcher.h"

namespace mx::launch {

/// One command that carries the agents of some nodes.
struct CarrierCommand {
  std::string name;  ///< for messages: "ssh n1", "srun"
  std::vector<std::string> argv;
  std::vector<int> nodes;  ///< positions in the list of nodes
};

/// Returns the command line to run on a node; -1 for all nodes at once.
using NodeLine = std::function<std::vector<std::string>(int node)>;

/// Returns the word as a POSIX shell reads it back: unchanged if it is harmless, else in single quotes.
std::string shell_quoted(std::string_view word);
std::string shell_line(const std::vector<std::string>& words);

/// The commands of each launcher. `program` is the carrier with its own first arguments, as "ssh" or
/// "ssh -p 2222".
std::vector<CarrierCommand> ssh_commands(const std::string& program, const std::vector<NodePlan>& nodes,
                                         const NodeLine& line);
std::vector<CarrierCommand> slurm_commands(const std::string& program, const std::vector<NodePlan>& nodes,
                                           const NodeLine& line);
/// One mpirun for each node: Open MPI passes its standard input, and with it the secret, to one process only.
std::vector<CarrierCommand> mpi_commands(const std::string& program, const std::vector<NodePlan>& nodes,
                                         const NodeLine& line);

/// Starts the commands, each in a process group of its own with `input` as its standard input. Their output
/// is printed by whole lines (carrier_output.h). They get SIGTERM when the thread that starts them ends.
/// Throws CommunicationError naming the program that cannot be started. What has been started is killed then.
std::unique_ptr<Session> start_carriers(const std::vector<CarrierCommand>& commands,
                                        const std::string& input);

}  // namespace mx::launch
