// The store of several processes, with threads as processes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "kvstore/dist_allreduce.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::on_ranks;
using Floats = std::vector<float>;

/// Values whose sum depends on the order of the additions.
NDArray rank_value(int rank, int64_t size, uint64_t key = 0) {
  std::vector<float> values(static_cast<size_t>(size));
  uint64_t state = 0x9e3779b97f4a7c15u * (static_cast<uint64_t>(rank) + 1) + key;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = (static_cast<float>(state >> 40) - 8e6f) * ((state & 1) != 0 ? 1e-3f : 1e3f);
  }
  return array(values);
}

NDArray serial_sum(int ranks, int64_t size, uint64_t key = 0) {
  NDArray sum = rank_value(0, size, key);
  for (int r = 1; r < ranks; ++r) sum = sum + rank_value(r, size, key);
  return sum;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ("", errors[r]) << "rank " << r;
}

class DistStore : public ::testing::TestWithParam<int> {
 protected:
  const int ranks_ = GetParam();
};

TEST_P(DistStore, SumsAreTheSerialSumOfTheRanks) {
  expect_no_errors(on_ranks(
      ranks_,
      [&](KVStore& kv) {
        EXPECT_EQ(ranks_, kv.size());
        // Fused, single and cut messages, in one call.
        const std::vector<int64_t> sizes = {3, 0, 5, 100, 7, 2000, 1, 1};
        std::vector<KVKey> keys;
        std::vector<KVStore::Values> values;
        std::vector<NDArray> outs;
        for (size_t i = 0; i < sizes.size(); ++i) {
          keys.emplace_back(i);
          values.emplace_back(rank_value(kv.rank(), sizes[i], i));
          outs.push_back(zeros({sizes[i]}));
        }
        for (int round = 0; round < 3; ++round) kv.allreduce(keys, values, outs, {.priority = -round});
        for (size_t i = 0; i < sizes.size(); ++i)
          EXPECT_EQ(serial_sum(ranks_, sizes[i], i).to_vector<float>(), outs[i].to_vector<float>()) << i;
      },
      {.fuse_bytes = 256, .cut_bytes = 1000, .bytes_in_flight = 4000}));
}

TEST_P(DistStore, PushReplacesByTheSumAndPullCopiesIt) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    kv.init(3, full({4}, kv.rank() + 1));
    NDArray out = zeros({4});
    kv.pull("3", out);
    EXPECT_EQ(Floats(4, 1), out.to_vector<float>()) << "the value of rank 0";
    kv.pushpull(3, rank_value(kv.rank(), 4), out);
    EXPECT_EQ(serial_sum(ranks_, 4).to_vector<float>(), out.to_vector<float>());
    kv.push(3, full({4}, 2), {.reduce = KVReduce::mean});
    kv.pull(3, out);
    EXPECT_EQ(Floats(4, 2), out.to_vector<float>());
    kv.push(3, {ones({4}), ones({4}).to(virt(0))}, {.priority = 5});
    kv.pull(3, out);
    EXPECT_EQ(Floats(4, static_cast<float>(2 * ranks_)), out.to_vector<float>());
    kv.erase(3);
    kv.init(3, zeros({2, 2}));
    error_of<InvalidArgument>([&] { kv.pull(3, out); });
  }));
}

TEST_P(DistStore, ListsEqualSingleCalls) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    std::vector<KVKey> keys = {"a", "b", 7};
    std::vector<NDArray> start = {rank_value(0, 5), rank_value(0, 6), rank_value(0, 7)};
    std::vector<NDArray> first, second;
    std::vector<KVStore::Values> values, outs;
    for (int64_t i = 0; i < 3; ++i) {
      first.push_back(zeros({5 + i}));
      second.push_back(zeros({5 + i}));
      values.emplace_back(rank_value(kv.rank(), 5 + i));
      outs.emplace_back(first.back());
    }
    kv.broadcast(keys, start, outs);
    kv.pushpull(keys, values, outs);
    for (size_t i = 0; i < 3; ++i) kv.pushpull(keys[i], values[i], second[i]);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(first[i].to_vector<float>(), second[i].to_vector<float>());
    error_of<InvalidArgument>([&] { kv.pushpull(keys, values, {outs[0]}); });
  }));
}

