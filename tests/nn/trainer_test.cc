// The trainer: replicas on several devices take the steps of one.
#include "nn/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/grad_mode.h"
#include "nn/nn.h"
#include "operators/operators.h"
#include "optim/schedule.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

/// Types of stores that need nothing but this process.
std::vector<std::string> store_types() { return {"local", "device", "dist_allreduce", "dist_device_sync"}; }

nn::Sequential make_net() {
  manual_seed(7);
  return nn::Sequential{nn::Linear{6, 5}, nn::Tanh{}, nn::Linear{5, 3}};
}

struct Batch {
  NDArray x, t;
};

std::vector<Batch> batches(int64_t rows) {
  std::vector<Batch> list;
  for (uint64_t i = 0; i < 6; ++i) {
    std::vector<int64_t> labels;
    for (int64_t r = 0; r < rows; ++r) labels.push_back((r + static_cast<int64_t>(i)) % 3);
    list.push_back({test::some({rows, 6}, i + 1).to(f32), array(labels)});
  }
  return list;
}

std::vector<std::vector<float>> values_of(const nn::Module& net) {
  std::vector<std::vector<float>> values;
  for (const NDArray& p : net.parameters()) values.push_back(p.detach().to(cpu()).to_vector<float>());
  return values;
}

NDArray loss_of(nn::Sequential& net, const NDArray& x, const NDArray& t, int64_t rows) {
  return nn::cross_entropy(net(x), t, {.reduction = "sum"}) / static_cast<float>(rows);
}

// Returns the values after training on one device with the same parts of each batch in the same order.
std::vector<std::vector<float>> accumulated(const nn::OptimizerChoice& choice, size_t parts, int64_t rows) {
  nn::Sequential net = make_net();
  nn::Trainer trainer(net.parameters(), choice);
  for (const Batch& batch : batches(rows)) {
    trainer.zero_grad();
    const std::vector<Context> here(parts, cpu());
    const auto x = nn::split_batch(batch.x, here), t = nn::split_batch(batch.t, here);
    for (size_t k = 0; k < parts; ++k) loss_of(net, x[k], t[k], rows).backward();
    trainer.step();
  }
  return values_of(net);
}

TEST(Trainer, ReplicasGiveTheBitsOfOneDeviceThatAccumulates) {
  for (const std::string& type : store_types())
    for (const auto& devices : std::vector<std::vector<Context>>{
             {virt(0), virt(1)}, {cpu(), virt(0)}, {virt(1), virt(0), virt(2)}, {cpu()}}) {
      const nn::OptimizerChoice choice(optim::SGDOptions{.lr = 0.3, .momentum = 0.9});
      nn::Sequential net = make_net();
      std::vector<nn::Sequential> nets = nn::replicate(net, devices);
      nn::Trainer trainer(nn::parameters_of(nets), choice, KVStore::create(type));
      EXPECT_EQ(devices.size(), trainer.replicas());
      for (const Batch& batch : batches(8)) {
        trainer.zero_grad();
        const auto x = nn::split_batch(batch.x, devices), t = nn::split_batch(batch.t, devices);
        for (size_t k = 0; k < devices.size(); ++k) loss_of(nets[k], x[k], t[k], 8).backward();
        trainer.step();
      }
      const auto expected = accumulated(choice, devices.size(), 8);
      for (const nn::Sequential& each : nets) EXPECT_EQ(expected, values_of(each)) << type;
    }
}

TEST(Trainer, MakesTheOptimizerThatIsChosen) {
  nn::Sequential net = make_net();
  EXPECT_STREQ("sgd", nn::Trainer(net.parameters(), optim::SGDOptions{.lr = 0.1}).optimizer().name());
  EXPECT_STREQ("adam", nn::Trainer(net.parameters(), optim::AdamOptions{}).optimizer().name());
  EXPECT_STREQ("adamw", nn::Trainer(net.parameters(), optim::AdamWOptions{}).optimizer().name());
  nn::Trainer named(net.parameters(), nn::OptimizerChoice("adam", {{"lr", 0.25}}));
  EXPECT_EQ(0.25, named.optimizer().learning_rate());
  optim::CosineLR schedule(named.optimizer(), {.steps = 10});
  schedule.step();
  EXPECT_LT(named.optimizer().learning_rate(), 0.25);
}

