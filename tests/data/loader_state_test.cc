// The position of a loader can be saved and restored in another loader.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/data/loader.h"
#include "operators/elementwise_binary.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;

Loader make(int64_t prefetch = 2, int64_t seed = 5) {
  return Loader(
      ArrayDataset({arange(22).to(f32), arange(22)}),
      {.batch_size = 4, .shuffle = true, .seed = seed, .prefetch = prefetch, .transform = add_noise(1)});
}

/// A training run whose state depends on every bit and on the order.
struct Training {
  NDArray sum = full({4}, 1.f);
  void step(const Batch& batch) {
    sum = sum * 0.75f + batch.images().slice(0, {0, 1}) + batch.labels().slice(0, {-1, {}});
  }
};

TEST(LoaderState, TrainingGoesOnBitForBitFromAnyBatch) {
  constexpr int kEpochs = 3, kBatches = 6;
  Training whole;
  {
    Loader loader = make();
    for (int epoch = 0; epoch < kEpochs; ++epoch)
      for (auto& batch : loader) whole.step(batch);
  }
  for (int stop = 1; stop < kEpochs * kBatches; ++stop)
    for (int64_t prefetch : {0, 3}) {
      Training training;
      LoaderState state;
      {
        Loader loader = make(prefetch);
        int steps = 0;
        while (steps < stop)
          for (auto& batch : loader) {
            training.step(batch);
            if (++steps < stop) continue;
            state = loader.state();
            break;
          }
      }
      EXPECT_EQ(stop / kBatches, state.epoch);
      EXPECT_EQ(stop % kBatches, state.position);
      Loader loader = make();
      loader.restore(state);
      EXPECT_EQ(state, loader.state());
      for (int64_t epoch = state.epoch; epoch < kEpochs; ++epoch)
        for (auto& batch : loader) {
          EXPECT_EQ(epoch, batch.epoch());
          training.step(batch);
        }
      EXPECT_EQ(whole.sum.to_vector<float>(), training.sum.to_vector<float>()) << "stopped after " << stop;
    }
}

TEST(LoaderState, FollowsTheLoop) {
  Loader loader = make();
  const auto at = [&] { return std::pair(loader.state().epoch, loader.state().position); };
  EXPECT_EQ(std::pair(int64_t{0}, int64_t{0}), at());
  int64_t position = 0;
  for ([[maybe_unused]] auto& batch : loader) {
    ++position;
    EXPECT_EQ(position < 6 ? std::pair(int64_t{0}, position) : std::pair(int64_t{1}, int64_t{0}), at());
  }
  EXPECT_EQ(std::pair(int64_t{1}, int64_t{0}), at());
  for (auto& batch : loader)
    if (batch.number() == 1) break;
  EXPECT_EQ(std::pair(int64_t{1}, int64_t{2}), at()) << "as if the loop went on";
  for (auto& batch : loader) {
    EXPECT_EQ(2, batch.epoch()) << "a loop that was left is not gone on with";
    break;
  }
}

TEST(LoaderState, OfAnotherLoaderIsRefused) {
  Loader loader = make();
  const LoaderState good = loader.state();
  const auto refuse = [&](auto change) {
    LoaderState state = good;
    change(state);
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { loader.restore(state); }), "[Loader] expected"));
  };
  refuse([](LoaderState& s) { s.seed = 6; });
  refuse([](LoaderState& s) { s.samples = 21; });
  refuse([](LoaderState& s) { s.batch_size = 5; });
  refuse([](LoaderState& s) { s.shards = 2; });
  refuse([](LoaderState& s) { s.shuffle = false; });
  refuse([](LoaderState& s) { s.drop_last = true; });
  refuse([](LoaderState& s) { s.epoch = -1; });
  refuse([](LoaderState& s) { s.position = -1; });
  refuse([](LoaderState& s) { s.position = 6; });
  loader.restore(good);
  Loader moved = std::move(loader);
  EXPECT_EQ(good, moved.state());
}

TEST(LoaderState, TheLastEpochIsTheLastThatCanBeCounted) {
  Loader loader = make();
  LoaderState state = loader.state();
  state.epoch = INT64_MAX;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { loader.restore(state); }), "of an epoch from 0 to"));
  state.epoch = INT64_MAX - 2;
  loader.restore(state);
  EXPECT_EQ(INT64_MAX - 2, loader.begin()->epoch());
  state = loader.state();
  loader.restore(state);
  state.epoch = INT64_MAX - 1;
  state.position = 0;
  loader.restore(state);
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { loader.begin(); }), "expected an epoch below"));
}

}  // namespace
}  // namespace mx::data
