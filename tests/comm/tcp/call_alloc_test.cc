// In the steady state, the calls of a communicator allocate nothing, on no thread: messages go from the
// buffers of the user and into them. The test counts allocations instead of measuring time.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/algorithms.h"
#include "comm/shm/shm_communicator.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/threads/thread_group.h"
#include "comm/transport_communicator.h"
#include "tests/comm/tcp/tcp_pairs.h"
#include "tests/support/counted_allocations.h"

// The workspace of calls is aligned.
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto step = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace mx::comm {
namespace {

using Group = std::vector<std::shared_ptr<Communicator>>;

constexpr int kRanks = 4;
constexpr size_t kMost = size_t{1} << 18;  // elements of f32: several pieces for each rank
constexpr size_t kCounts[] = {1, 1000, kMost};

Group tcp_group_of_two_hosts() {
  auto peers = test::tcp_peers(kRanks);
  Group group;
  int rank = 0;
  for (auto& list : peers) {
    for (size_t r = 0; r < list.size(); ++r) list[r].host = r < kRanks / 2 ? "first" : "second";
    group.push_back(std::make_shared<TransportCommunicator>(
        std::make_unique<TcpTransport>(rank++, std::move(list)), 60000));
  }
  return group;
}

Group shm_group_of_threads() {
  const ShmGroup memory(kRanks, {});
  Group group(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] { group[static_cast<size_t>(rank)] = memory.join(rank); });
  for (std::thread& thread : threads) thread.join();
  return group;
}

struct Buffers {
  std::vector<float> in = std::vector<float>(kRanks * kMost, 1.0F), out = std::vector<float>(kRanks * kMost);
};

using Operation = std::function<void(int rank, Communicator& member, Buffers& buffers)>;

/// Runs the operation on all ranks again and again, and returns the allocations of the quietest of some
/// series of calls. Queues of messages grow to the most messages that ever waited together, which depends on
/// time, so one series may still have an allocation. One per message or per call would be in all of them.
uint64_t allocations_of(const Group& group, const Operation& operation) {
  constexpr int kSeries = 50, kCalls = 10;
  std::vector<Buffers> buffers(group.size());
  std::barrier together(static_cast<ptrdiff_t>(group.size()));
  std::atomic<uint64_t> fewest{UINT64_MAX};
  const auto run = [&](size_t rank) {
    for (int series = 0; series < kSeries; ++series) {
      together.arrive_and_wait();
      const uint64_t before = allocations.load();
      together.arrive_and_wait();
      for (int i = 0; i < kCalls; ++i) operation(static_cast<int>(rank), *group[rank], buffers[rank]);
      together.arrive_and_wait();
      if (rank == 0) fewest.store(std::min(fewest.load(), allocations.load() - before));
      together.arrive_and_wait();
      if (fewest.load() == 0) return;  // all ranks see the same number
    }
  };
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < group.size(); ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return fewest.load();
}

void expect_no_allocations(const Group& group, const std::string& name, const Operation& operation) {
  EXPECT_EQ(allocations_of(group, operation), 0u) << group[0]->type() << ": " << name;
}

void expect_none_in_all_collectives(const Group& group) {
  for (const size_t count : kCounts) {
    const std::string of = " of " + std::to_string(count);
    expect_no_allocations(group, "allreduce" + of, [=](int, Communicator& member, Buffers& b) {
      member.allreduce(b.in.data(), b.out.data(), count, Type::f32);
    });
    expect_no_allocations(group, "reduce_scatter" + of, [=](int, Communicator& member, Buffers& b) {
      member.reduce_scatter(b.in.data(), b.out.data(), count, Type::f32);
    });
    expect_no_allocations(group, "allgather" + of, [=](int, Communicator& member, Buffers& b) {
      member.allgather(b.in.data(), b.out.data(), count, Type::f32);
    });
    expect_no_allocations(group, "broadcast" + of, [=](int, Communicator& member, Buffers& b) {
      member.broadcast(b.in.data(), b.out.data(), count, Type::f32, 1);
    });
    expect_no_allocations(group, "all_to_all" + of, [=](int, Communicator& member, Buffers& b) {
      member.all_to_all(b.in.data(), b.out.data(), count, Type::f32);
    });
    expect_no_allocations(group, "send and receive" + of, [=](int rank, Communicator& member, Buffers& b) {
      if (rank % 2 == 0)
        member.send(b.in.data(), count, Type::f32, rank + 1);
      else
        member.receive(b.out.data(), count, Type::f32, rank - 1);
    });
  }
  expect_no_allocations(group, "barrier", [](int, Communicator& member, Buffers&) { member.barrier(); });
  // Calls that run on the thread of the communicator.
  expect_no_allocations(group, "start", [](int, Communicator& member, Buffers& b) {
    std::atomic<int> running{3};
    for (int i = 0; i < 3; ++i) {
      Request request;
      request.collective = Collective::allreduce;
      request.in = b.in.data();
      request.out = b.out.data() + i * 1000;
      request.count = 1000;
      request.done = [&running](const std::exception_ptr& error) {
        EXPECT_EQ(error, nullptr);
        if (running.fetch_sub(1) == 1) running.notify_one();
      };
      member.start(std::move(request));
    }
    for (int left = 0; (left = running.load()) > 0;) running.wait(left);
  });
}

TEST(CallAllocations, TheSteadyStateOfTcpAllocatesNothing) {
  expect_none_in_all_collectives(tcp_group_of_two_hosts());
}

TEST(CallAllocations, NoAlgorithmOfAllreduceAllocates) {
  const Group group = tcp_group_of_two_hosts();
  for (int a = 0; a < kAlgorithms; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    for (const auto& member : group) dynamic_cast<TransportCommunicator&>(*member).set_algorithm(algorithm);
    CallOptions options;
    options.order = Order::any;
    expect_no_allocations(group, to_string(algorithm), [&](int, Communicator& member, Buffers& b) {
      member.allreduce(b.in.data(), b.out.data(), kMost, Type::f32, options);
    });
  }
}

TEST(CallAllocations, TheSteadyStateOfSharedMemoryAllocatesNothing) {
  expect_none_in_all_collectives(shm_group_of_threads());
}

TEST(CallAllocations, TheSteadyStateOfThreadsAllocatesNothing) {
  expect_none_in_all_collectives(make_thread_group(kRanks));
}

}  // namespace
}  // namespace mx::comm
