// A bad batch: what recover() of optimisers, averages, modules and trainers brings back.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "ndarray/grad_mode.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "optim/averages.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

using Lists = std::vector<std::vector<double>>;

Lists lists_of(const NamedArrays& arrays) {
  Lists values;
  for (const auto& [name, array] : arrays) values.push_back(array.detach().to(cpu()).to_vector<double>());
  return values;
}

NDArray four_labels(int64_t label, Context context) { return full({4}, label, i64, context); }

void drop_errors() {
  try {
    wait_all();
  } catch (const Error&) {
  }
}

/// Slows the kernels of virtual devices down, so that operations are enqueued long before they run.
class SlowDevices {
 public:
  SlowDevices() {
    for (const int i : {0, 1}) virtual_device(i).set_delay(7, 0, 300);
  }
  ~SlowDevices() {
    for (const int i : {0, 1}) virtual_device(i).set_delay(7, 0, 0);
  }
};

TEST(Recover, AnAcceleratorHasTheValuesFromBeforeABadLabel) {
  const SlowDevices slow;
  for (const bool half : {false, true})
    for (int repeat = 0; repeat < 10; ++repeat) {
      manual_seed(3);
      nn::Linear net(3, 2);
      net.to(virt(0));
      if (half) net.to(bf16);
      optim::AdamW opt(net.parameters(), {.lr = 0.1, .max_norm = repeat % 2 == 0 ? 0.0 : 1.0});
      opt.set_recoverable();
      optim::LossScale scale({.scale = 8}, virt(0));
      if (half) opt.set_loss_scale(scale);
      optim::Averages averages(net.parameters());
      const NDArray x = randn({4, 3}, half ? bf16 : f32).to(virt(0));
      const auto step = [&](int64_t label) {
        const NDArray loss = nn::cross_entropy(net(x), four_labels(label, virt(0)));
        opt.zero_grad();
        (half ? scale(loss) : loss).backward();
        opt.step();
        if (half) scale.update();
        averages.update();
        return loss;
      };
      const auto all = [&] {
        NamedArrays arrays = net.state_dict();
        for (const auto& each : {opt.state_dict(), scale.state_dict(), averages.state_dict()})
          for (const auto& [name, array] : each)
            if (name != "updates") arrays.emplace_back(name, array);
        return lists_of(arrays);
      };
      step(1).wait();
      const Lists before = all();
      const NDArray bad = step(9);
      error_of<InvalidArgument>([&] { bad.wait(); });
      opt.zero_grad();
      opt.recover();
      averages.recover();
      ASSERT_EQ(before, all()) << repeat;
      step(0).wait();
      EXPECT_NE(before, all());
    }
  drop_errors();
}

// Whether the step was enqueued before the error was known depends on the speed of the threads.
TEST(Recover, ReportsWhatAnAcceleratorHasLost) {
  const SlowDevices slow;
  for (int repeat = 0; repeat < 10; ++repeat) {
    nn::Linear net(3, 2);
    net.to(virt(0));
    optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
    const Lists before = lists_of(net.state_dict());
    nn::cross_entropy(net(ones({4, 3}, f32, virt(0))), four_labels(9, virt(0))).backward();
    opt.step();
    opt.zero_grad();
    bool lost = false;
    try {
      opt.recover();
    } catch (const InvalidState& error) {
      lost = true;
      EXPECT_TRUE(contains(error.what(), "'weight'")) << error.what();
      EXPECT_TRUE(contains(error.what(), "'state.weight.momentum_buffer'")) << error.what();
      EXPECT_TRUE(contains(error.what(), "set_recoverable()")) << error.what();
      EXPECT_TRUE(contains(error.what(), "recover_test.cc")) << error.what();
    }
    if (lost) {
      error_of<InvalidArgument>([&] { net.weight.array().wait(); });
    } else {
      EXPECT_EQ(before, lists_of(net.state_dict()));
    }
  }
  drop_errors();
}

TEST(Recover, SparseRowsOnAnAccelerator) {
  const SlowDevices slow;
  for (int repeat = 0; repeat < 10; ++repeat) {
    nn::Embedding table(6, 3, {.sparse = true});
    table.to(virt(0));
    optim::Adam opt(table.parameters(), {.lr = 0.1});
    opt.set_recoverable();
    const Lists before = lists_of(table.state_dict());
    const NDArray rows = repeat % 2 == 0 ? array<int64_t>({1, 99}) : array<int64_t>({1, 2});
    const NDArray y = table(rows.to(virt(0)));
    nn::cross_entropy(y, full({2}, repeat % 2 == 0 ? 0 : 9, i64, virt(0))).backward();
    opt.step();
    opt.zero_grad();
    opt.recover();
    EXPECT_EQ(before, lists_of(table.state_dict()));
  }
  drop_errors();
}