TEST_P(DistStore, TypesAreAddedAsOneProcessAddsThem) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    for (const DType type : {f16, bf16, f64}) {
      const NDArray own = (rank_value(kv.rank(), 9) / 1e7).to(type);
      NDArray sum = zeros({9}, type == f64 ? f64 : f32), expected;
      kv.allreduce({KVKey(to_string(type))}, {own}, {sum});
      for (int r = 0; r < ranks_; ++r) {
        const NDArray each = (rank_value(r, 9) / 1e7).to(type).to(sum.dtype());
        expected = r == 0 ? each : expected + each;
      }
      EXPECT_EQ(expected.to_vector<double>(), sum.to_vector<double>()) << type;
    }
    NDArray count = zeros({2}, i64), flags = zeros({1}, i32), half = zeros({1}, f16);
    kv.allreduce({"u8"}, {full({2}, 200, u8)}, {count});
    kv.allreduce({"bool"}, {ones({1}, bool_)}, {flags});
    kv.allreduce({"half"}, {ones({1}, f16)}, {half}, {.accumulate_f32 = false});
    EXPECT_EQ(std::vector<int64_t>(2, 200 * ranks_), count.to_vector<int64_t>());
    EXPECT_EQ(ranks_, flags.item<int32_t>());
    EXPECT_EQ(static_cast<float>(ranks_), half.to(f32).item<float>());
    error_of<InvalidArgument>(
        [&] { kv.allreduce({"u8"}, {full({2}, 200, u8)}, {count}, {.reduce = KVReduce::mean}); });
  }));
}

TEST_P(DistStore, TheOptimizerIsThatOfArrays) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    kv.init("w", ones({6}));
    kv.set_optimizer("adam", {{"lr", 0.5}});
    const NDArray expected = ones({6});
    const auto adam = optim::make_optimizer("adam", {{"lr", 0.5}}, std::vector<NDArray>{expected});
    for (int step = 0; step < 3; ++step) {
      if (step == 2) {
        kv.set_optimizer_option("lr", 0.25);
        adam->set_learning_rate(0.25);
      }
      kv.push("w", rank_value(kv.rank(), 6));
      adam->step(std::vector<NDArray>{serial_sum(ranks_, 6)});
    }
    NDArray out = zeros({6});
    kv.pull("w", out);
    EXPECT_EQ(expected.to_vector<float>(), out.to_vector<float>());
    error_of<InvalidArgument>([&] { kv.set_optimizer("magic", {}); });
    error_of<InvalidArgument>([&] { kv.set_compression("magic"); });
    kv.set_compression("none");
  }));
}

TEST_P(DistStore, BroadcastFromFirstCopiesTheValuesOfRank0) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    NDArray a = full({3, 2}, kv.rank() + 5), b = full({4}, kv.rank() + 7, i64),
            c = full({2}, kv.rank() == 0, bool_);
    kv.broadcast_from_first({"a", "b", "c"}, {a, b, c});
    EXPECT_EQ(Floats(6, 5), a.to_vector<float>());
    EXPECT_EQ(std::vector<int64_t>(4, 7), b.to_vector<int64_t>());
    EXPECT_EQ(2, sum(c.to(i64)).item<int64_t>());
  }));
}

TEST_P(DistStore, SlicesAreSummedAndGathered) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    for (const int64_t size : {1, 7, 1000}) {
      const std::string key = "flat" + std::to_string(size);
      NDArray flat = kv.buffer(size, f32);
      flat.copy_from(rank_value(kv.rank(), size));
      const Slice own = kv.slice_of(size);
      kv.sum_slices(key, flat);
      EXPECT_EQ(serial_sum(ranks_, size).slice(0, own).to_vector<float>(),
                flat.slice(0, own).to_vector<float>());
      kv.gather_slices(key, flat);
      EXPECT_EQ(serial_sum(ranks_, size).to_vector<float>(), flat.to_vector<float>());
    }
  }));
}

