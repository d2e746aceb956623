// Data sets of single samples: shapes that differ, transforms of all fields, samples that are left out, the
// cache, and the lane on which files are read.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <latch>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/image_ops.h"
#include "nn/data/loader.h"
#include "nn/data/sample_dataset.h"
#include "operators/elementwise_binary.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;

class SampleModes : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  Engine engine_{GetParam().options};
  EngineScope scope_{engine_};
};
INSTANTIATE_TEST_SUITE_P(Modes, SampleModes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

// Sample i is i + 1 numbers of value i, and the label 10 i.
Sample ragged_sample(int64_t i) {
  return {host_array(std::vector<float>(static_cast<size_t>(i + 1), static_cast<float>(i))),
          host_scalar(10 * i)};
}
SourceHandle ragged(int64_t n) { return function_source(n, ragged_sample, {"x", "y"}); }

/// A source that reads "files": fetch() returns the number as text.
class FakeFiles final : public SampleSource {
 public:
  explicit FakeFiles(int64_t n, std::set<int64_t> bad = {}) : n_(n), bad_(std::move(bad)) {}
  int64_t size() const override { return n_; }
  std::string fetch(int64_t i) const override {
    ++fetched;
    return std::to_string(i);
  }
  Sample decode(int64_t i, const std::string& bytes) const override {
    EXPECT_EQ(std::to_string(i), bytes);
    if (bad_.count(i) != 0)
      throw FormatError(mx::detail::concat("[fake] 'file", i, "': expected a sample at offset 7, got none"));
    return {host_scalar(std::stoll(bytes))};
  }
  mutable std::atomic<int> fetched{0};

 private:
  int64_t n_;
  std::set<int64_t> bad_;
};

TEST_P(SampleModes, BatchesMayHaveDifferentShapes) {
  for (int64_t prefetch : {0, 1, 5}) {
    Loader loader(SampleDataset(ragged(7), {.collate = pad({.value = -1, .lengths = true})}),
                  {.batch_size = 3, .prefetch = prefetch});
    int64_t first = 0;
    for (Batch& batch : loader) {
      const int64_t n = std::min<int64_t>(3, 7 - first), longest = first + n;
      ASSERT_EQ((Shape{n, longest}), batch["x"].shape());
      const std::vector<float> x = batch[0].to_vector<float>();
      for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < longest; ++k)
          EXPECT_EQ(k <= first + i ? static_cast<float>(first + i) : -1.f,
                    x[static_cast<size_t>(i * longest + k)]);
      EXPECT_EQ(first * 10, batch["y"].to_vector<int64_t>()[0]);
      EXPECT_EQ(first + 1, batch[2].to_vector<int64_t>()[0]);
      first += n;
    }
    EXPECT_EQ(7, first);
  }
}

