// The stand-in for NCCL itself: what it computes, and that it finds what breaks NCCL's rules.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>

#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/fake_nccl.h"
#include "tests/cuda/fake_nccl/nccl_group.h"

namespace mx::fake_nccl {
namespace {

void must(ncclResult_t code) { ASSERT_EQ(code, ncclSuccess) << ncclGetErrorString(code); }
void must(cudaError_t code) { ASSERT_EQ(code, cudaSuccess) << cudaGetErrorString(code); }

/// Polls until a non-blocking communicator is no longer busy.
ncclResult_t settled(ncclComm_t comm) {
  for (;;) {
    ncclResult_t result = ncclSuccess;
    if (const ncclResult_t code = ncclCommGetAsyncError(comm, &result); code != ncclSuccess) return code;
    if (result != ncclInProgress) return result;
    std::this_thread::yield();
  }
}

/// Some ranks, which one thread drives. Each has two buffers on its device.
class Ranks {
 public:
  static constexpr size_t kCount = 1000;

  explicit Ranks(int count, bool blocking = false) {
    ncclUniqueId id;
    must(ncclGetUniqueId(&id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    all_.resize(static_cast<size_t>(count));
    must(ncclGroupStart());
    for (int r = 0; r < count; ++r) {
      Rank& rank = all_[static_cast<size_t>(r)];
      must(cudaSetDevice(r));
      must(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
      for (float** memory : {&rank.in, &rank.out})
        must(cudaMalloc(reinterpret_cast<void**>(memory), kCount * sizeof(float)));
      std::iota(rank.in, rank.in + kCount,
                static_cast<float>(r));  // memory of the stand-in is that of the host
      (void)ncclCommInitRankConfig(&rank.comm, count, id, r, &config);
    }
    (void)ncclGroupEnd();
    for (const Rank& rank : all_) must(settled(rank.comm));
  }
  /// Ends what is left without waiting.
  ~Ranks() {
    for (Rank& rank : all_)
      if (rank.comm != nullptr) (void)ncclCommAbort(rank.comm);
  }

  struct Rank {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    float *in = nullptr, *out = nullptr;
  };
  Rank& operator[](int r) { return all_[static_cast<size_t>(r)]; }
  int size() const { return static_cast<int>(all_.size()); }

  ncclResult_t allreduce(int r, size_t count = kCount, ncclDataType_t type = ncclFloat32) {
    return ncclAllReduce((*this)[r].in, (*this)[r].out, count, type, ncclSum, (*this)[r].comm,
                         (*this)[r].stream);
  }
  /// Waits until all that the streams have is done.
  void finish() {
    for (const Rank& rank : all_) must(settled(rank.comm));
    for (const Rank& rank : all_) must(cudaStreamSynchronize(rank.stream));
  }
  void finalize() {
    must(ncclGroupStart());
    for (const Rank& rank : all_) (void)ncclCommFinalize(rank.comm);
    (void)ncclGroupEnd();
    for (Rank& rank : all_) {
      must(settled(rank.comm));
      must(ncclCommDestroy(rank.comm));
      rank.comm = nullptr;
    }
  }

 private:
  std::vector<Rank> all_;
};

/// The violations since the last call, of which one must contain the text.
void expect_violation(const std::string& text) {
  std::string all;
  for (const std::string& violation : take_violations()) all += violation + "\n";
  EXPECT_NE(all.find(text), std::string::npos) << "expected '" << text << "', got: " << all;
}

TEST(FakeNccl, SumsAndMovesLikeNccl) {
  for (const bool blocking : {false, true}) {
    Ranks ranks(3, blocking);
    must(ncclGroupStart());
    for (int r = 0; r < 3; ++r) must(ranks.allreduce(r));
    (void)ncclGroupEnd();
    ranks.finish();
    for (int r = 0; r < 3; ++r)
      for (size_t i = 0; i < Ranks::kCount; ++i)
        ASSERT_EQ(ranks[r].out[i], 3.F * static_cast<float>(i) + 3.F);
    must(ncclGroupStart());
    for (int r = 0; r < 3; ++r)
      must(ncclReduceScatter(ranks[r].in, ranks[r].out, 100, ncclFloat32, ncclMax, ranks[r].comm,
                             ranks[r].stream));
    (void)ncclGroupEnd();
    ranks.finish();
    for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks[r].out[7], static_cast<float>(r * 100 + 7 + 2));
    must(ncclGroupStart());
    for (int r = 0; r < 3; ++r)
      must(ncclAllGather(ranks[r].in, ranks[r].out, 10, ncclFloat32, ranks[r].comm, ranks[r].stream));
    (void)ncclGroupEnd();
    ranks.finish();
    for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks[r].out[23], 5.F);
    ranks.finalize();
  }
  EXPECT_TRUE(take_violations().empty());
  EXPECT_EQ(live_communicators(), 0);
}

TEST(FakeNccl, TheOrderOfSumsIsRandom) {
  Ranks ranks(4);
  std::set<float> sums;
  for (int round = 0; round < 40; ++round) {
    for (int r = 0; r < 4; ++r) {
      constexpr float kValues[] = {1e8F, 1.F, -1e8F, 0.25F};
      ranks[r].in[0] = kValues[r];
      (void)ranks.allreduce(r, 1);
    }
    ranks.finish();
    sums.insert(ranks[0].out[0]);
    for (int r = 1; r < 4; ++r) EXPECT_EQ(ranks[r].out[0], ranks[0].out[0]) << "equal on all ranks";
  }
  EXPECT_GE(sums.size(), 3u);
  ranks.finalize();
}

// What a program forgets easily: an event that is recorded before the operation has been enqueued.
TEST(FakeNccl, AnOperationIsNotOnItsStreamWhileItsCommunicatorIsBusy) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.allreduce(0), ncclInProgress);
  EXPECT_EQ(cudaStreamQuery(ranks[0].stream), cudaSuccess) << "nothing is enqueued";
  EXPECT_EQ(ranks.allreduce(0), ncclInvalidArgument);
  expect_violation("still busy");
  EXPECT_NE(waiting().find("not enqueued"), std::string::npos) << waiting();
  (void)ranks.allreduce(1);
  ranks.finish();
  EXPECT_EQ(waiting(), "");
  ranks.finalize();
}

TEST(FakeNccl, OperationsWaitForAllRanksAndForTheirStream) {
  Ranks ranks(2);
  for (int round = 0; round < 2; ++round) {  // the first operation connects the ranks
    (void)ranks.allreduce(0);
    if (round == 1) {
      must(settled(ranks[0].comm));
      for (int i = 0; i < 50; ++i) EXPECT_EQ(cudaStreamQuery(ranks[0].stream), cudaErrorNotReady);
    }
    (void)ranks.allreduce(1);
    ranks.finish();
  }
  ranks.finalize();
}

TEST(FakeNccl, OperationsThatDifferAreFound) {
  const std::function<void(Ranks&)> mistakes[] = {
      [](Ranks& ranks) { (void)ranks.allreduce(1, 999); },
      [](Ranks& ranks) { (void)ranks.allreduce(1, Ranks::kCount, ncclInt32); },
      [](Ranks& ranks) {
        (void)ncclAllReduce(ranks[1].in, ranks[1].out, Ranks::kCount, ncclFloat32, ncclMax, ranks[1].comm,
                            ranks[1].stream);
      },
      [](Ranks& ranks) {
        (void)ncclBroadcast(ranks[1].in, ranks[1].out, Ranks::kCount, ncclFloat32, 0, ranks[1].comm,
                            ranks[1].stream);
      }};
  for (const auto& mistake : mistakes) {
    Ranks ranks(2);
    (void)ranks.allreduce(0);
    mistake(ranks);
    for (int r = 0; r < 2; ++r) must(settled(ranks[r].comm));
    std::vector<std::string> found;
    while (found.empty()) found = take_violations();
    EXPECT_NE(found[0].find("allreduce of 1000"), std::string::npos) << found[0];
    EXPECT_EQ(cudaStreamQuery(ranks[0].stream), cudaErrorNotReady) << "the operation hangs";
  }
}

TEST(FakeNccl, MessagesOfDifferentCountsAreFound) {
  Ranks ranks(2);
  (void)ncclSend(ranks[0].in, 10, ncclFloat32, 1, ranks[0].comm, ranks[0].stream);
  (void)ncclRecv(ranks[1].out, 11, ncclFloat32, 0, ranks[1].comm, ranks[1].stream);
  for (int r = 0; r < 2; ++r) must(settled(ranks[r].comm));
  std::vector<std::string> found;
  while (found.empty()) found = take_violations();
  EXPECT_NE(found[0].find("of 10 elements"), std::string::npos) << found[0];
}

// Two ranks that both send before they receive wait for each other, unless they group the two.
TEST(FakeNccl, MessagesProgressTogetherOnlyWithinAGroup) {
  Ranks ranks(2);
  for (const bool grouped : {true, false}) {
    for (int r = 0; r < 2; ++r) {
      if (grouped) must(ncclGroupStart());
      (void)ncclSend(ranks[r].in, 10, ncclFloat32, 1 - r, ranks[r].comm, ranks[r].stream);
      if (grouped) {
        (void)ncclRecv(ranks[r].out, 10, ncclFloat32, 1 - r, ranks[r].comm, ranks[r].stream);
        (void)ncclGroupEnd();
      }
    }
    if (grouped) {
      ranks.finish();
      EXPECT_EQ(ranks[0].out[3], 4.F);
      continue;
    }
    for (int r = 0; r < 2; ++r) must(settled(ranks[r].comm));
    for (int r = 0; r < 2; ++r)
      (void)ncclRecv(ranks[r].out, 10, ncclFloat32, 1 - r, ranks[r].comm, ranks[r].stream);
    for (int r = 0; r < 2; ++r) must(settled(ranks[r].comm));
    for (int i = 0; i < 50; ++i) EXPECT_EQ(cudaStreamQuery(ranks[0].stream), cudaErrorNotReady);
    EXPECT_NE(waiting().find("send of 10"), std::string::npos) << waiting();
  }
  EXPECT_TRUE(take_violations().empty());
}

TEST(FakeNccl, AHangIsDiagnosed) {
  Ranks ranks(2);
  set_options({.hang_ms = 50});
  for (int r = 0; r < 2; ++r) (void)ranks.allreduce(r, 1);
  ranks.finish();
  (void)ranks.allreduce(0);  // rank 1 does not come
  must(settled(ranks[0].comm));
  std::vector<std::string> found;
  while (found.empty()) found = take_violations();
  EXPECT_NE(found[0].find("hangs in allreduce of 1000"), std::string::npos) << found[0];
  EXPECT_EQ(settled(ranks[0].comm), ncclRemoteError);
  set_options({});
}

TEST(FakeNccl, WrongBuffersAreRefused) {
  Ranks ranks(2);
  std::vector<float> host(Ranks::kCount);
  const auto call = [&](const void* in, void* out, size_t count = Ranks::kCount) {
    EXPECT_EQ(ncclAllReduce(in, out, count, ncclFloat32, ncclSum, ranks[0].comm, ranks[0].stream),
              ncclInvalidArgument);
  };
  call(host.data(), ranks[0].out);
  expect_violation("the input is not memory of a device");
  call(ranks[0].in, nullptr);
  expect_violation("the output is null");
  call(ranks[1].in, ranks[0].out);
  expect_violation("the input is memory of device 1, not of 0");
  call(ranks[0].in, ranks[0].in + 1, 10);
  expect_violation("overlap");
  call(ranks[0].in, ranks[0].out, Ranks::kCount + 1025);
  expect_violation("not memory of a device");
  EXPECT_EQ(ncclAllReduce(ranks[0].in, ranks[0].out, 1, ncclFloat32, ncclSum, ranks[0].comm, ranks[1].stream),
            ncclInvalidArgument);
  expect_violation("the stream is not one of its device");
  EXPECT_EQ(ncclAllGather(ranks[0].out + 1, ranks[0].out, 5, ncclFloat32, ranks[0].comm, ranks[0].stream),
            ncclInvalidArgument);
  expect_violation("overlap");
  must(ncclGroupStart());
  must(ncclSend(ranks[0].in, 10, ncclFloat32, 1, ranks[0].comm, ranks[0].stream));
  must(ncclRecv(ranks[0].in + 9, 10, ncclFloat32, 1, ranks[0].comm, ranks[0].stream));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  expect_violation("overlaps");
  ranks.finalize();
}

// Its memory goes back in the order of another stream. With a device that no other test uses.
TEST(FakeNccl, MemoryOfAPoolThatOtherRanksMayNotAccessIsRefused) {
  const char* const set = std::getenv("NCCL_P2P_DIRECT_DISABLE");
  const std::string before = set == nullptr ? "" : set;
  ::unsetenv("NCCL_P2P_DIRECT_DISABLE");
  Ranks ranks(2);
  must(cudaSetDevice(0));
  cudaMemPoolProps properties{};
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  must(cudaMemPoolCreate(&pool, &properties));
  void *own = nullptr, *usual = nullptr;
  must(cudaMallocFromPoolAsync(&own, 64, pool, ranks[0].stream));
  must(cudaMallocAsync(&usual, 64, ranks[0].stream));
  const auto broadcast = [&](void* memory) {
    return ncclBroadcast(memory, memory, 1, ncclFloat32, 0, ranks[0].comm, ranks[0].stream);
  };
  for (void* const memory : {own, usual}) {
    EXPECT_EQ(broadcast(memory), ncclInvalidArgument);
    expect_violation("that device 1 of the process may not access");
  }
  cudaMemAccessDesc access{};
  access.location = {cudaMemLocationTypeDevice, 1};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  must(cudaMemPoolSetAccess(pool, &access, 1));
  (void)broadcast(own);
  EXPECT_TRUE(take_violations().empty());
  ::setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
  Ranks others(2);
  (void)ncclBroadcast(usual, usual, 1, ncclFloat32, 0, others[0].comm, others[0].stream);
  EXPECT_TRUE(take_violations().empty());
  if (before.empty()) ::unsetenv("NCCL_P2P_DIRECT_DISABLE");
}

TEST(FakeNccl, MemoryThatIsFreedTooEarlyLosesTheDevice) {
  constexpr int kDevice = comm::kNcclDevices - 1;
  must(cudaSetDevice(kDevice));
  ncclUniqueId id;
  must(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  must(ncclCommInitRank(&comm, 1, id, 0));
  cudaStream_t stream = nullptr, other = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  void* memory = nullptr;
  must(cudaMallocAsync(&memory, 64, stream));
  const auto open = std::make_shared<std::atomic<bool>>(false);
  fake_cuda::launch(nullptr, dim3(1), dim3(1), 0, stream, [open] { return open->load(); });
  must(ncclAllReduce(memory, memory, 16, ncclFloat32, ncclSum, comm, stream));
  must(cudaFreeAsync(memory, other));
  must(cudaStreamSynchronize(other));
  open->store(true);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  must(ncclCommAbort(comm));
  (void)cudaGetLastError();
}

TEST(FakeNccl, RanksAndDevicesOfACommunicatorAreChecked) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id, unknown{};
  must(ncclGetUniqueId(&id));
  must(cudaSetDevice(0));
  ncclComm_t a = nullptr, b = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&a, 2, unknown, 0, &config), ncclInvalidArgument);
  expect_violation("has not made");
  EXPECT_EQ(ncclCommInitRankConfig(&a, 2, id, 2, &config), ncclInvalidArgument);
  expect_violation("rank 2 of 2");
  EXPECT_EQ(ncclCommInitRankConfig(&a, 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&b, 3, id, 1, &config), ncclInvalidArgument);
  expect_violation("communicator of 2");
  EXPECT_EQ(ncclCommInitRankConfig(&b, 2, id, 0, &config), ncclInvalidUsage);
  expect_violation("made twice");
  EXPECT_EQ(ncclCommInitRankConfig(&b, 2, id, 1, &config), ncclInProgress);
  EXPECT_EQ(settled(a), ncclInvalidUsage);
  EXPECT_EQ(settled(b), ncclInvalidUsage);
  expect_violation("have the same device 0");
  must(ncclCommAbort(a));
  must(ncclCommAbort(b));
}

