// The stores with servers: workers and servers as threads, over loopback connections.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/host_name.h"
#include "comm/net/interface.h"
#include "comm/net/socket.h"
#include "comm/net/tls.h"
#include "comm/rendezvous/local.h"
#include "comm/rendezvous/lost.h"
#include "engine/base/error.h"
#include "kvstore/local_store.h"
#include "operators/operators.h"
#include "tests/kvstore/server_cluster.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::ServerCluster;

/// Values whose sums depend on the order of the additions.
std::vector<float> values_of(int rank, int64_t count, int round) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = 12345u + 977u * static_cast<uint32_t>(rank) + 7919u * static_cast<uint32_t>(round);
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = std::ldexp(static_cast<float>(state >> 8) - 8388608.0f, static_cast<int>(state % 13) - 30);
  }
  return values;
}

std::vector<float> serial_sum(int workers, int64_t count, int round) {
  std::vector<float> sum = values_of(0, count, round);
  for (int w = 1; w < workers; ++w) {
    const std::vector<float> more = values_of(w, count, round);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return sum;
}

NDArray array_of(const std::vector<float>& values) { return array(values); }

TEST(ServerStore, SumsAreTheSerialFoldsOverTheWorkers) {
  for (int workers : {1, 2, 3})
    for (int servers : {1, 2}) {
      ServerCluster cluster(workers, servers);
      cluster.run_or_throw("dist_sync",
                           [&](KVStore& kv) {
                             for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256},
                                                   int64_t{257}, int64_t{5000}}) {
                               kv.init(count, zeros({count}));
                               for (int round = 0; round < 3; ++round) {
                                 kv.push(count, array_of(values_of(kv.rank(), count, round)));
                                 NDArray out = zeros({count});
                                 kv.pull(count, out);
                                 EXPECT_EQ(out.to_vector<float>(), serial_sum(workers, count, round));
                               }
                             }
                           },
                           {.cut_bytes = 1024});
    }
}

TEST(ServerStore, SumsOverEncryptedConnectionsAreTheSame) {
  const auto tls = std::make_shared<const comm::TlsContext>(
      comm::TlsSettings{.keys = comm::TlsKeys::secret, .records_per_key = 100});
  ServerCluster cluster(2, 2, 60000, tls);
  cluster.run_or_throw("dist_sync", [&](KVStore& kv) {
    // The last one is longer than what a server reads of one worker before it turns to the next.
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{5000}, int64_t{10'000'001}}) {
      kv.init(count, zeros({count}));
      for (int round = 0; round < 2; ++round) {
        kv.push(count, array_of(values_of(kv.rank(), count, round)));
        NDArray out = zeros({count});
        kv.pull(count, out);
        EXPECT_TRUE(out.to_vector<float>() == serial_sum(2, count, round)) << count;
      }
    }
  });
}

TEST(ServerStore, AWorkerInClearTextIsToldWhatToDo) {
  const auto tls = std::make_shared<const comm::TlsContext>(comm::TlsSettings{.keys = comm::TlsKeys::secret});
  for (const bool servers_encrypt : {false, true}) {
    ServerCluster cluster(1, 1, 60000, servers_encrypt ? tls : nullptr);
    kv::ServerGroupOptions options;
    options.identity = ServerCluster::identity(0);
    options.identity.tls = servers_encrypt ? nullptr : tls;
    options.workers = 1;
    options.servers = cluster.addresses();
    test::expect_error<AuthenticationError>("the same --tls options (MX_TLS)",
                                            [&] { kv::ServerGroup group(options); });
  }
}

TEST(ServerStore, ValuesThatHaveDivergedAreNamed) {
  ServerCluster cluster(3, 2);
  cluster.run_or_throw("dist_sync", [](KVStore& kv) {
    NDArray token = zeros({1}), a = ones({4}), b = ones({5}), c = zeros({0});
    for (int round = 0; round < 3; ++round) {
      kv.check_equal({"a", "b", "c"}, {a, b, c}, token);
      kv.check_equal({"a"}, {a}, token);
      token.wait();
    }
    if (kv.rank() == 1) b[2] = 2;
    kv.check_equal({"a", "b", "c"}, {a, b, c}, token);
    try {
      token.wait();
      ADD_FAILURE() << "expected an error";
    } catch (const ProtocolError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("\"b\""), std::string::npos) << text;
      EXPECT_NE(text.find("rank(s) 1 than on rank(s) 0, 2"), std::string::npos) << text;
    }
    token = zeros({1});
    kv.check_equal({"a"}, {a}, token);  // the store still works
    token.wait();
  });
  ServerCluster alone(2, 1);
  alone.run_or_throw("dist_async", [](KVStore& kv) {
    NDArray token = zeros({1}), a = ones({4});
    EXPECT_THROW(kv.check_equal({"a"}, {a}, token), InvalidState);
  });
}