/// Returns an optimizer with two groups, the last parameters first, like a program that treats the head
/// separately.
std::unique_ptr<optim::Optimizer> head_first(const Parameters& all) {
  auto optimizer = std::make_unique<optim::SGD>(Parameters{all[3], all[2]}, optim::SGDOptions{.lr = 0.5});
  optimizer->add_group({all[1], all[0]}, {.lr = 0.25});
  return optimizer;
}

TEST(Trainer, GroupsInAnotherOrderGetTheirOwnGradients) {
  const auto run = [](const nn::OptimizerChoice& choice, const std::shared_ptr<KVStore>& store) {
    // Both layers have the same shapes, so a mix-up would not fail a shape check.
    nn::Sequential net{nn::Linear{4, 4}, nn::Linear{4, 4}};
    nn::init::mixed(net, {{"", [](NDArray a) { nn::init::constant_(a, 0.25); }}});
    nn::Trainer trainer(net.parameters(), choice, store);
    for (const Batch& batch : batches(4)) {
      trainer.zero_grad();
      sum(net(batch.x.slice(1, Slice{0, 4}))).backward();
      trainer.step();
    }
    return values_of(net);
  };
  const auto expected = run(head_first, nullptr);
  for (const std::string& type : store_types())
    EXPECT_EQ(expected, run(head_first, KVStore::create(type))) << type;
}

TEST(Trainer, GroupsGoByName) {
  nn::Sequential net = make_net();
  const auto before = values_of(net);
  nn::Trainer trainer(
      net.parameters(),
      [](const Parameters& all) {
        const auto is_bias = [](const NamedParameter& p) { return p.name.ends_with("bias"); };
        auto optimizer = std::make_unique<optim::SGD>(all.where(is_bias), optim::SGDOptions{.lr = 1});
        optimizer->add_group(all.where(std::not_fn(is_bias)), {.lr = 1, .weight_decay = 0.5});
        return optimizer;
      },
      KVStore::create());
  for (const auto& [name, p] : net.parameters()) p.set_grad(zeros(p.shape()));
  trainer.step();
  const auto after = values_of(net);
  for (size_t i = 0; i < before.size(); ++i)
    for (size_t k = 0; k < before[i].size(); ++k)
      EXPECT_EQ(before[i][k] * (i % 2 == 0 ? 0.5f : 1.f), after[i][k]) << "weights alone decay";
  EXPECT_EQ("0.bias", trainer.optimizer().parameters()[0].name);
  EXPECT_NE(nullptr, trainer.optimizer().state_dict().find("group.1.learning_rate"));
}

TEST(Trainer, WhatTheOptimizerLeavesOutStays) {
  nn::Sequential net = make_net();
  std::vector<nn::Sequential> nets = nn::replicate(net, {cpu(), virt(0)});
  nn::Trainer trainer(
      nn::parameters_of(nets),
      [](const Parameters& all) {
        return std::make_unique<optim::SGD>(Parameters{all[2]}, optim::SGDOptions{.lr = 1});
      },
      KVStore::create("device"));
  const auto before = values_of(net);
  for (nn::Sequential& each : nets) sum(each(ones({2, 6}, f32, each.parameters()[0].context()))).backward();
  trainer.step();
  const auto after = values_of(nets[1]);
  for (const size_t i : {0, 1, 3}) EXPECT_EQ(before[i], after[i]);
  EXPECT_NE(before[2], after[2]);
  EXPECT_EQ(values_of(nets[0]), after);
}

TEST(Replicate, RefusesAnEmptyListOfDevices) {
  nn::Linear layer(2, 1);
  error_of<InvalidArgument>([&] { nn::replicate(layer, {}); });
}

// Each replica sees its own part of the batch. Those of the first one are kept, as if it had trained alone.
TEST(Trainer, ReplicasShareTheRunningStatisticsOfTheFirst) {
  for (const std::string& type : store_types())
    for (const bool broadcast : {true, false}) {
      manual_seed(7);
      nn::Sequential net{nn::Linear{6, 5}, nn::BatchNorm1d{5}, nn::Linear{5, 3}};
      nn::Sequential alone = net.clone();
      const std::vector<Context> devices = {virt(0), virt(1)};
      std::vector<nn::Sequential> nets = nn::replicate(net, devices);
      nn::Trainer trainer(nets, optim::SGDOptions{.lr = 0}, KVStore::create(type),
                          {.broadcast_buffers = broadcast});
      for (const Batch& batch : batches(8)) {
        const auto x = nn::split_batch(batch.x, devices), t = nn::split_batch(batch.t, devices);
        trainer.zero_grad();
        for (size_t k = 0; k < 2; ++k) loss_of(nets[k], x[k], t[k], 8).backward();
        trainer.step();
        alone(x[0].to(cpu()));
      }
      const auto buffers = [](const nn::Module& model) {
        std::vector<std::vector<double>> all;
        for (const NDArray& b : model.buffers()) all.push_back(b.to(cpu()).to_vector<double>());
        return all;
      };
      EXPECT_EQ(buffers(alone), buffers(nets[0])) << type;
      EXPECT_EQ(broadcast, buffers(nets[0]) == buffers(nets[1])) << type;
      EXPECT_EQ(6, nets[1].buffers()[2].item<int64_t>());
      nets[0].buffers()[0].fill_(4);
      trainer.synchronise();
      EXPECT_EQ(broadcast, buffers(nets[0]) == buffers(nets[1])) << type;
    }
}

