// Transforms: their results, and that the result of a sample does not depend on other samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "nn/data/transform.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "tests/data/numbered.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/thread_limit.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;
using test::up_to;

SampleIds ids(const std::vector<int64_t>& indices, int64_t seed = 0, int64_t epoch = 0) {
  return {array(indices), seed, epoch};
}

NDArray random_images(const Shape& shape, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<float> pixels(static_cast<size_t>(shape.numel()));
  for (float& pixel : pixels) pixel = static_cast<float>(random() % 1000) / 999.f;
  return from_data(pixels.data(), shape);
}

TEST(Transforms, NoneIsTheBatchItself) {
  const NDArray batch = random_images({2, 3});
  EXPECT_TRUE(Transform()(batch, ids({0, 1})).shares_memory(batch));
  EXPECT_TRUE(compose({}).empty());
}

TEST(Transforms, ToFloatIsAFraction) {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  const std::vector<float> got =
      to_float()(from_data(bytes.data(), {2, 128}), ids({0, 1})).to_vector<float>();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(static_cast<float>(i) / 255.f, got[i]);
  const NDArray halves = random_images({2, 3}).to(f16);
  EXPECT_TRUE(to_float()(halves, ids({0, 1})).shares_memory(halves));
  error_of<InvalidArgument>([] { to_float()(zeros({2}, i32), ids({0, 1})); });
}

TEST(Transforms, NormaliseIsTheFormula) {
  const NDArray batch = random_images({2, 3, 4, 5});
  const std::vector<float> x = batch.to_vector<float>();
  const std::vector<double> mean = {0.1, 0.2, 0.3}, deviation = {2, 0.5, 0.25};
  const NDArray by_channel = normalise(mean, deviation)(batch, ids({0, 1}));
  EXPECT_EQ(f32, by_channel.dtype());
  const std::vector<float> a = by_channel.to_vector<float>(),
                           b = normalise({0.5}, {0.25})(batch, ids({0, 1})).to_vector<float>();
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t channel = i / 20 % 3;
    EXPECT_NEAR((x[i] - mean[channel]) / deviation[channel], a[i], 1e-6);
    EXPECT_NEAR((x[i] - 0.5) / 0.25, b[i], 1e-6);
  }
  EXPECT_EQ(f64, normalise(mean, deviation)(batch.to(f64), ids({0, 1})).dtype());
  EXPECT_EQ((std::vector<float>{0, 2}), normalise({3}, {0.5})(array({3, 4}), ids({0, 1})).to_vector<float>());
  error_of<InvalidArgument>([&] { normalise(mean, deviation)(random_images({2, 4, 5}), ids({0, 1})); });
  error_of<InvalidArgument>([] { normalise({1, 2}, {1}); });
  error_of<InvalidArgument>([] { normalise({}, {}); });
  error_of<InvalidArgument>([] { normalise({0}, {0}); });
  error_of<InvalidArgument>([] { normalise({std::nan("")}, {1}); });
}

TEST(Transforms, ReshapeAndFunctionsOfBatches) {
  const NDArray batch = arange(12).reshape({2, 6});
  EXPECT_EQ((Shape{2, 2, 3}), reshape({2, 3})(batch, ids({0, 1})).shape());
  const Transform twice = map_batch([](const NDArray& x) { return x * 2; });
  const Transform add_index = map_batch(
      [](const NDArray& x, const SampleIds& who) { return x + who.indices.expand_dims(1) + who.epoch; });
  EXPECT_EQ((batch * 2 + 105).to_vector<int64_t>(),
            compose({twice, add_index})(batch, ids({5, 5}, 0, 100)).to_vector<int64_t>());
  EXPECT_EQ(((batch + 5) * 2).to_vector<int64_t>(),
            add_index.then(twice)(batch, ids({5, 5})).to_vector<int64_t>());
  const Transform half = map_batch([](const NDArray& x) { return x.slice(0, {0, 1}); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         half(batch, ids({0, 1}));
                       }),
                       "expected a batch of 2"));
  error_of<InvalidArgument>([&] { map_batch([](const NDArray&) { return NDArray(); })(batch, ids({0, 1})); });
  error_of<InvalidArgument>([] { map_batch(std::function<NDArray(const NDArray&)>()); });
}

