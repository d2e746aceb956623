// The order in which a loader takes the samples, and the samples of each shard.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "nn/data/loader.h"
#include "tests/data/numbered.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::epoch_of;
using test::joined;
using test::numbered;
using test::sorted;

// The expected order comes from an independent Philox4x32-10 and Fisher-Yates shuffle, so the order is the
// same on every platform.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, uint32_t k0, uint32_t k1) {
  for (int i = 0; i < 10; ++i) {
    const uint64_t p = 0xD2511F53ull * c[0], q = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(q >> 32) ^ c[1] ^ (k0 + static_cast<uint32_t>(i) * 0x9E3779B9u),
         static_cast<uint32_t>(q),
         static_cast<uint32_t>(p >> 32) ^ c[3] ^ (k1 + static_cast<uint32_t>(i) * 0xBB67AE85u),
         static_cast<uint32_t>(p)};
  }
  return c;
}

std::vector<int64_t> expected_order(int64_t n, uint32_t seed, uint32_t epoch) {
  const auto key = philox({epoch, 0, 0x6f726401, 0}, seed, 0);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) {
    const auto words = philox({static_cast<uint32_t>(i / 2), 0, 2, 0}, key[0], key[1]);
    const uint64_t bits = words[static_cast<size_t>(i % 2 * 2)] |
                          static_cast<uint64_t>(words[static_cast<size_t>(i % 2 * 2 + 1)]) << 32;
    const auto j =
        static_cast<size_t>((static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(i + 1)) >> 64);
    order.push_back(i);
    std::swap(order[j], order.back());
  }
  return order;
}

TEST(LoaderOrder, IsThatOfTheAlgorithmOnEveryPlatform) {
  for (uint32_t seed : {0u, 1u, 12345u}) {
    Loader loader(numbered(3000), {.batch_size = 1000, .shuffle = true, .seed = seed});
    for (uint32_t epoch = 0; epoch < 2; ++epoch)
      EXPECT_EQ(expected_order(3000, seed, epoch), joined(epoch_of(loader)));
  }
  Loader small(numbered(10), {.batch_size = 10, .shuffle = true});
  EXPECT_EQ((std::vector<int64_t>{8, 4, 0, 7, 6, 9, 5, 3, 1, 2}), joined(epoch_of(small)));
}

TEST(LoaderOrder, IsAFunctionOfSeedAndEpoch) {
  const auto order = [](int64_t seed, int epochs) {
    Loader loader(numbered(50), {.batch_size = 7, .shuffle = true, .seed = seed});
    std::vector<int64_t> last;
    for (int i = 0; i < epochs; ++i) last = joined(epoch_of(loader));
    return last;
  };
  EXPECT_EQ(order(1, 1), order(1, 1));
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 1), order(1, 2));
  EXPECT_NE(order(1, 1), order(2, 1));
  EXPECT_NE(order(1, 1), order(-1, 1));
}

TEST(LoaderShards, HaveEqualSizesAndTogetherEverySample) {
  for (int64_t n : {1, 5, 12, 13, 100})
    for (int64_t shards : {1, 2, 3, 7})
      for (bool shuffle : {false, true}) {
        std::map<int64_t, int> seen;
        const int64_t size = (n + shards - 1) / shards;
        for (int64_t shard = 0; shard < shards; ++shard) {
          Loader loader(numbered(n), {.batch_size = 4, .shuffle = shuffle, .shard = shard, .shards = shards});
          const std::vector<int64_t> part = joined(epoch_of(loader));
          EXPECT_EQ(size, loader.samples());
          EXPECT_EQ(static_cast<size_t>(size), part.size());
          for (int64_t index : part) ++seen[index];
        }
        EXPECT_EQ(static_cast<size_t>(n), seen.size());
        int64_t again = 0;
        for (const auto& [index, count] : seen) again += count - 1;
        EXPECT_EQ(size * shards - n, again) << n << " samples in " << shards << " shards";
      }
}

TEST(LoaderShards, BatchesTogetherAreThoseOfOneLoader) {
  Loader whole(numbered(48), {.batch_size = 12, .shuffle = true, .seed = 4});
  std::vector<std::vector<std::vector<int64_t>>> parts;
  for (int64_t shard = 0; shard < 3; ++shard) {
    Loader loader(numbered(48), {.batch_size = 4, .shuffle = true, .seed = 4, .shard = shard, .shards = 3});
    parts.push_back(epoch_of(loader));
  }
  const auto batches = epoch_of(whole);
  for (size_t k = 0; k < batches.size(); ++k)
    EXPECT_EQ(sorted(batches[k]), sorted(joined({parts[0][k], parts[1][k], parts[2][k]})));
}

TEST(LoaderShards, ASampleIsTransformedTheSameInEveryShardAndBatchSize) {
  const auto images_of = [](const LoaderOptions& options) {
    Loader loader(numbered(12), options);
    std::map<int64_t, std::vector<float>> all;
    for (auto& batch : loader) {
      const std::vector<int64_t> indices = batch.indices().to_vector<int64_t>();
      for (size_t i = 0; i < indices.size(); ++i)
        all[indices[i]] = batch.images().select(0, static_cast<int64_t>(i)).to_vector<float>();
    }
    return all;
  };
  const Transform noise = add_noise(1);
  const auto reference = images_of({.batch_size = 12, .seed = 2, .transform = noise});
  EXPECT_EQ(reference, images_of({.batch_size = 5, .shuffle = true, .seed = 2, .transform = noise}));
  for (int64_t shard = 0; shard < 2; ++shard)
    for (const auto& [index, values] : images_of(
             {.batch_size = 3, .shuffle = true, .seed = 2, .shard = shard, .shards = 2, .transform = noise}))
      EXPECT_EQ(reference.at(index), values);
}

// For any sizes, each position is computed by one addition and one remainder, which do not overflow.
TEST(LoaderOrder, SizesAndShardsOfAnyNumberDoNotOverflow) {
  constexpr int64_t kMost = INT64_MAX;
  for (const bool shuffle : {false, true}) {
    Loader loader(numbered(5), {.shuffle = shuffle, .shard = kMost - 1, .shards = kMost});
    EXPECT_EQ(1, loader.samples());
    const std::vector<int64_t> samples = joined(epoch_of(loader));
    ASSERT_EQ(1u, samples.size());
    if (!shuffle) {
      EXPECT_EQ((kMost - 1) % 5, samples[0]);
    }
  }

  const FunctionDataset all(kMost, {{Shape{}, i64}},
                            [](int64_t i, std::span<const Tensor> out) { *out[0].as<int64_t>() = i; });
  Loader large(all, {.batch_size = kMost / 2, .prefetch = 0});
  EXPECT_EQ(3, large.batches());
  Loader last(all, {.batch_size = 2, .prefetch = 0, .shard = 1, .shards = kMost - 1});
  EXPECT_EQ(2, last.samples());
  EXPECT_EQ((std::vector<int64_t>{1, 0}), last.begin()->images().to_vector<int64_t>()) << "begins again";
  Loader shuffled(all, {.shuffle = true});
  EXPECT_TRUE(test::contains(test::error_of<InvalidArgument>([&] { shuffled.begin(); }), "random_order"));
}

}  // namespace
}  // namespace mx::data
