// Resampling under affine maps, compared with bilinear interpolation in double; and random maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "nn/data/affine.h"
#include "nn/data/sample_random.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/thread_limit.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;
using Kind = AffineStep::Kind;
using Matrix = std::vector<double>;  // the six numbers of an affine map

std::vector<float> random_pixels(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> pixels(static_cast<size_t>(n));
  for (float& pixel : pixels) pixel = static_cast<float>(random() % 1000) / 999.f;
  return pixels;
}

/// Returns the value of the image at (x, y), in double.
double interpolate(const float* image, int64_t height, int64_t width, double x, double y, double fill) {
  const auto pixel = [&](double px, double py) {
    const bool inside =
        px >= 0 && py >= 0 && px < static_cast<double>(width) && py < static_cast<double>(height);
    return inside ? static_cast<double>(image[static_cast<int64_t>(py) * width + static_cast<int64_t>(px)])
                  : fill;
  };
  const double left = std::floor(x), top = std::floor(y), u = x - left, v = y - top;
  return (1 - v) * ((1 - u) * pixel(left, top) + u * pixel(left + 1, top)) +
         v * ((1 - u) * pixel(left, top + 1) + u * pixel(left + 1, top + 1));
}

NDArray matrices_of(const std::vector<Matrix>& list) {
  std::vector<double> flat;
  for (const Matrix& m : list) flat.insert(flat.end(), m.begin(), m.end());
  return array(flat).reshape({static_cast<int64_t>(list.size()), 2, 3});
}

Matrix about_centre(double angle, double factor, double right, double down, int64_t height, int64_t width) {
  const double cx = static_cast<double>(width - 1) / 2, cy = static_cast<double>(height - 1) / 2;
  const double a = std::cos(angle) * factor, b = std::sin(angle) * factor;
  return {a, -b, cx - a * cx + b * cy - right, b, a, cy - b * cx - a * cy - down};
}

void check_interpolation() {
  std::mt19937 random(1);
  const auto draw = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random()) / 4294967295.0;
  };
  const std::pair<int64_t, int64_t> sizes[] = {{28, 28}, {1, 1}, {1, 9}, {17, 1}, {5, 100}, {70, 33}};
  for (const auto& [height, width] : sizes) {
    for (double fill : {0.0, -2.5}) {
      constexpr int64_t kSamples = 6, kChannels = 3;
      std::vector<Matrix> maps;
      for (int64_t i = 0; i + 1 < kSamples; ++i)
        maps.push_back(about_centre(draw(-3, 3), draw(0.3, 3), draw(-9, 9), draw(-9, 9), height, width));
      maps.push_back({draw(-2, 2), draw(-2, 2), draw(-9, 9), draw(-2, 2), draw(-2, 2), draw(-9, 9)});
      const std::vector<float> pixels = random_pixels(kSamples * kChannels * height * width, 2);
      const NDArray images = from_data(pixels.data(), {kSamples, kChannels, height, width});
      const std::vector<float> got = warp_affine(images, matrices_of(maps), fill).to_vector<float>();
      size_t place = 0;
      for (int64_t p = 0; p < kSamples * kChannels; ++p) {
        const Matrix& m = maps[static_cast<size_t>(p / kChannels)];
        for (int64_t y = 0; y < height; ++y)
          for (int64_t x = 0; x < width; ++x) {
            const auto dx = static_cast<double>(x), dy = static_cast<double>(y);
            const double expected =
                interpolate(pixels.data() + p * height * width, height, width, m[0] * dx + m[1] * dy + m[2],
                            m[3] * dx + m[4] * dy + m[5], fill);
            ASSERT_NEAR(expected, got[place++], 1e-4) << height << " x " << width << " at " << x << ", " << y;
          }
      }
    }
  }
}

void check_whole_pixels() {
  const int64_t height = 9, width = 21;
  const std::vector<float> pixels = random_pixels(height * width, 3);
  const NDArray image = from_data(pixels.data(), {1, height, width});
  EXPECT_EQ(pixels, warp_affine(image, matrices_of({{1, 0, 0, 0, 1, 0}})).to_vector<float>());
  for (int64_t right : {-30, -2, 0, 1, 20, 21})
    for (int64_t down : {-9, -1, 0, 3, 8, 1000000}) {
      const Matrix m{1, 0, static_cast<double>(-right), 0, 1, static_cast<double>(-down)};
      const std::vector<float> got = warp_affine(image, matrices_of({m}), 0.25).to_vector<float>();
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) {
          const int64_t sx = x - right, sy = y - down;
          const bool inside = sx >= 0 && sy >= 0 && sx < width && sy < height;
          ASSERT_EQ(inside ? pixels[static_cast<size_t>(sy * width + sx)] : 0.25f,
                    got[static_cast<size_t>(y * width + x)]);
        }
    }
}