TEST(ServerStore, AllreduceAndBroadcastFillTheArraysInPlace) {
  for (const char* type : {"dist_sync", "dist_async"})
    ServerCluster(3, 2).run_or_throw(
        type,
        [&](KVStore& kv) {
          std::vector<KVKey> keys;
          std::vector<KVStore::Values> values;
          std::vector<NDArray> outs;
          for (int64_t count : {int64_t{3}, int64_t{1000}, int64_t{0}}) {
            keys.emplace_back("k" + std::to_string(count));
            outs.push_back(array_of(values_of(kv.rank(), count, 1)));
            values.emplace_back(outs.back());
          }
          kv.allreduce(keys, values, outs);
          for (size_t i = 0; i < outs.size(); ++i)
            EXPECT_EQ(outs[i].to_vector<float>(), serial_sum(3, outs[i].numel(), 1));
          kv.allreduce(keys, values, outs, {.reduce = KVReduce::mean});  // equal values
          std::vector<NDArray> copies;
          for (int64_t count : {int64_t{5}, int64_t{700}})
            copies.push_back(array_of(values_of(kv.rank(), count, 2)));
          copies.push_back(full({3}, kv.rank(), i8));
          copies.push_back(full({2}, kv.rank() == 0, bool_));
          kv.broadcast_from_first({"a", "b", "c", "d"}, copies);
          EXPECT_EQ(copies[0].to_vector<float>(), values_of(0, 5, 2));
          EXPECT_EQ(copies[1].to_vector<float>(), values_of(0, 700, 2));
          EXPECT_EQ(copies[2].to_vector<int>(), std::vector<int>(3, 0));
          EXPECT_EQ(copies[3].to_vector<int>(), std::vector<int>(2, 1));
        },
        {.cut_bytes = 1024});
}

TEST(ServerStore, OptimiserOnTheServersGivesTheBitsOfTheLocalStore) {
  ServerCluster cluster(2, 2);
  const AttrMap options{{"lr", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.01}};
  const auto local = KVStore::create("local");
  local->init("w", array_of(values_of(7, 3000, 0)));
  local->set_optimizer("sgd", options);
  std::vector<std::vector<float>> expected;
  for (int round = 0; round < 4; ++round) {
    if (round == 2) local->set_optimizer_option("lr", 0.05);
    local->push("w", array_of(serial_sum(2, 3000, round)));
    NDArray out = zeros({3000});
    local->pull("w", out);
    expected.push_back(out.to_vector<float>());
  }
  cluster.run_or_throw(
      "dist_sync",
      [&](KVStore& kv) {
        kv.init("w", array_of(values_of(7 + kv.rank(), 3000, 0)));  // the value of worker 0 counts
        kv.set_optimizer("sgd", options);
        for (int round = 0; round < 4; ++round) {
          if (round == 2) kv.set_optimizer_option("lr", 0.05);
          NDArray out = zeros({3000});
          kv.pushpull("w", array_of(values_of(kv.rank(), 3000, round)), out);
          EXPECT_EQ(out.to_vector<float>(), expected[static_cast<size_t>(round)]) << round;
        }
      },
      {.cut_bytes = 4096});
}

