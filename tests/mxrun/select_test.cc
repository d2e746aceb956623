// The choice of launcher, hosts and listening address, from options and environment.
#include "mxrun/launchers/select.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>

#include "engine/base/error.h"
#include "mxrun/launchers/agent_side.h"

namespace mx::launch {
namespace {

using Variables = std::map<std::string, std::string>;

Lookup lookup_in(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Options with_hosts(const std::string& hosts) {
  Options options;
  options.hosts = hosts;
  return options;
}

template <class F>
std::string selection_refusal(F&& call) {
  try {
    call();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "accepted";
}

const Variables kAllocation{{"SLURM_JOB_ID", "7"},
                            {"SLURM_JOB_NODELIST", "n[0-2]"},
                            {"SLURM_JOB_NUM_NODES", "3"},
                            {"SLURM_JOB_CPUS_PER_NODE", "4(x2),2"},
                            {"SLURM_TASKS_PER_NODE", "1(x3)"}};

TEST(SelectLauncher, AutoMeansSshForHostsSlurmInAnAllocationAndElseLocal) {
  EXPECT_EQ(select_launcher({}, lookup_in({})).launcher, "local");
  EXPECT_EQ(select_launcher(with_hosts("a,b"), lookup_in({})).launcher, "ssh");
  EXPECT_EQ(select_launcher(with_hosts("a,b"), lookup_in(kAllocation)).launcher, "ssh");
  EXPECT_EQ(select_launcher(with_hosts("localhost:4"), lookup_in({})).launcher, "local");
  EXPECT_EQ(select_launcher({}, lookup_in(kAllocation)).launcher, "slurm");
  Variables one_node = kAllocation;
  one_node["SLURM_JOB_NUM_NODES"] = "1";
  one_node["SLURM_JOB_NODELIST"] = "n0";
  one_node["SLURMD_NODENAME"] = "n0";
  EXPECT_EQ(select_launcher({}, lookup_in(one_node)).launcher, "local");
}

TEST(SelectLauncher, AnAllocationHasTasksOrProcessorsAsSlots) {
  EXPECT_EQ(to_string(select_launcher({}, lookup_in(kAllocation)).hosts), "n0:4,n1:4,n2:2");
  Variables tasks = kAllocation;
  tasks["SLURM_NTASKS"] = "6";
  tasks["SLURM_TASKS_PER_NODE"] = "2(x3)";
  EXPECT_EQ(to_string(select_launcher({}, lookup_in(tasks)).hosts), "n0:2,n1:2,n2:2");
  tasks["SLURM_TASKS_PER_NODE"] = "2(x2)";
  EXPECT_NE(selection_refusal([&] { select_launcher({}, lookup_in(tasks)); }).find("SLURM_TASKS_PER_NODE"),
            std::string::npos);
}

TEST(SelectLauncher, TasksPerNodeAreSlotsHoweverTheyWereAskedFor) {
  Variables tasks = kAllocation;
  tasks["SLURM_TASKS_PER_NODE"] = "3(x2),1";  // as from a request that exports nothing else
  EXPECT_EQ(to_string(select_launcher({}, lookup_in(tasks)).hosts), "n0:3,n1:3,n2:1");
  tasks["SLURM_TASKS_PER_NODE"] = "1(x3)";
  tasks["SLURM_NTASKS_PER_NODE"] = "1";
  EXPECT_EQ(to_string(select_launcher({}, lookup_in(tasks)).hosts), "n0:1,n1:1,n2:1");
}

TEST(SelectLauncher, TheTasksOfTheOnlyNodeAreTheSlotsOfThisMachine) {
  Variables one_node{
      {"SLURM_JOB_ID", "7"},     {"SLURM_JOB_NODELIST", "n0"},     {"SLURM_JOB_NUM_NODES", "1"},
      {"SLURMD_NODENAME", "n0"}, {"SLURM_JOB_CPUS_PER_NODE", "8"}, {"SLURM_TASKS_PER_NODE", "4"}};
  EXPECT_EQ(select_launcher({}, lookup_in(one_node)).launcher, "local");
  EXPECT_EQ(to_string(select_launcher({}, lookup_in(one_node)).hosts), "localhost:4");
  Options two;
  two.workers = 2;
  EXPECT_TRUE(select_launcher(two, lookup_in(one_node)).hosts.empty());
  one_node["SLURM_TASKS_PER_NODE"] = "1";
  EXPECT_TRUE(select_launcher({}, lookup_in(one_node)).hosts.empty());
}

TEST(SelectLauncher, NodesAndProcessesPerNode) {
  Options options;
  options.nodes = 2;
  options.per_node = "3";
  EXPECT_EQ(to_string(select_launcher(options, lookup_in(kAllocation)).hosts), "n0:3,n1:3");
}

TEST(SelectLauncher, HostsForSlurmHaveTheOrderOfTheAllocation) {
  Options options = with_hosts("n2:1,n0:3");
  options.launcher = "slurm";
  EXPECT_EQ(to_string(select_launcher(options, lookup_in(kAllocation)).hosts), "n0:3,n2:1");
  options.hosts = "n0,n3";
  EXPECT_NE(selection_refusal([&] {
              select_launcher(options, lookup_in(kAllocation));
            }).find("--launcher slurm: expected hosts of the allocation, 'n[0-2]', got 'n3'"),
            std::string::npos);
  options.hosts = "n2,n3,n0";
  options.nodes = 1;  // the first host that the user has named
  EXPECT_EQ(to_string(select_launcher(options, lookup_in(kAllocation)).hosts), "n2:1");
  // Without an allocation nobody knows the order of the nodes.
  options.nodes = 0;
  EXPECT_NE(selection_refusal([&] {
              select_launcher(options, lookup_in({}));
            }).find("expected an allocation, got none"),
            std::string::npos);
  // Other launchers know the nodes by their names.
  options.launcher = "ssh";
  EXPECT_EQ(to_string(select_launcher(options, lookup_in(kAllocation)).hosts), "n2:1,n3:1,n0:1");
}

TEST(SelectLauncher, CommandsComeFromTheEnvironment) {
  EXPECT_EQ(select_launcher(with_hosts("a,b"), lookup_in({{"MX_SSH", "ssh -p 1"}})).program, "ssh -p 1");
  EXPECT_EQ(select_launcher({}, lookup_in(kAllocation)).program, "srun");
  EXPECT_EQ(program_on_nodes(lookup_in({{"MX_MXRUN", "/opt/mxrun"}})), "/opt/mxrun");
  EXPECT_EQ(program_on_nodes(lookup_in({})).front(), '/');
}

TEST(SelectLauncher, OneOfSeveralTasksIsRefused) {
  EXPECT_NE(selection_refusal([] {
              select_launcher({}, lookup_in({{"OMPI_COMM_WORLD_SIZE", "2"}}));
            }),
            "accepted");
  Variables step = kAllocation;
  step["SLURM_STEP_ID"] = "0";
  step["SLURM_PROCID"] = "1";
  step["SLURM_STEP_NUM_TASKS"] = "2";
  EXPECT_NE(selection_refusal([&] { select_launcher({}, lookup_in(step)); }), "accepted");
}

TEST(ListenAddress, LoopbackForThisMachineAndAnotherOneForOthers) {
  Selection local{"local", {}, ""}, here{"ssh", {{"127.0.0.1", 1}, {"localhost", 1}}, "ssh"},
      away{"ssh", {{"127.0.0.1", 1}, {"n1", 1}}, "ssh"};
  Options options;
  EXPECT_EQ(listen_address(options, local).address, "127.0.0.1");
  EXPECT_EQ(listen_address(options, here).address, "127.0.0.1");
  EXPECT_NE(selection_refusal([&] { listen_address(options, away); }).find("--rdzv"), std::string::npos);
  options.rendezvous = "127.0.0.1:1234";
  EXPECT_EQ(listen_address(options, here).port, 1234);
  EXPECT_NE(selection_refusal([&] { listen_address(options, away); }).find("other machines"),
            std::string::npos);
  options.rendezvous = "lo:0";
  EXPECT_EQ(listen_address(options, here).address, "127.0.0.1");
  options.rendezvous = "localhost:0";
  EXPECT_NE(selection_refusal([&] { listen_address(options, away); }).find("other machines"),
            std::string::npos);
  for (const char* bad : {"0.0.0.0:1", "[::]:1", "*:1", "127.0.0.1", "127.0.0.1:x", "no-such-interface:1"}) {
    options.rendezvous = bad;
    EXPECT_NE(selection_refusal([&] { listen_address(options, here); }), "accepted") << bad;
  }
}

TEST(AgentSide, FindsItsNode) {
  Options options;
  EXPECT_EQ(agent_node(options, lookup_in({{"SLURM_NODEID", "3"}, {"PMIX_RANK", "9"}})), 3);
  EXPECT_EQ(agent_node(options, lookup_in({{"OMPI_COMM_WORLD_RANK", "2"}})), 2);
  EXPECT_EQ(agent_node(options, lookup_in({{"JOB_COMPLETION_INDEX", "1"}})), 1);
  EXPECT_NE(selection_refusal([&] { agent_node(options, lookup_in({})); }), "accepted");
  EXPECT_NE(selection_refusal([&] { agent_node(options, lookup_in({{"SLURM_NODEID", "x"}})); }), "accepted");
  options.agent_node = 5;
  EXPECT_EQ(agent_node(options, lookup_in({})), 5);
}

TEST(AgentSide, ReadsOneLineOfHexadecimalDigits) {
  const auto read_from = [](const std::string& text) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(ends[1]);
    std::string secret;
    const std::string refusal = selection_refusal([&] { secret = read_hexadecimal_secret(ends[0]); });
    close(ends[0]);
    return refusal == "accepted" ? secret : "refused";
  };
  EXPECT_EQ(read_from("00ff41\nrest"), std::string("\0\xff"
                                                   "A",
                                                   3));
  EXPECT_EQ(read_from("6162"), "ab");
  for (const char* bad : {"", "\n", "123\n", "xy\n", "6162 \n"}) EXPECT_EQ(read_from(bad), "refused") << bad;
  EXPECT_EQ(read_from(std::string(4000, 'a')), "refused");
}

}  // namespace
}  // namespace mx::launch
