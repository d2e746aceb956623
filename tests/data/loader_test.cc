// Loaders: the samples and their order in every mode, and invalid options that are refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "nn/data/loader.h"
#include "operators/elementwise_binary.h"
#include "tests/data/numbered.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::contains;
using test::epoch_of;
using test::error_of;
using test::joined;
using test::numbered;
using test::sorted;
using test::up_to;

class LoaderModes : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  Engine engine_{GetParam().options};
  EngineScope scope_{engine_};
};
INSTANTIATE_TEST_SUITE_P(Modes, LoaderModes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(LoaderModes, EverySampleComesOnceInEachEpoch) {
  for (bool shuffle : {false, true})
    for (int64_t prefetch : {0, 1, 4, 100}) {
      Loader loader(numbered(23), {.batch_size = 5, .shuffle = shuffle, .seed = 3, .prefetch = prefetch});
      EXPECT_EQ(5, loader.batches());
      EXPECT_EQ(23, loader.samples());
      std::set<std::vector<int64_t>> orders;
      for (int epoch = 0; epoch < 3; ++epoch) {
        const auto batches = epoch_of(loader);
        ASSERT_EQ(5u, batches.size());
        for (size_t i = 0; i < 5; ++i) EXPECT_EQ(i < 4 ? 5u : 3u, batches[i].size());
        EXPECT_EQ(up_to(23), shuffle ? sorted(joined(batches)) : joined(batches));
        orders.insert(joined(batches));
      }
      EXPECT_EQ(shuffle ? 3u : 1u, orders.size()) << "each epoch has another order";
    }
}

TEST_P(LoaderModes, SamplesThatDropLastLeavesOutDoNotCount) {
  for (const int64_t size : {20, 22}) {
    Loader loader(numbered(size), {.batch_size = 5, .drop_last = true});
    EXPECT_EQ(20, loader.samples()) << size;
    EXPECT_EQ(loader.samples(), static_cast<int64_t>(joined(epoch_of(loader)).size())) << size;
  }
}

TEST_P(LoaderModes, PartsTogetherAreTheBatchesOfOneLoader) {
  for (const int64_t parts : {1, 2, 3, 4})
    for (const bool shuffle : {false, true}) {
      const LoaderOptions options{.batch_size = 6, .shuffle = shuffle, .seed = 5};
      Loader whole(numbered(22), options);
      std::vector<std::vector<int64_t>> together(4);
      for (int64_t part = 0; part < parts; ++part) {
        LoaderOptions own = options;
        own.part = part;
        own.parts = parts;
        Loader loader(numbered(22), own);
        EXPECT_EQ(4, loader.batches());
        EXPECT_EQ(22, loader.samples());
        const auto batches = epoch_of(loader);
        ASSERT_EQ(4u, batches.size());
        for (size_t k = 0; k < 4; ++k) {
          const auto rows = static_cast<int64_t>(k < 3 ? 6 : 4);
          EXPECT_EQ(rows / parts + (part < rows % parts ? 1 : 0), static_cast<int64_t>(batches[k].size()));
          together[k].insert(together[k].end(), batches[k].begin(), batches[k].end());
        }
      }
      EXPECT_EQ(epoch_of(whole), together) << parts << " parts, shuffle " << shuffle;
    }
}

TEST_P(LoaderModes, PartsThatCannotBeTakenAreRefused) {
  EXPECT_TRUE(contains(
      error_of<InvalidArgument>([] { Loader(numbered(8), {.batch_size = 4, .part = 2, .parts = 2}); }),
      "got 2 of 2"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { Loader(numbered(9), {.batch_size = 4, .parts = 2}); }),
                       "drop_last"));
  EXPECT_NO_THROW(Loader(numbered(9), {.batch_size = 4, .drop_last = true, .parts = 2}));
}