TEST(ServerStore, AStoreContinuesFromItsFileAsIfNothingHadHappened) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("server_store_" + std::to_string(::getpid()))).string();
  const AttrMap options{{"lr", 0.01}};
  std::vector<float> expected;
  const auto train = [&](KVStore& kv, int first, int last) {
    for (int round = first; round < last; ++round) kv.push("w", array_of(values_of(kv.rank(), 900, round)));
  };
  {
    ServerCluster cluster(2, 2);
    cluster.run_or_throw("dist_sync",
                         [&](KVStore& kv) {
                           kv.init("w", array_of(values_of(9, 900, 0)));
                           kv.init("never pushed", ones({2, 2}));
                           kv.set_optimizer("adam", options);
                           train(kv, 0, 2);
                           kv.save(path);
                           train(kv, 2, 4);
                           NDArray out = zeros({900});
                           kv.pull("w", out);
                           if (kv.rank() == 0) expected = out.to_vector<float>();
                         },
                         {.cut_bytes = 1024});
  }
  // Another number of servers, and other pieces.
  ServerCluster(2, 1).run_or_throw("dist_sync", [&](KVStore& kv) {
    kv.init("w", zeros({900}));
    kv.init("never pushed", zeros({2, 2}));
    kv.set_optimizer("adam", options);
    kv.load(path);
    train(kv, 2, 4);
    NDArray out = zeros({900});
    kv.pull("w", out);
    EXPECT_EQ(out.to_vector<float>(), expected);
  });
  ServerCluster(2, 2).run_or_throw("dist_sync", [&](KVStore& kv) {
    kv.init("w", zeros({901}));
    kv.init("never pushed", zeros({2, 2}));
    kv.set_optimizer("adam", options);
    EXPECT_THROW(kv.load(path), InvalidArgument);
    NDArray out = ones({901});
    kv.pull("w", out);
    EXPECT_EQ(out.to_vector<float>(), std::vector<float>(901, 0.0f));
  });
  std::filesystem::remove(path);
}

TEST(ServerStore, WorkersWithDifferentShapesAreNamed) {
  ServerCluster cluster(2, 2);
  std::atomic<int> named{0};
  cluster.run("dist_sync", [&](KVStore& kv) {
    kv.init("weight", zeros({kv.rank() == 0 ? 2 : 3, 4}));
    NDArray out = zeros({kv.rank() == 0 ? 2 : 3, 4});
    kv.pull("weight", out);
    try {
      out.wait();
      ADD_FAILURE() << "a mismatch was not reported";
    } catch (const ProtocolError& e) {
      const std::string text = e.what();
      if (text.find("(2, 4)") != std::string::npos && text.find("(3, 4)") != std::string::npos &&
          text.find("worker 0") != std::string::npos && text.find("'weight'") != std::string::npos &&
          text.find("server_store_test.cc") != std::string::npos)
        ++named;
    }
  });
  EXPECT_EQ(named, 2);
}

// A server updates as a program does that uses the optimiser itself.
TEST(ServerStore, EveryRegisteredOptimizerRunsOnServers) {
  for (const std::string& name : optim::optimizer_names()) {
    const NDArray start = arange(40).to(f32) / 10.0;
    const NDArray expected = start.clone();
    const auto direct = optim::make_optimizer(name, {}, {expected});
    if (!direct->elementwise()) continue;
    ServerCluster cluster(1, 2);
    const auto compare = [&](KVStore& kv) {
      kv.set_optimizer(name, {});
      kv.init("w", start);
      const NDArray out = zeros({40});
      for (int step = 0; step < 3; ++step) {
        const NDArray gradient = (start - 2.0) * (step == 1 ? -1.0 : 1.0);
        direct->step({gradient});
        kv.push("w", gradient);
      }
      kv.pull("w", out);
      EXPECT_EQ(expected.to_vector<float>(), out.to_vector<float>()) << name;
    };
    cluster.run_or_throw("dist_sync", compare, {.cut_bytes = 64});  // pieces on both servers
  }
}

TEST(ServerStore, ErrorsKeepTheirTypes) {
  ServerCluster cluster(2, 1);
  cluster.run_or_throw("dist_sync", [&](KVStore& kv) {
    EXPECT_THROW(kv.set_optimizer("no such optimiser", {}), InvalidArgument);
    EXPECT_THROW(kv.set_optimizer("sgd", {{"max_norm", 1.0}}), InvalidArgument);
    EXPECT_THROW(kv.set_optimizer("lamb", {}), InvalidArgument);  // needs the norms of whole parameters
    EXPECT_THROW(kv.set_optimizer_option("lr", 1), InvalidState);
    EXPECT_THROW(kv.set_updater([](const std::string&, const NDArray&, NDArray&) {}), InvalidState);
    EXPECT_THROW(kv.push("unknown", ones({1})), InvalidArgument);
    kv.init("n", zeros({2}, i64));
    kv.set_optimizer("sgd", {});
    EXPECT_THROW(kv.push("n", ones({2}, i64)), InvalidArgument);
    EXPECT_THROW(kv.push("n", ones({2})), InvalidArgument);  // an optimiser needs a value in floating point
    NDArray out = zeros({2}, i64);
    kv.pull("n", out);
    out.wait();
    kv.erase("n");
    kv.init("n", zeros({2}));
    EXPECT_THROW(kv.push("n", ones({2}, i32)), InvalidArgument);
    EXPECT_THROW(kv.pushpull("n", ones({2}, i32), zeros({2})), InvalidArgument);
    kv.push("n", ones({2}));
    EXPECT_THROW(kv.init(std::string(5000, 'n'), zeros({2})), InvalidArgument);
  });
}

