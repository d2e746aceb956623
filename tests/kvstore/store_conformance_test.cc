// What all types of stores have in common, for one and for several processes.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/io/io_error.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/kvstore/rank_values.h"
#include "tests/kvstore/store_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::expect_no_errors;
using test::rank_value;
using test::serial_sum;
using Floats = std::vector<float>;

class StoreConformance : public ::testing::TestWithParam<test::StoreCase> {
 protected:
  std::vector<std::string> on_ranks(const std::function<void(KVStore& store)>& body,
                                    const KVStoreOptions& options = {}) const {
    return test::on_stores(GetParam(), body, options);
  }
  bool has_servers() const { return GetParam().servers > 0; }
  const int ranks_ = GetParam().ranks;
};

TEST_P(StoreConformance, SumsAreTheSerialSumOfTheRanks) {
  expect_no_errors(on_ranks(
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

TEST_P(StoreConformance, PushReplacesByTheSumAndPullCopiesIt) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, RowsAreCopiedAlone) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("table", arange(12, f32).reshape({4, 3}));
    NDArray out = full({4, 3}, -1), half = full({4, 3}, -2, f16);
    kv.row_sparse_pull("table", array<int64_t>({2, 0, 2}), {out, half});
    EXPECT_EQ((Floats{0, 1, 2, -1, -1, -1, 6, 7, 8, -1, -1, -1}), out.to_vector<float>());
    EXPECT_EQ((Floats{0, 1, 2, -2, -2, -2, 6, 7, 8, -2, -2, -2}), half.to(f32).to_vector<float>());
    kv.row_sparse_pull("table", zeros({0}, i32), out);
    EXPECT_EQ(-1, out[1][0].item<float>());
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv.row_sparse_pull("table", ones({2}), out); }),
                         "[row_sparse_pull] expected integers (n,) that name rows of key \"table\""));
    error_of<InvalidArgument>([&] { kv.row_sparse_pull("none", array<int64_t>({1}), out); });
    NDArray bad = zeros({4, 3});
    kv.row_sparse_pull("table", array<int64_t>({4}), bad);
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { bad.wait(); }), "store_conformance_test.cc:"));
  }));
}

TEST_P(StoreConformance, ListsEqualSingleCalls) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, TypesAreAddedAsOneProcessAddsThem) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, TheOptimizerIsThatOfArrays) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, BroadcastFromFirstCopiesTheValuesOfRank0) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    NDArray a = full({3, 2}, kv.rank() + 5), b = full({4}, kv.rank() + 7, i64),
            c = full({2}, kv.rank() == 0, bool_);
    kv.broadcast_from_first({"a", "b", "c"}, {a, b, c});
    EXPECT_EQ(Floats(6, 5), a.to_vector<float>());
    EXPECT_EQ(std::vector<int64_t>(4, 7), b.to_vector<int64_t>());
    EXPECT_EQ(2, sum(c.to(i64)).item<int64_t>());
  }));
}

TEST_P(StoreConformance, SlicesAreSummedAndGathered) {
  if (has_servers() && ranks_ > 1) GTEST_SKIP() << "stores with servers have no slices";
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, SavesAndLoads) {
  const std::string path = testing::TempDir() + "dist_store_" + GetParam().name() + ".safetensors";
  expect_no_errors(on_ranks([&](KVStore& kv) {
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
    const auto load = [&] { kv.load("/nowhere/file"); };
    const auto save = [&] { kv.save("/nowhere/file"); };
    // The type of the error does not survive the way through a server.
    const bool typed = !has_servers() || kv.rank() == 0;
    EXPECT_TRUE(contains(typed ? error_of<FileError>(load) : error_of<Error>(load), "/nowhere/file"));
    EXPECT_TRUE(contains(typed ? error_of<FileError>(save) : error_of<Error>(save), "/nowhere"));
    kv.barrier();
  }));
  std::filesystem::remove(path);
}

TEST_P(StoreConformance, ContinuesFromItsState) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("w", ones({6}));
    kv.init("v", full({2}, 3));
    kv.set_optimizer("sgd", {{"lr", 0.5}, {"momentum", 0.9}});
    kv.push("w", rank_value(kv.rank(), 6));
    NamedArrays state = kv.state_dict();
    const auto names = [](const NamedArrays& arrays) {
      std::vector<std::string> list;
      for (const auto& [name, array] : arrays) list.push_back(name);
      return list;
    };
    if (kv.rank() == 0) {
      EXPECT_EQ(names(state)[0], "array:v");
      EXPECT_GT(state.size(), 2u) << "the state of the optimiser is missing";
    }
    kv.push("w", rank_value(kv.rank(), 6));
    NDArray expected = zeros({6}), got = zeros({6});
    kv.pull("w", expected);
    kv.load_state_dict(state);
    kv.push("w", rank_value(kv.rank(), 6));
    kv.pull("w", got);
    EXPECT_EQ(expected.to_vector<float>(), got.to_vector<float>());
    // What does not fit changes nothing.
    state.emplace_back("array:unknown", ones({1}));
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv.load_state_dict(state); }), "unknown"));
    kv.barrier();
  }));
}