TEST(Trainer, AModelMayMoveAfterItsTrainerWasMade) {
  const auto run = [](bool store, bool moves) {
    nn::Sequential net = make_net();
    nn::Trainer trainer(net.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9},
                        store ? KVStore::create("device") : nullptr);
    int step = 0;
    for (const Batch& batch : batches(4)) {
      if (moves && step == 2) net.to(virt(0));
      if (moves && step == 4) net.to(cpu());
      const Context here = net.parameters()[0].context();
      trainer.zero_grad();
      loss_of(net, batch.x.to(here), batch.t.to(here), 4).backward();
      trainer.step();
      ++step;
    }
    return values_of(net);
  };
  const auto expected = run(false, false);
  EXPECT_EQ(expected, run(false, true));
  EXPECT_EQ(expected, run(true, true));
}

TEST(Trainer, AModelMayBeConvertedAfterItsTrainerWasMade) {
  const auto run = [](const std::shared_ptr<KVStore>& store) {
    nn::Sequential net = make_net();
    nn::Trainer trainer(net.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, store);
    for (const DType type : {f32, f64, f16, f32}) {
      net.to(type);
      trainer.zero_grad();
      sum(net(batches(4)[0].x.to(type))).backward();
      trainer.step();
    }
    return values_of(net);
  };
  const auto expected = run(nullptr);
  for (const std::string& type : store_types()) EXPECT_EQ(expected, run(KVStore::create(type))) << type;
}

TEST(Trainer, SumsOfShortTypesDoNotOverflow) {
  std::vector<Parameters> replicas;
  for (const Context device : {cpu(), virt(0)}) {
    replicas.push_back({ones({2}, f16, device).requires_grad_()});
    replicas.back()[0].set_grad(full({2}, 60000, f16, device));
  }
  nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 1.0 / 1024}, KVStore::create("device"));
  trainer.step();
  EXPECT_EQ(full({2}, 1 - 120000.0 / 1024).to(f16).to_vector<float>(),
            replicas[1][0].detach().to(cpu()).to_vector<float>());
}

TEST(Trainer, AParameterWithoutGradientStays) {
  nn::Sequential net = make_net();
  std::vector<nn::Sequential> nets = nn::replicate(net, {virt(0), virt(1)});
  nn::Trainer trainer(nn::parameters_of(nets), optim::SGDOptions{.lr = 1}, KVStore::create("device"));
  const auto before = values_of(nets[0]);
  const NDArray w = nets[1].parameters()[0];
  sum(w).backward();
  trainer.step();
  const auto after = values_of(nets[0]);
  EXPECT_EQ(after, values_of(nets[1]));
  for (size_t i = 0; i < before[0].size(); ++i)
    EXPECT_EQ(before[0][i] - 1, after[0][i]) << "one replica had one";
  for (size_t i = 1; i < before.size(); ++i) EXPECT_EQ(before[i], after[i]);
}

TEST(Trainer, SeveralShareAStoreWithEachOtherAndWithTheProgram) {
  const std::shared_ptr<KVStore> kv = KVStore::create("device");
  kv->init("0", array({5.f}));
  nn::Sequential net = make_net(), plain = make_net();
  const optim::SGDOptions options{.lr = 1};
  {
    const std::vector<NDArray> p = net.parameters();
    nn::Trainer first({p[0], p[1]}, options, kv), second({p[2], p[3]}, options, kv);
    sum(net(ones({2, 6}))).backward();
    first.step();
    second.step();
  }
  nn::Trainer again(net.parameters(), options, kv), reference(plain.parameters(), options);
  again.step();
  sum(plain(ones({2, 6}))).backward();
  reference.step();
  reference.step();
  EXPECT_EQ(values_of(plain), values_of(net));
  NDArray own = zeros({1});
  kv->pull("0", own);
  EXPECT_EQ(5, own.item<float>());
}

