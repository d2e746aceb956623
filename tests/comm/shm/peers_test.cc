// Peers::ended(): when a rank counts the process of another rank as ended.
#include "comm/shm/peers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "comm/shm/region.h"
#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/forking.h"

namespace mx::comm::shm {
namespace {

// Two ranks that are threads, of which rank 1 then announces the process that a test chooses.
class ShmPeers : public ::testing::Test {
 protected:
  ShmPeers()
      : memory_(Region::create(2)),
        region_(memory_.get(), 2),
        first_(region_, 0),
        second_(std::make_unique<Peers>(region_, 1)) {
    std::thread other([this] { second_->join("b", Deadline::after_ms(60'000)); });
    first_.join("a", Deadline::after_ms(60'000));
    other.join();
  }

  // Returns the id of a process that has ended.
  static int64_t ended_process() {
    const pid_t child = test::fork_at_rest();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    return child;
  }

  // Returns whether rank 0, which waits for a call of rank 1, takes it for lost.
  bool takes_for_lost() {
    try {
      first_.wait(1, Counter::entry, 1, {"allreduce", nullptr, Deadline::after_ms(200), 0});
      ADD_FAILURE() << "rank 1 makes no call";
    } catch (const PeerLost&) {
      return true;
    } catch (const Timeout&) {
    }
    return false;
  }

  const Fd memory_;
  Region region_;
  Peers first_;
  std::unique_ptr<Peers> second_;
};

TEST_F(ShmPeers, AProcessThatHasEndedIsLost) {
  region_.control(1).process = ended_process();
  EXPECT_TRUE(takes_for_lost());
}

TEST_F(ShmPeers, AProcessThatHasTheNumberOfAnEndedOneIsNotTakenForIt) {
  region_.control(1).process = 1;
  EXPECT_TRUE(takes_for_lost()) << "process 1 has another start time";
}

TEST_F(ShmPeers, ARankWithAnUnknownStartTimeIsNotLost) {
  region_.control(1).process = 1;
  region_.control(1).started = 0;
  EXPECT_FALSE(takes_for_lost());
}

TEST_F(ShmPeers, ARankInAnotherPidNamespaceIsNotLost) {
  region_.control(1).process = ended_process();
  ++region_.control(1).pid_namespace;
  EXPECT_FALSE(takes_for_lost());
}

// It may have learned of the loss of a third one, of which this rank knows nothing yet.
TEST_F(ShmPeers, ARankThatWasAbortedAndLeftIsNamedWithItsReason) {
  second_->interrupt(std::make_exception_ptr(PeerLost("got a lost process: rank 7 on host c")));
  second_.reset();
  const std::string text = test::error_of<PeerLost>([&] {
    first_.wait(1, Counter::entry, 1, {"allreduce", nullptr, Deadline::after_ms(60'000), 0});
  });
  EXPECT_NE(text.find("rank 1 on host b"), std::string::npos) << text;
  EXPECT_NE(text.find("left the group because of: got a lost process: rank 7 on host c"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace mx::comm::shm
