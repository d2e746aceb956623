// The trainer's sums of gradients run during the backward pass, and before less urgent work. The test checks
// the order of execution, not times.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/priority.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "tests/support/engine_cases.h"
#include "tests/support/held.h"

namespace mx {
namespace {

/// An engine with one worker, and a log of the operations that ran on it.
class TrainerOrder : public ::testing::Test {
 protected:
  /// Pushes an operation that adds its text to the log.
  void push_note(const std::string& text, const PushOptions& options) {
    engine_.push(
        [this, text] {
          std::lock_guard lock(mutex_);
          ran_.push_back(text);
        },
        options);
  }
  std::vector<std::string> ran() {
    std::lock_guard lock(mutex_);
    return ran_;
  }
  /// Returns a store whose sums add the number of their parameter to the log.
  std::shared_ptr<KVStore> noting_store(const std::string& type) {
    std::shared_ptr<KVStore> store = KVStore::create(type);
    store->set_updater([this](const std::string& key, const NDArray& sum, NDArray& stored) {
      stored.copy_from(sum);
      const std::string number = key.substr(key.find_last_of(' ') + 1);
      push_note("sum " + number, {.reads = {stored.var()}, .priority = detail::launch_priority});
    });
    return store;
  }

  Engine engine_{test::threaded_case(1).options};
  EngineScope scope_{engine_};

 private:
  std::mutex mutex_;
  std::vector<std::string> ran_;
};

TEST_F(TrainerOrder, ALateLayersSumRunsBeforeBackwardOfAnEarlyLayer) {
  std::vector<Parameters> replicas;
  for (const Context device : {virt(0), virt(1)})
    replicas.push_back({ones({2}, f32, device).requires_grad_(), full({2}, 3, f32, device).requires_grad_()});
  nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 1}, noting_store("device"));
  std::vector<test::Hold> holds(2);
  for (size_t r = 0; r < 2; ++r) {
    const NDArray held = ones({2}, f32, virt(static_cast<int>(r)));
    engine_.push_async(holds[r].operation(), {.updates = {held.var()}, .name = "hold"});
    const NDArray middle = apply(
        {replicas[r][0]}, [](std::span<const NDArray> in) { return std::vector<NDArray>{in[0] * 2}; },
        [this, held](std::span<const NDArray> heads) {
          const NDArray gradient = heads[0] * held;
          push_note("backward", {.updates = {gradient.var()}});
          return std::vector<NDArray>{gradient * 2};
        })[0];
    sum(middle * replicas[r][1]).backward();
  }
  trainer.step();
  while (ran().empty()) std::this_thread::yield();
  EXPECT_EQ((std::vector<std::string>{"sum 1"}), ran());
  for (test::Hold& hold : holds) hold.release();
  engine_.wait_all();
  EXPECT_EQ((std::vector<std::string>{"sum 1", "backward", "backward", "sum 0"}), ran());
  EXPECT_EQ((std::vector<float>{1 - 12, 1 - 12}), replicas[1][0].detach().to(cpu()).to_vector<float>());
  EXPECT_EQ((std::vector<float>{3 - 4, 3 - 4}), replicas[1][1].detach().to(cpu()).to_vector<float>());
}

TEST_F(TrainerOrder, SumsGoBeforeWhatElseIsReadyAndThoseOfEarlyLayersFirst) {
  std::vector<Parameters> replicas(2);
  std::vector<Var> held;
  for (auto& replica : replicas)
    for (int i = 0; i < 4; ++i) {
      replica.push_back(ones({2}).requires_grad_());
      const NDArray gradient = ones({2});
      replica.back().set_grad(gradient);
      held.push_back(gradient.var());
    }
  nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 1}, noting_store("local"));
  engine_.wait_all();
  test::Hold hold;
  engine_.push_async(hold.operation(), {.updates = held, .name = "hold"});
  push_note("compute", {.reads = held});
  trainer.step();
  hold.release();
  engine_.wait_all();
  EXPECT_EQ((std::vector<std::string>{"sum 0", "sum 1", "sum 2", "sum 3", "compute"}), ran());
}

}  // namespace
}  // namespace mx
