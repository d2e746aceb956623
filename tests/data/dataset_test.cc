// Data sets: their contents, and how a batch is gathered from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "nn/data/dataset.h"
#include "nn/data/k_fold.h"
#include "nn/data/loader.h"
#include "operators/indexing.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;

Indices indices(const std::vector<int64_t>& values) { return Indices(values); }

TEST(ArrayDatasetTest, GathersRowsOfEveryArray) {
  const NDArray x = arange(12).reshape({4, 3}), y = array({1.5f, 2.5f, 3.5f, 4.5f});
  const ArrayDataset set({x, y});
  EXPECT_EQ(4, set.size());
  const std::vector<NDArray> batch = set.gather(indices({3, 0, 3}));
  ASSERT_EQ(2u, batch.size());
  EXPECT_EQ((Shape{3, 3}), batch[0].shape());
  EXPECT_EQ((std::vector<int64_t>{9, 10, 11, 0, 1, 2, 9, 10, 11}), batch[0].to_vector<int64_t>());
  EXPECT_EQ((std::vector<float>{4.5f, 1.5f, 4.5f}), batch[1].to_vector<float>());
}

TEST(ArrayDatasetTest, GathersWhereTheArraysAre) {
  const ArrayDataset set({arange(6).reshape({3, 2}).to(virt(0)), arange(3).to(virt(1))});
  const std::vector<NDArray> batch = set.gather(indices({2, 1}));
  EXPECT_EQ(virt(0), batch[0].context());
  EXPECT_EQ(virt(1), batch[1].context());
  EXPECT_EQ((std::vector<int64_t>{4, 5, 2, 3}), batch[0].to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{2, 1}), batch[1].to_vector<int64_t>());
}

TEST(ArrayDatasetTest, AnIndexOutOfRangeFailsTheBatch) {
  const ArrayDataset set({arange(4)});
  const NDArray batch = set.gather(indices({1, 4}))[0];
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { batch.wait(); }), "4"));
}

TEST(ArrayDatasetTest, RefusesArraysThatDoNotFit) {
  error_of<InvalidArgument>([] { ArrayDataset({}); });
  error_of<InvalidArgument>([] { ArrayDataset({NDArray()}); });
  error_of<InvalidArgument>([] { ArrayDataset({full({}, 1)}); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         ArrayDataset({zeros({3, 2}), zeros({2})});
                       }),
                       "got shapes (3, 2) and (2,)"));
  error_of<InvalidArgument>([] { ArrayDataset({zeros({3})}).array(1); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         ArrayDataset({zeros({3}), ones({3}), ones({3})}, {"x", "y", "x"});
                       }),
                       "expected different names, got 'x' twice"));
}

FunctionDataset squares(int64_t size) {
  return FunctionDataset(size, {{{2}, f64}, {{}, i64}}, [](int64_t i, std::span<const Tensor> sample) {
    sample[0].as<double>()[0] = static_cast<double>(i);
    sample[0].as<double>()[1] = static_cast<double>(i * i);
    sample[1].as<int64_t>()[0] = -i;
  });
}

TEST(FunctionDatasetTest, CallsTheFunctionForEverySample) {
  for (const test::EngineCase& mode : test::all_cases()) {
    Engine engine(mode.options);
    EngineScope scope(engine);
    const std::vector<NDArray> batch = squares(100).gather(indices({7, 0, 99}));
    EXPECT_EQ((Shape{3, 2}), batch[0].shape());
    EXPECT_EQ((Shape{3}), batch[1].shape());
    EXPECT_EQ((std::vector<double>{7, 49, 0, 0, 99, 9801}), batch[0].to_vector<double>()) << mode.name;
    EXPECT_EQ((std::vector<int64_t>{-7, 0, -99}), batch[1].to_vector<int64_t>()) << mode.name;
  }
}

TEST(FunctionDatasetTest, WhatTheFunctionThrowsFailsTheBatchAndNamesTheSample) {
  const FunctionDataset set(10, {{{1}}}, [](int64_t i, std::span<const Tensor> sample) {
    if (i == 5) throw std::runtime_error("no such file");
    sample[0].as<float>()[0] = 1;
  });
  const NDArray bad = set.gather(indices({4, 5}))[0], good = set.gather(indices({4, 6}))[0];
  const std::string message = error_of<OperationError>([&] { bad.wait(); });
  EXPECT_TRUE(contains(message, "no such file") && contains(message, "sample 5")) << message;
  EXPECT_EQ((std::vector<float>{1, 1}), good.to_vector<float>());
  error_of<InvalidArgument>([&] { set.gather(indices({10}))[0].wait(); });
  error_of<InvalidArgument>([&] { set.gather(indices({-1}))[0].wait(); });
}

TEST(FunctionDatasetTest, RefusesWhatMakesNoSense) {
  const auto nothing = [](int64_t, std::span<const Tensor>) {};
  error_of<InvalidArgument>([&] { FunctionDataset(-1, {{{1}}}, nothing); });
  error_of<InvalidArgument>([&] { FunctionDataset(1, {}, nothing); });
  error_of<InvalidArgument>([&] { FunctionDataset(1, {{{1}}}, nullptr); });
  error_of<InvalidArgument>([&] { FunctionDataset(1, {{{-1}}}, nothing); });
}

TEST(FunctionDatasetTest, BatchesOutliveIt) {
  NDArray batch;
  {
    const FunctionDataset set = squares(1000);
    batch = set.gather(indices({31}))[0];
  }
  EXPECT_EQ((std::vector<double>{31, 961}), batch.to_vector<double>());
}

