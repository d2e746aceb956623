// Properties of every store, each with one process.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "kvstore/kvstore.h"
#include "operators/operators.h"
#include "optim/update.h"
#include "tests/kvstore/server_cluster.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

class Store : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_servers()) {
      kv_ = KVStore::create(GetParam());
      return;
    }
    cluster_ = std::make_unique<test::ServerCluster>(1, 2);
    group_ = cluster_->connect(0);
    kv_ = std::make_shared<mx::detail::DistServerStore>(GetParam(), KVStoreOptions{}, group_);
  }
  // The servers stay until all operations have ended; the next test gets none of their errors.
  void TearDown() override {
    try {
      wait_all();
    } catch (const Error&) {  // of values, which the test has looked at
    }
  }
  bool has_servers() const { return GetParam() == "dist_sync" || GetParam() == "dist_async"; }

  std::unique_ptr<test::ServerCluster> cluster_;
  std::shared_ptr<kv::ServerGroup> group_;
  std::shared_ptr<KVStore> kv_;
};

using Floats = std::vector<float>;

TEST_P(Store, AnUpdaterThatAssignsTheSumKeepsNoMemoryOfTheCaller) {
  if (has_servers()) GTEST_SKIP() << "updaters run in this process";
  kv_->init("w", zeros({2}));
  kv_->set_updater([](const std::string&, const NDArray& sum, NDArray& stored) { stored = sum; });
  NDArray grad = ones({2}), out = zeros({2});
  kv_->push("w", grad);
  grad.fill_(7);
  kv_->pull("w", out);
  EXPECT_EQ(out.to_vector<float>(), (Floats{1, 1}));
  out.fill_(3);
  kv_->push("w", grad);
  EXPECT_EQ(grad.to_vector<float>(), (Floats{7, 7}));
}

TEST_P(Store, ErrorsOfOptimizersNameTheLineOfTheProgram) {
  if (has_servers()) GTEST_SKIP() << "see server_store_test.cc";
  for (const auto& call : std::vector<std::function<void()>>{[&] {
                                                               kv_->set_optimizer("sgd", {{"foo", 1.0}});
                                                             },
                                                             [&] {
                                                               kv_->set_optimizer("sgd", {{"lr", 0.5}});
                                                               kv_->set_optimizer_option("lr", -1);
                                                             }}) {
    const std::string message = error_of<Error>(call);
    EXPECT_TRUE(contains(message, "store_test.cc")) << message;
  }
}

TEST_P(Store, PullsWhatWasInitialised) {
  const NDArray w = array({1.f, 2.f});
  kv_->init("w", w);
  NDArray out = zeros({2});
  kv_->pull("w", out);
  EXPECT_EQ((Floats{1, 2}), out.to_vector<float>());
  out += 1;
  NDArray again = zeros({2}, f64, virt(0));
  kv_->pull("w", {again});
  EXPECT_EQ((Floats{1, 2}), again.to(f32).to_vector<float>()) << "a copy, of any type on any device";
  EXPECT_EQ((Floats{1, 2}), w.to_vector<float>());
}

TEST_P(Store, PushReplacesByTheSumInTheOrderOfTheList) {
  kv_->init("w", zeros({3}));
  const NDArray a = array({1e8f, 1.f, 3.f}), b = array({1.f, 2.f, 4.f}), c = array({-1e8f, 3.f, 5.f});
  kv_->push("w", {a, b.to(virt(0)), c.to(virt(1))});
  NDArray out = empty({3}), far = empty({3}, f32, virt(1));
  kv_->pull("w", {out, far});
  const Floats expected = ((a + b) + c).to_vector<float>();
  EXPECT_EQ(expected, out.to_vector<float>());
  EXPECT_EQ(expected, far.to_vector<float>());
  EXPECT_EQ((Floats{1e8f, 1, 3}), a.to_vector<float>()) << "what is pushed stays";
  kv_->push("w", b);
  kv_->pull("w", out);
  EXPECT_EQ((Floats{1, 2, 4}), out.to_vector<float>());
}

