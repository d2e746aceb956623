// Real processes that are killed, stopped and continued. The child is this test program, started again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "comm/rendezvous/client.h"
#include "comm/rendezvous/server.h"
#include "engine/base/error.h"

extern char** environ;

namespace mx::comm {
namespace {

constexpr const char* kAddressVariable = "MX_TEST_RENDEZVOUS_ADDRESS";
constexpr int kChildSawItsLoss = 7;

Deadline process_patience() { return Deadline::after_ms(60000); }
Identity process_identity(int32_t rank) { return {"processes", "a secret", 0, rank, ""}; }

std::unique_ptr<RendezvousClient> process_client(const std::string& address, int32_t rank) {
  RendezvousClientOptions options;
  options.address = address;
  options.self = process_identity(rank);
  options.host = "here";
  options.heartbeat_ms = 50;
  options.dead_after_ms = 60000;
  return std::make_unique<RendezvousClient>(options, process_patience());
}

// Not a test of its own: what the child does.
TEST(RendezvousChild, WaitsForAnEntryThatDoesNotCome) {
  const char* address = std::getenv(kAddressVariable);
  if (!address) return;  // it is only started by RendezvousProcess
  const auto client = process_client(address, 1);
  client->set_step(5);
  client->put("0/ready", "");
  try {
    client->get("0/never", Deadline::after_ms(120000));
  } catch (const PeerLost& e) {
    std::_Exit(
        std::string(e.what()).find("declared this process lost") != std::string::npos ? kChildSawItsLoss : 1);
  } catch (const Error&) {
  }
  std::_Exit(1);
}

class RendezvousProcess : public ::testing::Test {
 protected:
  static RendezvousServerOptions options(int64_t dead_after_ms) {
    RendezvousServerOptions out;
    out.self = process_identity(-1);
    out.dead_after_ms = dead_after_ms;
    return out;
  }
  void start(int64_t dead_after_ms) {
    server_ = std::make_unique<RendezvousServer>(options(dead_after_ms));
    agent_ = process_client(server_->address(), -1);
    setenv(kAddressVariable, server_->address().c_str(), 1);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=RendezvousChild.*";
    char* arguments[] = {program.data(), filter.data(), nullptr};
    ASSERT_EQ(posix_spawn(&child_, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    unsetenv(kAddressVariable);
    agent_->get("0/ready", process_patience());
  }
  ~RendezvousProcess() override {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    int status = 0;
    waitpid(child_, &status, 0);
  }
  LostProcess wait_for_loss() {
    return parse_lost("0/lost/worker1", agent_->get("0/lost/worker1", process_patience()));
  }

  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<RendezvousClient> agent_;
  pid_t child_ = -1;
};

TEST_F(RendezvousProcess, ThatIsKilledIsPublishedLongBeforeItsHeartbeatsAreMissed) {
  start(100000);
  ASSERT_EQ(kill(child_, SIGKILL), 0);
  const LostProcess lost = wait_for_loss();
  EXPECT_EQ(lost.rank, 1);
  EXPECT_EQ(lost.host, "here");
  EXPECT_NE(lost.reason.find("connection"), std::string::npos) << lost.reason;
}

TEST_F(RendezvousProcess, ThatIsStoppedIsPublishedAndToldSoWhenItContinues) {
  start(1000);
  ASSERT_EQ(kill(child_, SIGSTOP), 0);
  EXPECT_EQ(wait_for_loss().reason, "no heartbeat for 1000 ms");
  ASSERT_EQ(kill(child_, SIGCONT), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, 0), child_);
  child_ = -1;
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kChildSawItsLoss);
}

}  // namespace
}  // namespace mx::comm
