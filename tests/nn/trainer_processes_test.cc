// The trainer with several processes, which are threads here: the bits of one process.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ndarray/grad_mode.h"
#include "nn/metric/metric.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "optim/adaptive.h"
#include "optim/direct.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::on_ranks;
using ParameterValues = std::vector<std::vector<float>>;

constexpr int64_t kBatchRows = 12;

/// A network with a buffer, whose values depend on the rank.
struct Counted : nn::Module {
  nn::Linear fc1, fc2;
  Parameter count;
  explicit Counted(int rank) : fc1{6, 33}, fc2{33, 3}, count(add_buffer("count", full({2}, rank + 4))) {
    add("fc1", fc1);
    add("fc2", fc2);
    uint64_t seed = 1 + 100 * static_cast<uint64_t>(rank);
    const NoGrad pause;
    for (const NamedParameter& p : parameters()) p.copy_from(test::some(p.shape(), seed++).to(f32));
  }
  NDArray forward(const NDArray& x) { return fc2(tanh(fc1(x))); }
};

NDArray part_loss(Counted& net, int64_t step, int part, int parts) {
  const uint64_t seed = 20 + static_cast<uint64_t>(step);
  std::vector<int64_t> labels;
  for (int64_t r = 0; r < kBatchRows; ++r) labels.push_back((r + step) % 3);
  const std::vector<Context> here(static_cast<size_t>(parts), cpu());
  const NDArray x =
      nn::split_batch(test::some({kBatchRows, 6}, seed).to(f32), here)[static_cast<size_t>(part)];
  const NDArray t = nn::split_batch(array(labels), here)[static_cast<size_t>(part)];
  return nn::cross_entropy(net(x), t, {.reduction = "sum"}) / static_cast<float>(kBatchRows);
}

ParameterValues values_of(const NamedArrays& arrays) {
  ParameterValues values;
  for (const auto& [name, array] : arrays) values.push_back(array.to(f32).to_vector<float>());
  return values;
}

struct Outcome {
  ParameterValues parameters, state;
};
Outcome outcome_of(Counted& net, nn::Trainer& trainer) {
  return {values_of(net.state_dict()), values_of(trainer.state_dict())};
}

/// One process that accumulates the parts of the batch in their order.
Outcome one_process(const nn::OptimizerChoice& choice, int parts, DType type = f32) {
  Counted net(0);
  net.to(type);
  nn::Trainer trainer(net, choice);
  for (int64_t step = 0; step < 4; ++step) {
    trainer.zero_grad();
    for (int part = 0; part < parts; ++part) part_loss(net, step, part, parts).backward();
    trainer.step();
  }
  return outcome_of(net, trainer);
}

const std::vector<nn::OptimizerChoice>& choices() {
  static const std::vector<nn::OptimizerChoice> all = {
      optim::SGDOptions{.lr = 0.3, .momentum = 0.9, .weight_decay = 0.01}, optim::AdamWOptions{.lr = 0.05},
      optim::RMSpropOptions{.momentum = 0.5, .centered = true},
      optim::AdagradOptions{.initial_accumulator_value = 0.5}};
  return all;
}

class TrainerProcesses : public ::testing::TestWithParam<std::tuple<int, bool, KVOrder>> {
 protected:
  std::vector<std::string> on_ranks(int ranks, const std::function<void(KVStore&)>& body) const {
    return test::on_ranks(ranks, body, {.order = std::get<2>(GetParam())});
  }
  const int ranks_ = std::get<0>(GetParam());
  const bool sharded_ = std::get<1>(GetParam());
};

TEST_P(TrainerProcesses, GiveTheBitsOfOneThatAccumulates) {
  for (const nn::OptimizerChoice& choice : choices())
    for (const int64_t bucket_bytes : {0, 600, 1 << 20}) {
      const Outcome expected = one_process(choice, ranks_);
      const auto errors = on_ranks(ranks_, [&](KVStore& kv) {
        const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
        Counted net(kv.rank());
        nn::Trainer trainer(net, choice, store,
                            {.bucket_bytes = bucket_bytes, .shard_optimizer = sharded_, .check_every = 2});
        for (int64_t step = 0; step < 4; ++step) {
          trainer.zero_grad();
          part_loss(net, step, kv.rank(), ranks_).backward();
          trainer.step();
        }
        const Outcome got = outcome_of(net, trainer);
        EXPECT_EQ(expected.parameters, got.parameters) << "rank " << kv.rank();
        EXPECT_EQ(expected.state, got.state) << "rank " << kv.rank();
      });
      for (const std::string& error : errors) EXPECT_EQ("", error);
    }
}

