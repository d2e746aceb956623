// What stores with servers share with the others, and what they refuse.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "comm/rendezvous/local.h"
#include "engine/base/error.h"
#include "engine/engine.h"
#include "ndarray/storage.h"
#include "operators/operators.h"
#include "tests/kvstore/server_cluster.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::ServerCluster;

TEST(ServerStoreContract, WhatItWritesCountsAsAChange) {
  ServerCluster cluster(2, 1);
  cluster.run_or_throw("dist_sync", [&](KVStore& kv) {
    const auto changes = [](NDArray& array, const std::function<void()>& call) {
      const auto before = array.impl().storage->version();
      call();
      EXPECT_GT(array.impl().storage->version(), before);
      array.wait();
    };
    NDArray value = ones({8}), out = zeros({8});
    kv.init("w", zeros({8}));
    changes(out, [&] { kv.pull("w", out); });
    changes(out, [&] { kv.pushpull("w", value, out); });
    changes(out, [&] { kv.allreduce({"a"}, {value}, {out}); });
    if (kv.rank() == 1) changes(value, [&] { kv.broadcast_from_first({"c"}, {value}); });
    if (kv.rank() == 0) kv.broadcast_from_first({"c"}, {value});
    value.wait();
  });
}

TEST(ServerStoreContract, StatesOfKeysOfAnyShapeAreLoaded) {
  const std::string path = ::testing::TempDir() + "server_states.safetensors";
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  const std::vector<Shape> shapes{{}, {1}, {3, 2}, {0, 4}};
  for (const bool loads : {false, true})
    ServerCluster(2, 2).run_or_throw("dist_sync",
                                     [&](KVStore& kv) {
                                       for (size_t k = 0; k < shapes.size(); ++k)
                                         kv.init(std::to_string(k), ones(shapes[k]));
                                       kv.set_optimizer("adam", {{"lr", 0.1}});
                                       const auto step = [&] {
                                         for (size_t k = 0; k < shapes.size(); ++k)
                                           kv.push(std::to_string(k), full(shapes[k], 0.5));
                                       };
                                       if (loads) {
                                         kv.load(path);
                                       } else {
                                         step();
                                         kv.save(path);
                                       }
                                       step();
                                       std::vector<float> all;
                                       for (size_t k = 0; k < shapes.size(); ++k) {
                                         NDArray out = zeros(shapes[k]);
                                         kv.pull(std::to_string(k), out);
                                         for (const float x : out.to_vector<float>()) all.push_back(x);
                                       }
                                       const std::lock_guard lock(mutex);
                                       results.push_back(all);
                                     },
                                     {.cut_bytes = 1024});
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].size(), 8u);
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(ServerStoreContract, MeansOfOtherNumbersOfValuesAreNamed) {
  ServerCluster cluster(2, 1);
  std::atomic<int> named{0};
  cluster.run("dist_sync", [&](KVStore& kv) {
    kv.init("w", zeros({2}));
    std::vector<NDArray> values(kv.rank() == 1 ? 2 : 1, ones({2}));
    kv.push("w", values, {.reduce = KVReduce::mean});
    NDArray out = zeros({2});
    kv.pull("w", out);
    const std::string message = error_of<ProtocolError>([&] { out.wait(); });
    named += contains(message, "a mean of 2") && contains(message, "a mean of 4") &&
             contains(message, "from worker 0") && contains(message, "from worker 1");
  });
  EXPECT_EQ(2, named.load());
}

