// The commands of the launchers, quoting, carriers as processes, and the channel over a rendezvous.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "mxrun/launchers/carriers.h"
#include "mxrun/launchers/rendezvous_channel.h"

namespace mx::launch {
namespace {

using Words = std::vector<std::string>;

std::vector<NodePlan> two_nodes() {
  std::vector<NodePlan> nodes(2);
  nodes[0].host = "n0";
  nodes[1].host = "n1";
  return nodes;
}

Words sample_line(int node) { return {"/opt/my apps/mxrun", "--agent-node", std::to_string(node)}; }

bool has_word(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(ShellQuoting, AShellReadsBackWhatWasQuoted) {
  Words words{"plain", "",          "two words", "it's", "$HOME", "`id`", "a;b", "*", "\\",
              "\"",    "new\nline", "-n",        "~",    "!x",    "a=b",  "#",   "'", "\xc3\xbc"};
  std::string bytes;
  for (int c = 1; c < 256; ++c) bytes += static_cast<char>(c);
  words.push_back(bytes);
  const std::string path = testing::TempDir() + "/mxrun_quoting_test";
  const std::string command = "for a in " + shell_line(words) + "; do printf '%s\\0' \"$a\"; done > " + path;
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::string expected;
  for (const std::string& word : words) expected += word + '\0';
  EXPECT_EQ(text, expected);
  std::remove(path.c_str());
}

TEST(LauncherCommands, SshGetsOneQuotedCommandPerHost) {
  const auto commands = ssh_commands("ssh -p 2222", two_nodes(), sample_line);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[1].name, "ssh n1");
  EXPECT_EQ(commands[1].nodes, std::vector<int>{1});
  EXPECT_EQ(commands[1].argv[0], "ssh");
  EXPECT_EQ(commands[1].argv[2], "2222");
  EXPECT_TRUE(has_word(commands[1].argv, "BatchMode=yes"));
  EXPECT_EQ(commands[1].argv[commands[1].argv.size() - 2], "n1");
  EXPECT_EQ(commands[1].argv.back(), "exec '/opt/my apps/mxrun' --agent-node 1");
}

TEST(LauncherCommands, SrunGetsOneTaskPerNode) {
  const auto commands = slurm_commands("srun", two_nodes(), sample_line);
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_EQ(commands[0].nodes, (std::vector<int>{0, 1}));
  for (const char* word : {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n0,n1", "-1"})
    EXPECT_TRUE(has_word(commands[0].argv, word)) << word;
  // Unbuffered, Slurm cuts lines, so that those of several nodes would mix.
  EXPECT_FALSE(has_word(commands[0].argv, "--unbuffered"));
  EXPECT_TRUE(has_word(slurm_commands("srun", {two_nodes()[0]}, sample_line)[0].argv, "--unbuffered"));
}

TEST(LauncherCommands, EachNodeGetsAnMpirun) {
  const auto commands = mpi_commands("mpirun --oversubscribe", two_nodes(), sample_line);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[1].nodes, std::vector<int>{1});
  EXPECT_EQ(commands[1].argv, (Words{"mpirun", "--oversubscribe", "-n", "1", "--host", "n1", "--bind-to",
                                     "none", "/opt/my apps/mxrun", "--agent-node", "1"}));
  EXPECT_THROW(mpi_commands(" ", two_nodes(), sample_line), InvalidArgument);
}

TEST(Carriers, GetTheInputAndEndWithTheSession) {
  const std::string path = testing::TempDir() + "/mxrun_carrier_test";
  {
    auto session =
        start_carriers({{"reader", {"sh", "-c", "read a; echo \"got $a\" > " + path}, {0}}}, "word\n");
    ASSERT_EQ(session->carriers().size(), 1u);
    EXPECT_EQ(session->take_channel(0), nullptr);
    int status = -1;
    ASSERT_EQ(waitpid(session->carriers()[0].pid, &status, 0), session->carriers()[0].pid);
    EXPECT_EQ(status, 0);
  }
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "got word");
  std::remove(path.c_str());

  pid_t pid = -1;
  {
    auto session = start_carriers({{"sleeper", {"sleep", "1000"}, {0}}}, "");
    pid = session->carriers()[0].pid;
    EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0);
  }
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1);
}

TEST(Carriers, AMissingProgramIsNamed) {
  try {
    start_carriers({{"sleeper", {"sleep", "1000"}, {0}}, {"ssh n1", {"/no/such/ssh"}, {1}}}, "");
    FAIL();
  } catch (const CommunicationError& e) {
    EXPECT_EQ(std::string(e.what()),
              "[mxrun] ssh n1: /no/such/ssh cannot be started: No such file or directory");
  }
}

/// Runs carriers until they have ended and everything is printed.
void run_printing(const std::vector<CarrierCommand>& commands) {
  const auto session = start_carriers(commands, "");
  for (const Carrier& carrier : session->carriers()) waitpid(carrier.pid, nullptr, 0);
  while (session->has_output()) poll(nullptr, 0, 5);
}

TEST(Carriers, LinesOfSeveralArePrintedWhole) {
  // Pieces that end anywhere, as those of ssh do.
  const std::string print =
      "yes carrier_$0_abcdefghijklmnopqrstuvwxyz | head -n 3000 | dd bs=777 status=none";
  std::vector<CarrierCommand> commands;
  for (int i = 0; i < 3; ++i)
    commands.push_back({"carrier", {"sh", "-c", print + "; printf 'the end'", std::to_string(i)}, {i}});
  testing::internal::CaptureStdout();
  run_printing(commands);
  std::istringstream printed(testing::internal::GetCapturedStdout());
  std::map<std::string, int> lines;
  for (std::string line; std::getline(printed, line);) ++lines[line];
  EXPECT_EQ(lines, (std::map<std::string, int>{{"carrier_0_abcdefghijklmnopqrstuvwxyz", 3000},
                                               {"carrier_1_abcdefghijklmnopqrstuvwxyz", 3000},
                                               {"carrier_2_abcdefghijklmnopqrstuvwxyz", 3000},
                                               {"the end", 3}}));
}

