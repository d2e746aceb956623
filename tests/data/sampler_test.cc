// Samplers: the order and the batches of an epoch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "nn/data/loader.h"
#include "nn/data/sampler.h"
#include "tests/data/numbered.h"
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

TEST(Samplers, OrdersAreFunctionsOfSeedAndEpoch) {
  EXPECT_EQ(up_to(7), sequential_sampler(7)->order(3));
  const SamplerHandle random = random_sampler(50, 4);
  EXPECT_EQ(up_to(50), sorted(random->order(0)));
  EXPECT_EQ(random->order(1), random_sampler(50, 4)->order(1));
  EXPECT_NE(random->order(0), random->order(1));
  EXPECT_NE(random->order(0), random_sampler(50, 5)->order(0));
  EXPECT_EQ((std::vector<int64_t>{9, 2, 9}), subset_sampler({9, 2, 9}, false)->order(0));
  EXPECT_EQ((std::vector<int64_t>{2, 9, 9}), sorted(subset_sampler({9, 2, 9})->order(5)));
}

TEST(Samplers, DrawsHaveTheProbabilitiesOfTheWeights) {
  const std::vector<double> weights = {1, 0, 3, 4};
  const int64_t n = 40000;
  std::map<int64_t, int64_t> count;
  for (int64_t i : weighted_sampler(weights, n, true, 2)->order(0)) ++count[i];
  for (int64_t i = 0; i < 4; ++i) {
    const double p = weights[static_cast<size_t>(i)] / 8;
    EXPECT_NEAR(p, static_cast<double>(count[i]) / static_cast<double>(n),
                5 * std::sqrt(p * (1 - p) / static_cast<double>(n)));
  }
  // Without replacement: the first draw has those probabilities, and no sample comes twice.
  std::map<int64_t, int64_t> first;
  const SamplerHandle distinct = weighted_sampler(weights, 3, false, 2);
  for (int64_t epoch = 0; epoch < 4000; ++epoch) {
    const std::vector<int64_t> order = distinct->order(epoch);
    EXPECT_EQ((std::vector<int64_t>{0, 2, 3}), sorted(order));
    ++first[order[0]];
  }
  for (int64_t i : {0, 2, 3}) {
    const double p = weights[static_cast<size_t>(i)] / 8;
    EXPECT_NEAR(p, static_cast<double>(first[i]) / 4000, 5 * std::sqrt(p * (1 - p) / 4000));
  }
}

TEST(Samplers, InvalidArgumentsAreRefused) {
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         weighted_sampler({1, -1}, 2);
                       }),
                       "got -1 at position 1"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         weighted_sampler({0, 0}, 2);
                       }),
                       "at least one weight above 0"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         weighted_sampler({1, 0}, 2, false);
                       }),
                       "draws from 1 to 1, got 2"));
  error_of<InvalidArgument>([] { weighted_sampler({NAN}, 1); });
  error_of<InvalidArgument>([] { weighted_sampler({1e308, 1e308}, 1); });
  error_of<InvalidArgument>([] { sequential_sampler(0); });
  error_of<InvalidArgument>([] { subset_sampler({}); });
  error_of<InvalidArgument>([] { subset_sampler({-1}); });
  error_of<InvalidArgument>([] { cut_batches(sequential_sampler(3), 0); });
  error_of<InvalidArgument>([] { cut_batches(sequential_sampler(3), 4, true); });
  error_of<InvalidArgument>([] { length_batches({1}, {}); });
  error_of<InvalidArgument>([] { length_batches({-1}, {.batch_size = 1}); });
}

TEST(Samplers, LoadersFollowThemAlsoInShards) {
  const SamplerHandle sampler = subset_sampler({5, 3, 9, 1, 1}, false);
  Loader loader(numbered(10), {.batch_size = 2, .sampler = sampler});
  EXPECT_EQ(5, loader.samples());
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{5, 3}, {9, 1}, {1}}), epoch_of(loader));
  std::vector<std::vector<std::vector<int64_t>>> shards;
  for (int64_t shard : {0, 1}) {
    Loader part(numbered(10), {.batch_size = 2, .shard = shard, .shards = 2, .sampler = sampler});
    shards.push_back(epoch_of(part));
  }
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{5, 9}, {1}}), shards[0]);
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{3, 1}, {5}}), shards[1])
      << "wraps around, so that sizes are equal";
  error_of<InvalidArgument>([&] { Loader(numbered(10), {.shuffle = true, .sampler = sampler}); });
}