TEST(ServerStoreContract, ABarrierWhoseTokenHasFailedIsAnErrorOfAll) {
  ServerCluster cluster(3, 2);
  std::atomic<int> named{0};
  const auto errors = cluster.run("dist_sync", [&](KVStore& kv) {
    NDArray token = zeros({1});
    if (kv.rank() == 1)
      current_engine().push([] { throw Error("the step has failed"); },
                            {.updates = {token.var()}, .name = "spoil"});
    kv.push_barrier(token);
    const std::string message = error_of<Error>([&] { token.wait(); });
    named += contains(message, "the step has failed") && (kv.rank() == 1 || contains(message, "worker 1"));
    // The next barrier is again that of all.
    kv.barrier(20000);
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
  EXPECT_EQ(3, named.load());
}

// A save() that meets a barrier() of another worker would write no file.
TEST(ServerStoreContract, CallsOfAllWorkersTogetherAreCompared) {
  const std::string path = ::testing::TempDir() + "server_calls.safetensors";
  const std::vector<std::pair<const char*, std::function<void(KVStore&)>>> calls = {
      {"barrier", [](KVStore& kv) { kv.barrier(20000); }},
      {"save", [&](KVStore& kv) { kv.save(path); }},
      {"load", [&](KVStore& kv) { kv.load(path); }},
      {"state_dict", [](KVStore& kv) { kv.state_dict(); }},
      {"load_state_dict", [](KVStore& kv) { kv.load_state_dict({}); }},
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    const size_t next = (i + 1) % calls.size();
    ServerCluster cluster(2, 1);
    cluster.run_or_throw("dist_sync", [&](KVStore& kv) {
      kv.init("w", ones({2}));
      const auto& call = calls[kv.rank() == 0 ? i : next].second;
      const std::string message = error_of<ProtocolError>([&] { call(kv); });
      const std::string names[] = {calls[i].first, calls[next].first};
      EXPECT_TRUE(contains(message, "got " + names[0] + " from worker 0") &&
                  contains(message, " and " + names[1] + " from worker 1"))
          << message;
    });
  }
}

TEST(ServerStoreContract, ABarrierThrowsTheErrorOfAnEarlierPush) {
  for (const char* type : {"dist_sync", "dist_async"}) {
    std::atomic<int> told{0};
    ServerCluster(2, 1).run_or_throw(type, [&](KVStore& kv) {
      kv.init("w", ones({2}));
      NDArray value = ones({2});
      if (kv.rank() == 1)
        current_engine().push([] { throw Error("lost batch"); }, {.updates = {value.var()}, .name = "spoil"});
      kv.push("w", value);
      // An asynchronous worker does not hear of the pushes of others.
      const bool hears = kv.rank() == 1 || kv.type() == "dist_sync";
      std::string message;
      try {
        kv.barrier(20000);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_EQ(hears, contains(message, "lost batch")) << type << ' ' << kv.rank();
      told += contains(message, "lost batch");
      kv.barrier(20000);  // told once
    });
    EXPECT_GE(told.load(), 1);
  }
}

// Otherwise a later push would replace the weights by a gradient.
TEST(ServerStoreContract, AfterARefusedOptimizerNothingGoesOn) {
  for (const bool option : {false, true}) {
    ServerCluster cluster(2, 2);
    const auto errors = cluster.run("dist_sync", [&](KVStore& kv) {
      kv.init("w", ones({2}));
      const double rate = kv.rank() == 0 ? 0.5 : 0.25;
      if (option) kv.set_optimizer("sgd", {{"lr", 1.0}});
      if (option) kv.set_optimizer_option("lr", rate);
      if (!option) kv.set_optimizer("sgd", {{"lr", rate}});
      const char* const expected = "with other arguments";
      for (int i = 0; i < 2; ++i) {
        const std::string message = error_of<ProtocolError>([&] { kv.barrier(20000); });
        EXPECT_TRUE(contains(message, expected)) << message;
      }
      NDArray token = zeros({1}), out = zeros({2});
      kv.pull("w", out);
      const std::string text = error_of<Error>([&] { out.wait(); });
      EXPECT_TRUE(contains(text, expected) && contains(text, "server_contract_test.cc:")) << text;
      EXPECT_FALSE(contains(text, "dist_server.cc:")) << "a line that is not in the program: " << text;
      kv.push_barrier(token);
      EXPECT_TRUE(contains(error_of<Error>([&] { token.wait(); }), expected));
      kv.set_optimizer("sgd", {{"lr", 1.0}});
      kv.push("w", ones({2}));
      kv.pull("w", out);
      EXPECT_TRUE(contains(error_of<Error>([&] { out.wait(); }), expected));
    });
    for (const auto& error : errors) EXPECT_NE(error, nullptr) << "of the last barrier";
  }
}

TEST(ServerStoreContract, ABarrierKeepsItsTimeLimitWhileOperationsRun) {
  ServerCluster cluster(1, 1);
  cluster.run("dist_sync", [&](KVStore& kv) {
    test::Hold held;
    kv.init("w", zeros({2}));
    NDArray value = ones({2});
    current_engine().push_async(held.operation(), {.updates = {value.var()}, .name = "slow"});
    kv.push("w", value);
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = error_of<Timeout>([&] { kv.barrier(200); });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_TRUE(contains(message, "in flight")) << message;
    held.release();
  });
}

TEST(ServerStoreContract, RecordingIsRefused) {
  ServerCluster cluster(1, 1);
  cluster.run_or_throw("dist_sync", [&](KVStore& kv) {
    kv.init("w", zeros({2}));
    NDArray value = ones({2}), out = zeros({2});
    EXPECT_THROW(current_engine().record([&] { kv.push("w", value); }), InvalidState);
    EXPECT_THROW(current_engine().record([&] { kv.pull("w", out); }), InvalidState);
    EXPECT_THROW(current_engine().record([&] { kv.push_barrier(out); }), InvalidState);
    kv.push("w", value);
    kv.pull("w", out);
    EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{1, 1}));
  });
}

// The servers forget a store that all workers have closed.
TEST(ServerStoreContract, StoresMayComeAndGo) {
  ServerCluster cluster(2, 1);
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w)
    threads.emplace_back([&, w] {
      const auto group = cluster.connect(w);
      for (int i = 0; i < 1500; ++i) {
        mx::detail::DistServerStore made("dist_sync", {}, group);
        if (i % 100 != 0) continue;
        KVStore& store = made;
        store.init("w", zeros({4}));
        store.push("w", ones({4}));
        NDArray out = zeros({4});
        store.pull("w", out);
        EXPECT_EQ(out.to_vector<float>(), std::vector<float>(4, 2.f));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ServerStoreContract, TooManyStoresAreRefused) {
  ServerCluster cluster(1, 1);
  const auto group = cluster.connect(0);
  std::vector<std::unique_ptr<mx::detail::DistServerStore>> stores;
  for (int i = 0; i < 1024; ++i)
    stores.push_back(std::make_unique<mx::detail::DistServerStore>("dist_sync", KVStoreOptions{}, group));
  const std::string message =
      error_of<InvalidState>([&] { mx::detail::DistServerStore one_more("dist_sync", {}, group); });
  EXPECT_TRUE(contains(message, "at most 1024 stores")) << message;
  stores.pop_back();
  stores.push_back(std::make_unique<mx::detail::DistServerStore>("dist_sync", KVStoreOptions{}, group));
  KVStore& last = *stores.back();
  last.init("w", zeros({1}));
  last.barrier(0);
}

TEST(ServerStoreContract, AStalenessOfZeroIsRefused) {
  ServerCluster cluster(1, 1);
  const auto group = cluster.connect(0);
  for (const int64_t wrong : {int64_t{0}, int64_t{-2}})
    EXPECT_THROW(mx::detail::DistServerStore("dist_async", {.staleness = wrong}, group), InvalidArgument);
}

// After SIGTERM a server says whether it leaves workers behind.
TEST(ServerStoreContract, AServerLeavesAWorkerBehindUntilTheWorkerHasClosedItsStores) {
  for (const bool closes : {false, true}) {
    kv::Server server({.identity = ServerCluster::identity(-1), .workers = 1});
    std::thread thread([&] { server.run(); });
    const auto table = comm::make_local_rendezvous();
    kv::ServerGroupOptions options;
    options.identity = ServerCluster::identity(0);
    options.servers = {server.address()};
    options.rendezvous = table;
    const auto group = std::make_shared<kv::ServerGroup>(std::move(options));
    std::unique_ptr<KVStore> store =
        std::make_unique<mx::detail::DistServerStore>("dist_sync", KVStoreOptions{}, group);
    store->init("w", zeros({4}));
    store->barrier();
    if (closes) {
      store.reset();
      // The group says this when the server has answered.
      table->get(comm::epoch_key(0, "stores_closed/worker0"), comm::Deadline::after_ms(60000));
    }
    server.stop();
    thread.join();
    EXPECT_EQ(server.left_workers(), !closes);
  }
}

}  // namespace
}  // namespace mx