TEST(Trainer, OfOneReplicaGoesThroughTheStoreWhichKeepsNothing) {
  for (const std::string& type : store_types()) {
    nn::Sequential net = make_net(), plain = make_net();
    const std::shared_ptr<KVStore> kv = KVStore::create(type);
    nn::Trainer trainer(net.parameters(), optim::SGDOptions{.lr = 0.1}, kv);
    nn::Trainer reference(plain.parameters(), optim::SGDOptions{.lr = 0.1});
    for (const Batch& batch : batches(4)) {
      for (auto [each, step] : {std::pair{&net, &trainer}, {&plain, &reference}}) {
        step->zero_grad();
        loss_of(*each, batch.x, batch.t, 4).backward();
        step->step();
      }
    }
    EXPECT_EQ(values_of(plain), values_of(net)) << type;
    for (const NamedParameter& parameter : net.parameters()) kv->init(parameter.name, parameter);
  }
}

TEST(Trainer, PartsOfAStepGiveTheBitsOfOne) {
  for (const nn::OptimizerChoice& choice :
       {nn::OptimizerChoice(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .max_norm = 0.5}),
        nn::OptimizerChoice(optim::AdamWOptions{.lr = 0.1})}) {
    nn::Sequential net = make_net(), plain = make_net();
    nn::Trainer trainer(net.parameters(), choice, KVStore::create("local"), {.bucket_bytes = 64});
    nn::Trainer reference(plain.parameters(), choice);
    for (const Batch& batch : batches(4))
      for (auto [each, step] : {std::pair{&net, &trainer}, {&plain, &reference}}) {
        step->zero_grad();
        loss_of(*each, batch.x, batch.t, 4).backward();
        step->step();
      }
    EXPECT_EQ(values_of(plain), values_of(net));
    const NamedArrays expected = reference.state_dict(), got = trainer.state_dict();
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(expected[i].first, got[i].first);
      EXPECT_EQ(expected[i].second.to_vector<double>(), got[i].second.to_vector<double>()) << got[i].first;
    }
    error_of<InvalidArgument>([&] { trainer.optimizer().set_parts({{.parameters = {0, 0}}}); });
    error_of<InvalidArgument>([&] { trainer.optimizer().set_parts({{.parameters = {4}}}); });
  }
}

// Rule 5 of docs/errors.md in a whole training loop. The loop notices the error only when it reads the loss.
TEST(Trainer, ABadLabelCostsAStepAndNothingElse) {
  nn::Sequential net = make_net(), plain = make_net();
  nn::Trainer trainer(net.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  nn::Trainer reference(plain.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  const std::vector<Batch> good = batches(4);
  const auto learn = [](nn::Sequential& model, nn::Trainer& with, const NDArray& x, const NDArray& t) {
    with.zero_grad();
    const NDArray loss = loss_of(model, x, t, 4);
    loss.backward();
    with.step();
    return loss;
  };
  learn(net, trainer, good[0].x, good[0].t);
  learn(plain, reference, good[0].x, good[0].t);
  const auto before = values_of(net);

  const NDArray loss = learn(net, trainer, good[1].x, array<int64_t>({0, 1, 99, 2}));
  EXPECT_TRUE(contains(error_of<Error>([&] { loss.item<float>(); }), "99"));
  EXPECT_TRUE(contains(error_of<Error>([&] { values_of(net); }), "99")) << "the step was skipped";
  for (const NDArray& parameter : net.parameters()) current_engine().recover(parameter.var());
  for (const auto& [name, state] : trainer.optimizer().state_dict()) current_engine().recover(state.var());
  EXPECT_EQ(before, values_of(net));

  for (size_t i = 2; i < good.size(); ++i) {
    EXPECT_TRUE(std::isfinite(learn(net, trainer, good[i].x, good[i].t).item<float>()));
    learn(plain, reference, good[i].x, good[i].t);
  }
  EXPECT_EQ(values_of(plain), values_of(net)) << "as if the batch had not been";
  try {
    wait_all();  // the error has been reported already
  } catch (const Error&) {
  }
}

TEST(Trainer, BadUseIsNamed) {
  nn::Sequential net = make_net(), other{nn::Linear{6, 4}, nn::Linear{4, 3}};
  const optim::SGDOptions options{.lr = 0.1};
  error_of<InvalidArgument>([&] { nn::Trainer(std::vector<NDArray>{}, options); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         nn::Trainer({net.parameters(), net.clone().parameters()}, options, nullptr);
                       }),
                       "KVStore"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         nn::Trainer({net.parameters(), other.parameters()}, options, KVStore::create());
                       }),
                       "replica 1"));
  // Handles of one module are not replicas: its gradients would be counted twice.
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         nn::Trainer({net.parameters(), net.clone().parameters(), net.parameters()}, options,
                                     KVStore::create());
                       }),
                       "parameter 0 in the replicas 0 and 2"));
}

