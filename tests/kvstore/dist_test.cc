// Errors of stores of several processes without servers, with threads as processes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "kvstore/dist_allreduce.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/kvstore/rank_values.h"
#include "tests/kvstore/shm_threads.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::expect_no_errors;
using test::on_ranks;

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
      EXPECT_TRUE(contains(error, "dist_test.cc")) << error;
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

// The group itself does not compare allocations with calls.
TEST(DistStoreErrors, AnAllocationOfOneRankIsComparedWithTheCallOfAnother) {
  std::atomic<int> named{0};
  test::on_group(test::make_shm_threads(2), [&](KVStore& kv) {
    NDArray a = ones({2});
    if (kv.rank() == 0) kv.allreduce({"a"}, {a}, {a});
    const std::string message = error_of<ProtocolError>([&] {
      if (kv.rank() == 1) kv.buffer(10, f32);
      a.wait();
      kv.barrier();
    });
    named += contains(message, "buffer") && contains(message, "comparison of keys");
  });
  EXPECT_EQ(2, named.load());
  test::on_group(test::make_shm_threads(2), [&](KVStore& kv) {
    const std::string message = error_of<ProtocolError>([&] { kv.buffer(10 + kv.rank(), f32); });
    named += contains(message, "10 x f32 on rank 0; 11 x f32 on rank 1");
  });
  EXPECT_EQ(4, named.load());
  // Keys that share a message: 2, 2 and 3 values, and 2, 3 and 3.
  on_ranks(2, [&](KVStore& kv) {
    std::vector<NDArray> outs{zeros({2}), zeros({2}), zeros({2})};
    const auto values = [](size_t count) { return KVStore::Values(std::vector<NDArray>(count, ones({2}))); };
    kv.allreduce({"a", "b", "c"}, {values(2), values(kv.rank() == 0 ? 2 : 3), values(3)}, outs,
                 {.reduce = KVReduce::mean});
    const std::string message = error_of<ProtocolError>([&] { outs[1].wait(); });
    named += contains(message, "mean of 2 for 2 keys, 3 for 1 key ") &&
             contains(message, "mean of 2 for 1 key, 3 for 2 keys");
  });
  EXPECT_EQ(6, named.load());
}

TEST(DistStoreErrors, AnInitialValueOfAnotherShapeIsAnErrorOfAllRanks) {
  std::atomic<int> named{0};
  on_ranks(3, [&](KVStore& kv) {
    const NDArray value = zeros({kv.rank() == 1 ? 3 : 2});
    kv.init("w", value);
    NDArray out = zeros(value.shape());
    kv.pull("w", out);
    const std::string text = error_of<ProtocolError>([&] { out.wait(); });
    named += contains(text, "(3,)") && contains(text, "\"w\"");
  });
  EXPECT_EQ(3, named.load());
}

TEST(DistStoreErrors, ABarrierNamesTheRankThatAPendingCallWaitsFor) {
  const auto errors = on_ranks(2,
                               [&](KVStore& kv) {
                                 NDArray a = zeros({2});
                                 if (kv.rank() == 0) {
                                   kv.allreduce({"w"}, {a}, {a});
                                   kv.barrier();
                                 } else {
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                                 }
                               },
                               {.timeout_ms = 300});
  EXPECT_TRUE(contains(errors[0], "rank 1") && contains(errors[0], "'w'")) << errors[0];
}

TEST(DistStoreErrors, ABarrierNamesTheOtherRankIfACallWithALongerLimitWaits) {
  std::promise<void> over;
  const auto is_over = over.get_future().share();
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    NDArray a = zeros({2});
    kv.allreduce({"w"}, {a}, {a});
    a.wait();
    if (kv.rank() == 1) return is_over.wait();
    kv.allreduce({"w"}, {a}, {a});
    const std::string message = error_of<Timeout>([&] { kv.barrier(300); });
    over.set_value();
    EXPECT_TRUE(contains(message, "wait for rank 1 on host ")) << message;
  });
  EXPECT_EQ("", errors[0]);
}

TEST(DistStoreErrors, WhatHappensOnRank0IsItsOwnErrorEvenIfAnotherRankHasLeft) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    kv.init("w", ones({2}));
    kv.barrier();
    if (kv.rank() == 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    kv.save("/nonexistent/folder/file");
  });
  EXPECT_TRUE(contains(errors[0], "/nonexistent/folder")) << errors[0];
}