TEST(SubsetTest, IsTheSamplesThatAreNamed) {
  const Subset set(ArrayDataset({arange(10)}), {8, 2, 2, 5});
  EXPECT_EQ(4, set.size());
  EXPECT_EQ((std::vector<int64_t>{5, 8, 2}), set.gather(indices({3, 0, 1}))[0].to_vector<int64_t>());
  const Subset inner(set, {0, 3});
  EXPECT_EQ((std::vector<int64_t>{8, 5}), inner.gather(indices({0, 1}))[0].to_vector<int64_t>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { Subset(set, {0, 4}); }), "got 4 at position 1"));
  error_of<InvalidArgument>([&] { Subset(set, {-1}); });
}

TEST(RandomSplit, PutsEverySampleIntoOnePart) {
  const ArrayDataset set({arange(100)});
  const std::vector<Subset> parts = random_split(set, {50, 0, 30, 20}, 7);
  ASSERT_EQ(4u, parts.size());
  std::vector<int64_t> all;
  for (const Subset& part : parts) all.insert(all.end(), part.indices().begin(), part.indices().end());
  EXPECT_EQ(50, parts[0].size());
  EXPECT_EQ(0, parts[1].size());
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(expected, all);
}

TEST(RandomSplit, IsAFunctionOfTheSeed) {
  const ArrayDataset set({arange(100)});
  EXPECT_EQ(random_split(set, {60, 40}, 1)[0].indices(), random_split(set, {60, 40}, 1)[0].indices());
  EXPECT_NE(random_split(set, {60, 40}, 1)[0].indices(), random_split(set, {60, 40}, 2)[0].indices());
}

TEST(RandomSplit, RefusesSizesThatDoNotAddUp) {
  const ArrayDataset set({arange(10)});
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{}, {9}, {11}, {5, -1, 6}, {INT64_MAX, INT64_MAX, 12}})
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { random_split(set, sizes, 0); }), "add up to 10"));
}

std::vector<std::vector<int64_t>> validation_of(const std::vector<Fold>& folds) {
  std::vector<std::vector<int64_t>> all;
  for (const Fold& fold : folds) all.push_back(fold.validation.indices());
  return all;
}

TEST(KFold, RangesDifferInSizeByOneAtMostAndTheOthersAreTheTrainingSet) {
  const ArrayDataset set({arange(8)});
  const std::vector<Fold> folds = k_fold(set, 3);
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {6, 7}}), validation_of(folds));
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 6, 7}), folds[1].train.indices());
  EXPECT_EQ((std::vector<int64_t>{6, 7}),
            folds[2].validation.gather(indices({0, 1}))[0].to_vector<int64_t>());
}

TEST(KFold, ShufflesBySeedAndValidatesEverySampleOnce) {
  const ArrayDataset set({arange(23)});
  const auto folds = validation_of(k_fold(set, 4, {.shuffle = true, .seed = 1}));
  EXPECT_EQ(folds, validation_of(k_fold(set, 4, {.shuffle = true, .seed = 1})));
  EXPECT_NE(folds, validation_of(k_fold(set, 4, {.shuffle = true, .seed = 2})));
  EXPECT_NE(folds, validation_of(k_fold(set, 4)));
  std::vector<int64_t> all;
  for (const auto& fold : folds) {
    EXPECT_TRUE(std::is_sorted(fold.begin(), fold.end()));
    EXPECT_TRUE(fold.size() == 5 || fold.size() == 6);
    all.insert(all.end(), fold.begin(), fold.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(23);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(expected, all);
}

TEST(KFold, RefusesFewerThanTwoFoldsAndMoreThanSamples) {
  const ArrayDataset set({arange(4)});
  for (const int64_t folds : {-1, 0, 1, 5})
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { k_fold(set, folds); }), "dataset_test.cc"));
  EXPECT_EQ(4u, k_fold(set, 4).size());
}

TEST(DatasetErrors, NameTheLineOfTheLoopOrOfTheIndices) {
  const auto place = [](int line) { return mx::detail::concat("dataset_test.cc:", line, ')'); };
  const FunctionDataset broken(4, {{.shape = {2}}}, [](int64_t i, auto) {
    if (i == 2) throw std::runtime_error("no such scan");
  });
  int line = 0;
  std::string message = error_of<OperationError>([&] {
    Loader loader(broken, {.batch_size = 4});
    line = __LINE__ + 1;
    for (Batch& batch : loader) batch[0].wait();
  });
  EXPECT_TRUE(contains(message, "no such scan (in sample 2 of a FunctionDataset)")) << message;
  EXPECT_TRUE(contains(message, place(line))) << message;
  const Subset arrays(ArrayDataset({ones({3, 2})}), {0, 1});
  line = __LINE__ + 1;
  const Indices poisoned({0, 1}, take(arange(3), array<int64_t>({0, 7})), 0, 0);
  message = error_of<InvalidArgument>([&] { arrays.gather(poisoned)[0].wait(); });
  EXPECT_TRUE(contains(message, place(line))) << message;
  line = __LINE__ + 1;
  const std::vector<NDArray> batch = ArrayDataset({ones({3, 2})}).gather(Indices({0, 3}));
  message = error_of<InvalidArgument>([&] { batch[0].wait(); });
  EXPECT_TRUE(contains(message, place(line))) << message;
}

}  // namespace
}  // namespace mx::data