// 60000 + 60000 exceeds f16, and in bf16 256 + 1 + 1 would stay 256 if each sum were rounded.
TEST_P(Store, SumsOfShortTypesAreNotRoundedOnTheWay) {
  for (const DType type : {f16, bf16}) {
    kv_->init(to_string(type), zeros({2}, type));
    const NDArray large = full({2}, type == f16 ? 60000 : 256, type), one = ones({2}, type);
    const std::vector<NDArray> values =
        type == f16 ? std::vector<NDArray>{large, large.to(virt(0))} : std::vector<NDArray>{large, one, one};
    NDArray sum = zeros({2}), of_the_type = zeros({2}, type);
    kv_->pushpull(to_string(type), values, {sum, of_the_type});
    EXPECT_EQ(Floats(2, type == f16 ? 120000 : 258), sum.to_vector<float>()) << type;
    EXPECT_EQ(sum.to(type).to_vector<float>(), of_the_type.to_vector<float>()) << "rounded once";
  }
}

TEST_P(Store, SumsOfIntegersDoNotWrap) {
  kv_->init("count", zeros({2}, u8));
  NDArray out = zeros({2}, i64);
  kv_->pushpull("count", {full({2}, 200, u8), full({2}, 100, u8).to(virt(0))}, out);
  EXPECT_EQ((std::vector<int64_t>{300, 300}), out.to_vector<int64_t>());
  kv_->init("flag", zeros({1}, bool_));
  NDArray flags = zeros({1}, i32);
  kv_->pushpull("flag", {ones({1}, bool_), ones({1}, bool_)}, flags);
  EXPECT_EQ(2, flags.item<int32_t>());
}

TEST_P(Store, AnUpdaterOfShortTypesSeesTheSumAndTheStoredValueInF32) {
  if (has_servers()) GTEST_SKIP() << "servers run no code of workers";
  kv_->init("w", ones({2}, f16));
  kv_->set_updater([](const std::string&, const NDArray& sum, NDArray& stored) {
    EXPECT_EQ(f32, sum.dtype());
    optim::sgd_update({{stored}, {sum}}, {}, {.learning_rate = full({}, 1.0 / 1024)});
  });
  kv_->push("w", {full({2}, 60000, f16), full({2}, 60000, f16)});
  NDArray out = zeros({2});
  kv_->pull("w", out);
  EXPECT_EQ(Floats(2, 1 - 120000.f / 1024), out.to_vector<float>());
}

TEST_P(Store, PushpullAndBroadcast) {
  NDArray a = array({1.f, 2.f}), b = array({10.f, 20.f}).to(virt(0));
  kv_->broadcast("w", array({5.f, 6.f}), {a, b});
  EXPECT_EQ((Floats{5, 6}), a.to_vector<float>());
  EXPECT_EQ((Floats{5, 6}), b.to_vector<float>());
  kv_->pushpull("w", {a, b}, {a, b});
  EXPECT_EQ((Floats{10, 12}), a.to_vector<float>());
  EXPECT_EQ((Floats{10, 12}), b.to_vector<float>());
}

TEST_P(Store, AnUpdaterChangesWhatIsStored) {
  if (has_servers()) GTEST_SKIP() << "servers run no code of workers";
  kv_->init("w", array({1.f, 1.f}));
  const NDArray rate = full({}, 0.5);
  kv_->set_updater([&](const std::string& key, const NDArray& sum, NDArray& stored) {
    EXPECT_EQ("w", key);
    optim::sgd_update({{stored}, {sum}}, {}, {.learning_rate = rate});
  });
  kv_->push("w", {array({1.f, 2.f}), array({1.f, 2.f})});
  kv_->push("w", array({2.f, 0.f}));
  NDArray out = empty({2});
  kv_->pull("w", out);
  EXPECT_EQ((Floats{-1, -1}), out.to_vector<float>());
  kv_->set_updater(nullptr);
  kv_->push("w", array({7.f, 7.f}));
  kv_->pull("w", out);
  EXPECT_EQ((Floats{7, 7}), out.to_vector<float>());
}

TEST_P(Store, ReturnsAtOnceAndKeepsTheOrder) {
  kv_->init("w", zeros({2}));
  NDArray slow = ones({2}), out = zeros({2});
  test::Hold hold;
  current_engine().push_async(hold.operation(), {.updates = {slow.var()}, .name = "hold"});
  kv_->push("w", slow);
  kv_->pull("w", out);
  const NDArray first = out.clone();
  kv_->push("w", full({2}, 3));
  kv_->pull("w", out);
  EXPECT_FALSE(first.wait(0)) << "what is pushed is still being computed";
  hold.release();
  EXPECT_EQ((Floats{1, 1}), first.to_vector<float>());
  EXPECT_EQ((Floats{3, 3}), out.to_vector<float>());
}