TEST(WarpAffine, IsBilinearInterpolation) {
  test::with_every_instruction_set([](int64_t) { check_interpolation(); });
}
TEST(WarpAffine, WholePixelsAreMovedExactly) {
  test::with_every_instruction_set([](int64_t) { check_whole_pixels(); });
}

TEST(WarpAffine, TakesAnyLayoutAndType) {
  const std::vector<float> pixels = random_pixels(4 * 6 * 5 * 7, 4);
  const NDArray wide = from_data(pixels.data(), {4, 6, 5, 7});
  const NDArray maps = matrices_of({{0.9, 0.1, 0.2, -0.2, 1.1, 0.3}, {1, 0.5, -1, 0, 1, 0}});
  const NDArray views[] = {wide.slice(0, {0, 4, 2}).transpose({0, 1, 3, 2}), wide.slice(0, {3, 1, -1}),
                           wide.slice(0, {1, 3}).slice(1, {5, 0, -2}).slice(3, {1, 6, 2})};
  for (const NDArray& view : views)
    EXPECT_EQ(warp_affine(view.clone(), maps).to_vector<float>(), warp_affine(view, maps).to_vector<float>());
  const NDArray bytes = (arange(2 * 5 * 7).to(u8)).reshape({2, 5, 7});
  EXPECT_EQ(f32, warp_affine(bytes, maps).dtype());
  EXPECT_EQ(warp_affine(bytes.to(f32), maps).to_vector<float>(), warp_affine(bytes, maps).to_vector<float>());
  EXPECT_EQ((Shape{2, 0, 7}), warp_affine(zeros({2, 0, 7}), maps).shape());
  EXPECT_EQ((Shape{0, 5, 7}), warp_affine(zeros({0, 5, 7}), zeros({0, 2, 3}, f64)).shape());
  warp_affine(zeros({2, 0, 7}), maps).wait();
}

TEST(WarpAffine, ThreadsAndTheRestOfTheBatchDoNotChangeASample) {
  constexpr int64_t kSamples = 40;
  const std::vector<float> pixels = random_pixels(kSamples * 28 * 28, 5);
  std::vector<Matrix> maps;
  for (int64_t i = 0; i < kSamples; ++i)
    maps.push_back(about_centre(0.1 * static_cast<double>(i), 1.1, 0.3, 0.7, 28, 28));
  std::vector<std::vector<float>> results;
  for (int threads : {1, 4}) {
    Engine engine(test::threaded_case(threads).options);
    EngineScope scope(engine);
    test::with_threads(threads, [&] {
      const NDArray images = from_data(pixels.data(), {kSamples, 28, 28});
      results.push_back(warp_affine(images, matrices_of(maps)).to_vector<float>());
      const NDArray one = images.slice(0, {17, 18});
      EXPECT_EQ(std::vector<float>(results[0].begin() + 17 * 784, results[0].begin() + 18 * 784),
                warp_affine(one, matrices_of({maps[17]})).to_vector<float>());
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(WarpAffine, RefusesWhatDoesNotFit) {
  const NDArray maps = zeros({2, 2, 3}, f64);
  error_of<InvalidArgument>([&] { warp_affine(zeros({2, 5}), maps); });
  error_of<InvalidArgument>([&] { warp_affine(zeros({3, 5, 5}), maps); });
  error_of<InvalidArgument>([&] { warp_affine(zeros({2, 5, 5}), maps.to(f32)); });
  error_of<InvalidArgument>([&] { warp_affine(empty({1, 1 << 17, 1 << 14}), zeros({1, 2, 3}, f64)); });
  error_of<InvalidArgument>([&] { warp_affine(empty({1, 1, (1 << 20) + 1}), zeros({1, 2, 3}, f64)); });
  const double infinity = std::numeric_limits<double>::infinity();
  for (double bad : {infinity, std::nan(""), -2e9}) {
    const NDArray result =
        warp_affine(zeros({2, 4, 4}), matrices_of({{1, 0, 0, 0, 1, 0}, {1, 0, 0, bad, 1, 0}}));
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { result.wait(); }), "sample 1"));
  }
}

std::vector<Matrix> random_maps(const std::vector<int64_t>& indices, uint64_t key, uint32_t source,
                                const std::vector<AffineStep>& steps, int64_t height, int64_t width) {
  const std::vector<double> flat =
      random_affine(array(indices), key, source, steps, height, width).to_vector<double>();
  std::vector<Matrix> maps;
  for (size_t i = 0; i < indices.size(); ++i)
    maps.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(6 * i),
                      flat.begin() + static_cast<std::ptrdiff_t>(6 * i + 6));
  return maps;
}