TEST_P(SampleModes, TransformsChangeAllFieldsAndDependOnTheSampleOnly) {
  const SampleTransform both = [](Sample& sample, SampleRandom& random) {
    const auto shift = static_cast<float>(random.uniform());
    for (int64_t i = 0; i < sample[0].numel(); ++i) sample[0].data<float>()[i] += shift;
    sample.push_back(host_scalar(shift));
  };
  std::vector<std::vector<float>> results;
  for (const auto& [size, prefetch, shuffle] :
       std::vector<std::tuple<int64_t, int64_t, bool>>{{1, 0, false}, {4, 2, true}, {20, 1, true}}) {
    Loader loader(SampleDataset(ragged(20), {.transform = both, .collate = pad()}),
                  {.batch_size = size, .shuffle = shuffle, .seed = 3, .prefetch = prefetch});
    std::vector<float> shifts(20);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (Batch& batch : loader) {
        const std::vector<float> made = batch[2].to_vector<float>();
        const std::vector<int64_t> at = batch.indices().to_vector<int64_t>();
        for (size_t i = 0; i < at.size(); ++i) {
          shifts[static_cast<size_t>(at[i])] += made[i] * static_cast<float>(epoch + 1);
          EXPECT_EQ(static_cast<float>(at[i]) + made[i],
                    batch[0].select(0, static_cast<int64_t>(i)).to_vector<float>()[0]);
        }
      }
    results.push_back(shifts);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(20u, std::set<float>(results[0].begin(), results[0].end()).size());
}

TEST_P(SampleModes, BadSamplesAreLeftOutByChoice) {
  const auto files = std::make_shared<FakeFiles>(10, std::set<int64_t>{2, 6, 7, 8});
  std::vector<std::string> skipped;
  std::mutex mutex;
  Loader loader{SampleDataset(files, {.bad = BadSamples::skip,
                                      .on_skip =
                                          [&](const std::string& error) {
                                            const std::lock_guard lock(mutex);
                                            skipped.push_back(error);
                                          }}),
                {.batch_size = 3}};
  std::vector<std::vector<int64_t>> batches, indices;
  for (Batch& one : loader) {
    batches.push_back(one[0].to_vector<int64_t>());
    indices.push_back(one.indices().to_vector<int64_t>());
  }
  // Of the third batch no sample is left, so there are three.
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{0, 1}, {3, 4, 5}, {9}}), batches);
  EXPECT_EQ(batches, indices);
  std::sort(skipped.begin(), skipped.end());
  ASSERT_EQ(4u, skipped.size());
  EXPECT_EQ("[fake] 'file2': expected a sample at offset 7, got none", skipped[0]);
}

TEST(SampleDatasetTest, ABadSampleIsThrownAtTheStepToItsBatch) {
  const auto files = std::make_shared<FakeFiles>(9, std::set<int64_t>{4});
  Loader loader{SampleDataset(files), {.batch_size = 3}};
  auto batch = loader.begin();
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2}), (*batch)[0].to_vector<int64_t>());
  EXPECT_TRUE(contains(error_of<FormatError>([&] { ++batch; }), "'file4': expected a sample at offset 7"));
  ++batch;
  EXPECT_EQ((std::vector<int64_t>{6, 7, 8}), (*batch)[0].to_vector<int64_t>());
  ++batch;
  EXPECT_TRUE(batch == loader.end());
}

TEST(SampleDatasetTest, AnotherErrorNamesTheSampleAndIsNeverSkipped) {
  const SourceHandle source = function_source(5, [](int64_t i) -> Sample {
    if (i == 3) throw std::runtime_error("no such thing");
    return {host_scalar(i)};
  });
  const SampleDataset set(source, {.bad = BadSamples::skip});
  const std::string message = error_of<OperationError>([&] { set.gather(Indices({1, 3})); });
  EXPECT_TRUE(contains(message, "no such thing (in sample 3 of a SampleDataset)")) << message;
  EXPECT_EQ((std::vector<int64_t>{4, 0}), set.gather(Indices({4, 0}))[0].to_vector<int64_t>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { set.gather(Indices({5})); }), "got 5 at position 0"));
}

TEST(SampleDatasetTest, ReadingDoesNotHoldThreadsThatCompute) {
  // Both threads' worth of reads are blocked; the computation below runs nevertheless.
  class Blocked final : public SampleSource {
   public:
    explicit Blocked(std::latch& gate) : gate_(gate) {}
    int64_t size() const override { return 4; }
    std::string fetch(int64_t) const override {
      gate_.wait();
      return {};
    }
    Sample decode(int64_t i, const std::string&) const override { return {host_scalar(i)}; }

   private:
    std::latch& gate_;
  };
  for (int threads : {1, 2}) {
    Engine engine(test::threaded_case(threads).options);
    EngineScope scope(engine);
    std::latch gate(1);
    Loader loader(SampleDataset(std::make_shared<Blocked>(gate)), {.batch_size = 4});
    const SampleDataset set(std::make_shared<Blocked>(gate));
    PendingBatch pending = set.start(Indices({0, 1, 2, 3}));
    EXPECT_FALSE(pending.is_ready());
    std::atomic<bool> computed{false};
    const Var var = engine.new_var();
    engine.push([&] { computed = true; }, {.writes = {var}});
    engine.wait(var);
    EXPECT_TRUE(computed);
    EXPECT_FALSE(pending.is_ready());
    gate.count_down();
    EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3}), pending.finish().arrays[0].to_vector<int64_t>());
    engine.delete_var(var);
  }
}