TEST(DistStoreErrors, AValueThatHasFailedEndsTheCallsOfAllRanks) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    NDArray a = zeros({2}), out = zeros({2});
    kv.allreduce({"a"}, {a}, {out});
    out.wait();
    if (kv.rank() == 1)
      current_engine().push([] { throw std::runtime_error("lost batch"); },
                            {.updates = {a.var()}, .name = "bad"});
    kv.allreduce({"a"}, {a}, {out});
    NDArray next = zeros({2});
    kv.allreduce({"b"}, {next}, {next});
    const std::string text = error_of<Error>([&] { out.wait(); });
    EXPECT_TRUE(contains(text, "lost batch")) << text;
    if (kv.rank() == 0) {
      EXPECT_TRUE(contains(text, "'a'")) << text;
      EXPECT_TRUE(contains(text, "on rank 1 on ")) << text;
    }
    error_of<Error>([&] { next.wait(); });
  });
  expect_no_errors(errors);
}

TEST(DistStoreErrors, ARankThatDoesNotComeIsNamed) {
  for (const KVOrder order : {KVOrder::program, KVOrder::priority}) {
    const auto errors = on_ranks(
        3,
        [&](KVStore& kv) {
          NDArray a = zeros({2}), b = zeros({2});
          kv.allreduce({"gradient"}, {a}, {a});
          a.wait();
          if (kv.rank() == 2) return;
          kv.allreduce({"gradient"}, {a}, {a});
          kv.allreduce({"other"}, {b}, {b}, {.priority = 1});
          const std::string message = error_of<Error>([&] { a.wait(); });
          EXPECT_TRUE(contains(message, "gradient")) << message;
          EXPECT_TRUE(contains(message, "rank 2")) << message;
          error_of<Error>([&] { b.wait(); });
        },
        {.order = order}, 3000);
    expect_no_errors(errors);
  }
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

TEST(DistStoreErrors, ABarrierNamesTheProcessThatDoesNotCome) {
  expect_no_errors(on_ranks(3, [&](KVStore& kv) {
    kv.barrier(20000);
    if (kv.rank() == 2) return;
    const std::string message = error_of<Error>([&] { kv.barrier(300); });
    EXPECT_TRUE(contains(message, "rank 2")) << message;
  }));
}

TEST(DistStoreErrors, DivergedValuesDoNotEndTheStore) {
  expect_no_errors(on_ranks(3, [&](KVStore& kv) {
    NDArray token = zeros({1}), a = full({4}, kv.rank() == 1 ? 2.0 : 1.0), b = full({5}, kv.rank());
    kv.check_equal({"a"}, {a}, token);
    EXPECT_TRUE(contains(error_of<ProtocolError>([&] { token.wait(); }), "\"a\""));
    NDArray second = zeros({1});
    kv.check_equal({"b"}, {b}, second);
    EXPECT_TRUE(contains(error_of<ProtocolError>([&] { second.wait(); }), "\"b\""));
    kv.broadcast_from_first({"b"}, {b});  // the way back
    kv.check_equal({"b"}, {b}, second);
    second.wait();
    kv.allreduce({"a"}, {a}, {a});
    EXPECT_EQ(a.to_vector<float>(), std::vector<float>(4, 4.f));
  }));
}

TEST(DistStore, ABarrierKeepsItsTimeLimitWhileOperationsRun) {
  test::Hold held;
  std::atomic<int> in_time{0};
  on_ranks(2, [&](KVStore& kv) {
    NDArray slow = zeros({1});
    if (kv.rank() == 0)
      current_engine().push_async(held.operation(), {.updates = {slow.var()}, .name = "slow"});
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = error_of<Error>([&] { kv.barrier(200); });
    in_time += std::chrono::steady_clock::now() - begin < std::chrono::seconds(20);
    if (kv.rank() == 0) {
      EXPECT_TRUE(contains(message, "in flight")) << message;
      held.release();
    }
  });
  EXPECT_EQ(2, in_time.load());
}

TEST(DistStore, TheOthersWaitWhileRank0Saves) {
  const std::string path = testing::TempDir() + "slow_store.safetensors";
  const auto errors = on_ranks(
      2,
      [&](KVStore& kv) {
        kv.init("w", zeros({2}));
        kv.set_updater([&](const std::string&, const NDArray& sum, NDArray& stored) {
          if (kv.rank() > 0) return;
          current_engine().push([] { std::this_thread::sleep_for(std::chrono::milliseconds(5000)); },
                                {.reads = {sum.var()}, .updates = {stored.var()}, .name = "slow"});
        });
        kv.push("w", ones({2}));
        kv.save(path);  // waits on rank 0 for the stored array
        kv.load(path);
      },
      {}, 3000);
  expect_no_errors(errors);
  std::filesystem::remove(path);
}

TEST(DistStoreErrors, MeansOfOtherNumbersOfValuesAreNamed) {
  std::atomic<int> named{0};
  on_ranks(2, [&](KVStore& kv) {
    NDArray a = ones({2}), b = ones({2}), out = zeros({2});
    std::vector<NDArray> values{a};
    if (kv.rank() == 1) values.push_back(b);
    kv.allreduce({"w"}, {values}, {out}, {.reduce = KVReduce::mean});
    const std::string message = error_of<ProtocolError>([&] { out.wait(); });
    named += contains(message, "mean of 1") && contains(message, "mean of 2");
  });
  EXPECT_EQ(2, named.load());
  on_ranks(2, [&](KVStore& kv) {
    NDArray a = ones({2});
    kv.allreduce({"w"}, {a}, {a}, {.reduce = kv.rank() == 0 ? KVReduce::sum : KVReduce::mean});
    named += contains(error_of<ProtocolError>([&] { a.wait(); }), "mean of 1");
  });
  EXPECT_EQ(4, named.load());
}

TEST(DistStoreErrors, OptimizersThatDifferAreNamed) {
  std::atomic<int> named{0};
  const auto step = [](KVStore& kv) {
    NDArray grad = ones({2}), out = zeros({2});
    kv.push("w", grad);
    kv.pull("w", out);
    return error_of<ProtocolError>([&] { out.wait(); });
  };
  on_ranks(2, [&](KVStore& kv) {
    kv.init("w", zeros({2}));
    kv.set_optimizer("sgd", {{"lr", kv.rank() == 0 ? 0.5 : 0.25}});
    const std::string message = step(kv);
    named += contains(message, "lr = 0.5") && contains(message, "lr = 0.25");
  });
  on_ranks(2, [&](KVStore& kv) {
    kv.init("w", zeros({2}));
    kv.set_optimizer("sgd", {{"lr", 0.5}});
    kv.set_optimizer_option("lr", kv.rank() == 0 ? 1 : 2);
    const std::string message = step(kv);
    named += contains(message, "lr = 1") && contains(message, "lr = 2");
  });
  on_ranks(2, [&](KVStore& kv) {
    kv.init("w", zeros({2}));
    kv.set_optimizer("sgd", {{"lr", 1.0}});
    kv.set_optimizer_option("lr", kv.rank() == 0 ? 0.5 : 0.5 + 0x1p-30);
    named += contains(step(kv), "lr = 0.500000000931");
  });
  on_ranks(2, [&](KVStore& kv) {
    kv.init("w", zeros({2}));
    if (kv.rank() == 0) kv.set_optimizer("sgd", {{"lr", 0.5}});
    named += contains(step(kv), "set_optimizer");
  });
  EXPECT_EQ(8, named.load());
}

TEST(DistStoreErrors, AKeyWhoseTypeChangesOnOneRankIsNamed) {
  on_ranks(2, [&](KVStore& kv) {
    NDArray a = ones({2});
    kv.allreduce({"w"}, {a}, {a});
    NDArray next = kv.rank() == 0 ? ones({2}) : ones({2}, f64);
    kv.allreduce({"w"}, {next}, {next});
    const std::string message = error_of<ProtocolError>([&] { next.wait(); });
    EXPECT_TRUE(contains(message, "\"w\" as f64")) << message;
  });
}

TEST(DistStore, WhatItWritesCountsAsAChange) {
  expect_no_errors(on_ranks(2, [&](KVStore& kv) {
    const auto version = [](const NDArray& array) { return array.impl().storage->version(); };
    const auto changes = [&](NDArray& array, const std::function<void()>& call) {
      const auto before = version(array);
      call();
      EXPECT_GT(version(array), before);
      array.wait();
    };
    NDArray value = ones({8}), out = zeros({8}), token = zeros({1});
    changes(out, [&] { kv.allreduce({"a"}, {value}, {out}); });
    changes(value, [&] { kv.sum_slices("b", value); });
    changes(value, [&] { kv.gather_slices("c", value); });
    if (kv.rank() == 1) changes(value, [&] { kv.broadcast_from_first({"d"}, {value}); });
    if (kv.rank() == 0) kv.broadcast_from_first({"d"}, {value});
    value.wait();
  }));
}

TEST(DistStore, ASumOfTruthValuesIsATruthValue) {
  expect_no_errors(on_ranks(3, [&](KVStore& kv) {
    NDArray flat = ones({9}, bool_);
    kv.sum_slices("mask", flat);
    kv.gather_slices("mask", flat);
    for (const double value : flat.to(f64).to_vector<double>()) EXPECT_EQ(value, 1.0);
  }));
}

}  // namespace
}  // namespace mx
