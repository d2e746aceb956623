// Stores of GPUs over NCCL, on the stand-ins for CUDA and NCCL: values, order, and where the data goes.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <random>

#include "kvstore/collective_op.h"
#include "operators/operators.h"
#include "tests/cuda/fake_nccl/gpu_stores.h"
#include "tests/cuda/fake_nccl/rules.h"
#include "tests/kvstore/rank_values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::expect_no_errors;
using test::GpuCall;
using test::GpuRank;
using test::on_gpus;
using test::rank_value;
using test::serial_sum;

[[maybe_unused]] const bool checks_rules = fake_nccl::check_rules(comm::kNcclDevices);

std::vector<float> numbers_of(const NDArray& x) { return x.to(cpu()).to(f32).to_vector<float>(); }

TEST(FakeNcclStore, SumsInTheOrderOfTheRanksHaveTheBitsOfTheSerialFold) {
  for (const int ranks : {1, 2, 3, 5})
    expect_no_errors(on_gpus(ranks,
                             [&](const GpuRank& rank) {
                               for (const int64_t size : {1, 7, 5000, 40'000}) {
                                 NDArray value = rank_value(rank.kv.rank(), size).to(rank.device);
                                 NDArray out = zeros({size}, f32, rank.device);
                                 const std::string key = "size " + std::to_string(size);
                                 rank.kv.allreduce({key}, {value}, {out});
                                 EXPECT_EQ(numbers_of(out), numbers_of(serial_sum(ranks, size)))
                                     << key << " of " << ranks;
                                 rank.kv.allreduce({key}, {value}, {value});
                                 EXPECT_EQ(numbers_of(value), numbers_of(out)) << key << " in place";
                               }
                             },
                             {.cut_bytes = 30'000}));
}

TEST(FakeNcclStore, SumsInAnyOrderAreEqualOnAllRanksAndNearTheSerialFold) {
  for (const int ranks : {2, 4}) {
    std::vector<std::vector<float>> sums(static_cast<size_t>(ranks));
    expect_no_errors(on_gpus(ranks,
                             [&](const GpuRank& rank) {
                               const int me = rank.kv.rank();
                               for (const DType type : {f32, f64, f16, bf16, i32, i64}) {
                                 const NDArray value =
                                     ((arange(999, i64) * (me + 3)) % 11).to(type).to(rank.device);
                                 NDArray out = zeros({999}, is_floating(type) ? f32 : i64, rank.device);
                                 rank.kv.allreduce({to_string(type)}, {value}, {out});
                                 std::vector<float> expected(999);
                                 for (int r = 0; r < ranks; ++r)
                                   for (size_t i = 0; i < expected.size(); ++i)
                                     expected[i] +=
                                         static_cast<float>(static_cast<int64_t>(i) * (r + 3) % 11);
                                 EXPECT_EQ(numbers_of(out), expected) << type;
                               }
                               NDArray out = zeros({5000}, f32, rank.device);
                               const NDArray value = rank_value(me, 5000).to(rank.device);
                               rank.kv.allreduce({"w"}, {value}, {out});
                               sums[static_cast<size_t>(me)] = numbers_of(out);
                             },
                             {.any_order = true}));
    const std::vector<float> expected = numbers_of(serial_sum(ranks, 5000));
    for (const auto& sum : sums) {
      EXPECT_EQ(sum, sums[0]);
      ASSERT_EQ(sum.size(), expected.size());
      for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], expected[i], 4096) << i;  // of up to 1e10
    }
  }
}

TEST(FakeNcclStore, ValuesOfTheGpuGoStraightToNccl) {
  for (const bool any_order : {false, true})
    expect_no_errors(
        on_gpus(2,
                [&](const GpuRank& rank) {
                  std::vector<KVKey> keys;
                  std::vector<KVStore::Values> values;
                  std::vector<NDArray> outs;
                  for (int k = 0; k < 6; ++k) {
                    keys.emplace_back(k);
                    values.emplace_back(full({k == 5 ? 3000 : 10 + k}, rank.kv.rank() + k, f32, rank.device));
                    outs.push_back(zeros(values.back().list()[0].shape(), f32, rank.device));
                  }
                  rank.kv.allreduce(keys, values, outs);
                  for (int k = 0; k < 6; ++k)
                    EXPECT_EQ(numbers_of(outs[static_cast<size_t>(k)])[0], static_cast<float>(1 + 2 * k));
                  const std::vector<GpuCall> calls = rank.calls.take(comm::Collective::allreduce);
                  ASSERT_EQ(calls.size(), 2u) << "five small keys in one message, and a large one";
                  EXPECT_EQ(calls[0].count, 60u);
                  EXPECT_EQ(calls[1].count, 3000u);
                  for (const GpuCall& call : calls) EXPECT_TRUE(call.on_device) << call.what;

                  NDArray flat = full({101}, rank.kv.rank(), f32, rank.device);
                  rank.kv.broadcast_from_first({"flat"}, {flat});
                  EXPECT_EQ(numbers_of(flat), std::vector<float>(101, 0.F));
                  for (const GpuCall& call : rank.calls.take(comm::Collective::broadcast))
                    EXPECT_TRUE(call.on_device) << call.what;

                  flat = full({101}, rank.kv.rank() + 1, f32, rank.device);
                  rank.kv.sum_slices("slices", flat, {});
                  rank.kv.gather_slices("slices", flat, {});
                  EXPECT_EQ(numbers_of(flat), std::vector<float>(101, 3.F));
                  for (const GpuCall& call : rank.calls.take(comm::Collective::allgather))
                    EXPECT_TRUE(call.on_device || contains(call.what, "comparison")) << call.what;
                },
                {.fuse_bytes = 1000, .any_order = any_order}));
}

TEST(FakeNcclStore, PushAndPullWithAnOptimizerAndLists) {
  expect_no_errors(on_gpus(3, [&](const GpuRank& rank) {
    rank.kv.set_optimizer("sgd", {{"lr", 0.5}});
    rank.kv.init("w", full({20}, 8.F, f32, rank.device));
    rank.kv.init("v", full({3}, 2.F, f32, rank.device));
    NDArray w = zeros({20}, f32, rank.device), v = zeros({3}, f32, rank.device);
    rank.kv.pushpull({"w", "v"}, {full({20}, rank.kv.rank(), f32, rank.device), ones({3}, f32, rank.device)},
                     {w, v});
    EXPECT_EQ(numbers_of(w), std::vector<float>(20, 6.5F));
    EXPECT_EQ(numbers_of(v), std::vector<float>(3, 0.5F));
    NDArray mean = zeros({4}, f32, rank.device);
    rank.kv.allreduce({"mean"}, {full({4}, rank.kv.rank() * 3, f32, rank.device)}, {mean},
                      {.reduce = KVReduce::mean});
    EXPECT_EQ(numbers_of(mean), std::vector<float>(4, 3.F));
    rank.kv.barrier();
  }));
}

// Rank 1 has its values on the host, rank 2 on the GPU of another rank.
TEST(FakeNcclStore, EachRankMayHaveItsValuesElsewhere) {
  expect_no_errors(on_gpus(3, [&](const GpuRank& rank) {
    const Context places[] = {gpu(0), cpu(), gpu(0)};
    const Context place = places[rank.kv.rank()];
    NDArray value = full({50}, rank.kv.rank() + 1, f32, place), out = zeros({50}, f32, place);
    rank.kv.allreduce({"w"}, {value}, {out});
    EXPECT_EQ(numbers_of(out), std::vector<float>(50, 6.F));
    EXPECT_EQ(out.context(), place);
  }));
}

// The value of rank 0 is computed by a kernel that has not ended. Neither the program nor the engine waits.
TEST(FakeNcclStore, CallsFollowTheWorkOfTheDeviceAndNoThreadWaits) {
  const auto gate = std::make_shared<test::Gate>();
  std::barrier both(2);
  expect_no_errors(on_gpus(2,
                           [&](const GpuRank& rank) {
                             NDArray warm = ones({3}, f32, rank.device);
                             rank.kv.allreduce({"w"}, {warm}, {warm});
                             warm.wait();
                             NDArray value = ones({3}, f32, rank.device), out = zeros({3}, f32, rank.device);
                             value.wait();
                             both.arrive_and_wait();
                             const uint64_t before = fake_nccl::operations();
                             both.arrive_and_wait();
                             if (rank.kv.rank() == 0) test::push_held_kernel(value, 41, gate);
                             rank.kv.allreduce({"w"}, {value}, {out}, {.priority = 5});
                             if (rank.kv.rank() == 0) {
                               // NCCL has the operations of both ranks although the kernel ahead of one of
                               // them has not ended: the device orders them.
                               EXPECT_TRUE(
                                   test::becomes_true([&] { return fake_nccl::operations() == before + 2; }));
                               // Other work of the device goes on meanwhile, from its issue to its end.
                               for (int i = 0; i < 20; ++i)
                                 EXPECT_EQ(numbers_of(full({4}, i, f32, rank.device) + 1.F)[3], i + 1.F);
                               EXPECT_FALSE(out.wait(1)) << "the sum cannot be there yet";
                               gate->open();
                             }
                             EXPECT_EQ(numbers_of(out), std::vector<float>(3, 43.F));
                           },
                           {.any_order = true}));
}

TEST(FakeNcclStore, RandomProgramsHaveTheValuesOfOneProcess) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const int ranks = static_cast<int>(2 + seed % 3);
    expect_no_errors(on_gpus(
        ranks,
        [&](const GpuRank& rank) {
          // Small integers: every order of sums gives the same bits.
          std::mt19937_64 random(seed);
          constexpr size_t kKeys = 7;
          std::vector<NDArray> values;
          std::vector<float> expected(kKeys * static_cast<size_t>(ranks));
          for (size_t k = 0; k < kKeys; ++k) {
            values.push_back(
                full({static_cast<int64_t>(1 + random() % 3000)}, rank.kv.rank(), f32, rank.device));
            for (int r = 0; r < ranks; ++r)
              expected[k * static_cast<size_t>(ranks) + static_cast<size_t>(r)] = static_cast<float>(r);
          }
          for (int step = 0; step < 60; ++step) {
            const size_t k = random() % kKeys, other = random() % kKeys;
            float* const row = expected.data() + k * static_cast<size_t>(ranks);
            switch (random() % 3) {
              case 0: {  // every rank computes something of its own
                values[k] = (values[k] + static_cast<float>(rank.kv.rank() + step)) % 17.F;
                for (int r = 0; r < ranks; ++r)
                  row[r] = std::fmod(row[r] + static_cast<float>(r + step), 17.F);
                break;
              }
              case 1: {
                NDArray target = random() % 2 == 0 ? values[k] : zeros(values[k].shape(), f32, rank.device);
                rank.kv.allreduce({std::to_string(k)}, {values[k]}, {target},
                                  {.priority = static_cast<int64_t>(random() % 9)});
                values[k] = target;
                float sum = 0;
                for (int r = 0; r < ranks; ++r) sum += row[r];
                for (int r = 0; r < ranks; ++r) row[r] = sum;
                break;
              }
              default:
                rank.kv.broadcast_from_first({std::to_string(k)}, {values[k]});
                for (int r = 1; r < ranks; ++r) row[r] = row[0];
            }
            if (random() % 8 == 0) values[other].wait();
          }
          for (size_t k = 0; k < kKeys; ++k)
            EXPECT_EQ(numbers_of(values[k]),
                      std::vector<float>(
                          static_cast<size_t>(values[k].numel()),
                          expected[k * static_cast<size_t>(ranks) + static_cast<size_t>(rank.kv.rank())]))
                << "seed " << seed << ", key " << k << ", rank " << rank.kv.rank();
        },
        {.fuse_bytes = 4000, .cut_bytes = 5000, .any_order = seed % 2 == 0},
        {.mode = seed % 4 == 1   ? EngineMode::naive
                 : seed % 4 == 3 ? EngineMode::check
                                 : EngineMode::threaded}));
  }
}

}  // namespace
}  // namespace mx
