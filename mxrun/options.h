// The command line of mxrun.
//
// Thread-safety: values without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mx::launch {

enum class Restart { none, group };

struct Options {
  std::vector<std::string> program;  ///< the program and its arguments

  int workers = 0;                ///< -n; 0: as many as the nodes have slots, or 1
  int servers = 0;                ///< -s
  int nodes = 0;                  ///< --nnodes; 0: not given
  std::string per_node;           ///< --nproc-per-node: a number, "auto", "gpu" or "cpu"; empty: not given
  bool workers_in_file = false;   ///< -n stands in the file of --config, not in the command line
  bool per_node_in_file = false;  ///< the same of --nproc-per-node
  std::string hosts;              ///< -H host:slots,...
  std::string hostfile;
  std::string launcher = "auto";
  std::vector<std::string> kubernetes;  ///< --k8s KEY=VALUE,... for manifests

  std::string rendezvous;  ///< --rdzv host:port at which mxrun listens; empty: loopback, any free port
  std::string job;         ///< --job-id; empty: made up
  bool job_made_up = false;
  std::string secret_file;
  bool tls = false;  ///< --tls, or implied by the files
  std::string tls_certificate, tls_key, tls_authority;
  int64_t timeout_ms = 60000;
  int64_t start_timeout_ms = 0;  ///< 0: timeout_ms
  int64_t heartbeat_ms = 500;
  int64_t dead_after_ms = 5000;
  int64_t grace_ms = 10000;

  bool bind = true;
  bool tune = false;
  Restart restart = Restart::none;
  int max_restarts = 0;

  std::string log_dir;
  bool tee = false;
  int tag_output = -1;  ///< 1, 0, or -1: when there is more than one process
  bool timestamp_output = false;
  std::string ranks;   ///< --ranks 0,2-3
  std::string events;  ///< file of events, a line of JSON each
  std::vector<std::pair<std::string, std::string>>
      environment;  ///< -x NAME=V; NAME alone takes the value here

  bool dry_run = false;
  bool check = false;
  std::string completion;  ///< bash, zsh or fish
  bool man = false;        ///< hidden: print the man page

  bool tune_rank = false;  ///< hidden: this process is a rank of --tune
  bool agent = false;      ///< hidden: this process is the agent of a node
  int agent_node = -1;
  int agent_fd = -1;  ///< socket to the launcher; -1: through the rendezvous
  bool secret_stdin = false;
};

/// Result of reading the command line: options, or the exit code with which to end at once (0 after --help).
struct Parsed {
  Options options;
  int exit_code = -1;  ///< -1: go on
  std::string text;    ///< what to print: to stdout if exit_code is 0, else to stderr
};
Parsed parse_options(int argc, const char* const* argv);

/// One line of the table of options, without the hidden ones.
struct OptionHelp {
  std::vector<std::string> names;  ///< "-n", "--np"
  std::string kind;                ///< "N", "FILE", "core|none"; empty for a flag
  std::string help, group;
  bool repeatable = false;
};
std::vector<OptionHelp> option_table();

/// Parses "0,2-3"; an empty text is an empty list. Throws InvalidArgument naming the part that is wrong.
std::vector<int> parse_rank_list(const std::string& text);

}  // namespace mx::launch
