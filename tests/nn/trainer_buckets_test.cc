// The update of a bucket of parameters waits for the sum of this bucket only, and for no other update.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kvstore/kvstore.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/kvstore/rank_values.h"
#include "tests/support/held.h"

namespace mx {
namespace {

constexpr int64_t kLimitMs = 30'000;  // of what comes at once

/// Two parameters with gradients, each in a bucket of its own, and the trainer of both.
struct TwoBuckets {
  explicit TwoBuckets(KVStore& kv)
      : parameters{ones({3}).requires_grad_(), full({3}, 5).requires_grad_()},
        trainer(parameters, optim::SGDOptions{.lr = 1}, std::shared_ptr<KVStore>(&kv, [](KVStore*) {}),
                {.bucket_bytes = 0}) {
    for (size_t i = 0; i < 2; ++i) {
      gradients.push_back(ones({3}));
      parameters[i].set_grad(gradients[i]);
    }
    trainer.step();  // makes the buckets
    current_engine().wait_all();
  }
  /// Makes a step while an operation that updates `array` is held, and expects that parameter `i` is updated.
  void expect_update(KVStore& kv, size_t i, const NDArray& array) {
    test::Hold held;
    if (kv.rank() == 0)
      current_engine().push_async(held.operation(), {.updates = {array.var()}, .name = "hold"});
    trainer.step();
    EXPECT_TRUE(current_engine().wait(parameters[i].detach().var(), kLimitMs)) << "parameter " << i;
    held.release();
    current_engine().wait_all();
  }

  Parameters parameters;
  nn::Trainer trainer;
  std::vector<NDArray> gradients;
};

void expect_updates(KVStore& kv) {
  TwoBuckets two(kv);
  // The last layer has its gradients first. Its update does not wait for the sum of the first layer.
  two.expect_update(kv, 1, two.gradients[0]);
  // The next forward pass needs the first layer. Its update does not wait for that of the last one.
  two.expect_update(kv, 0, two.parameters[1].detach());
  const float sum = static_cast<float>(kv.size());
  EXPECT_EQ(two.parameters[0].detach().to_vector<float>(), std::vector<float>(3, 1 - 3 * sum));
  EXPECT_EQ(two.parameters[1].detach().to_vector<float>(), std::vector<float>(3, 5 - 3 * sum));
}

TEST(TrainerBuckets, AnUpdateWaitsForItsBucketOnly) {
  const auto store = KVStore::create("local");
  expect_updates(*store);
}

TEST(TrainerBuckets, AnUpdateWaitsForItsBucketOnlyWithSeveralProcesses) {
  test::expect_no_errors(test::on_ranks(2, expect_updates));
}

}  // namespace
}  // namespace mx
