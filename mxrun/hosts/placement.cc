#include "mxrun/hosts/placement.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/text.h"

namespace mx::launch {

std::vector<HostPlan> place_on_hosts(const std::vector<Host>& hosts, int workers, int servers) {
  MX_CHECK(workers >= 1 && servers >= 0, InvalidArgument,
           "[mxrun] expected at least 1 process and 0 servers, ", "got ", workers, " and ", servers);
  const int64_t needed = int64_t{workers} + servers;
  int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  MX_CHECK(slots >= needed, InvalidArgument, "[mxrun] ", workers, " processes and ", servers,
           " servers need ", needed, " slots, but the ", hosts.size(), " hosts have ", slots, " (",
           to_string(hosts), "): ", needed - slots, " are missing");

  std::vector<HostPlan> plans;
  std::vector<int> left;
  for (const Host& host : hosts) {
    plans.push_back({host.name, {}, {}});
    left.push_back(host.slots);
  }
  size_t at = 0;
  for (int server = 0; server < servers; ++server) {
    while (left[at % left.size()] == 0) ++at;
    plans[at % left.size()].servers.push_back(server);
    --left[at % left.size()];
    ++at;
  }
  int rank = 0;
  for (size_t i = 0; i < plans.size(); ++i)
    for (; left[i] > 0 && rank < workers; --left[i]) plans[i].ranks.push_back(rank++);
  std::erase_if(plans, [](const HostPlan& plan) { return plan.ranks.empty() && plan.servers.empty(); });
  return plans;
}

int parse_node_count(std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<int> least = text::parse_number(text.substr(0, colon));
  const std::optional<int> most =
      colon == std::string_view::npos ? least : text::parse_number(text.substr(colon + 1));
  MX_CHECK(least && most && *least >= 1 && *most >= *least && *most <= kMostHosts, InvalidArgument,
           "[mxrun] --nnodes: expected a number from 1 to ", kMostHosts, ", got ", text::quoted(text));
  MX_CHECK(*least == *most, InvalidArgument, "[mxrun] --nnodes: expected a fixed number of nodes, got ",
           text::quoted(text), "; a job cannot grow or shrink yet");
  return *least;
}

ProcessesPerNode parse_processes_per_node(std::string_view text) {
  using Kind = ProcessesPerNode::Kind;
  if (text == "auto") return {Kind::automatic, 0};
  if (text == "gpu") return {Kind::gpus, 0};
  if (text == "cpu") return {Kind::cpus, 0};
  const std::optional<int> number = text::parse_number(text);
  MX_CHECK(number && *number >= 1 && *number <= kMostSlots, InvalidArgument,
           "[mxrun] --nproc-per-node: expected a number from 1 to ", kMostSlots,
           ", 'auto', 'gpu' or 'cpu', got ", text::quoted(text));
  return {Kind::number, *number};
}

int processes_on_node(const ProcessesPerNode& asked, int cpus, int gpus) {
  using Kind = ProcessesPerNode::Kind;
  switch (asked.kind) {
    case Kind::number:
      return asked.number;
    case Kind::cpus:
      return std::max(1, cpus);
    case Kind::gpus:
      MX_CHECK(gpus > 0, InvalidArgument, "[mxrun] --nproc-per-node gpu: this node has no GPU");
      return gpus;
    case Kind::automatic:
      return gpus > 0 ? gpus : std::max(1, cpus);
  }
  return 1;
}

}  // namespace mx::launch
