// What only the communicator over NCCL does, on the stand-ins for CUDA and NCCL.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/comm/conformance.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/fake_nccl.h"
#include "tests/cuda/fake_nccl/nccl_group.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

/// Memory of a GPU, which ends with the process.
float* gpu_memory(int device, size_t count) {
  void* memory = nullptr;
  EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(float)), cudaSuccess);
  return static_cast<float*>(memory);
}

TEST(FakeNcclCommunicator, HasTheDeviceOfItsRank) {
  const auto group = make_nccl_group(3);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(group[static_cast<size_t>(r)]->device(), gpu(r));
}

TEST(FakeNcclCommunicator, LeavesTheDeviceOfTheThreadThatMakesAndEndsIt) {
  const auto device = [] {
    int id = -1;
    EXPECT_EQ(cudaGetDevice(&id), cudaSuccess);
    return id;
  };
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  ModuleRequest request;
  request.place.size = request.place.local_size = 1;
  request.place.local_rank = 1;
  auto alone = std::make_shared<NcclCommunicator>(request);
  EXPECT_EQ(device(), 2);
  alone->barrier();
  alone = nullptr;
  EXPECT_EQ(device(), 2);
}

TEST(FakeNcclCommunicator, MemoryOfAnotherGpuIsRefused) {
  const auto group = make_nccl_group(2);
  float* const own = gpu_memory(0, 4);
  float* const other = gpu_memory(1, 4);
  std::vector<float> host(4);
  const auto refused = [&](const void* in, void* out) {
    const std::string text =
        test::error_of<InvalidArgument>([&] { group[0]->allreduce(in, out, 4, Type::f32); });
    EXPECT_TRUE(test::contains(text, "of the host or of gpu(0), got memory of gpu(1)")) << text;
  };
  refused(other, own);
  refused(own, other);
  refused(host.data(), other);
  EXPECT_EQ(group[0]->failure(), nullptr);
  std::fill_n(own, 4, 1.F);  // memory of the stand-in is that of the host
  std::fill_n(other, 4, 2.F);
  expect_ranks(group, [&](int rank, Communicator& member) {
    float* const memory = rank == 0 ? own : other;
    member.allreduce(memory, memory, 4, Type::f32);
    EXPECT_EQ(memory[3], 3.F);
  });
}

// A rank is a thread of a process with several GPUs: the others go on, with other groups too.
TEST(FakeNcclCommunicator, AFailureTakesTheGroupsOfItsGpuOnly) {
  auto first = make_nccl_group(2), second = make_nccl_group(2);
  const auto elsewhere = make_nccl_group(2, 2);
  const auto reason = std::make_exception_ptr(Cancelled("the test says so"));
  first[0]->abort(reason);
  EXPECT_EQ(first[1]->failure(), nullptr);
  EXPECT_EQ(second[1]->failure(), nullptr);
  EXPECT_TRUE(test::contains(test::error_of<Cancelled>([&] { second[0]->barrier(); }), "the test says so"))
      << "the GPU of the rank that was aborted";
  first[0] = second[0] = nullptr;
  EXPECT_THROW(first[1]->barrier(), PeerLost);
  EXPECT_THROW(second[1]->barrier(), PeerLost);
  expect_ranks(elsewhere, [](int, Communicator& member) { member.barrier(); });
}

// NCCL waits for the other ranks in the end of a communicator, which here come later on the same thread. So
// the last rank ends all of them.
TEST(FakeNcclCommunicator, RanksOfAProcessMayEndOneAfterTheOther) {
  for (const bool backwards : {false, true}) {
    auto group = make_nccl_group(4);
    expect_ranks(group, [](int, Communicator& member) { member.barrier(); });
    for (size_t i = 0; i < group.size(); ++i) {
      EXPECT_EQ(fake_nccl::live_communicators(), 4) << "none was aborted at its time limit";
      group[backwards ? group.size() - 1 - i : i] = nullptr;
    }
    EXPECT_EQ(fake_nccl::live_communicators(), 0);
  }
}

TEST(FakeNcclCommunicator, AnErrorOfTheWorkAheadIsThatOfTheCall) {
  const auto group = make_nccl_group(2);
  float* const memory[] = {gpu_memory(0, 4), gpu_memory(1, 4)};
  const auto errors = run_ranks(group, [&](int rank, Communicator& member) {
    Request request;
    request.collective = Collective::allreduce;
    request.in = request.out = memory[rank];
    request.count = 4;
    request.options.timeout_ms = 1000;
    if (rank == 0) request.work_ahead = []() -> void* { throw DeviceError("the device is gone"); };
    member.run(std::move(request));
  });
  EXPECT_TRUE(is_error<DeviceError>(errors[0])) << error_text(errors[0]);
  EXPECT_NE(errors[1], nullptr);
}

}  // namespace
}  // namespace mx::comm
