// The command lines of ssh, srun and mpirun.
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/text.h"
#include "mxrun/launchers/carriers.h"

namespace mx::launch {
namespace {

std::vector<std::string> carrier_words(const std::string& program) {
  std::vector<std::string> found;
  for (std::string_view word : text::words(program)) found.emplace_back(word);
  MX_CHECK(!found.empty(), InvalidArgument, "[mxrun] expected the command of a launcher, got nothing");
  return found;
}

void append_words(std::vector<std::string>& to, const std::vector<std::string>& words) {
  to.insert(to.end(), words.begin(), words.end());
}

std::string joined_hosts(const std::vector<NodePlan>& nodes, const char* after) {
  std::string list;
  for (const NodePlan& node : nodes) list += (list.empty() ? "" : ",") + node.host + after;
  return list;
}

std::vector<int> all_positions(const std::vector<NodePlan>& nodes) {
  std::vector<int> positions;
  for (size_t i = 0; i < nodes.size(); ++i) positions.push_back(static_cast<int>(i));
  return positions;
}

}  // namespace

std::string shell_quoted(std::string_view word) {
  constexpr std::string_view kHarmless =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
  if (!word.empty() && word.find_first_not_of(kHarmless) == std::string_view::npos) return std::string(word);
  std::string out = "'";
  for (char c : word) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += shell_quoted(word);
  }
  return line;
}

std::vector<CarrierCommand> ssh_commands(const std::string& program, const std::vector<NodePlan>& nodes,
                                         const NodeLine& line) {
  std::vector<CarrierCommand> commands;
  for (size_t i = 0; i < nodes.size(); ++i) {
    CarrierCommand command;
    command.name = "ssh " + nodes[i].host;
    command.argv = carrier_words(program);
    // No questions, no terminal, no forwarding. A machine that is gone is noticed after 15 s.
    append_words(command.argv, {"-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o",
                                "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"});
    command.argv.push_back(nodes[i].host);
    command.argv.push_back("exec " + shell_line(line(static_cast<int>(i))));
    command.nodes = {static_cast<int>(i)};
    commands.push_back(std::move(command));
  }
  return commands;
}

std::vector<CarrierCommand> slurm_commands(const std::string& program, const std::vector<NodePlan>& nodes,
                                           const NodeLine& line) {
  CarrierCommand command{"srun", carrier_words(program), all_positions(nodes)};
  const std::string count = std::to_string(nodes.size());
  // The agent binds its ranks itself, so it must see every processor of the node. One failing agent must not
  // end the others before they have reported.
  append_words(command.argv, {"--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1",
                              "--nodelist=" + joined_hosts(nodes, ""), "--cpu-bind=none", "--mpi=none",
                              "--kill-on-bad-exit=0", "--quiet"});
  // By default Slurm passes on whole lines, up to 1024 bytes. Unbuffered, it cuts the output of each node to
  // pieces of that size anywhere, and the lines of several nodes mix.
  if (nodes.size() == 1) command.argv.push_back("--unbuffered");
  append_words(command.argv, line(-1));
  return {command};
}

std::vector<CarrierCommand> mpi_commands(const std::string& program, const std::vector<NodePlan>& nodes,
                                         const NodeLine& line) {
  std::vector<CarrierCommand> commands;
  for (size_t i = 0; i < nodes.size(); ++i) {
    CarrierCommand command{"mpirun " + nodes[i].host, carrier_words(program), {static_cast<int>(i)}};
    append_words(command.argv, {"-n", "1", "--host", nodes[i].host, "--bind-to", "none"});
    append_words(command.argv, line(static_cast<int>(i)));
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace mx::launch