TEST_P(TrainerProcesses, GoOnFromALoadedState) {
  const nn::OptimizerChoice choice = choices()[1];
  const Outcome expected = one_process(choice, ranks_);
  const auto errors = on_ranks(ranks_, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Counted net(kv.rank());
    NamedArrays model, state;
    for (int64_t first : {0, 2}) {
      // The second trainer starts from what the first one left; only rank 0 has the model.
      Counted other(kv.rank() + 7);
      if (first == 2 && kv.rank() == 0) other.load_state_dict(model);
      Counted& used = first == 0 ? net : other;
      nn::Trainer trainer(used, choice, store, {.bucket_bytes = 600, .shard_optimizer = sharded_});
      if (first == 2) {
        trainer.synchronise();
        trainer.load_state_dict(state);
      }
      for (int64_t step = first; step < first + 2; ++step) {
        trainer.zero_grad();
        part_loss(used, step, kv.rank(), ranks_).backward();
        trainer.step();
      }
      if (first == 2) {
        const Outcome got = outcome_of(used, trainer);
        EXPECT_EQ(expected.parameters, got.parameters);
        EXPECT_EQ(expected.state, got.state);
        continue;
      }
      for (const auto& [name, array] : used.state_dict()) model.emplace_back(name, array.clone());
      for (const auto& [name, array] : trainer.state_dict()) state.emplace_back(name, array.clone());
    }
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST_P(TrainerProcesses, AParameterWithoutGradientInOneProcessCountsAsZeros) {
  const auto errors = on_ranks(ranks_, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all;
    for (const char* name : {"a", "b", "c"}) all.emplace_back(name, ones({3}).requires_grad_());
    all.emplace_back("frozen", ones({3}));
    nn::Trainer trainer(all, optim::SGDOptions{.lr = 1}, store, {.shard_optimizer = sharded_});
    all[0].set_grad(ones({3}));
    if (kv.rank() == 0) all[1].set_grad(ones({3}));
    trainer.step();
    const std::vector<float> expected[] = {
        std::vector<float>(3, static_cast<float>(1 - ranks_)), {0, 0, 0}, {1, 1, 1}, {1, 1, 1}};
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(expected[i], all[i].detach().to_vector<float>()) << i;
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TrainerProcesses,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool(),
                                            ::testing::Values(KVOrder::program, KVOrder::priority)));

// As in PyTorch's DistributedDataParallel, the running statistics of rank 0 are those of all.
TEST(TrainerProcess, AllHaveTheRunningStatisticsOfTheFirst) {
  for (const bool broadcast : {true, false})
    for (const bool on_store : {false, true}) {
      const auto errors = on_ranks(3, [&](KVStore& kv) {
        const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
        nn::Sequential first{nn::BatchNorm1d{6}, nn::Linear{6, 3}};
        nn::BatchNorm1d alone(6);
        nn::Trainer trainer(first, optim::SGDOptions{.lr = 0.1}, store,
                            {.update_on_store = on_store, .broadcast_buffers = broadcast});
        for (uint64_t step = 0; step < 3; ++step) {
          const auto part = [&](int rank) {
            return test::some({5, 6}, 1 + step + 10 * static_cast<uint64_t>(rank)).to(f32);
          };
          trainer.zero_grad();
          sum(square(first(part(kv.rank())))).backward();
          trainer.step();
          alone(part(0));
        }
        EXPECT_EQ(broadcast || kv.rank() == 0,
                  values_of(first.named_buffers()) == values_of(alone.named_buffers()))
            << "rank " << kv.rank();
      });
      for (const std::string& error : errors) EXPECT_EQ("", error);
    }
}

TEST(TrainerProcess, ProcessesWithDevicesOfTheirOwnShareRunningStatistics) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    nn::Sequential net{nn::BatchNorm1d{6}, nn::Linear{6, 3}};
    nn::BatchNorm1d alone(6);
    const Context device = virt(kv.rank());
    net.to(device);
    nn::Trainer trainer(net, optim::SGDOptions{.lr = 0.1}, store);
    const auto part = [&](int rank) { return test::some({5, 6}, 1 + static_cast<uint64_t>(rank)).to(f32); };
    sum(square(net(part(kv.rank()).to(device)))).backward();
    trainer.step();
    net.to(cpu());
    alone(part(0));
    EXPECT_EQ(values_of(net.named_buffers()), values_of(alone.named_buffers())) << "rank " << kv.rank();
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST(TrainerProcess, ReplicasOnDevicesAreAddedFirst) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    std::vector<Parameters> replicas;
    for (const Context device : {virt(0), virt(1)})
      replicas.push_back({NamedParameter("w", ones({2}, f16, device).requires_grad_())});
    nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 1.0 / 1024}, store);
    for (const Parameters& replica : replicas)
      replica[0].set_grad(full({2}, 60000, f16, replica[0].context()));
    trainer.step();
    for (const Parameters& replica : replicas)
      EXPECT_EQ(full({2}, 1 - 240000.0 / 1024).to(f16).to_vector<float>(),
                replica[0].detach().to(cpu()).to_vector<float>());
    error_of<InvalidArgument>(
        [&] { nn::Trainer(replicas, optim::SGDOptions{}, store, {.shard_optimizer = true}); });
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST(TrainerProcess, AShardedOptimizerKeepsItsPart) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Counted net(0);
    nn::Trainer whole(net, optim::AdamOptions{}, store),
        sharded(net, optim::AdamOptions{}, store, {.shard_optimizer = true});
    const auto bytes = [](nn::Trainer& trainer) {
      size_t sum = 0;
      for (const auto& [name, array] : trainer.optimizer().state_dict())
        if (name.starts_with("state.") && !name.ends_with(".step")) sum += array.bytes();
      return static_cast<double>(sum);
    };
    EXPECT_LE(bytes(sharded), 0.55 * bytes(whole));
    error_of<InvalidArgument>(
        [&] { nn::Trainer(net, optim::AdamOptions{.max_norm = 1}, store, {.shard_optimizer = true}); });
    error_of<InvalidArgument>(
        [&] { nn::Trainer(net, optim::LAMBOptions{}, store, {.shard_optimizer = true}); });
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST(TrainerProcess, MetricsAreSummedOverTheProcesses) {
  const auto errors = on_ranks(3, [&](KVStore& kv) {
    metric::Composite metrics;
    metrics.add("accuracy", metric::Accuracy()).add("loss", metric::MeanLoss());
    const float own = static_cast<float>(kv.rank());
    metrics.update(array({{1.0f, own}}), array({int64_t{0}}), full({}, own));
    metric::sync(metrics, kv);
    EXPECT_EQ(2.0 / 3, metrics.value("accuracy"));  // a tie of ranks 0 and 1 goes to class 0
    EXPECT_EQ(1, metrics.value("loss"));
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

// Portions are flat, and have other sizes in each process. They still require gradients as their parameters.
TEST(TrainerProcess, AFunctionChoosesTheSameOfPortionsAsOfParameters) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("w", ones({4, 3}).requires_grad_()), NamedParameter("frozen", ones({2})),
                   NamedParameter("v", ones({5}).requires_grad_())};
    const nn::TrainerOptions sharded{.shard_optimizer = true};
    const auto trainable = [](const Parameters& given) {
      return std::make_unique<optim::SGD>(
          given.where([](const NamedParameter& p) { return p.requires_grad(); }), optim::SGDOptions{.lr = 1});
    };
    nn::Trainer trainer(all, trainable, store, sharded);
    EXPECT_EQ(2u, trainer.optimizer().parameters().size());
    for (const size_t i : {0, 2}) all[i].set_grad(ones(all[i].shape()));
    trainer.step();
    for (const size_t i : {0, 2})
      for (const float value : all[i].detach().to_vector<float>()) EXPECT_EQ(-1, value) << i;

    const auto by_rank = [](const Parameters& given) {
      const auto is_matrix = [](const NamedParameter& p) { return p.rank() > 1; };
      auto optimizer =
          std::make_unique<optim::SGD>(given.where(is_matrix), optim::SGDOptions{.weight_decay = 0.1});
      optimizer->add_group(given.where(std::not_fn(is_matrix)), {});
      return optimizer;
    };
    const std::string message = error_of<InvalidArgument>([&] { nn::Trainer(all, by_rank, store, sharded); });
    EXPECT_TRUE(contains(message, "'w' in group 0 of the parameters") && contains(message, "by name"))
        << message;
    const auto by_shape = [](const Parameters& given) {
      const double rate = given[0].rank() > 1 ? 1 : 2;
      return std::make_unique<optim::SGD>(given, optim::SGDOptions{.lr = rate});
    };
    EXPECT_TRUE(
        contains(error_of<InvalidArgument>([&] { nn::Trainer(all, by_shape, store, sharded); }), "lr = 2"));
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

// What one process does otherwise when it makes its optimiser.
struct WrongChoice {
  std::string name, message;  // of the processes that do it right
  nn::TrainerOptions options{};
  std::function<std::unique_ptr<optim::Optimizer>(const Parameters& given, bool wrong)> make;
};

std::vector<WrongChoice> wrong_choices() {
  const auto sgd = [](const Parameters& of, double rate) {
    return std::make_unique<optim::SGD>(of, optim::SGDOptions{.lr = rate});
  };
  const auto but = [](const Parameters& all, std::string left_out) {
    return all.where([left_out](const NamedParameter& p) { return p.name != left_out; });
  };
  return {
      {"leaves a parameter out",
       "parameter 1 'b' on rank(s) 1 than on rank(s) 0, 2",
       {},
       [=](const Parameters& all, bool wrong) { return sgd(wrong ? but(all, "b") : all, 1); }},
      // The same number of parameters and of elements: the sums would go through.
      {"takes another parameter",
       "parameter 1 'b' on rank(s) 1 than on rank(s) 0, 2",
       {},
       [=](const Parameters& all, bool wrong) { return sgd(but(all, wrong ? "b" : "c"), 1); }},
      {"has another learning rate",
       "lr = 1",
       {},
       [=](const Parameters& all, bool wrong) { return sgd(all, wrong ? 2 : 1); }},
      {"has another learning rate, sharded",
       "parameter 0 'a' on rank(s) 1",
       {.shard_optimizer = true},
       [=](const Parameters& all, bool wrong) { return sgd(all, wrong ? 2 : 1); }},
      {"fails",
       "an error where it is made on rank(s) 1",
       {},
       [=](const Parameters& all, bool wrong) {
         if (wrong) throw Error("out of luck");
         return sgd(all, 1);
       }},
      // In the other processes, a portion has the same number of elements.
      {"chooses by size, sharded",
       "an error where it is made on rank(s) 1",
       {.shard_optimizer = true},
       [=](const Parameters& all, bool wrong) {
         return sgd(wrong ? all.where([](const NamedParameter& p) { return p.numel() == 4; }) : all, 1);
       }},
  };
}

TEST(TrainerProcess, AnOptimizerThatOneProcessChoosesOtherwiseIsNamed) {
  for (const WrongChoice& c : wrong_choices()) {
    const auto errors = on_ranks(3, [&](KVStore& kv) {
      const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
      Parameters all;
      for (const char* name : {"a", "b", "c", "d"}) all.emplace_back(name, ones({4}).requires_grad_());
      nn::Trainer(
          all, [&](const Parameters& given) { return c.make(given, kv.rank() == 1); }, store, c.options);
    });
    for (const size_t r : {0, 2}) EXPECT_TRUE(contains(errors[r], c.message)) << c.name << ": " << errors[r];
    EXPECT_NE("", errors[1]) << c.name;
    if (c.name == "fails") {
      EXPECT_EQ("out of luck", errors[1]);
    }
  }
}

TEST(TrainerProcess, AParameterThatIsNotContiguousHasNoPortion) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("turned", ones({4, 3}).transpose().detach().requires_grad_())};
    const std::string message = error_of<InvalidArgument>(
        [&] { nn::Trainer(all, optim::SGDOptions{}, store, {.shard_optimizer = true}); });
    EXPECT_TRUE(contains(message, "'turned' to be contiguous with shard_optimizer")) << message;
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

// Each process would skip and scale the steps of its own part only.
TEST(TrainerProcess, ALossScaleThatOnlyOnePartWouldKnowIsAnError) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Counted net(0);
    nn::Trainer trainer(net, optim::SGDOptions{.lr = 1}, store, {.shard_optimizer = true});
    for (const NamedParameter& p : net.parameters()) p.set_grad(ones(p.array().shape()));
    trainer.optimizer().set_loss_scale(optim::LossScale({.interval = 0}));
    trainer.step();
    trainer.optimizer().set_loss_scale(optim::LossScale({.interval = 10}));
    const std::string message = error_of<InvalidArgument>([&] { trainer.step(); });
    EXPECT_TRUE(contains(message, "loss scale") && contains(message, "shard_optimizer")) << message;
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST(TrainerProcess, FreezingAfterwardsIsAnErrorWithAShardedOptimizer) {
  for (const bool frozen_first : {false, true}) {
    const auto errors = on_ranks(2, [&](KVStore& kv) {
      const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
      Counted net(0);
      NDArray(net.fc1.weight).requires_grad_(!frozen_first);
      nn::Trainer trainer(net, optim::SGDOptions{.lr = 1}, store, {.shard_optimizer = true});
      NDArray(net.fc1.weight).requires_grad_(frozen_first);
      const std::string message = error_of<InvalidState>([&] { trainer.step(); });
      EXPECT_TRUE(contains(message, "fc1.weight") && contains(message, "new trainer")) << message;
    });
    for (const std::string& error : errors) EXPECT_EQ("", error);
  }
}

// The store has the state of the optimiser. That of the trainer's own optimiser is never used.
TEST(TrainerProcess, GoesOnFromALoadedStateWithUpdatesOnTheStore) {
  for (const nn::OptimizerChoice& choice : choices()) {
    const auto train = [&](KVStore& kv) {
      const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
      Counted net(kv.rank());
      nn::Trainer trainer(net, choice, store, {.update_on_store = true});
      const auto steps = [&](int64_t from) {
        for (int64_t step = from; step < from + 2; ++step) {
          trainer.zero_grad();
          part_loss(net, step, kv.rank(), kv.size()).backward();
          trainer.step();
        }
      };
      steps(0);
      NamedArrays model, state = trainer.state_dict();
      for (const auto& [name, array] : net.state_dict()) model.emplace_back(name, array.clone());
      steps(2);
      const ParameterValues expected = values_of(net.state_dict());
      net.load_state_dict(model);
      trainer.synchronise();
      trainer.load_state_dict(state);
      EXPECT_EQ(values_of(model), values_of(net.state_dict()));
      steps(2);
      EXPECT_EQ(expected, values_of(net.state_dict()));
    };
    const auto local = KVStore::create("local");
    train(*local);
    for (const std::string& error : on_ranks(2, train)) EXPECT_EQ("", error);
  }
}

TEST(TrainerProcess, LoadsTheLearningRateWithUpdatesOnTheStore) {
  const auto train = [](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("w", ones({2}).requires_grad_()),
                   NamedParameter("late", ones({2}).requires_grad_())};
    nn::Trainer trainer(all, optim::SGDOptions{.lr = 1}, store, {.update_on_store = true});
    const auto step = [&] {
      all[0].set_grad(ones({2}));
      trainer.step();
    };
    trainer.optimizer().set_learning_rate(0.25);
    step();
    const NamedArrays state = trainer.state_dict();
    trainer.optimizer().set_learning_rate(1);
    step();
    trainer.load_state_dict(state);
    EXPECT_EQ(0.25, trainer.optimizer().learning_rate());
    all[1].set_grad(ones({2}));  // its first gradient
    step();
    const auto count = static_cast<float>(kv.size());
    EXPECT_EQ(std::vector<float>(2, 1 - 0.5f * count), all[0].detach().to_vector<float>());
    EXPECT_EQ(std::vector<float>(2, 1 - 0.25f * count), all[1].detach().to_vector<float>());
  };
  const auto local = KVStore::create("local");
  train(*local);
  for (const std::string& error : on_ranks(2, train)) EXPECT_EQ("", error);
}