TEST(Recover, ModulesHaveTheirRunningStatisticsAgain) {
  manual_seed(3);
  nn::Sequential net{nn::Embedding(4, 3), nn::BatchNorm1d(3), nn::Linear(3, 2)};
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  optim::Averages averages(net.parameters(), {.decay = 0.5});
  const auto step = [&](int64_t index) {
    const NDArray loss = nn::cross_entropy(net(array<int64_t>({1, index, 2, 3})), four_labels(1, cpu()));
    opt.zero_grad();
    loss.backward();
    opt.step();
    averages.update();
    return loss;
  };
  step(0).wait();
  const Lists before = lists_of(net.state_dict());
  const Lists average = lists_of({{"a", averages.values()[0]}});
  const NDArray bad = step(9);
  error_of<InvalidArgument>([&] { bad.wait(); });
  error_of<InvalidArgument>([&] { net.buffers()[0].wait(); });
  error_of<InvalidArgument>([&] { averages.values()[0].wait(); });
  opt.zero_grad();
  opt.recover();
  net.recover();
  averages.recover();
  EXPECT_EQ(before, lists_of(net.state_dict()));
  EXPECT_EQ(average, lists_of({{"a", averages.values()[0]}}));
  step(0).wait();
  EXPECT_NE(before, lists_of(net.state_dict()));

  current_engine().push([] { throw InvalidArgument("no mean today"); },
                        {.updates = {net.buffers()[1].var()}});
  const std::string message = error_of<InvalidState>([&] { net.recover(); });
  EXPECT_TRUE(contains(message, "[Sequential] expected arrays")) << message;
  EXPECT_TRUE(contains(message, "lost values in '1.running_var'")) << message;
  EXPECT_TRUE(contains(message, "no mean today")) << message;
  drop_errors();
}

TEST(Recover, ATrainerRecoversAllReplicas) {
  const SlowDevices slow;
  for (const std::string type : {"", "local", "device", "dist_allreduce"})
    for (const auto& devices :
         std::vector<std::vector<Context>>{{cpu()}, {cpu(), cpu()}, {virt(0), virt(1)}, {virt(0)}})
      for (const bool broadcast : {true, false}) {
        if (type.empty() && devices.size() > 1) continue;
        manual_seed(3);
        nn::Sequential net{nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2)};
        std::vector<nn::Sequential> nets = nn::replicate(net, devices);
        nn::Trainer trainer(nets, optim::AdamOptions{.lr = 0.01},
                            type.empty() ? nullptr : KVStore::create(type), {.broadcast_buffers = broadcast});
        trainer.optimizer().set_recoverable();
        const NDArray x = randn({8, 3});
        const auto step = [&](int64_t last_label) {
          NDArray t = zeros({8}, i64);
          t[7] = last_label;
          const auto xs = nn::split_batch(x, devices), ts = nn::split_batch(t, devices);
          std::vector<NDArray> losses;
          trainer.zero_grad();
          for (size_t k = 0; k < devices.size(); ++k) {
            losses.push_back(nn::cross_entropy(nets[k](xs[k]), ts[k]));
            losses.back().backward();
          }
          trainer.step();
          for (const NDArray& loss : losses) loss.wait();
        };
        const auto parameters = [&] {
          Lists values;
          for (const nn::Sequential& each : nets)
            for (const NDArray& p : each.parameters()) values.push_back(p.to(cpu()).to_vector<double>());
          for (const auto& state : lists_of(trainer.state_dict())) values.push_back(state);
          return values;
        };
        step(1);
        const Lists before = parameters();
        error_of<InvalidArgument>([&] { step(9); });
        trainer.zero_grad();
        trainer.recover();
        EXPECT_EQ(before, parameters()) << type << ' ' << devices.size() << ' ' << devices[0];
        for (const nn::Sequential& each : nets)
          for (const NDArray& buffer : each.buffers()) buffer.wait();
        step(0);
        EXPECT_NE(before, parameters());
        EXPECT_EQ(lists_of(nets.front().state_dict())[0], lists_of(nets.back().state_dict())[0]);
      }
  drop_errors();
}

TEST(Recover, ATrainerWhoseStoreHasTheParametersCannot) {
  nn::Linear net(3, 2);
  nn::Trainer trainer(net, optim::SGDOptions{}, KVStore::create(), {.update_on_store = true});
  const std::string message = error_of<InvalidState>([&] { trainer.recover(); });
  EXPECT_TRUE(contains(message, "got update_on_store")) << message;
}

}  // namespace
}  // namespace mx
