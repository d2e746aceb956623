// Launcher: puts one agent, `mxrun --agent ...`, on each node of a job.
//
// The agent is parent and reaper of the node's ranks. This machine alone is the case of one node: the agent
// is a child of mxrun and talks to it through a socket. Elsewhere a carrier (ssh, srun, mpirun) is the child
// of mxrun and the agent is somewhere below it. The agent connects back to the rendezvous, receives its
// NodePlan there and reports starts and exits through it; the output of its ranks is its own output, which
// the carrier forwards.
//
// Thread-safety: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mxrun/channel.h"
#include "mxrun/plan.h"

namespace mx::launch {

/// What an agent must be told so that it finds the job. Everything else follows over the channel.
struct AgentCommand {
  std::string program;     ///< path of mxrun on the nodes
  std::string rendezvous;  ///< "host:port" that the nodes can reach
  std::string job;
  std::string secret;       ///< bytes; sent through the standard input of the carrier, never as an argument
  std::string secret_file;  ///< a file with the secret that exists on every node; empty: standard input
  comm::TlsSettings tls;
  int64_t heartbeat_ms = 500, dead_after_ms = 5000;  ///< of the job: the agent is as patient as mxrun

  /// Returns the command line of the agent of a node. For node -1 the agent finds its number itself, in the
  /// variables of srun (SLURM_NODEID), mpirun (OMPI_COMM_WORLD_RANK) or an Indexed Job
  /// (JOB_COMPLETION_INDEX). With `secret_from_input` the agent reads the secret, as a line of hexadecimal
  /// digits, from its standard input.
  std::vector<std::string> line(int node, bool secret_from_input) const;
};

/// A child process of mxrun that carries the agents of some nodes.
struct Carrier {
  pid_t pid = -1;
  std::string name;        ///< for messages: "ssh n1", "srun"
  std::vector<int> nodes;  ///< positions in the list of nodes
};

/// The agents of a job while they run.
class Session {
 public:
  /// Kills what is left of the carriers.
  virtual ~Session() = default;

  /// The children of mxrun. mxrun waits for them itself. A carrier that ends before the agents of its nodes
  /// have reported their end means that these nodes are lost.
  virtual const std::vector<Carrier>& carriers() const = 0;
  /// Takes the channel to the agent of a node; null if the agent talks through the rendezvous.
  virtual std::unique_ptr<Channel> take_channel(int node) = 0;
  /// Returns whether something that carriers have written may still have to be printed. Meaningful when all
  /// carriers have ended.
  virtual bool has_output() const { return false; }
  /// Returns whether the reader of this process's standard output, or of its standard error, is gone, and the
  /// agents do not notice it, because their carriers still read.
  virtual bool reader_gone([[maybe_unused]] bool of_error) const { return false; }
  /// A descriptor that is readable when reader_gone() may have changed since its last call; -1: none.
  virtual int reader_gone_fd() const { return -1; }
};

class Launcher {
 public:
  virtual ~Launcher() = default;

  /// "local", "ssh", ...
  virtual std::string name() const = 0;
  /// True if nodes are other machines, so that the rendezvous must be reachable from them.
  virtual bool remote() const = 0;
  /// Starts the agents and returns without waiting for them. Throws CommunicationError if a carrier cannot
  /// be started, naming the program that is missing. Ranks are not started before the plan is sent.
  virtual std::unique_ptr<Session> start(const std::vector<NodePlan>& nodes, const AgentCommand& command) = 0;
};

/// The launcher of this machine; for one node only.
std::unique_ptr<Launcher> local_launcher();

}  // namespace mx::launch