TEST_P(DistStore, SavesAndLoads) {
  const std::string path = testing::TempDir() + "dist_store_" + std::to_string(ranks_) + ".safetensors";
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    kv.init("w", ones({6}));
    kv.init("v", full({2}, 3));
    kv.set_optimizer("sgd", {{"lr", 0.5}, {"momentum", 0.9}});
    kv.push("w", rank_value(kv.rank(), 6));
    kv.save(path);
    kv.push("w", rank_value(kv.rank(), 6));
    NDArray expected = zeros({6}), got = zeros({6});
    kv.pull("w", expected);
    kv.load(path);
    kv.push("w", rank_value(kv.rank(), 6));
    kv.pull("w", got);
    EXPECT_EQ(expected.to_vector<float>(), got.to_vector<float>());
    kv.init("more", zeros({1}));
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv.load(path); }), "more"));
    EXPECT_TRUE(contains(error_of<FileError>([&] { kv.load("/nowhere/file"); }), "/nowhere/file"));
    EXPECT_TRUE(contains(error_of<FileError>([&] { kv.save("/nowhere/file"); }), "/nowhere"));
    kv.barrier();
  }));
  std::filesystem::remove(path);
}

// The state of the key "w:1" begins with the prefix of the key "w".
TEST_P(DistStore, LoadsKeysOfWhichOneBeginsWithTheOther) {
  const std::string path = testing::TempDir() + "dist_prefix_" + std::to_string(ranks_) + ".safetensors";
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    kv.init("w", ones({2}));
    kv.init("w:1", ones({2}));
    kv.set_optimizer("sgd", {{"lr", 0.5}, {"momentum", 0.9}});
    kv.push("w:1", ones({2}));
    kv.save(path);
    EXPECT_NO_THROW(kv.load(path));
    kv.barrier();
  }));
  std::filesystem::remove(path);
}

TEST_P(DistStore, AMeanOfIntegersIsRefusedBeforeAnythingChanges) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    kv.init("real", zeros({2}));
    kv.init("whole", zeros({2}, i32));
    const KVOptions mean{.reduce = KVReduce::mean};
    NDArray real = ones({2}), whole = ones({2}, i32);
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                           kv.pushpull({"real", "whole"}, {{real}, {whole}}, {{real}, {whole}}, mean);
                         }),
                         "whole"));
    NDArray got = ones({2});
    kv.pull("real", got);
    EXPECT_EQ((std::vector<float>{0, 0}), got.to_vector<float>());
  }));
}

TEST_P(DistStore, BarriersWaitForAll) {
  std::atomic<int> arrived{0};
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    arrived.fetch_add(1);
    kv.barrier(30000);
    EXPECT_EQ(ranks_, arrived.load());
    kv.barrier();
    arrived.fetch_sub(1);
    NDArray token = zeros({1});
    kv.push_barrier(token, {.priority = 1});
    token.wait();
    EXPECT_EQ(0, arrived.load());
  }));
}

