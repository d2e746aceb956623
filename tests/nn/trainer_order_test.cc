// The trainer's sums of gradients run during the backward pass, and before less urgent work. The tests check
// the order of execution, not times.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/threads/thread_group.h"
#include "executor/autograd/autograd.h"
#include "ndarray/priority.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "tests/kvstore/noting_communicator.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

/// A store that calls a function after each sum.
class NotingStore final : public KVStore {
 public:
  using Note = std::function<void(const std::string& key, const NDArray& sum)>;
  explicit NotingStore(Note note, int size = 1) : note_(std::move(note)), size_(size) {}

  void allreduce(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                 const std::vector<NDArray>& outs, const KVOptions& options) override {
    KVStore::allreduce(keys, values, outs, options);
    const PriorityScope priority(static_cast<int>(options.priority));
    for (size_t i = 0; i < keys.size(); ++i) note_(keys[i].name(), outs[i]);
  }
  const std::string& type() const override { return type_; }
  void init(const KVKey&, const NDArray&, std::source_location) override {}
  void erase(const KVKey&, std::source_location) override {}
  void push(const KVKey&, const Values&, const KVOptions&) override {}
  void pull(const KVKey&, const Values&, const KVOptions&) override {}
  void set_updater(Updater) override {}
  void set_optimizer(const std::string&, const AttrMap&, std::source_location) override {}
  void set_optimizer_option(const std::string&, double, std::source_location) override {}
  void save(const std::string&) override {}
  void load(const std::string&) override {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void barrier(int64_t) override {}
  void push_barrier(const NDArray&, const KVOptions&) override {}

 private:
  const std::string type_ = "noting";
  const Note note_;
  const int size_;
};

TEST(TrainerSharded, AStoreOfSeveralProcessesWithoutSlicesIsRefusedByTheConstructor) {
  const auto store = std::make_shared<NotingStore>([](const std::string&, const NDArray&) {}, 2);
  const Parameters parameters{ones({2}).requires_grad_()};
  const std::string message = test::error_of<InvalidState>(
      [&] { nn::Trainer(parameters, optim::SGDOptions{}, store, {.shard_optimizer = true}); });
  EXPECT_NE(message.find("a store without servers (shard_optimizer)"), std::string::npos) << message;
}

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
  /// Returns a store whose sums add the name of their parameter to the log.
  std::shared_ptr<KVStore> noting_store() {
    return std::make_shared<NotingStore>([this](const std::string& key, const NDArray& sum) {
      push_note("sum " + key, {.reads = {sum.var()}, .priority = detail::launch_priority});
    });
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
  nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 1}, noting_store());
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
  nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 1}, noting_store());
  engine_.wait_all();
  test::Hold hold;
  engine_.push_async(hold.operation(), {.updates = held, .name = "hold"});
  push_note("compute", {.reads = held});
  trainer.step();
  hold.release();
  engine_.wait_all();
  EXPECT_EQ((std::vector<std::string>{"sum 0", "sum 1", "sum 2", "sum 3", "compute"}), ran());
}

// The backward pass computes the gradients of the last layers first, and the next forward pass needs the
// parameters of the first layers first.
TEST(TrainerOrderOfProcesses, FirstLayersOvertakeLastOnesIfTheStoreOrdersByPriority) {
  for (const KVOrder order : {KVOrder::program, KVOrder::priority}) {
    std::vector<std::shared_ptr<test::NotingCommunicator>> notes;
    std::vector<std::shared_ptr<comm::Communicator>> members;
    for (const auto& member : comm::make_thread_group(2)) {
      notes.push_back(std::make_shared<test::NotingCommunicator>(member));
      members.push_back(notes.back());
    }
    std::atomic<int> ready{0};
    const auto errors = test::on_group(
        members,
        [&](KVStore& kv) {
          const std::shared_ptr<KVStore> store(&kv, [](KVStore*) {});
          Parameters layers;
          for (const char* name : {"first", "second", "third", "last"})
            layers.emplace_back(name, zeros({2}).requires_grad_());
          nn::Trainer trainer(layers, optim::SGDOptions{.lr = 1}, store, {.bucket_bytes = 0});
          NDArray gate = zeros({1});
          test::Hold held;
          for (const bool gated : {false, true}) {
            for (const NamedParameter& layer : layers) layer.set_grad(full({2}, -1));
            current_engine().wait_all();
            notes[static_cast<size_t>(kv.rank())]->take_all();
            if (gated) {
              // No sum starts before all ranks have passed the barrier, and rank 1 holds it.
              if (kv.rank() == 1)
                current_engine().push_async(held.operation(), {.updates = {gate.var()}, .name = "held"});
              store->push_barrier(gate);
            }
            trainer.step();
          }
          // The engine has one thread, so all sums are ready when this operation runs.
          std::promise<void> ran;
          current_engine().push([&] { ran.set_value(); },
                                {.priority = -32768, .name = "after the calls", .lane = StreamKind::comm});
          ran.get_future().wait();
          ++ready;
          while (ready < 2) std::this_thread::yield();
          held.release();
          for (const NamedParameter& layer : layers)
            EXPECT_EQ((std::vector<float>{4, 4}), layer.detach().to_vector<float>());
          std::vector<std::string> sums;
          for (const auto& call : notes[static_cast<size_t>(kv.rank())]->take(comm::Collective::allreduce))
            sums.push_back(call.what.substr(call.what.rfind(' ') + 1));
          const std::vector<std::string> backward{"last", "third", "second", "first"};
          EXPECT_EQ(order == KVOrder::program ? backward
                                              : std::vector<std::string>(backward.rbegin(), backward.rend()),
                    sums);
        },
        {.order = order});
    for (const std::string& error : errors) EXPECT_EQ("", error);
  }
}

}  // namespace
}  // namespace mx