TEST(SampleDatasetTest, CachedSamplesAreReadOnce) {
  const auto files = std::make_shared<FakeFiles>(10);
  // Each sample has 8 bytes, so 6 of them stay.
  Loader loader{SampleDataset(cached(files, 50),
                              {.transform = [](Sample& s, SampleRandom&) { *s[0].data<int64_t>() += 1; }}),
                {.batch_size = 4, .shuffle = true}};
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> all;
    for (Batch& batch : loader)
      for (int64_t value : batch[0].to_vector<int64_t>()) all.push_back(value);
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(10);
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(expected, all) << "a transform changes a copy";
    EXPECT_EQ(10 + 4 * epoch, files->fetched.load());
  }
}

TEST(SampleDatasetTest, ArraysAreASourceOfSamples) {
  const NDArray images = arange(24).reshape({2, 3, 2, 2}).to(u8), labels = array({4.5, -1.0});
  const SampleTransform both = chain({channels_last(), flip(1), channels_first()});
  Loader loader(SampleDataset(array_source({images, labels}, {"image", "label"}), {.transform = both}),
                {.batch_size = 2});
  const Batch batch = *loader.begin();
  EXPECT_EQ((Shape{2, 3, 2, 2}), batch["image"].shape());
  EXPECT_EQ((std::vector<uint8_t>{1, 0, 3, 2, 5, 4, 7, 6}),
            batch["image"][0].slice(0, {0, 2}).to_vector<uint8_t>());
  EXPECT_EQ((std::vector<double>{4.5, -1}), batch["label"].to_vector<double>());
  error_of<InvalidArgument>([&] { array_source({images, arange(3)}); });
}

TEST(SampleDatasetTest, SubsetsPassShapesAndNamesOn) {
  const Subset part(SampleDataset(ragged(6), {.collate = pad()}), {5, 1});
  Loader loader(part, {.batch_size = 2});
  const Batch batch = *loader.begin();
  EXPECT_EQ((Shape{2, 6}), batch["x"].shape());
  EXPECT_EQ((std::vector<int64_t>{50, 10}), batch["y"].to_vector<int64_t>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { part.gather(Indices({2})); }), "got 2 at position 0"));
}

TEST(BatchTest, FieldsHaveNames) {
  Loader loader(ArrayDataset({arange(4), arange(4) * 2}, {"a", "b"}), {.batch_size = 4});
  Batch batch = *loader.begin();
  EXPECT_TRUE(batch.has("b"));
  EXPECT_FALSE(batch.has("c"));
  EXPECT_TRUE(batch["b"].shares_memory(batch[1]));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { batch["c"]; }), "(a, b), got 'c'"));
  Loader plain(ArrayDataset({arange(4)}), {.batch_size = 4});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { (*plain.begin())["a"]; }), "there are none"));
  error_of<InvalidArgument>([] { ArrayDataset({arange(2)}, {"a", "b"}); });
}

TEST(CollateTest, SamplesThatDoNotFitAreNamed) {
  const auto samples = [] {
    std::vector<Sample> list;
    list.push_back({host_array(std::vector<float>{1, 2})});
    list.push_back({host_array(std::vector<float>{3})});
    return list;
  };
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { stack()(samples()); }),
               "one shape and type in field 0, got f32 of shape (2,) and, at place 1, f32 of shape (1,)"));
  std::vector<Sample> types = samples();
  types[1][0] = host_scalar(1.f);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { pad()(std::move(types)); }), "at place 1"));
  std::vector<Sample> counts = samples();
  counts[1].push_back(host_scalar(1.f));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { join()(std::move(counts)); }), "got one of 2 at place 1"));
  error_of<InvalidArgument>([&] { pad({.fields = {3}})(samples()); });
  error_of<InvalidArgument>([&] { pad({.multiple = 0}); });
  error_of<InvalidArgument>([&] { stack()({}); });
}

