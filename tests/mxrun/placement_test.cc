// Placement: every rank and server once, no host beyond its slots, neighbours together, servers apart.
#include "mxrun/hosts/placement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/error.h"

namespace mx::launch {
namespace {

using Plans = std::vector<HostPlan>;
using Kind = ProcessesPerNode::Kind;

template <class F>
std::string placement_refusal(F&& call) {
  try {
    call();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Placement, RanksFillHostsInOrder) {
  EXPECT_EQ(place_on_hosts({{"a", 2}, {"b", 2}}, 3, 0), (Plans{{"a", {0, 1}, {}}, {"b", {2}, {}}}));
  EXPECT_EQ(place_on_hosts({{"a", 2}, {"b", 2}}, 2, 0), (Plans{{"a", {0, 1}, {}}}));
}

TEST(Placement, ServersAreSpread) {
  EXPECT_EQ(place_on_hosts({{"a", 3}, {"b", 3}}, 4, 2), (Plans{{"a", {0, 1}, {0}}, {"b", {2, 3}, {1}}}));
  EXPECT_EQ(place_on_hosts({{"a", 1}, {"b", 4}}, 2, 3), (Plans{{"a", {}, {0}}, {"b", {0, 1}, {1, 2}}}));
}

TEST(Placement, EveryProcessOnceAndNoHostBeyondItsSlots) {
  const std::vector<Host> hosts{{"a", 3}, {"b", 1}, {"c", 5}, {"d", 2}};
  for (int workers = 1; workers <= 11; ++workers)
    for (int servers = 0; workers + servers <= 11; ++servers) {
      int rank = 0;
      std::vector<bool> seen(static_cast<size_t>(servers));
      for (const HostPlan& plan : place_on_hosts(hosts, workers, servers)) {
        int slots = 0;
        for (const Host& host : hosts)
          if (host.name == plan.host) slots = host.slots;
        EXPECT_LE(plan.ranks.size() + plan.servers.size(), static_cast<size_t>(slots));
        EXPECT_GT(plan.ranks.size() + plan.servers.size(), 0u);
        for (int r : plan.ranks) EXPECT_EQ(r, rank++);
        for (int s : plan.servers) seen[static_cast<size_t>(s)] = true;
      }
      EXPECT_EQ(rank, workers);
      EXPECT_EQ(seen, std::vector<bool>(static_cast<size_t>(servers), true));
    }
}

TEST(Placement, SaysHowManySlotsAreMissing) {
  const std::string message = placement_refusal([] { place_on_hosts({{"a", 2}, {"b", 1}}, 4, 1); });
  EXPECT_EQ(
      message,
      "[mxrun] 4 processes and 1 servers need 5 slots, but the 2 hosts have 3 (a:2,b:1): 2 are missing");
  EXPECT_NE(placement_refusal([] { place_on_hosts({}, 1, 0); }), "accepted");
  EXPECT_NE(placement_refusal([] { place_on_hosts({{"a", 2}}, 0, 0); }), "accepted");
}

TEST(Placement, NodeCounts) {
  EXPECT_EQ(parse_node_count("3"), 3);
  EXPECT_EQ(parse_node_count("3:3"), 3);
  EXPECT_NE(placement_refusal([] { parse_node_count("1:4"); }).find("fixed number"), std::string::npos);
  for (const char* bad : {"", "0", "x", "2:1", ":", "1:", ":1", "1:1:1", "-1", "10001"})
    EXPECT_NE(placement_refusal([&] { parse_node_count(bad); }).find("--nnodes"), std::string::npos) << bad;
}

TEST(Placement, ProcessesPerNode) {
  EXPECT_EQ(parse_processes_per_node("4"), (ProcessesPerNode{Kind::number, 4}));
  EXPECT_EQ(parse_processes_per_node("auto").kind, Kind::automatic);
  for (const char* bad : {"", "0", "x", "gpus", "4097", "-1"})
    EXPECT_NE(placement_refusal([&] { parse_processes_per_node(bad); }), "accepted") << bad;
  EXPECT_EQ(processes_on_node({Kind::number, 3}, 8, 2), 3);
  EXPECT_EQ(processes_on_node({Kind::automatic}, 8, 2), 2);
  EXPECT_EQ(processes_on_node({Kind::automatic}, 8, 0), 8);
  EXPECT_EQ(processes_on_node({Kind::cpus}, 8, 2), 8);
  EXPECT_EQ(processes_on_node({Kind::gpus}, 8, 2), 2);
  EXPECT_NE(placement_refusal([] { processes_on_node({Kind::gpus}, 8, 0); }), "accepted");
}

}  // namespace
}  // namespace mx::launch