TEST(Samplers, OfOtherDataSetsAreRefusedAtOnceIfTheyAreKnown) {
  const auto refused = [](const LoaderOptions& options) {
    return error_of<InvalidArgument>([&] { Loader(numbered(4), options); });
  };
  for (const SamplerHandle& sampler : {subset_sampler({1, 4}), sequential_sampler(5), random_sampler(5),
                                       weighted_sampler({1, 0, 0, 0, 1, 0}, 2)}) {
    EXPECT_TRUE(contains(refused({.sampler = sampler}),
                         "a sampler of samples from 0 to 3, got one that takes sample 4"));
    EXPECT_TRUE(contains(refused({.batches = cut_batches(sampler, 2)}), "got one that takes sample 4"));
    EXPECT_EQ(sampler->size(), Loader(numbered(5), {.sampler = sampler}).samples());
  }
  EXPECT_TRUE(contains(refused({.batches = length_batches({1, 1, 1, 1, 1}, {.batch_size = 2})}), "sample 4"));
  EXPECT_NO_THROW(Loader(numbered(4), {.sampler = weighted_sampler({1, 1, 1, 1, 0}, 2)}));  // never takes 4
  // A program's own sampler does not say what it takes.
  struct Wrong final : Sampler {
    int64_t size() const override { return 1; }
    std::vector<int64_t> order(int64_t) const override { return {7}; }
  };
  Loader late(numbered(4), {.sampler = std::make_shared<const Wrong>()});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { late.begin(); }),
                       "samples from 0 to 3, got 7 from the sampler"));
}

TEST(Samplers, AbsurdSizesAreErrorsOfThisLibrary) {
  const int64_t absurd = int64_t{1} << 58;
  error_of<OutOfMemory>([&] { sequential_sampler(absurd)->order(0); });
  error_of<OutOfMemory>([&] { random_sampler(absurd)->order(0); });
  error_of<OutOfMemory>([&] { weighted_sampler({1, 2}, absurd)->order(0); });
  const FunctionDataset large(absurd, {{.shape = {2}}}, [](int64_t, auto) {});
  Loader loader(large, {.batch_size = absurd});
  error_of<OutOfMemory>([&] { loader.begin(); });
}

TEST(Samplers, BatchesOfSimilarLengthsCoverEverySampleWithinTheLimits) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 200; ++i) lengths.push_back(1 + i * 7919 % 60);
  lengths.push_back(500);
  const BatchSamplerHandle sampler =
      length_batches(lengths, {.batch_size = 16, .max_elements = 256, .shuffle = true, .seed = 1});
  std::set<std::vector<std::vector<int64_t>>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto batches = sampler->batches(epoch);
    EXPECT_EQ(sampler->size(), static_cast<int64_t>(batches.size()));
    EXPECT_EQ(up_to(201), sorted(joined(batches)));
    int64_t padded = 0, used = 0;
    for (const std::vector<int64_t>& batch : batches) {
      int64_t longest = 0;
      for (int64_t i : batch) {
        longest = std::max(longest, lengths[static_cast<size_t>(i)]);
        used += lengths[static_cast<size_t>(i)];
      }
      const auto n = static_cast<int64_t>(batch.size());
      EXPECT_LE(n, 16);
      EXPECT_TRUE(n == 1 || n * longest <= 256);
      padded += n * longest;
    }
    EXPECT_LT(padded, used + used / 10) << "little is padded";
    epochs.insert(batches);
  }
  EXPECT_EQ(3u, epochs.size());
}

TEST(Samplers, LoadersTakeBatchesOfSamplersAndShardsTakeWholeBatches) {
  const BatchSamplerHandle batches = length_batches({3, 1, 2, 1, 9}, {.max_elements = 4});
  const std::vector<std::vector<int64_t>> expected = {{1, 3}, {2}, {0}, {4}};
  Loader loader(numbered(5), {.batches = batches});
  EXPECT_EQ(4, loader.batches());
  EXPECT_EQ(5, loader.samples());
  EXPECT_EQ(expected, epoch_of(loader));
  Loader odd(numbered(5), {.shard = 1, .shards = 3, .batches = batches});
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{2}, {1, 3}}), epoch_of(odd));
  // A state within an epoch continues there.
  Loader again(numbered(5), {.batches = batches});
  LoaderState state;
  for (auto& batch : loader) {
    if (batch.number() == 1) state = loader.state();
  }
  again.restore(state);
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{0}, {4}}), epoch_of(again));
  error_of<InvalidArgument>([&] { Loader(numbered(5), {.batch_size = 2, .batches = batches}); });
  Loader parts(numbered(5), {.part = 0, .parts = 2, .batches = batches});
  auto batch = parts.begin();
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { ++batch; }), "one for each part, got one of 1"));
}

TEST(Samplers, CutBatchesAreThoseOfALoader) {
  Loader plain(numbered(11), {.batch_size = 4, .shuffle = true, .seed = 6});
  Loader cut(numbered(11), {.batches = cut_batches(random_sampler(11, 6), 4)});
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(epoch_of(plain), epoch_of(cut));
  EXPECT_EQ(2, cut_batches(sequential_sampler(11), 4, true)->size());
}

}  // namespace
}  // namespace mx::data
