// The conformance suite: groups that end in the middle of queued calls, in random ways.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "tests/comm/conformance.h"
#include "tests/comm/rank_processes.h"

namespace mx::comm {
namespace {

constexpr size_t kCallsToEnd = 24;

constexpr unsigned char kEnded = 0xE5;

// A call of one rank: its buffers, and how often its callback has run. The buffers are bytes, because filling
// and comparing floats takes most of the test's time under ThreadSanitizer.
struct EndingCall {
  std::vector<unsigned char> in, out;
  std::atomic<int> callbacks{0};
  bool started = false, failed = false;
};

enum class Ending { waits, aborts, leaves, idles };

// What a rank does, and before which call.
struct EndingRank {
  Ending ending = Ending::waits;
  size_t at = kCallsToEnd;
};

// The same calls on all ranks: their kinds and sizes follow from the seed.
Request ending_request(uint64_t seed, size_t index, int ranks, EndingCall& call) {
  constexpr size_t kCounts[] = {0, 1, 100, 3000, 20'000, 100'000};
  constexpr std::array kKinds = {Collective::allreduce, Collective::broadcast, Collective::all_to_all,
                                 Collective::barrier,   Collective::allgather, Collective::reduce_scatter};
  std::mt19937_64 random(seed * 1000 + index);
  Request request;
  request.collective = kKinds[random() % kKinds.size()];
  request.count = kCounts[random() % std::size(kCounts)];
  request.peer = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  if (request.collective != Collective::broadcast) request.peer = 0;
  // Only this one takes a block for each rank.
  const size_t blocks = request.collective == Collective::all_to_all ? static_cast<size_t>(ranks) : 1;
  call.in.assign(std::max<size_t>(request.count, 1) * blocks * sizeof(float), 0);
  call.out.assign(call.in.size(), 0);
  request.in = call.in.data();
  request.out = call.out.data();
  request.options.timeout_ms = 2000;
  return request;
}

void run_ending_rank(std::shared_ptr<Communicator> group, uint64_t seed, int ranks, EndingRank plan,
                     std::vector<EndingCall>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i == plan.at) {
      if (plan.ending == Ending::aborts) group->abort(std::make_exception_ptr(Cancelled("the test says so")));
      if (plan.ending == Ending::leaves || plan.ending == Ending::idles) break;
    }
    EndingCall& call = calls[i];
    Request request = ending_request(seed, i, ranks, call);
    request.done = [&call](std::exception_ptr error) {
      call.failed = error != nullptr;
      // Nobody may touch the buffers of a call that has ended.
      std::fill(call.out.begin(), call.out.end(), kEnded);
      std::fill(call.in.begin(), call.in.end(), kEnded);
      ++call.callbacks;
    };
    call.started = true;
    group->start(std::move(request));
  }
  if (plan.ending == Ending::idles) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  group.reset();  // waits for the calls
}

}  // namespace

TEST_P(Conformance, EveryCallbackRunsOnceHoweverTheGroupEnds) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(2 + random() % 4);
    std::vector<EndingRank> plans(static_cast<size_t>(ranks));
    // At least one rank ends early. Without notice, the others would wait for their deadlines.
    for (size_t r = 0; r < plans.size(); ++r) {
      if (r > 0 && random() % 2 == 0) continue;
      plans[r].at = random() % kCallsToEnd;
      const Ending endings[] = {Ending::aborts, Ending::leaves, Ending::idles};
      plans[r].ending = endings[random() % std::size(endings)];
    }
    std::vector<std::vector<EndingCall>> calls;
    for (int r = 0; r < ranks; ++r) calls.emplace_back(kCallsToEnd);
    if (!ends(ranks)) continue;
    auto group = make(ranks);
    std::vector<std::thread> threads;
    for (size_t r = 0; r < group.size(); ++r)
      if (group[r] != nullptr)
        threads.emplace_back(run_ending_rank, std::move(group[r]), seed, ranks, plans[r], std::ref(calls[r]));
    group.clear();
    for (std::thread& thread : threads) thread.join();
    meet_processes();
    for (const auto& row : calls)
      for (const EndingCall& call : row) {
        ASSERT_EQ(call.callbacks.load(), call.started ? 1 : 0) << "seed " << seed;
        if (!call.started) continue;
        for (const auto* buffer : {&call.in, &call.out})
          ASSERT_TRUE(*buffer == std::vector<unsigned char>(buffer->size(), kEnded))
              << "seed " << seed << ": a buffer was touched after its call had "
              << (call.failed ? "failed" : "ended");
      }
  }
}

}  // namespace mx::comm