TEST(ServerStore, NoSlicesAreSummed) {
  ServerCluster(2, 1).run_or_throw("dist_sync", [](KVStore& kv) {
    NDArray flat = ones({4});
    for (const std::string& text : {test::error_of<InvalidState>([&] { kv.sum_slices("f", flat); }),
                                    test::error_of<InvalidState>([&] { kv.gather_slices("f", flat); }),
                                    test::error_of<InvalidState>([&] { static_cast<void>(kv.slice_of(4)); })})
      EXPECT_NE(text.find("a store without servers (shard_optimizer), got \"dist_sync\""), std::string::npos)
          << text;
  });
}

TEST(ServerStore, AsynchronousPushesAreAllApplied) {
  ServerCluster cluster(3, 2);
  cluster.run_or_throw("dist_async",
                       [&](KVStore& kv) {
                         kv.init("w", zeros({100}));
                         kv.set_optimizer("sgd", {{"lr", 1.0}});
                         for (int i = 0; i < 20; ++i) kv.push("w", full({100}, -1.0));
                         kv.barrier(0);
                         NDArray out = zeros({100});
                         kv.pull("w", out);
                         EXPECT_EQ(out.to_vector<float>(), std::vector<float>(100, 60.0f));
                       },
                       {.staleness = 2});
}