TEST(FakeNccl, NothingFollowsTheEnd) {
  {
    Ranks ranks(2);
    (void)ncclCommFinalize(ranks[0].comm);
    EXPECT_EQ(ncclCommDestroy(ranks[0].comm), ncclInvalidArgument);
    expect_violation("which is busy");
    EXPECT_EQ(ranks.allreduce(0), ncclInvalidArgument);
    expect_violation("which has been finalised");
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < 50; ++i) {
      must(ncclCommGetAsyncError(ranks[0].comm, &result));
      EXPECT_EQ(result, ncclInProgress) << "it waits for the other rank";
    }
    EXPECT_EQ(ncclCommDestroy(ranks[1].comm), ncclInvalidUsage);
    expect_violation("which has not been finalised");
    (void)ncclCommFinalize(ranks[1].comm);
    for (int r = 0; r < 2; ++r) must(settled(ranks[r].comm));
    for (int r = 0; r < 2; ++r) must(ncclCommDestroy(ranks[r].comm));
    EXPECT_EQ(ncclCommAbort(ranks[0].comm), ncclInvalidArgument);
    expect_violation("which has ended");
    EXPECT_EQ(ranks.allreduce(1), ncclInvalidArgument);
    expect_violation("ended");
    for (int r = 0; r < 2; ++r) ranks[r].comm = nullptr;
  }
  EXPECT_EQ(live_communicators(), 0);
}