TEST(TrainerProcess, FrozenParametersStayWithUpdatesOnTheStore) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("w", ones({3}).requires_grad_()),
                   NamedParameter("v", ones({3}).requires_grad_())};
    nn::Trainer trainer(all, optim::SGDOptions{.lr = 1, .momentum = 0.9}, store, {.update_on_store = true});
    for (const NamedParameter& p : all) p.set_grad(ones({3}));
    trainer.step();
    const auto before = all[1].array().to_vector<float>();
    trainer.zero_grad();
    NDArray(all[1].array()).requires_grad_(false);
    all[0].set_grad(ones({3}));
    trainer.step();
    EXPECT_EQ(before, all[1].array().to_vector<float>());
    EXPECT_NE(before, all[0].array().to_vector<float>());
    // The store cannot divide gradients by a scale.
    trainer.optimizer().set_loss_scale(optim::LossScale({.interval = 0}));
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { trainer.step(); }), "loss scale"));
    // A store has one optimiser.
    const std::string message = error_of<InvalidState>(
        [&] { nn::Trainer(all, optim::SGDOptions{.lr = 1}, store, {.update_on_store = true}); });
    EXPECT_TRUE(contains(message, "create a store for each trainer")) << message;
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST(TrainerProcess, ModelsThatDifferAreNamed) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("first", ones({3}).requires_grad_()),
                   NamedParameter("head", ones({kv.rank() + 3}).requires_grad_())};
    nn::Trainer trainer(all, optim::SGDOptions{}, store);
  });
  for (const std::string& error : errors)
    EXPECT_TRUE(contains(error, "\"head\" as f32 (3,) on rank 0") && contains(error, "(4,) on rank 1") &&
                contains(error, "trainer_processes_test.cc"))
        << error;
}