TEST(CollateTest, PadsEveryDimensionToAMultiple) {
  std::vector<Sample> samples;
  samples.push_back({HostArray({2, 3}, i32)});
  samples.push_back({HostArray({5, 1}, i32)});
  std::fill_n(samples[0][0].data<int32_t>(), 6, 7);
  const Sample batch = pad({.value = 9, .multiple = 4})(std::move(samples));
  EXPECT_EQ((Shape{2, 8, 4}), batch[0].shape());
  const int32_t* const x = batch[0].data<int32_t>();
  for (int y = 0; y < 8; ++y)
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(y < 2 && i < 3 ? 7 : 9, x[4 * y + i]);
      EXPECT_EQ(y < 5 && i < 1 ? 0 : 9, x[32 + 4 * y + i]);
    }
}

TEST(MixupTest, MixesNeighboursWithTheWeightOfTheSample) {
  const int64_t n = 12, classes = 5;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < n; ++i) labels.push_back(i % classes);
  const ArrayDataset set({arange(n).to(f32).reshape({n, 1}), array(labels), arange(n)});
  std::vector<float> weights[2];
  for (int run = 0; run < 2; ++run) {
    Loader loader(set, {.batch_size = run == 0 ? 4 : 6, .batch_transform = mixup(0.4, classes)});
    for (Batch& batch : loader) {
      const std::vector<float> x = batch[0].to_vector<float>(), y = batch[1].to_vector<float>();
      const std::vector<int64_t> at = batch[2].to_vector<int64_t>();
      ASSERT_EQ((Shape{batch.size(), classes}), batch[1].shape());
      for (size_t i = 0; i < at.size(); ++i) {
        const int64_t next = at[(i + 1) % at.size()];
        const float w = (x[i] - static_cast<float>(next)) / static_cast<float>(at[i] - next);
        EXPECT_TRUE(w >= 0 && w <= 1) << w;
        for (int64_t c = 0; c < classes; ++c)
          EXPECT_NEAR((at[i] % classes == c ? w : 0) + (next % classes == c ? 1 - w : 0),
                      y[i * static_cast<size_t>(classes) + static_cast<size_t>(c)], 1e-5);
        weights[run].push_back(w);
      }
    }
  }
  for (size_t i = 0; i < weights[0].size(); ++i) EXPECT_NEAR(weights[0][i], weights[1][i], 1e-5);
  error_of<InvalidArgument>([] { mixup(0, 3); });
  error_of<InvalidArgument>([] { mixup(1, 0); });
}

TEST(MixupTest, WeightsHaveTheMomentsOfTheBetaDistribution) {
  for (double alpha : {0.2, 1.0, 4.0}) {
    const int64_t n = 4000;
    std::vector<float> alternating;
    for (int64_t i = 0; i < n; ++i) alternating.push_back(static_cast<float>(i % 2));
    const ArrayDataset set({array(alternating), zeros({n}, i64)});
    Loader loader(set, {.batch_size = n, .batch_transform = mixup(alpha, 1)});
    const std::vector<float> x = (*loader.begin())[0].to_vector<float>();
    double sum = 0, squares = 0;
    for (float v : x) {
      sum += v;
      squares += (v - 0.5) * (v - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(0.5, sum / n, 5 * std::sqrt(variance / n)) << alpha;
    EXPECT_NEAR(variance, squares / n, 0.1 * variance) << alpha;
  }
}

}  // namespace
}  // namespace mx::data