TEST(FakeNccl, AnAbortEndsTheKernelsOfItsRankOnly) {
  for (const bool revoke : {false, true}) {
    Ranks ranks(2);
    for (int r = 0; r < 2; ++r) (void)ranks.allreduce(r, 1);
    ranks.finish();
    (void)ranks.allreduce(0);
    must(settled(ranks[0].comm));
    if (revoke) {
      must(ncclCommRevoke(ranks[0].comm, 0));
      EXPECT_EQ(ranks.allreduce(0), ncclInvalidArgument);
      expect_violation("revoked");
    } else {
      must(ncclCommAbort(ranks[0].comm));
    }
    must(cudaStreamSynchronize(ranks[0].stream));
    (void)ranks.allreduce(1);
    must(settled(ranks[1].comm));
    for (int i = 0; i < 50; ++i) EXPECT_EQ(cudaStreamQuery(ranks[1].stream), cudaErrorNotReady);
    if (!revoke) ranks[0].comm = nullptr;
  }
}

TEST(FakeNccl, GroupsThatAreNotEndedAreFound) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  expect_violation("without ncclGroupStart");
  std::thread([] { must(ncclGroupStart()); }).join();
  expect_violation("ncclGroupEnd() is missing");
}

}  // namespace
}  // namespace mx::fake_nccl