TEST(TrainerProcess, ParametersThatHaveDivergedAreNamed) {
  on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("w", ones({3}).requires_grad_()),
                   NamedParameter("v", ones({3}).requires_grad_())};
    nn::Trainer trainer(all, optim::SGDOptions{.lr = 1}, store, {.check_every = 2});
    const std::string message = error_of<ProtocolError>([&] {
      for (int step = 0; step < 12; ++step) {
        for (const NamedParameter& p : all) p.set_grad(ones({3}));
        trainer.step();
        const NoGrad pause;
        if (step == 3 && kv.rank() == 1) all[1].fill_(7);
      }
    });
    EXPECT_TRUE(contains(message, "\"v\"") && contains(message, "rank(s) 1 ")) << message;
    EXPECT_TRUE(contains(message, "trainer_processes_test.cc")) << message;
  });
}

// Parameters that take part in a step are pulled from the store. Only a frozen one can diverge.
TEST(TrainerProcess, ParametersThatHaveDivergedAreNamedWithUpdatesOnTheStore) {
  on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("w", ones({3}).requires_grad_()), NamedParameter("frozen", ones({3}))};
    nn::Trainer trainer(all, optim::SGDOptions{.lr = 1}, store, {.check_every = 2, .update_on_store = true});
    const std::string message = error_of<ProtocolError>([&] {
      for (int step = 0; step < 12; ++step) {
        all[0].set_grad(ones({3}));
        trainer.step();
        if (step == 3 && kv.rank() == 1) all[1].fill_(7);
      }
    });
    EXPECT_TRUE(contains(message, "\"frozen\"") && contains(message, "rank(s) 1 ")) << message;
  });
}

TEST(TrainerProcess, SynchroniseMakesDivergedParametersEqual) {
  const auto errors = on_ranks(2, [&](KVStore& kv) {
    const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
    Parameters all{NamedParameter("w", ones({3}).requires_grad_())};
    nn::Trainer trainer(all, optim::SGDOptions{.lr = 1}, store, {.check_every = 1});
    const auto step = [&] {
      all[0].set_grad(ones({3}));
      trainer.step();
    };
    step();
    if (kv.rank() == 1) {
      const NoGrad pause;
      all[0].fill_(7);
    }
    step();  // begins the comparison that fails
    error_of<ProtocolError>(step);
    trainer.synchronise();
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(std::vector<float>(3, 1 - 2 * 6), all[0].detach().to_vector<float>());
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

}  // namespace
}  // namespace mx
