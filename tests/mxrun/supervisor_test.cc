// The supervisor with launchers that misbehave, which the real ones do only rarely.
#include "mxrun/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "mxrun/channel.h"
#include "mxrun/exit_codes.h"
#include "mxrun/launcher.h"
#include "mxrun/planning.h"

namespace mx::launch {
namespace {

/// A launcher whose agent is a function that runs in a child process and gets the socket.
class FakeLauncher : public Launcher {
 public:
  explicit FakeLauncher(std::function<void(int fd)> agent, bool remote = false)
      : agent_(std::move(agent)), remote_(remote) {}

  std::string name() const override { return "fake"; }
  bool remote() const override { return remote_; }

  std::unique_ptr<Session> start(const std::vector<NodePlan>&, const AgentCommand&) override {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw CommunicationError("no socket");
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      agent_(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    return std::make_unique<FakeSession>(pid, ends[0]);
  }

 private:
  class FakeSession : public Session {
   public:
    FakeSession(pid_t pid, int fd) : carriers_{{pid, "the fake", {0}}}, channel_(socket_channel(fd)) {}
    const std::vector<Carrier>& carriers() const override { return carriers_; }
    std::unique_ptr<Channel> take_channel(int) override { return std::move(channel_); }

   private:
    std::vector<Carrier> carriers_;
    std::unique_ptr<Channel> channel_;
  };

  std::function<void(int)> agent_;
  const bool remote_;
};

struct Outcome {
  int code;
  std::string text;
};

/// Runs a job in a process of its own, because the supervisor waits for all children.
Outcome run_with(const std::function<void(int fd)>& agent, int64_t start_timeout_ms = 60000,
                 bool remote = false) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    Job job;
    job.options.program = {"true"};
    job.options.job = "supervisor_test";
    job.options.start_timeout_ms = start_timeout_ms;
    job.secret = "secret";
    job.nodes = plan_nodes(job.options, {{"localhost", 1}});
    FakeLauncher launcher(agent, remote);
    _exit(run_job(std::move(job), launcher));
  }
  close(ends[1]);
  Outcome outcome{-1, ""};
  char block[4096];
  for (ssize_t got = 0; (got = read(ends[0], block, sizeof(block))) > 0;) {
    outcome.text.append(block, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

void send_text(int fd, const std::string& message) {
  const auto size = static_cast<uint32_t>(message.size());
  ASSERT_EQ(write(fd, &size, sizeof(size)), static_cast<ssize_t>(sizeof(size)));
  ASSERT_EQ(write(fd, message.data(), message.size()), static_cast<ssize_t>(message.size()));
}

TEST(SupervisorTest, AgentThatDoesNotComeIsATimeout) {
  const Outcome outcome = run_with([](int) { pause(); }, 200);
  EXPECT_EQ(outcome.code, kExitTimeout);
  EXPECT_NE(outcome.text.find("expected the agents of all nodes within 200 ms, got none from: localhost"),
            std::string::npos)
      << outcome.text;
}

TEST(SupervisorTest, AgentThatEndsBeforeItsPlanIsNamed) {
  const Outcome outcome = run_with([](int) { _exit(41); });
  EXPECT_EQ(outcome.code, 69);  // 41 is no code of mxrun
  EXPECT_NE(outcome.text.find("first failure: node 0 (localhost): its agent ended (the fake: exit code 41)"),
            std::string::npos)
      << outcome.text;
}

TEST(SupervisorTest, AgentThatEndsInTheMiddleIsALostNode) {
  const Outcome outcome = run_with([](int fd) {
    send_text(fd, R"({"op":"hello","host":"n0","pid":1})");
    const std::unique_ptr<Channel> channel = socket_channel(fd);
    std::string message;
    while (!channel->receive(&message) && !channel->closed()) {
    }
    raise(SIGKILL);
  });
  EXPECT_EQ(outcome.code, 137);
  EXPECT_NE(outcome.text.find("first failure: node 0 (n0)"), std::string::npos) << outcome.text;
}

TEST(SupervisorTest, ThePlanForAnotherMachineDoesNotContainTheSecret) {
  const auto print_plan = [](int fd) {
    send_text(fd, R"({"op":"hello","host":"n0","pid":1})");
    const std::unique_ptr<Channel> channel = socket_channel(fd);
    for (std::string message; message.find("\"run\"") == std::string::npos && !channel->closed();) {
      if (!channel->receive(&message)) continue;
      if (write(STDERR_FILENO, message.data(), message.size()) < 0) return;
    }
  };
  const std::string digits = "736563726574";  // of "secret"
  const Outcome local = run_with(print_plan), remote = run_with(print_plan, 60000, true);
  EXPECT_NE(local.text.find(digits), std::string::npos) << local.text;
  EXPECT_NE(remote.text.find("argv"), std::string::npos) << remote.text;
  EXPECT_EQ(remote.text.find(digits), std::string::npos) << remote.text;
}

TEST(SupervisorTest, AnAgentThatIsAskedToEndBeforeTheStartEndsTheJobAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_with([](int fd) {
    send_text(fd, R"({"op":"asked_to_end","signal":15})");
    char byte = 0;
    while (read(fd, &byte, 1) > 0) {
    }
  });
  EXPECT_EQ(outcome.code, 143) << outcome.text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

TEST(SupervisorTest, AnAgentThatBreaksTheProtocolIsALostNodeAndIsNamed) {
  for (const std::string& nonsense :
       {std::string("nonsense"), std::string("[]"), std::string(R"({"op":"exec"})"),
        std::string(R"({"op":"exited","role":0,"rank":0,"code":true,"signal":0,"tail":[]})"),
        std::string(R"({"op":"hello","host":"\u001b[2J","pid":1})")}) {
    const Outcome outcome = run_with([&nonsense](int fd) {
      send_text(fd, nonsense);
      char byte = 0;
      while (read(fd, &byte, 1) > 0) {
      }
    });
    EXPECT_EQ(outcome.code, kExitRendezvous) << nonsense << "\n" << outcome.text;
    EXPECT_NE(outcome.text.find("first failure: node 0 (localhost): its agent broke the protocol: expected a "
                                "message of an agent, got '"),
              std::string::npos)
        << outcome.text;
    EXPECT_EQ(outcome.text.find('\x1b'), std::string::npos);
  }
}

TEST(SupervisorTest, LauncherThatCannotStartIsReported) {
  class Unable : public FakeLauncher {
   public:
    Unable() : FakeLauncher([](int) {}) {}
    std::unique_ptr<Session> start(const std::vector<NodePlan>&, const AgentCommand&) override {
      throw CommunicationError("ssh was not found");
    }
  };
  const pid_t pid = fork();
  if (pid == 0) {
    Job job;
    job.options.program = {"true"};
    job.options.job = "supervisor_test";
    job.secret = "secret";
    job.nodes = plan_nodes(job.options, {{"localhost", 1}});
    Unable launcher;
    _exit(run_job(std::move(job), launcher));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), kExitRendezvous);
}

}  // namespace
}  // namespace mx::launch
