// Group: ranks that are ahead of another one within a correct program.
#include "comm/shm/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/shm/region.h"

namespace mx::comm::shm {
namespace {

// Runs `body(group)` on a thread per rank. `pause` is called as Notices::pause of that rank.
template <class Body>
void on_groups(int size, const std::function<void(int rank)>& pause, const Body& body) {
  const Fd memory = Region::create(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        Notices notices;
        notices.pause = [&, rank] { pause(rank); };
        Group group(memory.get(), nullptr, rank, size, std::move(notices));
        group.join("a", Deadline::after_ms(60'000));
        body(group, rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// Rank 1 waits for rank 2 in a barrier. Between two of its looks rank 2 comes, and rank 0, which then is past
// the barrier, sends to rank 1 already. That is no disagreement: rank 1 has only to look once more.
TEST(ShmGroup, ARankThatIsPastTheCallMaySend) {
  // Of rank 1 in its barrier: one pause before it announces itself, one for each rank that it waits for, and
  // the fourth when it has waited for long.
  constexpr int kPauseOfLongWait = 4;
  std::atomic<int> pauses{0}, begun{0};
  const auto pause = [&](int rank) {
    if (rank == 1 && ++pauses >= kPauseOfLongWait) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  on_groups(3, pause, [&](Group& group, int rank) {
    const Deadline deadline = Deadline::after_ms(60'000);
    for (int round = 1; round <= 20; ++round) {
      if (rank == 1) {
        pauses = 0;
        begun = round;
      }
      if (rank == 2)
        while ((begun < round || pauses < kPauseOfLongWait) && !HasFailure()) std::this_thread::yield();
      Request barrier;
      barrier.collective = Collective::barrier;
      group.execute(barrier, deadline);
      if (rank == 2) continue;
      int32_t value = rank == 0 ? round : 0;
      Request message;
      message.collective = rank == 0 ? Collective::send : Collective::receive;
      message.in = message.out = &value;
      message.count = 1;
      message.type = Type::i32;
      message.peer = 1 - rank;
      group.execute(message, deadline);
      EXPECT_EQ(value, round);
    }
  });
}

}  // namespace
}  // namespace mx::comm::shm