TEST(Transforms, NoiseIsNormalAndIndependent) {
  constexpr int64_t kSamples = 5, kPixels = 3000;
  const NDArray batch = full({kSamples, kPixels}, 7.f);
  const std::vector<float> got = add_noise(0.5)(batch, ids(up_to(kSamples))).to_vector<float>();
  double product[kSamples] = {};
  for (int64_t s = 0; s < kSamples; ++s) {
    double sum = 0, squares = 0, beyond = 0;
    for (int64_t i = 0; i < kPixels; ++i) {
      const double z = (got[static_cast<size_t>(s * kPixels + i)] - 7.) / 0.5;
      sum += z;
      squares += z * z;
      beyond += std::abs(z) > 1.959964;
      product[s] += z * (got[static_cast<size_t>((s + 1) % kSamples * kPixels + i)] - 7.) / 0.5;
    }
    EXPECT_NEAR(0, sum / kPixels, 0.1);
    EXPECT_NEAR(1, squares / kPixels, 0.15);
    EXPECT_NEAR(0.05, beyond / kPixels, 0.02);
  }
  for (double p : product) EXPECT_NEAR(0, p / kPixels, 0.1);
  EXPECT_EQ(std::vector<float>(kSamples * kPixels, 7.f),
            add_noise(0)(batch, ids(up_to(kSamples))).to_vector<float>());
  error_of<InvalidArgument>([] { add_noise(-1); });
  error_of<InvalidArgument>([] { add_noise(std::numeric_limits<double>::infinity()); });
}

TEST(Transforms, MapSamplesSeesEachSampleAndItsOwnNumbers) {
  const Transform mark = map_samples([](const Tensor& sample, SampleRandom& random) {
    ASSERT_EQ((Shape{2, 3}), sample.shape);
    ASSERT_TRUE(sample.contiguous());
    for (int64_t i = 0; i < 6; ++i) sample.as<double>()[i] += 10 + random.uniform();
  });
  const NDArray batch = arange(24).to(f64).reshape({4, 3, 2}).transpose({0, 2, 1});
  const std::vector<double> before = batch.to_vector<double>();
  const std::vector<double> a = mark(batch, ids({0, 1, 2, 3})).to_vector<double>();
  EXPECT_EQ(before, batch.to_vector<double>());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i] - before[i] >= 10 && a[i] - before[i] < 11);
  const std::vector<double> b = mark(batch, ids({1, 1, 2, 0})).to_vector<double>();
  EXPECT_NE(a, b);
  EXPECT_EQ(std::vector<double>(a.begin() + 6, a.begin() + 18),
            std::vector<double>(b.begin() + 6, b.begin() + 18));
  error_of<InvalidArgument>([] { map_samples(nullptr); });
}

TEST(Transforms, WhatAFunctionOfSamplesThrowsFailsTheBatchAndNamesTheSample) {
  const Transform picky = map_samples([](const Tensor& sample, SampleRandom&) {
    if (*sample.as<float>() > 2) throw std::runtime_error("too much");
  });
  const NDArray bad = picky(array({1.f, 2.f, 3.f}), ids({7, 8, 9}));
  const std::string message = error_of<OperationError>([&] { bad.wait(); });
  EXPECT_TRUE(contains(message, "too much") && contains(message, "sample 9")) << message;
}