// The state of the key "w:1" begins with the prefix of the key "w".
TEST_P(StoreConformance, LoadsKeysOfWhichOneBeginsWithTheOther) {
  const std::string path = testing::TempDir() + "dist_prefix_" + GetParam().name() + ".safetensors";
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, AKeyOfIntegersIsLoadedWithoutAnOptimizer) {
  const std::string path = testing::TempDir() + "dist_integers_" + GetParam().name() + ".safetensors";
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("count", full({2}, 7, i64));
    kv.init("w", ones({2}));
    kv.set_optimizer("sgd", {{"lr", 0.5}, {"momentum", 0.9}});
    kv.push("w", ones({2}));
    kv.save(path);
    EXPECT_NO_THROW(kv.load(path));
    const NamedArrays state = kv.state_dict();
    EXPECT_NO_THROW(kv.load_state_dict(state));
    NDArray count = zeros({2}, i64);
    kv.pull("count", count);
    EXPECT_EQ(std::vector<int64_t>(2, 7), count.to_vector<int64_t>());
    kv.barrier();
  }));
  std::filesystem::remove(path);
}

// Without servers the message is compared; with servers only some ranks receive an array.
TEST_P(StoreConformance, ABroadcastOfOtherShapesFailsTheNextBarrierOfAllRanks) {
  if (ranks_ == 1) GTEST_SKIP() << "one rank has one shape";
  std::atomic<int> named{0};
  on_ranks([&](KVStore& kv) {
    const NDArray value = zeros({kv.rank() == 1 ? 3 : 2}), token = zeros({1});
    try {
      kv.broadcast_from_first({"head"}, {value});
      kv.push_barrier(token, {});
      token.wait();
      value.wait();
    } catch (const ProtocolError& error) {
      named += contains(error.what(), "head") && contains(error.what(), "(3") && contains(error.what(), "(2");
    }
  });
  // With servers, a rank that has the shape of rank 0 receives its value.
  EXPECT_GE(named.load(), 2);
}

TEST_P(StoreConformance, TheLongestTimeLimitIsNone) {
  const std::string path = std::filesystem::temp_directory_path() / ("mx_limit_" + GetParam().name());
  expect_no_errors(on_ranks(
      [&](KVStore& kv) {
        NDArray a = ones({2});
        kv.init("k", a);
        kv.allreduce({"a"}, {a}, {a}, {.timeout_ms = INT64_MAX});
        kv.barrier(INT64_MAX);
        kv.save(path);
        kv.barrier();
        EXPECT_EQ(static_cast<float>(ranks_), a.to_vector<float>()[0]);
      },
      {.timeout_ms = INT64_MAX}));
  std::filesystem::remove(path);
}

TEST_P(StoreConformance, BarriersWaitForAll) {
  std::atomic<int> arrived{0};
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, AnOptionThatChangesTheStateOfTheOptimiserIsRefused) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("w", ones({3}));
    NDArray out = zeros({3});
    const auto step = [&] {
      kv.pushpull("w", ones({3}), out);
      return out.to_vector<float>();
    };
    const auto expect_refused = [&](const std::string& option, double value) {
      const std::string text = error_of<InvalidArgument>([&] { kv.set_optimizer_option(option, value); });
      EXPECT_TRUE(contains(text, option + " = ") && contains(text, "store_conformance_test.cc:")) << text;
    };
    kv.set_optimizer("sgd", {{"lr", 0.5}, {"momentum", 0.5}});
    expect_refused("momentum", 0);
    step();
    expect_refused("momentum", 0);
    kv.set_optimizer_option("momentum", 0.25);
    step();
    kv.set_optimizer("sgd", {{"lr", 0.5}});
    expect_refused("momentum", 0.9);
    const float before = step()[0];
    EXPECT_EQ(Floats(3, before - 0.5f * static_cast<float>(ranks_)), step()) << "the store goes on";
  }));
}

TEST_P(StoreConformance, AllProcessesGetTheErrorOfAFileWithItsType) {
  const std::string path = testing::TempDir() + "no_store_" + GetParam().name();
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("w", ones({3}));
    const std::string missing = path + " is missing";
    try {
      kv.load(missing);
      ADD_FAILURE() << "expected an error";
    } catch (const FileError& error) {
      EXPECT_EQ(missing, error.path());
      EXPECT_EQ(ENOENT, error.code());
      EXPECT_EQ("open", error.operation());
    }
    const std::string text = error_of<FileError>([&] { kv.load("/dev/null"); });
    EXPECT_TRUE(contains(text, "/dev/null': expected")) << text;
    if (kv.rank() == 0) std::ofstream(path) << "no store";
    error_of<FormatError>([&] { kv.load(path); });
    kv.init("other", ones({2}));
    kv.save(path);
    kv.erase("other");
    EXPECT_FALSE(contains(error_of<InvalidArgument>([&] { kv.load(path); }), "called at"))
        << "the line is not known";
    NDArray out = zeros({3});
    kv.pull("w", out);
    EXPECT_EQ(Floats(3, 1), out.to_vector<float>());
  }));
  std::filesystem::remove(path);
}