TEST_P(Store, ErrorsOfValuesComeOutOfWhatIsPulled) {
  kv_->init("w", zeros({2}));
  NDArray bad = zeros({2});
  current_engine().push([] { throw std::runtime_error("lost"); }, {.updates = {bad.var()}, .name = "bad"});
  kv_->push("w", {ones({2}), bad});
  NDArray out = zeros({2});
  kv_->pull("w", out);
  EXPECT_TRUE(contains(error_of<Error>([&] { out.to_vector<float>(); }), "lost"));
  if (has_servers()) {  // the other workers know that the key has failed
    kv_->erase("w");
    kv_->init("w", zeros({2}));
  }
  kv_->push("w", ones({2}));
  kv_->pull("w", out);
  EXPECT_EQ((Floats{1, 1}), out.to_vector<float>()) << "a new value is a new beginning";
  try {
    wait_all();
  } catch (const Error&) {
  }
}

TEST_P(Store, AnErasedKeyMayBeGivenAgain) {
  kv_->init("w", zeros({2}));
  NDArray slow = ones({2}), out = zeros({2});
  test::Hold hold;
  current_engine().push_async(hold.operation(), {.updates = {slow.var()}, .name = "hold"});
  kv_->push("w", {slow, slow.to(virt(0))});
  kv_->pull("w", out);
  kv_->erase("w");
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv_->pull("w", out); }), "\"w\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv_->erase("w"); }), "\"w\""));
  kv_->init("w", full({3}, 5));
  hold.release();
  EXPECT_EQ((Floats{2, 2}), out.to_vector<float>()) << "what was asked for before";
  NDArray other = zeros({3});
  kv_->pull("w", other);
  EXPECT_EQ((Floats{5, 5, 5}), other.to_vector<float>());
}

TEST_P(Store, PrioritiesAreNumbersOfAnySize) {
  kv_->init("w", zeros({2}));
  NDArray out = zeros({2});
  const int64_t layer = 3;
  for (const int64_t priority : {-layer, INT64_MAX, INT64_MIN})
    kv_->pushpull("w", ones({2}), out, {.priority = priority});
  EXPECT_EQ((Floats{1, 1}), out.to_vector<float>());
}

TEST_P(Store, BadUseIsNamed) {
  kv_->init("w", zeros({2}));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv_->init("w", zeros({2})); }), "\"w\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv_->push("v", zeros({2})); }), "\"v\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv_->pull("v", zeros({2})); }), "\"v\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv_->push("w", zeros({3})); }), "(3,)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { kv_->pull("w", zeros({3})); }), "(3,)"));
  error_of<InvalidArgument>([&] { kv_->push("w", std::vector<NDArray>{}); });
  NDArray out = ones({2});
  kv_->pull("w", out);
  EXPECT_EQ((Floats{0, 0}), out.to_vector<float>()) << "nothing has happened";
}

TEST_P(Store, ManyThreadsWithKeysOfTheirOwnAndOneInCommon) {
  if (has_servers()) GTEST_SKIP() << "servers run no code of workers";
  kv_->init("common", zeros({4}));
  kv_->set_updater([](const std::string&, const NDArray& sum, NDArray& stored) { stored += sum; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::string own = "k" + std::to_string(t);
      kv_->init(own, zeros({4}));
      for (int i = 0; i < 50; ++i) {
        kv_->push(own, ones({4}), {.priority = -t});
        kv_->push("common", ones({4}), {.priority = t});
      }
    });
  for (std::thread& thread : threads) thread.join();
  NDArray out = empty({4});
  kv_->pull("common", out);
  EXPECT_EQ(Floats(4, 200), out.to_vector<float>());
  kv_->pull("k3", out);
  EXPECT_EQ(Floats(4, 50), out.to_vector<float>());
}

TEST_P(Store, SaysWhatItIs) {
  EXPECT_EQ(GetParam(), kv_->type());
  EXPECT_EQ(0, kv_->rank());
  EXPECT_EQ(1, kv_->size());
  kv_->barrier();
}

INSTANTIATE_TEST_SUITE_P(Types, Store,
                         ::testing::Values("local", "device", "dist_allreduce", "dist_device_sync",
                                           "dist_sync", "dist_async"),
                         [](const auto& type) { return type.param; });