TEST(ServerStore, AWorkerThatDoesNotComeIsNamed) {
  ServerCluster cluster(3, 2);
  std::atomic<int> named{0};
  const auto errors = cluster.run("dist_sync", [&](KVStore& kv) {
    kv.init("w", zeros({4}));
    kv.barrier(0);
    if (kv.rank() == 1) {
      // Stays away until the others have given up.
      while (named < 2) std::this_thread::yield();
      return;
    }
    try {
      kv.push("w", ones({4}), {.timeout_ms = 300});
      NDArray out = zeros({4});
      kv.pull("w", out);
      out.wait();
      ADD_FAILURE() << "a missing worker was not reported";
    } catch (const Timeout& e) {
      EXPECT_NE(std::string(e.what()).find("'w'"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("did not come: worker 1 on host " + comm::host_name()),
                std::string::npos)
          << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
    ++named;
    EXPECT_THROW(kv.barrier(0), Error);
  });
}

bool has_all(const std::string& text, const std::vector<std::string>& parts) {
  bool all = true;
  for (const std::string& part : parts) all = all && text.find(part) != std::string::npos;
  return all;
}

// The store is closed, or the process has ended, while others wait for its push.
TEST(ServerStore, AWorkerThatLeavesEndsTheRoundsOfTheOthers) {
  for (const int servers : {1, 2}) {
    const auto errors = ServerCluster(3, servers).run("dist_sync", [&](KVStore& kv) {
      kv.init("w", zeros({4}));
      kv.push("w", ones({4}));
      NDArray out = zeros({4});
      kv.pull("w", out);
      out.wait();
      if (kv.rank() == 1) throw Error("has had enough");
      kv.push("w", ones({4}));
      kv.pull("w", out);
      out.wait();
    });
    for (const size_t w : {size_t{0}, size_t{2}}) {
      ASSERT_NE(errors[w], nullptr);
      EXPECT_THROW(std::rethrow_exception(errors[w]), PeerLost);
      const std::string text = kv::text_of(errors[w]);
      EXPECT_TRUE(has_all(text, {"worker 1 on host " + comm::host_name(), "'w'", "has left the store"}))
          << text;
    }
  }
}

TEST(ServerStore, AWorkerThatLeavesFailsNoOtherStore) {
  ServerCluster cluster(2, 1);
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w)
    threads.emplace_back([&, w] {
      const auto group = cluster.connect(w);
      auto first = std::make_unique<mx::detail::DistServerStore>("dist_sync", KVStoreOptions{}, group);
      mx::detail::DistServerStore second("dist_sync", {}, group);
      KVStore& kv = *first;
      kv.init("w", zeros({4}));
      kv.barrier();
      if (w == 1) first.reset();
      NDArray out = zeros({4}), sum = zeros({4});
      if (w == 0) {
        kv.push("w", ones({4}));
        kv.pull("w", out);
        EXPECT_THROW(out.wait(), PeerLost);
        EXPECT_THROW(kv.barrier(), PeerLost);
      }
      KVStore& other = second;
      other.allreduce({"sum"}, {ones({4})}, {sum});
      EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(4, 2.0f));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ServerStore, AValueThatHasFailedIsToldToTheOthers) {
  const auto spoil = [](NDArray& value) {
    current_engine().push([] { throw InvalidArgument("lost batch"); },
                          {.updates = {value.var()}, .name = "bad"});
  };
  const auto expect_told = [](KVStore& kv, const NDArray& out, int by) {
    try {
      out.wait();
      ADD_FAILURE() << "a failed value was not reported";
    } catch (const InvalidArgument& e) {
      EXPECT_TRUE(has_all(e.what(), {"lost batch", "server_store_test.cc"})) << e.what();
      const std::string worker = "worker " + std::to_string(by) + " on host " + comm::host_name();
      EXPECT_TRUE(kv.rank() == by || has_all(e.what(), {worker, "'w'"})) << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  };
  for (const char* how : {"push", "pushpull", "allreduce", "init", "broadcast_from_first"}) {
    SCOPED_TRACE(how);
    const std::string call = how;
    const int by = call == "init" || call == "broadcast_from_first" ? 0 : 1;
    ServerCluster(3, 2).run_or_throw("dist_sync",
                                     [&](KVStore& kv) {
                                       NDArray value = ones({2000}), out = zeros({2000});
                                       if (kv.rank() == by) spoil(value);
                                       if (call == "allreduce") {
                                         kv.allreduce({"w"}, {value}, {out});
                                       } else if (call == "broadcast_from_first") {
                                         kv.broadcast_from_first({"w"}, {kv.rank() == by ? value : out});
                                         if (kv.rank() == by) out = value;
                                       } else {
                                         kv.init("w", call == "init" ? value : zeros({2000}));
                                         if (call == "push") kv.push("w", value);
                                         if (call == "pushpull") kv.pushpull("w", value, out);
                                         if (call != "pushpull") kv.pull("w", out);
                                       }
                                       expect_told(kv, out, by);
                                       // An erased key may be given again.
                                       if (call != "allreduce" && call != "broadcast_from_first")
                                         kv.erase("w");
                                       kv.init("w", full({3}, 5));
                                       NDArray again = zeros({3});
                                       kv.pushpull("w", ones({3}), again);
                                       EXPECT_EQ(again.to_vector<float>(), std::vector<float>(3, 3.0f));
                                     },
                                     {.cut_bytes = 1024});
  }
}

// The owner of a store may go before the `done` of the store's last call has returned.
TEST(ServerStore, TheGroupMayBeDestroyedByTheEndOfACall) {
  ServerCluster cluster(1, 1);
  std::promise<void> given, destroyed;
  std::shared_ptr<kv::ServerGroup> last;
  kv::Call call;
  call.header = {.kind = kv::Kind::open, .sequence = 1};
  call.body = kv::Bytes::of(encode(kv::OpenBody{.workers = 1, .piece_bytes = 4 << 20}));
  call.done = [&](const kv::Bytes&, const std::exception_ptr& error) {
    EXPECT_EQ(error, nullptr);
    given.get_future().wait();
    last.reset();
    destroyed.set_value();
  };
  last = cluster.connect(0);
  last->start(0, std::move(call));
  given.set_value();
  destroyed.get_future().wait();
}

TEST(ServerStore, ALostServerFailsAllPendingAndLaterCalls) {
  auto cluster = std::make_unique<ServerCluster>(2, 2);
  const auto group = cluster->connect(0), other = cluster->connect(1);
  std::unique_ptr<KVStore> store, second;
  std::thread opening(
      [&] { second = std::make_unique<mx::detail::DistServerStore>("dist_sync", KVStoreOptions{}, other); });
  store = std::make_unique<mx::detail::DistServerStore>("dist_sync", KVStoreOptions{}, group);
  opening.join();
  store->init("w", zeros({4}));
  second->init("w", zeros({4}));
  NDArray out = zeros({4});
  store->pushpull("w", ones({4}), out);  // waits for the other worker
  const std::string address = cluster->addresses()[0];
  cluster.reset();
  try {
    out.wait();
    ADD_FAILURE() << "a lost server was not reported";
  } catch (const PeerLost& e) {
    EXPECT_NE(std::string(e.what()).find("server"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("127.0.0.1:"), std::string::npos) << e.what();
  }
  EXPECT_THROW(store->barrier(0), PeerLost);
}

comm::Stream connect_to_server(const ServerCluster& cluster, comm::Identity self, comm::Deadline deadline) {
  comm::Stream stream = comm::connect_to(comm::parse_endpoint(cluster.addresses()[0]), deadline);
  self.purpose = kv::kServerPurpose;
  comm::handshake_on(stream, comm::Handshake::Side::connector, self, deadline, "the server");
  return stream;
}

// A worker that gives up a handshake closes the connection and makes another one.
TEST(ServerStore, AConnectionThatEndsBeforeItsFirstMessageIsNoLoss) {
  ServerCluster cluster(2, 1);
  connect_to_server(cluster, ServerCluster::identity(1), comm::Deadline::after_ms(60000)).reset();
  cluster.run_or_throw("dist_sync", [](KVStore& kv) { kv.init("w", zeros({4})); });
}

TEST(ServerStore, ALostWorkerIsNamedToTheOthers) {
  ServerCluster cluster(2, 1);
  const auto group = cluster.connect(0);
  std::unique_ptr<KVStore> store;
  {
    // A worker that speaks the protocol and then ends without a farewell.
    const comm::Deadline deadline = comm::Deadline::after_ms(60000);
    comm::Stream socket = connect_to_server(cluster, ServerCluster::identity(1), deadline);
    const std::string body = encode(kv::OpenBody{.workers = 2, .piece_bytes = 4 << 20});
    std::byte header[kv::kHeaderBytes];
    encode(kv::Header{.kind = kv::Kind::open, .worker = 1, .sequence = 1, .bytes = body.size()}, header);
    comm::send_all(socket, header, deadline);
    comm::send_all(socket, std::as_bytes(std::span(body)), deadline);
    store = std::make_unique<mx::detail::DistServerStore>("dist_sync", KVStoreOptions{}, group);
    store->init("w", zeros({4}));
  }
  NDArray out = zeros({4});
  store->pull("w", out);
  try {
    out.wait();
    ADD_FAILURE() << "a lost worker was not reported";
  } catch (const PeerLost& e) {
    EXPECT_NE(std::string(e.what()).find("worker 1"), std::string::npos) << e.what();
  }
}

// A server ends, so a worker fails and ends too. A third process may learn of the worker's end first.
TEST(ServerStore, TheLossOfAWorkerThatFailedBecauseOfAServerNamesThatServer) {
  ServerCluster cluster(2, 1);
  const auto table = comm::make_local_rendezvous();
  kv::ServerGroupOptions options;
  options.identity = ServerCluster::identity(0);
  options.workers = 2;
  options.servers = cluster.addresses();
  options.rendezvous = table;
  options.cause_of_loss = [](const comm::LostProcess& lost) {
    return "; it failed because of server " + std::to_string(lost.rank + 6) + " on host n0";
  };
  const auto group = std::make_shared<kv::ServerGroup>(std::move(options));
  const comm::LostProcess lost{
      .role = "worker", .rank = 1, .host = "n1", .step = -1, .reason = "its connection ended"};
  table->put(comm::lost_key(lost), comm::lost_value(lost));
  while (group->failure() == nullptr) std::this_thread::yield();
  const std::string text = test::error_of<PeerLost>([&] { std::rethrow_exception(group->failure()); });
  EXPECT_NE(text.find("rank 1 on host n1"), std::string::npos) << text;
  EXPECT_NE(text.find("because of server 7 on host n0"), std::string::npos) << text;
}

TEST(ServerStore, AStrangerIsRefused) {
  ServerCluster cluster(1, 1);
  comm::Identity self = ServerCluster::identity(0);
  self.secret = "a wrong secret";
  EXPECT_THROW(connect_to_server(cluster, self, comm::Deadline::after_ms(60000)), AuthenticationError);
  cluster.run_or_throw("dist_sync", [](KVStore& kv) { kv.init("w", zeros({4})); });  // and the server lives
}

}  // namespace
}  // namespace mx
