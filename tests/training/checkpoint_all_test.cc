// Checkpoints of everything, and early stopping.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/dataset.h"
#include "nn/data/loader.h"
#include "nn/nn.h"
#include "nn/training/checkpoint.h"
#include "nn/training/early_stopping.h"
#include "operators/random.h"
#include "optim/adaptive.h"
#include "optim/averages.h"
#include "optim/cycles.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::training {
namespace {

using test::contains;
using test::error_of;
using test::TempFolder;

NDArray samples(uint64_t seed, const Shape& shape) {
  Generator own(seed);
  return own.randn(shape);
}

/// A training with everything that can be resumed: dropout draws random numbers, the loader shuffles.
struct Training {
  struct Seeded {
    explicit Seeded(uint64_t seed) { manual_seed(seed); }
  } seeded;  // before the network, which draws its weights
  nn::Sequential net{nn::Linear{6, 8}, nn::ReLU{}, nn::Dropout{0.3}, nn::Linear{8, 3}};
  data::Loader loader;
  optim::RMSprop opt;
  optim::OneCycleLR schedule;
  optim::Averages averages;
  EarlyStopping stopping{{.patience = 100}};
  int64_t epoch = 0;
  double last = 0;
  std::vector<double> losses;
  Checkpoint checkpoint;

  explicit Training(uint64_t seed)
      : seeded(seed),
        loader(data::ArrayDataset({samples(1, {40, 6}), zeros({40}, i64)}),
               {.batch_size = 8, .shuffle = true, .seed = 5}),
        opt(net.parameters(), {.momentum = 0.5, .centered = true}),
        schedule(opt, {.steps = 40}),
        averages(net.parameters(), {.decay = 0.9}) {
    checkpoint.add("model", net).add("optimizer", opt).add("schedule", schedule).add("averages", averages);
    checkpoint.add("stopping", stopping).add("loader", loader).add_random();
    checkpoint.add("epoch", epoch).add("last", last).add("losses", losses).set("options", "width=8");
  }
  /// Trains until so many batches are done in all; saves after each if there is a path.
  void train(size_t batches, const std::string& path = "") {
    while (losses.size() < batches) {
      for (auto& [x, y] : loader) {
        const NDArray loss = nn::cross_entropy(net(x), y);
        opt.zero_grad();
        loss.backward();
        opt.step();
        schedule.step();
        averages.update();
        last = loss.item<float>();
        losses.push_back(last);
        stopping.stop(last);
        epoch = loader.state().epoch;
        if (!path.empty()) checkpoint.save(path);
        if (losses.size() == batches) return;
      }
    }
  }
};

TEST(CheckpointOfAll, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  const TempFolder folder;
  const std::string path = folder / "run.safetensors";
  Training whole(1);
  whole.train(23);
  for (const size_t stop : {size_t{1}, size_t{8}, size_t{15}}) {
    Training first(1);
    EXPECT_FALSE(first.checkpoint.load_if_exists(folder / "none"));
    first.train(stop, path);
    Training second(99);  // other weights and random numbers
    EXPECT_TRUE(second.checkpoint.load_if_exists(path));
    EXPECT_EQ(stop, second.losses.size());
    second.train(23);
    EXPECT_EQ(whole.losses, second.losses);
    EXPECT_EQ(whole.stopping.best(), second.stopping.best());
    const NamedArrays a = whole.checkpoint.state(), b = second.checkpoint.state();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].first, b[i].first);
      EXPECT_EQ(a[i].second.to(f64).to_vector<double>(), b[i].second.to(f64).to_vector<double>())
          << a[i].first;
    }
  }
}

TEST(CheckpointOfAll, WhatDoesNotFitIsSaidBeforeAnythingIsChanged) {
  const TempFolder folder;
  const std::string path = folder / "run.safetensors";
  Training run(1);
  run.train(2, path);

  nn::Linear layer(2, 2);
  int64_t number = 7;
  Checkpoint other;
  other.add("model", layer).add("number", number).set("options", "width=9").set("data", "mnist");
  const std::string message = error_of<InvalidArgument>([&] { other.load(path); });
  for (const char* part :
       {"options 'width=9', got 'width=8'", "data 'mnist', got none", "a part 'number', got none",
        "no part 'schedule', got one", "checkpoint_all_test.cc"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  EXPECT_EQ(7, number);

  for (const char* name : {"", "a/b", "model", "options", "format"})
    error_of<InvalidArgument>([&] { other.add(name, number); });
  layer.save(folder / "model.safetensors");
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { run.checkpoint.load(folder / "model.safetensors"); }),
                       "a checkpoint of this library"));

  const NDArray array = ones({3});
  Checkpoint one, two;
  one.add("array", array);
  one.save(path);
  array.detach().copy_from(zeros({3}));
  one.load(path);
  EXPECT_EQ((std::vector<float>{1, 1, 1}), array.to_vector<float>());
  two.add("array", ones({4}));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { two.load(path); }), "(4,)"));
  nn::Linear small(2, 2), large(3, 2);
  Checkpoint saved, other_size;
  saved.add("first", small).save(path);
  other_size.add("first", large);
  const std::string unfit = error_of<InvalidArgument>([&] { other_size.load(path); });
  EXPECT_TRUE(contains(unfit, "(part 'first' of " + path + ")")) << unfit;
}

TEST(CheckpointOfAll, AFileThatCannotBeLookedForIsNotTakenForMissing) {
  const TempFolder folder;
  std::filesystem::create_symlink("loop", folder / "loop");  // it refers to itself
  nn::Linear layer(2, 2);
  Checkpoint checkpoint;
  checkpoint.add("model", layer);
  EXPECT_FALSE(checkpoint.load_if_exists(folder / "none.safetensors"));
  EXPECT_TRUE(contains(error_of<FileError>([&] { checkpoint.load_if_exists(folder / "loop"); }), "loop"));
}

TEST(EarlyStopping, StopsAfterItsPatience) {
  EarlyStopping stopping({.patience = 2, .min_delta = 0.1});
  EXPECT_EQ(-1, stopping.best_value());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<bool> stops, improved;
  for (const double value : {nan, 1.0, 0.95, 0.85, 0.8, nan, 0.9}) {
    stops.push_back(stopping.stop(value));
    improved.push_back(stopping.improved());
  }
  EXPECT_EQ((std::vector<bool>{false, false, false, false, false, false, true}), stops);
  EXPECT_EQ((std::vector<bool>{false, true, false, true, false, false, false}), improved);
  EXPECT_EQ(0.85, stopping.best());
  EXPECT_EQ(3, stopping.best_value());
  EarlyStopping never({.patience = 1});
  never.stop(std::numeric_limits<double>::infinity());
  EXPECT_EQ(-1, never.best_value());
  EarlyStopping up({.patience = 0, .maximize = true});
  EXPECT_FALSE(up.stop(1));
  EXPECT_FALSE(up.stop(2));
  EarlyStopping resumed({.patience = 0, .maximize = true});
  resumed.load_state_dict(up.state_dict());
  EXPECT_TRUE(up.stop(2));
  EXPECT_TRUE(resumed.stop(2));
  error_of<InvalidArgument>([] { EarlyStopping bad({.patience = -1, .min_delta = -1}); });
}

}  // namespace
}  // namespace mx::training