TEST_P(DistStore, CallsStartInTheOrderOfTheProgram) {
  expect_no_errors(on_ranks(ranks_, [&](KVStore& kv) {
    // The values become ready in another order on each rank.
    const size_t count = 6;
    std::vector<NDArray> values, outs;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(rank_value(kv.rank(), 50, i));
      outs.push_back(zeros({50}));
    }
    std::vector<test::Hold> holds(count);
    for (size_t i = 0; i < count; ++i)
      current_engine().push_async(holds[i].operation(), {.updates = {values[i].var()}, .name = "hold"});
    for (size_t i = 0; i < count; ++i)
      kv.allreduce({i}, {values[i]}, {outs[i]}, {.priority = static_cast<int>(i)});
    for (size_t i = 0; i < count; ++i) {
      holds[(i * 5 + static_cast<size_t>(kv.rank())) % count].release();
    }
    for (size_t i = 0; i < count; ++i)
      EXPECT_EQ(serial_sum(ranks_, 50, i).to_vector<float>(), outs[i].to_vector<float>());
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, DistStore, ::testing::Values(1, 2, 3, 5));

TEST(DistStoreErrors, KeysThatDifferAreNamed) {
  for (const int odd : {0, 1, 2}) {
    const auto errors = on_ranks(3, [&](KVStore& kv) {
      NDArray a = zeros({2}), b = kv.rank() == odd ? zeros({3, 1}) : zeros({3});
      kv.allreduce({"first", "second"}, {a, b}, {a, b});
      b.wait();
    });
    for (const std::string& error : errors) {
      EXPECT_TRUE(contains(error, "\"second\"")) << error;
      EXPECT_TRUE(contains(error, "(3, 1)") && contains(error, "(3,)")) << error;
      EXPECT_TRUE(contains(error, "on rank " + std::to_string(odd))) << error;
    }
  }
}

TEST(DistStoreErrors, TypesAndOrdersThatDifferAreNamed) {
  std::atomic<int> protocol{0};
  on_ranks(2, [&](KVStore& kv) {
    NDArray a = zeros({2}, kv.rank() == 0 ? f32 : f64);
    kv.allreduce({"w"}, {a}, {a});
    const std::string message = error_of<ProtocolError>([&] { a.wait(); });
    protocol += contains(message, "f32") && contains(message, "f64");
  });
  EXPECT_EQ(2, protocol.load());
  on_ranks(2, [&](KVStore& kv) {
    NDArray a = zeros({2}), b = zeros({2});
    if (kv.rank() == 0) kv.allreduce({"a"}, {a}, {a});
    kv.allreduce({"b"}, {b}, {b});
    if (kv.rank() == 1) kv.allreduce({"a"}, {a}, {a});
    const std::string message = error_of<ProtocolError>([&] { b.wait(); });
    protocol += contains(message, "\"a\"") && contains(message, "\"b\"");
  });
  EXPECT_EQ(4, protocol.load());
}

TEST(DistStoreErrors, AValueThatHasFailedEndsTheCalls) {
  const auto errors = on_ranks(
      2,
      [&](KVStore& kv) {
        NDArray a = zeros({2}), out = zeros({2});
        kv.allreduce({"a"}, {a}, {out});
        out.wait();
        if (kv.rank() == 1)
          current_engine().push([] { throw std::runtime_error("lost batch"); },
                                {.updates = {a.var()}, .name = "bad"});
        kv.allreduce({"a"}, {a}, {out});
        NDArray next = zeros({2});
        kv.allreduce({"b"}, {next}, {next});
        if (kv.rank() == 1)
          EXPECT_TRUE(contains(error_of<Error>([&] { out.wait(); }), "lost batch"));
        else
          error_of<Error>([&] { out.wait(); });
        error_of<Error>([&] { next.wait(); });
      },
      {}, 3000);
  expect_no_errors(errors);
}

TEST(DistStoreErrors, ARankThatDoesNotComeIsNamed) {
  const auto errors = on_ranks(
      3,
      [&](KVStore& kv) {
        NDArray a = zeros({2});
        kv.allreduce({"gradient"}, {a}, {a});
        a.wait();
        if (kv.rank() == 2) return;
        kv.allreduce({"gradient"}, {a}, {a});
        const std::string message = error_of<Error>([&] { a.wait(); });
        EXPECT_TRUE(contains(message, "gradient")) << message;
        EXPECT_TRUE(contains(message, "rank 2")) << message;
      },
      {}, 3000);
  expect_no_errors(errors);
}

TEST(DistStoreErrors, ValuesThatHaveDivergedAreNamed) {
  expect_no_errors(on_ranks(3, [&](KVStore& kv) {
    NDArray token = zeros({1}), a = ones({4}), b = ones({5});
    kv.check_equal({"a", "b"}, {a, b}, token);
    token.wait();
    if (kv.rank() == 1) b[2] = 2;
    kv.check_equal({"a", "b"}, {a, b}, token);
    const std::string message = error_of<ProtocolError>([&] { token.wait(); });
    EXPECT_TRUE(contains(message, "\"b\"") && contains(message, "rank(s) 1 ")) << message;
  }));
}

}  // namespace
}  // namespace mx