TEST(DeviceStore, GoesOnFromAStateThatWasLoadedBeforeTheFirstPush) {
  const auto make = [] {
    std::shared_ptr<KVStore> kv = KVStore::create("device");
    kv->init("w", ones({2}));
    kv->set_optimizer("sgd", {{"lr", 0.5}, {"momentum", 0.5}});
    return kv;
  };
  const auto push = [](KVStore& kv) {
    NDArray out = zeros({2});
    kv.push("w", {ones({2}, f32, virt(0)), ones({2}, f32, virt(1))});
    kv.pull("w", out);
    return out.to_vector<float>();
  };
  const auto kv = make(), other = make();
  push(*kv);
  other->load_state_dict(kv->state_dict());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(push(*kv), push(*other));
}

TEST(StoreTypes, AnUnknownOneIsToldTheOthers) {
  const std::string message = error_of<InvalidArgument>([] { KVStore::create("magic"); });
  EXPECT_TRUE(contains(message, "magic") && contains(message, "local, device")) << message;
  EXPECT_THROW(KVStore::create("local", {.order = static_cast<KVOrder>(9)}), InvalidArgument);
}

/// A type of store that a program adds: all calls go to a local store, but it claims `processes`.
class AddedStore final : public KVStore {
 public:
  explicit AddedStore(int processes) : processes_(processes) {}
  const std::string& type() const override {
    static const std::string name = "added";
    return name;
  }
  void init(const KVKey& key, const NDArray& value, std::source_location where) override {
    local_->init(key, value, where);
  }
  void erase(const KVKey& key, std::source_location where) override { local_->erase(key, where); }
  void push(const KVKey& key, const Values& values, const KVOptions& options) override {
    local_->push(key, values, options);
  }
  void pull(const KVKey& key, const Values& outs, const KVOptions& options) override {
    local_->pull(key, outs, options);
  }
  void set_updater(Updater updater) override { local_->set_updater(std::move(updater)); }
  void set_optimizer(const std::string& name, const AttrMap& options, std::source_location where) override {
    local_->set_optimizer(name, options, where);
  }
  void set_optimizer_option(const std::string& option, double value, std::source_location where) override {
    local_->set_optimizer_option(option, value, where);
  }
  void save(const std::string& path) override { local_->save(path); }
  void load(const std::string& path) override { local_->load(path); }
  int rank() const override { return 0; }
  int size() const override { return processes_; }
  void barrier(int64_t timeout_ms) override { local_->barrier(timeout_ms); }
  void push_barrier(const NDArray& token, const KVOptions& options) override {
    local_->push_barrier(token, options);
  }

 private:
  const int processes_;
  const std::shared_ptr<KVStore> local_ = KVStore::create("local");
};

TEST(StoreTypes, AProgramAddsItsOwn) {
  KVStore::register_type("added", [](const KVStoreOptions& options) {
    return std::make_shared<AddedStore>(options.staleness == 7 ? 3 : 1);
  });
  EXPECT_EQ(KVStore::types().back(), "added");
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { KVStore::create("other"); }), "added"));
  EXPECT_TRUE(contains(
      error_of<InvalidArgument>([] { KVStore::register_type("added", [](auto&) { return nullptr; }); }),
      "got \"added\""));
  EXPECT_THROW(KVStore::register_type("", [](auto&) { return nullptr; }), InvalidArgument);
  EXPECT_THROW(KVStore::register_type("empty", nullptr), InvalidArgument);

  const auto kv = KVStore::create("added");
  NDArray a = ones({3}), token = zeros({1});
  kv->init("w", a);
  kv->push("w", a + 1);
  kv->pull("w", a);
  kv->allreduce({"g"}, {a}, {a});
  kv->broadcast_from_first({"w"}, {a});
  kv->check_equal({"w"}, {a}, token);
  kv->barrier();
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_THROW(kv->state_dict(), InvalidState);

  // Without functions of its own for several processes, nothing pretends to have reached them.
  const auto several = KVStore::create("added", {.staleness = 7});
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { several->allreduce({"g"}, {a}, {a}); }), "3 processes"));
  EXPECT_THROW(several->broadcast_from_first({"w"}, {a}), InvalidState);
  EXPECT_THROW(several->check_equal({"w"}, {a}, token), InvalidState);
  EXPECT_THROW(several->sum_slices("g", a), InvalidState);
  EXPECT_THROW(several->gather_slices("g", a), InvalidState);
}

TEST_P(Store, TheEpochIsToldAtOnce) {
  std::vector<int64_t> told;
  kv_->on_epoch([&](int64_t epoch) { told.push_back(epoch); });
  EXPECT_EQ(told, std::vector<int64_t>{kv_->epoch()});
}

}  // namespace
}  // namespace mx
