// Stores of GPUs over NCCL, on the stand-ins for CUDA and NCCL: ranks that fail, leave, or make other calls.
#include <gtest/gtest.h>

#include <atomic>

#include "engine/base/error.h"
#include "operators/operators.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/gpu_stores.h"
#include "tests/kvstore/rank_values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::expect_no_errors;
using test::GpuRank;
using test::on_gpus;

TEST(FakeNcclStoreErrors, OtherShapesOrdersAndTypesAreNamedOnAllRanks) {
  for (const std::string mode : {"shape", "type", "order"}) {
    expect_no_errors(on_gpus(2, [&](const GpuRank& rank) {
      const bool odd = rank.kv.rank() == 1;
      NDArray a = zeros({odd && mode == "shape" ? 3 : 2}, odd && mode == "type" ? f64 : f32, rank.device);
      NDArray b = zeros({2}, f32, rank.device);
      if (odd && mode == "order") {
        rank.kv.allreduce({"b"}, {b}, {b});
        rank.kv.allreduce({"a"}, {a}, {a});
      } else {
        rank.kv.allreduce({"a"}, {a}, {a});
        rank.kv.allreduce({"b"}, {b}, {b});
      }
      EXPECT_TRUE(contains(error_of<ProtocolError>([&] { a.wait(); }), "\"a\"")) << mode;
      error_of<ProtocolError>([&] { b.wait(); });
    }));
  }
}

TEST(FakeNcclStoreErrors, ARankThatLeavesIsAnErrorOfTheOthers) {
  expect_no_errors(on_gpus(3, [&](const GpuRank& rank) {
    NDArray w = ones({2000}, f32, rank.device);
    rank.kv.allreduce({"w"}, {w}, {w});
    w.wait();
    if (rank.kv.rank() == 1) return;
    rank.kv.allreduce({"w"}, {w}, {w});
    EXPECT_TRUE(contains(error_of<PeerLost>([&] { w.wait(); }), "'w'"));
  }));
}

TEST(FakeNcclStoreErrors, AnAbortWakesTheCallOfItsRank) {
  expect_no_errors(on_gpus(2, [&](const GpuRank& rank) {
    NDArray w = ones({2000}, f32, rank.device);
    rank.kv.allreduce({"w"}, {w}, {w});
    w.wait();
    if (rank.kv.rank() == 1) {
      rank.kv.allreduce({"w"}, {w}, {w});  // rank 0 does not come
      rank.calls.abort(std::make_exception_ptr(Cancelled("the test says so")));
      EXPECT_TRUE(contains(error_of<Cancelled>([&] { w.wait(); }), "the test says so"));
    }
  }));
}

// The operation fails before anything of it is enqueued.
TEST(FakeNcclStoreErrors, AFailedOperationOfADeviceIsAnErrorOfAllRanks) {
  expect_no_errors(on_gpus(2, [&](const GpuRank& rank) {
    NDArray w = ones({5}, f32, rank.device), next = ones({5}, f32, rank.device);
    rank.kv.allreduce({"w"}, {w}, {w});
    w.wait();
    if (rank.kv.rank() == 1)
      current_engine().push([](RunContext) { throw Error("the kernel is broken"); },
                            {.updates = {w.var()}, .context = rank.device, .name = "kernel"});
    rank.kv.allreduce({"w"}, {w}, {w});
    rank.kv.allreduce({"next"}, {next}, {next});
    EXPECT_TRUE(contains(error_of<Error>([&] { w.wait(); }), "the kernel is broken"));
    error_of<Error>([&] { next.wait(); });
  }));
}

// The kernel has run, with an index that is out of range, when the error is found. Meanwhile the value is on
// its way to NCCL, so the other rank learns of it with a later call.
TEST(FakeNcclStoreErrors, AKernelThatFindsAWrongValueFailsTheSumOfItsRank) {
  expect_no_errors(on_gpus(2, [&](const GpuRank& rank) {
    const NDArray table = ones({4, 3}, f32, rank.device);
    const NDArray rows = array(std::vector<int64_t>{0, rank.kv.rank() == 1 ? 9 : 1}).to(rank.device);
    NDArray w = take(table, rows), next = ones({5}, f32, rank.device);
    rank.kv.allreduce({"w"}, {w}, {w});
    if (rank.kv.rank() == 1) {
      EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { w.wait(); }), "9"));
    } else {
      try {
        w.wait();
      } catch (const Error&) {
        // Rank 1 may already have told it.
      }
    }
    rank.kv.allreduce({"w"}, {w}, {w});
    rank.kv.allreduce({"next"}, {next}, {next});
    EXPECT_TRUE(contains(error_of<Error>([&] { next.wait(); }), "9"));
  }));
}

// With a device that no other test uses, because it stays lost. A rank that is within a kernel of NCCL learns
// of the loss at its time limit.
TEST(FakeNcclStoreErrors, ALostDeviceIsAnErrorOfAllRanks) {
  const auto errors = on_gpus(
      2,
      [&](const GpuRank& rank) {
        NDArray w = ones({500}, f32, rank.device);
        rank.kv.allreduce({"w"}, {w}, {w});
        w.wait();
        if (rank.kv.rank() == 1) fake_cuda::lose(comm::kNcclDevices - 1, cudaErrorIllegalAddress);
        for (int i = 0; i < 3; ++i) rank.kv.allreduce({"w"}, {w}, {w});
        const std::string text = error_of<Error>([&] { w.wait(); });
        EXPECT_FALSE(text.empty());
      },
      {.timeout_ms = 2000}, {}, comm::kNcclDevices - 2);
  EXPECT_EQ(errors[0], "");
}

}  // namespace
}  // namespace mx