TEST(Carriers, TheBytesOfASingleOneArePassedOn) {
  testing::internal::CaptureStdout();
  run_printing({{"carrier", {"printf", "a\\nno end"}, {0}}});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a\nno end");
}

TEST(Carriers, AProcessThatKeepsThePipeOpenDoesNotKeepTheOutput) {
  int held[2];  // the process outside ends with this pipe
  ASSERT_EQ(pipe(held), 0);
  fcntl(held[1], F_SETFD, FD_CLOEXEC);
  const std::string read = "(read x <&" + std::to_string(held[0]) + ") & echo up";
  testing::internal::CaptureStdout();
  run_printing({{"carrier", {"sh", "-c", read}, {0}}});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "up\n");
  close(held[0]);
  close(held[1]);
}

/// A table in memory, which calls watches at once.
class MemoryTable : public comm::Rendezvous {
 public:
  void put(const std::string& key, const std::string& value) override {
    if (broken) throw PeerLost("gone");
    if (value.size() > kLongestValue || key.size() > kLongestKey) throw InvalidArgument("too long");
    entries[key] = value;
    tell(key, value);
  }
  void tell(const std::string& key, const std::string& value) override {
    if (broken) throw PeerLost("gone");
    for (const auto& [id, watch] : watches)
      if (key.starts_with(watch.first)) watch.second(key, value);
  }
  std::string get(const std::string& key, comm::Deadline) override { return entries.at(key); }
  uint64_t watch(const std::string& prefix, Changed changed) override {
    // Backwards, as no order is promised.
    for (auto it = entries.rbegin(); it != entries.rend(); ++it)
      if (it->first.starts_with(prefix)) changed(it->first, it->second);
    watches[++last] = {prefix, changed};
    return last;
  }
  void unwatch(uint64_t id) override { watches.erase(id); }

  bool broken = false;
  uint64_t last = 0;
  std::map<std::string, std::string> entries;
  std::map<uint64_t, std::pair<std::string, Changed>> watches;
};

bool is_readable(int fd) {
  pollfd poll_fd{fd, POLLIN, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

TEST(RendezvousChannels, CarryMessagesOfAnySizeInOrderBothWays) {
  auto table = std::make_shared<MemoryTable>();
  const ChannelPrefixes prefixes = channel_prefixes(3);
  RendezvousChannel launcher(table, prefixes.to_agent, prefixes.from_agent);
  std::vector<std::string> sent;
  for (size_t bytes : {0, 1, 65534, 65535, 65536, 300000})
    sent.emplace_back(bytes, static_cast<char>('a' + bytes % 7));
  for (int i = 0; i < 20; ++i) sent.push_back(std::to_string(i));
  for (const std::string& message : sent) launcher.send(message);

  RendezvousChannel agent(table, prefixes.from_agent, prefixes.to_agent);
  EXPECT_TRUE(is_readable(agent.readable_fd()));
  std::string got;
  for (const std::string& message : sent) {
    ASSERT_TRUE(agent.receive(&got));
    EXPECT_EQ(got, message);
  }
  EXPECT_FALSE(agent.receive(&got));
  EXPECT_FALSE(is_readable(agent.readable_fd()));

  EXPECT_FALSE(launcher.receive(&got));
  agent.send("hello");
  EXPECT_TRUE(is_readable(launcher.readable_fd()));
  ASSERT_TRUE(launcher.receive(&got));
  EXPECT_EQ(got, "hello");
  EXPECT_FALSE(launcher.closed());
}

TEST(RendezvousChannels, KeepNothingInTheTableOnceBothSidesListen) {
  auto table = std::make_shared<MemoryTable>();
  const ChannelPrefixes prefixes = channel_prefixes(0);
  RendezvousChannel launcher(table, prefixes.to_agent, prefixes.from_agent);
  launcher.send("run");
  RendezvousChannel agent(table, prefixes.from_agent, prefixes.to_agent);
  std::string got;
  ASSERT_TRUE(agent.receive(&got));
  agent.send("hello");
  const size_t entries = table->entries.size();
  for (int i = 0; i < 1000; ++i) {
    launcher.send("ping " + std::to_string(i));
    ASSERT_TRUE(agent.receive(&got));
    EXPECT_EQ(got, "ping " + std::to_string(i));
    agent.send("pong");
  }
  EXPECT_EQ(table->entries.size(), entries);
  for (const char* expected : {"hello", "pong"}) {
    ASSERT_TRUE(launcher.receive(&got));
    EXPECT_EQ(got, expected);
  }
}

TEST(RendezvousChannels, CloseAfterTheLastMessage) {
  auto table = std::make_shared<MemoryTable>();
  RendezvousChannel a(table, "a/", "b/"), b(table, "b/", "a/");
  a.send("last");
  b.closer()();
  std::string got;
  EXPECT_FALSE(b.closed());
  EXPECT_TRUE(b.receive(&got));
  EXPECT_TRUE(b.closed());
  EXPECT_TRUE(is_readable(b.readable_fd()));  // so that a loop notices
  table->broken = true;
  a.send("nobody reads this");
  EXPECT_TRUE(a.closed());
}

}  // namespace
}  // namespace mx::launch