// Consecutive maps are combined into one resampling.
TEST(Transforms, MapsThatFollowEachOtherAreOneResampling) {
  const NDArray batch = random_images({3, 2, 12, 14});
  const Transform all = compose({random_rotate(30), random_scale(0.7, 1.4), random_flip(), random_shift(3)});
  const std::vector<AffineStep> steps = {{AffineStep::Kind::rotate, -30, 30},
                                         {AffineStep::Kind::scale, 0.7, 1.4},
                                         {AffineStep::Kind::flip, 0, 0.5},
                                         {AffineStep::Kind::shift, -3, 3}};
  const SampleIds who = ids({4, 0, 9}, 3, 2);
  const NDArray maps = random_affine(who.indices, epoch_key(3, 2, RandomPurpose::sample), 0, steps, 12, 14);
  EXPECT_EQ(warp_affine(batch, maps).to_vector<float>(), all(batch, who).to_vector<float>());
  // Maps with different values beyond the edge cannot be combined.
  const Transform two = compose({random_rotate(30, 1), random_shift(3, 0)});
  const NDArray first = warp_affine(
      batch, random_affine(who.indices, epoch_key(3, 2, RandomPurpose::sample), 0, {steps.data(), 1}, 12, 14),
      1);
  const NDArray second = warp_affine(
      first, random_affine(who.indices, epoch_key(3, 2, RandomPurpose::sample), 1, {&steps[3], 1}, 12, 14),
      0);
  EXPECT_EQ(second.to_vector<float>(), two(batch, who).to_vector<float>());
}

TEST(Transforms, LimitsThatMakeNoSenseAreRefused) {
  error_of<InvalidArgument>([] { random_shift(-1); });
  error_of<InvalidArgument>([] { random_shift(std::nan("")); });
  error_of<InvalidArgument>([] { random_rotate(std::numeric_limits<double>::infinity()); });
  error_of<InvalidArgument>([] { random_scale(0, 1); });
  error_of<InvalidArgument>([] { random_scale(2, 1); });
  error_of<InvalidArgument>([] { random_flip(1.1); });
  error_of<InvalidArgument>([] { random_shift(1)(zeros({2, 5}), ids({0, 1})); });
}

Transform everything() {
  return compose({random_rotate(20), random_shift(2), normalise({0.2}, {0.4}), add_noise(0.1), random_flip(),
                  map_samples([](const Tensor& sample, SampleRandom& random) {
                    *sample.as<float>() = static_cast<float>(random.normal());
                  })});
}

// A sample gets the same bits in any batch, at any position in it, with any number of threads, in every mode.
TEST(Transforms, ASamplesResultIsItsOwn) {
  constexpr int64_t kSamples = 24, kPixels = 28 * 28;
  const std::vector<float> pixels = random_images({kSamples, 28, 28}).to_vector<float>();
  std::vector<test::EngineCase> cases = test::all_cases();
  std::vector<float> reference;
  for (const test::EngineCase& mode : cases) {
    Engine engine(mode.options);
    EngineScope scope(engine);
    const NDArray batch = from_data(pixels.data(), {kSamples, 28, 28});
    test::with_threads(mode.options.threads == 1 ? 1 : 4, [&] {
      const std::vector<float> whole = everything()(batch, ids(up_to(kSamples), 5, 1)).to_vector<float>();
      if (reference.empty()) reference = whole;
      EXPECT_EQ(reference, whole) << mode.name;
      const std::vector<int64_t> few = {20, 3, 11};
      const std::vector<float> part =
          everything()(take(batch, array(few)), ids(few, 5, 1)).to_vector<float>();
      for (size_t i = 0; i < few.size(); ++i) {
        const auto expected = reference.begin() + few[i] * kPixels;
        EXPECT_TRUE(
            std::equal(expected, expected + kPixels, part.begin() + static_cast<std::ptrdiff_t>(i) * kPixels))
            << mode.name;
      }
    });
  }
  const NDArray batch = from_data(pixels.data(), {kSamples, 28, 28});
  EXPECT_NE(reference, everything()(batch, ids(up_to(kSamples), 5, 2)).to_vector<float>());
  EXPECT_NE(reference, everything()(batch, ids(up_to(kSamples), 6, 1)).to_vector<float>());
}

TEST(Transforms, RunOnVirtualDevicesToo) {
  const NDArray batch = random_images({6, 10, 12});
  const SampleIds who = ids(up_to(6), 1, 1);
  const NDArray there = everything()(batch.to(virt(0)), who);
  EXPECT_EQ(virt(0), there.context());
  EXPECT_EQ(everything()(batch, who).to_vector<float>(), there.to_vector<float>());
}

}  // namespace
}  // namespace mx::data