TEST_P(StoreConformance, AnUpdaterThatLeavesNoArrayOfTheKeyIsNamed) {
  if (has_servers()) return;  // servers run no updater
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("w", ones({3}));
    NDArray out = zeros({3});
    for (const NDArray& wrong : {NDArray(), zeros({2}), zeros({3}, i64)}) {
      kv.set_updater([&](const std::string&, const NDArray&, NDArray& stored) { stored = wrong; });
      const std::string text = error_of<InvalidArgument>([&] { kv.push("w", ones({3})); });
      EXPECT_TRUE(contains(text, "the updater") && contains(text, "\"w\"")) << text;
      kv.pull("w", out);
      EXPECT_EQ(Floats(3, 1), out.to_vector<float>()) << "the old array";
    }
  }));
}

TEST_P(StoreConformance, CallsStartInTheOrderOfTheProgram) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
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

TEST_P(StoreConformance, ErrorsNameTheLineOfTheProgram) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("w", zeros({2}));
    NDArray bad = zeros({2}), out = zeros({2}), sum = zeros({2});
    current_engine().push([] { throw std::runtime_error("lost batch"); },
                          {.updates = {bad.var()}, .name = "bad"});
    kv.pushpull("w", bad, out);
    const std::string text = error_of<Error>([&] { out.wait(); });
    EXPECT_TRUE(contains(text, "store_conformance_test.cc")) << text;
    EXPECT_FALSE(contains(text, "kvstore/dist")) << text;
    EXPECT_TRUE(contains(text, "lost batch")) << text;
    if (has_servers()) kv.erase("w");
  }));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance, ::testing::ValuesIn(test::store_cases()),
                         [](const auto& c) { return c.param.name(); });

/// What a store has after one push of each type of values, with all options: bytes, by a description.
std::map<std::string, std::string> pushed_values(const test::StoreCase& c,
                                                 const std::string& optimizer = "") {
  std::map<std::string, std::string> results;
  std::mutex mutex;
  const auto errors = test::on_stores(c, [&](KVStore& kv) {
    if (!optimizer.empty()) kv.set_optimizer(optimizer, {{"lr", 0.1}});
    for (const DType stored : {f16, f32, f64, i64})
      for (const DType type : {f16, bf16, f32, f64, i8, u8, i32, i64, bool_})
        for (const bool accumulate : {true, false})
          for (const KVReduce reduce : {KVReduce::sum, KVReduce::mean}) {
            const bool floats = is_floating(type) && (optimizer.empty() || is_floating(stored));
            if ((reduce == KVReduce::mean || !optimizer.empty()) && !floats) continue;
            const std::string name = to_string(stored) + std::string(" of ") + to_string(type) +
                                     (accumulate ? " in f32" : "") +
                                     (reduce == KVReduce::mean ? ", mean" : "");
            const auto value = [&](uint64_t seed) {
              const NDArray real = rank_value(kv.rank(), 33, seed) * (is_floating(type) ? 1e-8 : 1e-9);
              return is_floating(type) ? real.to(type) : abs(real).to(type);
            };
            const NDArray a = value(1), b = value(2);
            kv.init(name, zeros({33}, stored));
            kv.push(name, {a, b}, {.reduce = reduce, .accumulate_f32 = accumulate});
            // Of the type in which the store keeps it.
            NDArray out = zeros({33}, stored == f16 ? f32 : stored);
            kv.pull(name, out);
            std::string bytes(out.bytes(), '\0');
            if (out.dtype() == f64) {
              std::memcpy(bytes.data(), out.to_vector<double>().data(), bytes.size());
            } else if (out.dtype() == i64) {
              std::memcpy(bytes.data(), out.to_vector<int64_t>().data(), bytes.size());
            } else {
              std::memcpy(bytes.data(), out.to_vector<float>().data(), bytes.size());
            }
            const std::lock_guard lock(mutex);
            const auto [found, added] = results.emplace(name, bytes);
            EXPECT_EQ(found->second, bytes) << name << ": the ranks differ";
          }
  });
  expect_no_errors(errors);
  return results;
}

TEST(StoreBits, ServersGiveTheBitsOfAllreduceForAllTypes) {
  for (const int ranks : {2, 3}) {
    const auto expected = pushed_values({"dist_allreduce", ranks});
    const auto got = pushed_values({"dist_sync", ranks, 2});
    ASSERT_FALSE(expected.empty());
    ASSERT_EQ(expected.size(), got.size());
    for (const auto& [name, bytes] : expected) EXPECT_TRUE(got.at(name) == bytes) << name;
  }
  EXPECT_EQ(pushed_values({"local"}), pushed_values({"dist_async", 1, 2}));
  EXPECT_EQ(pushed_values({"dist_allreduce", 2}, "adam"), pushed_values({"dist_sync", 2, 2}, "adam"));
}

}  // namespace
}  // namespace mx