std::vector<int64_t> first_indices(int64_t n) { return arange(n).to_vector<int64_t>(); }

TEST(RandomAffine, ShiftsAreUniformWithinTheirLimits) {
  const AffineStep step{Kind::shift, -3, 3};
  double low = 9, high = -9, sum = 0, product = 0;
  constexpr int64_t kCount = 4000;
  for (const Matrix& m : random_maps(first_indices(kCount), 11, 0, {step}, 28, 20)) {
    EXPECT_EQ((Matrix{1, 0, m[2], 0, 1, m[5]}), m);
    for (double value : {m[2], m[5]}) {
      EXPECT_TRUE(value > -3 && value <= 3) << value;
      low = std::min(low, value);
      high = std::max(high, value);
      sum += value;
    }
    product += m[2] * m[5];
  }
  EXPECT_LT(low, -2.98);
  EXPECT_GT(high, 2.98);
  EXPECT_NEAR(0, sum / (2 * kCount), 0.1);  // five standard deviations
  EXPECT_NEAR(0, product / kCount, 0.24);   // both directions are independent
}

TEST(RandomAffine, RotatesScalesAndFlipsAboutTheCentre) {
  const int64_t height = 11, width = 30;
  const double cx = 14.5, cy = 5;
  const auto keeps_centre = [&](const Matrix& m) {
    EXPECT_NEAR(cx, m[0] * cx + m[1] * cy + m[2], 1e-12);
    EXPECT_NEAR(cy, m[3] * cx + m[4] * cy + m[5], 1e-12);
  };
  double most = 0;
  for (const Matrix& m : random_maps(first_indices(500), 1, 0, {{Kind::rotate, -20, 20}}, height, width)) {
    keeps_centre(m);
    EXPECT_NEAR(1, m[0] * m[4] - m[1] * m[3], 1e-12);
    EXPECT_EQ(m[0], m[4]);
    EXPECT_EQ(m[1], -m[3]);
    most = std::max(most, std::abs(std::atan2(m[3], m[0])) * 180 / 3.14159265358979);
  }
  EXPECT_TRUE(most > 19.5 && most <= 20) << most;
  for (const Matrix& m : random_maps(first_indices(500), 1, 0, {{Kind::scale, 0.5, 2}}, height, width)) {
    keeps_centre(m);
    EXPECT_TRUE(m[0] >= 0.5 && m[0] <= 2 && m[0] == m[4] && m[1] == 0 && m[3] == 0);
  }
  int flips = 0;
  for (const Matrix& m : random_maps(first_indices(1000), 1, 0, {{Kind::flip, 0, 0.25}}, height, width)) {
    flips += m[0] < 0;
    EXPECT_EQ(m[0] < 0 ? (Matrix{-1, 0, 29, 0, 1, 0}) : (Matrix{1, 0, 0, 0, 1, 0}), m);
  }
  EXPECT_TRUE(flips > 180 && flips < 320) << flips;
}

// Checks the signs of directions: a bright pixel right of the centre must move up, to the right, or outwards.
TEST(RandomAffine, DirectionsAreThoseOfThePicture) {
  const int64_t side = 21;
  const auto where = [&](const AffineStep& step) {
    std::vector<float> pixels(side * side, 0.f);
    pixels[10 * side + 15] = 1;  // (15, 10); the centre is (10, 10)
    const NDArray image = from_data(pixels.data(), {1, side, side});
    const std::vector<Matrix> maps = random_maps({0}, 0, 0, {step}, side, side);
    const std::vector<float> got = warp_affine(image, matrices_of(maps)).to_vector<float>();
    const auto place = std::max_element(got.begin(), got.end()) - got.begin();
    return std::pair<int64_t, int64_t>(place % side, place / side);
  };
  EXPECT_EQ((std::pair<int64_t, int64_t>(10, 5)), where({Kind::rotate, 90, 90}));
  EXPECT_EQ((std::pair<int64_t, int64_t>(17, 12)), where({Kind::shift, 2, 2}));
  EXPECT_EQ((std::pair<int64_t, int64_t>(20, 10)), where({Kind::scale, 2, 2}));
  EXPECT_EQ((std::pair<int64_t, int64_t>(5, 10)), where({Kind::flip, 0, 1}));
}