TEST(Trainer, AnOptimizerOfOthersIsRefused) {
  nn::Sequential net = make_net(), other = make_net();
  const auto of_others = [&](const Parameters&) { return std::make_unique<optim::SGD>(other.parameters()); };
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::Trainer(net.parameters(), of_others); }),
                       "the replica's parameters, got one that also holds '0.weight'"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::OptimizerChoice{nn::OptimizerChoice::Make()}; }),
                       "an empty one"));
}

TEST(Trainer, AnOptimizerWithoutParametersIsRefused) {
  nn::Sequential net = make_net();
  const auto of_none = [](const Parameters&) { return std::make_unique<optim::SGD>(Parameters{}); };
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::Trainer(net.parameters(), of_none); }),
                       "got one without any"));
  nn::Trainer frozen(Parameters{NamedParameter("w", ones({2}))}, of_none);
  EXPECT_EQ(0u, frozen.optimizer().parameters().size());
}

TEST(Trainer, ErrorsOfOptionsNameTheLineThatChoseThem) {
  nn::Sequential net = make_net();
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { nn::Trainer(net.parameters(), optim::SGDOptions{.lr = -1}); }),
               "trainer_test.cc"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         nn::Trainer(net.parameters(), {"adam", {{"lr", -1.}}});
                       }),
                       "trainer_test.cc"));
}

TEST(Trainer, OneThatWasMovedFromSaysSo) {
  nn::Sequential net = make_net();
  nn::Trainer trainer(net.parameters(), optim::SGDOptions{});
  nn::Trainer other = std::move(trainer);
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { trainer.step(); }), "moved from"));
  error_of<InvalidState>([&] { trainer.optimizer(); });
  trainer.synchronise();
  trainer.zero_grad();
  EXPECT_STREQ("sgd", other.optimizer().name());

  nn::Trainer on_store(net.parameters(), optim::SGDOptions{}, KVStore::create(), {.update_on_store = true});
  nn::Trainer moved = std::move(on_store);
  error_of<InvalidState>([&] { on_store.synchronise(); });
  moved.synchronise();
}

TEST(Trainer, SynchroniseSetsMasterCopies) {
  for (const bool store : {false, true}) {
    Parameters all{NamedParameter("w", ones({2}, f16).requires_grad_())};
    nn::Trainer trainer(all, optim::SGDOptions{.lr = 1}, store ? KVStore::create() : nullptr);
    all[0].set_grad(ones({2}, f16));
    trainer.step();
    {
      const NoGrad pause;
      all[0].fill_(4);  // as if it were loaded
    }
    trainer.synchronise();
    trainer.step();
    EXPECT_EQ(std::vector<float>(2, 3), all[0].detach().to(f32).to_vector<float>()) << store;
  }
}

TEST(SplitBatch, PartsOfAboutTheSameSizeInTheirOrder) {
  const NDArray x = arange(7);
  const std::vector<NDArray> parts = nn::split_batch(x, {cpu(), virt(0), virt(1)});
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2}), parts[0].to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{3, 4}), parts[1].to(cpu()).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{5, 6}), parts[2].to(cpu()).to_vector<int64_t>());
  EXPECT_EQ(virt(1), parts[2].context());
  error_of<InvalidArgument>([&] { nn::split_batch(arange(2), {cpu(), cpu(), cpu()}); });
  error_of<InvalidArgument>([&] { nn::split_batch(x, {}); });
}

TEST(Trainer, OneOptimiserIsChosen) {
  nn::Linear net(2, 1);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         nn::Trainer(net.parameters(), optim::SGDOptions{}, KVStore::create(),
                                     {.shard_optimizer = true, .update_on_store = true});
                       }),
                       "shard_optimizer or update_on_store"));
}

}  // namespace
}  // namespace mx