TEST_P(LoaderModes, PrefetchingDoesNotChangeABit) {
  const Transform augment = compose({reshape({1, 2}), random_shift(1), add_noise(0.5)});
  std::vector<std::vector<float>> results;
  for (int64_t prefetch : {0, 1, 4}) {
    Loader loader(numbered(21),
                  {.batch_size = 4, .shuffle = true, .seed = 9, .prefetch = prefetch, .transform = augment});
    std::vector<float> all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& [images, labels] : loader) {
        const std::vector<float> values = (images + labels.to(f32).reshape({-1, 1, 1})).to_vector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
    EXPECT_EQ(84u, all.size());
    results.push_back(std::move(all));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(LoaderModes, TheLoopMayBeLeftAnywhere) {
  for (int64_t prefetch : {0, 2}) {
    Loader loader(numbered(20), {.batch_size = 3, .shuffle = true, .prefetch = prefetch});
    NDArray kept;
    for (int leave = 0; leave < 7; ++leave) {
      int batches = 0;
      for (auto& [images, labels] : loader) {
        kept = images * 2 + labels.expand_dims(1);
        if (batches++ == leave) break;
      }
      try {
        for (auto& batch : loader) {
          kept = kept + batch.images().select(0, 0);
          if (batch.number() == leave) throw std::runtime_error("out");
        }
        FAIL() << "expected the exception of the body";
      } catch (const std::runtime_error&) {
      }
    }
    EXPECT_EQ(20u, joined(epoch_of(loader)).size());
    kept.wait();
  }
}

TEST_P(LoaderModes, ASampleThatFailsFailsItsBatchAndNoOther) {
  for (int64_t prefetch : {0, 1, 3}) {
    const FunctionDataset set(12, {{{}}, {{}, i64}}, [](int64_t i, std::span<const Tensor> sample) {
      if (i == 4) throw std::runtime_error("unreadable");
      *sample[0].as<float>() = static_cast<float>(i);
      *sample[1].as<int64_t>() = i;
    });
    Loader loader(set, {.batch_size = 3, .prefetch = prefetch});
    std::vector<int64_t> good;
    for (auto& [images, labels] : loader) {
      const NDArray used = images * 2;  // a pending operation that will be skipped
      try {
        const std::vector<float> values = used.to_vector<float>();
        for (float value : values) good.push_back(static_cast<int64_t>(value) / 2);
        EXPECT_EQ(3u, labels.to_vector<int64_t>().size());
      } catch (const OperationError& e) {
        EXPECT_TRUE(contains(e.what(), "unreadable") && contains(e.what(), "sample 4")) << e.what();
        good.push_back(-1);
      }
    }
    EXPECT_EQ((std::vector<int64_t>{0, 1, 2, -1, 6, 7, 8, 9, 10, 11}), good) << "prefetch " << prefetch;
  }
}

// If the transform of images fails, the labels of that batch stay good.
TEST_P(LoaderModes, ATransformThatFailsLeavesTheOtherArraysGood) {
  for (int64_t prefetch : {0, 2}) {
    const Transform picky = map_samples([](const Tensor& sample, SampleRandom&) {
      if (*sample.as<float>() == 5) throw std::runtime_error("not this one");
    });
    Loader loader(numbered(12), {.batch_size = 2, .prefetch = prefetch, .transform = picky});
    std::vector<NDArray> images, labels;
    for (auto& batch : loader) {
      images.push_back(batch.images() + 1);
      labels.push_back(batch.labels());
    }
    ASSERT_EQ(6u, labels.size());
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(static_cast<int64_t>(20 * i), labels[i].to_vector<int64_t>()[0]);
      if (i == 2) {
        EXPECT_TRUE(contains(error_of<OperationError>([&] { images[i].wait(); }), "not this one"));
      } else {
        EXPECT_EQ(static_cast<float>(2 * i + 1), images[i].to_vector<float>()[0]);
      }
    }
  }
}

// An error that is known when the batch is pushed is thrown at the step to that batch, however early it was
// pushed.
TEST_P(LoaderModes, AnErrorAtThePushComesAtTheStepToThatBatch) {
  for (int64_t prefetch : {0, 1, 5}) {
    int calls = 0;
    const Transform third_fails = map_batch([&calls](const NDArray& x) {
      if (++calls == 3) throw std::runtime_error("third");
      return x;
    });
    Loader loader(numbered(10), {.batch_size = 2, .prefetch = prefetch, .transform = third_fails});
    auto it = loader.begin();
    ++it;
    EXPECT_EQ(1, it->number());
    EXPECT_TRUE(contains(error_of<std::runtime_error>([&] { ++it; }), "third"));
    EXPECT_TRUE(contains(error_of<InvalidState>([&] { *it; }), "the step to this batch failed"));
    error_of<InvalidState>([&] { it->number(); });
    ++it;  // continues with the next batch
    EXPECT_EQ(3, it->number());
    EXPECT_EQ((std::vector<int64_t>{60, 70}), it->labels().to_vector<int64_t>());
    ++it;
    ++it;
    EXPECT_TRUE(it == loader.end());
  }
}

TEST_P(LoaderModes, LoopsAtTheSameTimeHaveEpochsOfTheirOwn) {
  Loader loader(numbered(9), {.batch_size = 2, .shuffle = true, .prefetch = 1});
  Loader reference(numbered(9), {.batch_size = 2, .shuffle = true});
  const auto first = epoch_of(reference), second = epoch_of(reference), third = epoch_of(reference);
  Loader other(numbered(9), {.batch_size = 2, .shuffle = true});
  std::vector<std::vector<int64_t>> a, b, c;
  const auto tens = [](const NDArray& labels) {
    std::vector<int64_t> values = labels.to_vector<int64_t>();
    for (int64_t& value : values) value /= 10;
    return values;
  };
  auto one = loader.begin(), two = loader.begin(), three = other.begin();
  while (one != loader.end()) {
    a.push_back(tens(one->labels()));
    b.push_back(tens(two->labels()));
    c.push_back(tens(three->labels()));
    ++one;
    ++two;
    ++three;
  }
  EXPECT_TRUE(two == loader.end() && three == other.end());
  EXPECT_EQ(first, a);
  EXPECT_EQ(second, b);
  EXPECT_EQ(first, c);
  EXPECT_EQ(third, epoch_of(loader));
}

TEST_P(LoaderModes, TheLoaderMayGoBeforeItsBatches) {
  NDArray kept;
  Batch batch;
  {
    std::unique_ptr<Loader> loader =
        std::make_unique<Loader>(numbered(1000), LoaderOptions{.batch_size = 100, .shuffle = true});
    auto it = loader->begin();
    loader.reset();
    kept = it->images();
    ++it;
    batch = *it;
  }
  EXPECT_EQ(200u, kept.to_vector<float>().size());
  EXPECT_EQ(batch.indices().to_vector<int64_t>()[7] * 10, batch.labels().to_vector<int64_t>()[7]);
}

TEST(LoaderBatches, OfOddSizesAreDefined) {
  Loader dropping(numbered(23), {.batch_size = 5, .drop_last = true});
  EXPECT_EQ(4, dropping.batches());
  EXPECT_EQ(up_to(20), joined(epoch_of(dropping)));
  Loader one(numbered(3), {.batch_size = 100});
  EXPECT_EQ(1, one.batches());
  EXPECT_EQ(up_to(3), joined(epoch_of(one)));
  Loader exact(numbered(10), {.batch_size = 5, .drop_last = true});
  EXPECT_EQ(2, exact.batches());
}

TEST(LoaderBatches, AreTakenApartInEveryWay) {
  Loader loader(numbered(4), {.batch_size = 2});
  for (const auto& [images, labels] : loader) EXPECT_EQ(2, labels.size(0) + images.rank() - 2);
  for (auto [images, labels] : loader) labels = images;
  for (auto& batch : loader) {
    EXPECT_EQ(2u, batch.fields());
    EXPECT_EQ(2, batch.size());
    EXPECT_TRUE(batch[0].shares_memory(batch.images()) && batch[1].shares_memory(batch.labels()));
    EXPECT_EQ(2, batch.epoch());
    error_of<InvalidArgument>([&] { batch[2].wait(); });
  }
  const NDArray x = arange(6).reshape({3, 2});
  Loader alone(ArrayDataset({x}), {.batch_size = 3});
  for (auto& [images, labels] : alone) {
    EXPECT_EQ(x.to_vector<int64_t>(), images.to_vector<int64_t>());
    EXPECT_FALSE(labels.defined());
    images = images * 2;  // the loop variables may be assigned to
  }
  Loader three(ArrayDataset({x, x + 1, x + 2}), {.batch_size = 3});
  for (auto& batch : three) EXPECT_EQ((x + 2).to_vector<int64_t>(), batch[2].to_vector<int64_t>());
}

TEST(LoaderBatches, AnIteratorAtTheEndIsRefused) {
  Loader loader(numbered(2), {.batch_size = 2});
  auto it = loader.begin();
  ++it;
  EXPECT_TRUE(it == loader.end());
  error_of<InvalidState>([&] { *it; });
  error_of<InvalidState>([&] { ++it; });
  error_of<InvalidState>([] { *Loader::Iterator(); });
}

TEST(LoaderOptionsTest, ThatMakeNoSenseAreRefused) {
  const auto refuse = [](const LoaderOptions& options, const std::string& part) {
    const std::string message = error_of<InvalidArgument>([&] { Loader(numbered(10), options); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  refuse({.batch_size = 0}, "expected a batch size above 0, got 0");
  refuse({.batch_size = -4}, "got -4");
  refuse({.prefetch = -1}, "got -1");
  refuse({.shard = 2, .shards = 2}, "got 2 of 2");
  refuse({.shard = -1, .shards = 2}, "got -1 of 2");
  refuse({.shards = 0}, "got 0 of 0");
  refuse({.batch_size = 11, .drop_last = true}, "expected a batch size of at most 10, the number of samples");
  refuse({.batch_size = 6, .drop_last = true, .shards = 2},
         "expected a batch size of at most 5, the number of samples");
  refuse({.context = virt(1000)}, "virt");
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { Loader(numbered(0), {.batch_size = 1}); }), "size 0"));
  error_of<InvalidArgument>([] { Loader(std::shared_ptr<ArrayDataset>(), {}); });
}

TEST(LoaderOptionsTest, OneThatWasMovedFromSaysSo) {
  Loader loader(numbered(10), {.batch_size = 4});
  const LoaderState state = loader.state();
  Loader other = std::move(loader);
  const auto refuse = [&](const auto& call) {
    EXPECT_TRUE(
        contains(error_of<InvalidState>(call), "[Loader] expected a loader, got one that was moved from"));
  };
  refuse([&] { loader.begin(); });
  refuse([&] { loader.batches(); });
  refuse([&] { loader.samples(); });
  refuse([&] { loader.options(); });
  refuse([&] { loader.state(); });
  refuse([&] { loader.restore(state); });
  loader = std::move(other);
  EXPECT_EQ(3, loader.batches());
  EXPECT_EQ(3u, epoch_of(loader).size());
}

TEST(LoaderOptionsTest, ABatchThatWasMovedFromSaysSo) {
  Loader loader(numbered(2), {.batch_size = 2});
  const Batch batch = *loader.begin();
  Batch from = batch, to = std::move(from);
  for (const auto& call :
       {std::function<void()>([&] { from.images(); }), {[&] { from.labels(); }}, {[&] { from[0]; }}, {[&] {
          (void)std::as_const(from).images();
        }}})
    EXPECT_TRUE(
        contains(error_of<InvalidState>(call), "[Batch] expected a batch, got one that was moved from"));
  EXPECT_EQ((Shape{2, 2}), to.images().shape());
}

TEST(LoaderOptionsTest, DataSetsThatWereMovedFromAreStillOnes) {
  ArrayDataset arrays = numbered(3);
  const ArrayDataset moved = std::move(arrays);
  EXPECT_EQ(3, arrays.size());
  Subset part(moved, {2, 1});
  const Subset moved_part = std::move(part);
  EXPECT_EQ(2, part.size());
  EXPECT_EQ((std::vector<int64_t>{20, 10}), part.gather(Indices({0, 1}))[1].to_vector<int64_t>());
  FunctionDataset made(4, {{Shape{}, i64}},
                       [](int64_t i, std::span<const Tensor> out) { *out[0].as<int64_t>() = i; });
  const FunctionDataset moved_made = std::move(made);
  EXPECT_EQ((std::vector<int64_t>{0, 1}), made.gather(Indices({0, 1}))[0].to_vector<int64_t>());
}

class WrongBatches final : public Dataset {
 public:
  explicit WrongBatches(std::vector<NDArray> batch) : batch_(std::move(batch)) {}
  int64_t size() const override { return 10; }
  std::vector<NDArray> gather(const Indices&) const override { return batch_; }

 private:
  std::vector<NDArray> batch_;
};

TEST(LoaderOptionsTest, ADataSetThatGathersSomethingElseIsFound) {
  for (const std::vector<NDArray>& batch :
       {std::vector<NDArray>{}, {NDArray()}, {full({}, 1)}, {zeros({3, 2})}, {zeros({2, 2}), zeros({1})}}) {
    Loader loader(WrongBatches(batch), {.batch_size = 2});
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { loader.begin(); }), "[Loader] expected"));
  }
}

}  // namespace
}  // namespace mx::data