// To find the source of a place in the result, invert the last step first.
TEST(RandomAffine, StepsAreAppliedInTheirOrder) {
  const std::vector<AffineStep> steps = {
      {Kind::rotate, -40, 40}, {Kind::shift, -5, 5}, {Kind::scale, 0.5, 2}, {Kind::flip, 0, 0.5}};
  const std::vector<int64_t> indices = {0, 5, -3, int64_t{1} << 40};
  const std::vector<Matrix> whole = random_maps(indices, 77, 3, steps, 20, 30);
  for (size_t i = 0; i < indices.size(); ++i)
    for (const auto& [x, y] : {std::pair{0., 0.}, {29., 0.}, {3., 17.}}) {
      double px = x, py = y;
      for (size_t k = steps.size(); k-- > 0;) {
        const Matrix m = random_maps({indices[i]}, 77, 3 + static_cast<uint32_t>(k), {steps[k]}, 20, 30)[0];
        const double qx = m[0] * px + m[1] * py + m[2], qy = m[3] * px + m[4] * py + m[5];
        px = qx;
        py = qy;
      }
      EXPECT_NEAR(px, whole[i][0] * x + whole[i][1] * y + whole[i][2], 1e-10);
      EXPECT_NEAR(py, whole[i][3] * x + whole[i][4] * y + whole[i][5], 1e-10);
    }
}

TEST(RandomAffine, DependsOnKeySourceAndIndexAlone) {
  const std::vector<AffineStep> steps = {{Kind::rotate, -40, 40}, {Kind::shift, -5, 5}};
  const std::vector<Matrix> maps = random_maps({1, 2, 3}, 5, 0, steps, 8, 8);
  EXPECT_EQ(maps[1], random_maps({2}, 5, 0, steps, 8, 8)[0]);
  EXPECT_EQ(maps[0], random_maps({3, 1}, 5, 0, steps, 8, 8)[1]);
  EXPECT_NE(maps[0], maps[1]);
  EXPECT_NE(maps[0], random_maps({1}, 6, 0, steps, 8, 8)[0]);
  EXPECT_NE(maps[0], random_maps({1}, 5, 2, steps, 8, 8)[0]);
  EXPECT_NE(epoch_key(1, 0, RandomPurpose::sample), epoch_key(0, 1, RandomPurpose::sample));
}

TEST(RandomAffine, RefusesLimitsThatMakeNoSense) {
  const NDArray index = array(std::vector<int64_t>{0});
  const auto refuse = [&](const AffineStep& step) {
    error_of<InvalidArgument>([&] { random_affine(index, 0, 0, {&step, 1}, 4, 4); });
  };
  refuse({Kind::shift, 2, 1});
  refuse({Kind::shift, 0, std::numeric_limits<double>::infinity()});
  refuse({Kind::rotate, std::nan(""), 1});
  refuse({Kind::scale, 0, 1});
  refuse({Kind::flip, 0, 1.5});
  refuse({static_cast<Kind>(4), 0, 1});
  error_of<InvalidArgument>([&] { random_affine(zeros({2}), 0, 0, {}, 4, 4); });
}

TEST(SampleRandom, GivesTheNumbersThatItSays) {
  SampleRandom random(42), same(42), other(43);
  double sum = 0, squares = 0, most = 0;
  int64_t counts[7] = {};
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double u = random.uniform();
    EXPECT_EQ(u, same.uniform());
    ASSERT_TRUE(u >= 0 && u < 1);
    most = std::max(most, u);
    const double z = random.normal();
    EXPECT_EQ(z, same.normal());
    sum += z;
    squares += z * z;
    const int64_t k = random.below(7);
    EXPECT_EQ(k, same.below(7));
    ASSERT_TRUE(k >= 0 && k < 7);
    ++counts[k];
  }
  EXPECT_GT(most, 0.999);
  EXPECT_NEAR(0, sum / kCount, 0.04);
  EXPECT_NEAR(1, squares / kCount, 0.06);
  for (int64_t count : counts) EXPECT_NEAR(kCount / 7., static_cast<double>(count), 300);
  EXPECT_NE(random.next(), other.next());
  EXPECT_EQ(0, random.below(1));
  EXPECT_GE(random.uniform(5, 6), 5);
}

}  // namespace
}  // namespace mx::data
