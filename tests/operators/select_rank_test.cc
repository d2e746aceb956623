// Selection of places in sorted order, compared with sorting.
#include "operators/kernels/select_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/error.h"
#include "operators/kernels/sort.h"
#include "tests/operators/layout.h"
#include "tests/support/errors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using namespace testing;

using Values = std::vector<double>;

/// Kinds of values on which a selection by digits behaves differently.
enum class Content { spread, few_values, equal, close, special };
constexpr Content kContents[] = {Content::spread, Content::few_values, Content::equal, Content::close,
                                 Content::special};

void fill(const Tensor& t, Content content, uint64_t seed) {
  write_random(t, t.dtype == u8 || t.dtype == bool_ ? 0 : -100, 100, seed);
  Values values = read(t);
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {std::nan(""), -0.0, 0.0, inf, -inf, -std::nan("")};
  for (size_t i = 0; i < values.size(); ++i) {
    const auto draw = static_cast<size_t>(i * 2654435761u + seed) >> 5;
    double& v = values[i];
    if (content == Content::few_values) v = static_cast<double>(draw % 3);
    if (content == Content::equal) v = 1;
    if (is_floating(t.dtype)) {
      if (content == Content::spread) v = v * std::pow(2., static_cast<double>(draw % 9) - 4) + 0.5;
      if (content == Content::close) v = 1 + v * std::numeric_limits<float>::epsilon();
      if (content == Content::special && draw % 3 != 0) v = special[draw % 6];
    }
  }
  write(t, values);
}

std::vector<int64_t> places_in(int64_t n, int64_t count, uint64_t seed) {
  std::vector<int64_t> places = {0, n - 1, n / 2, n / 2, n / 4};
  for (int64_t i = 0; static_cast<int64_t>(places.size()) < count; ++i)
    places.push_back(
        static_cast<int64_t>((seed + static_cast<uint64_t>(i) * 7919) % static_cast<uint64_t>(n)));
  return places;
}

/// Expects argsort taken at the places.
void check_select(DType type, const Shape& shape, Layout layout, Content content, int64_t count) {
  const int64_t n = shape.back(), rows = shape.numel() / n;
  Shape some = shape;
  some[shape.rank() - 1] = count;
  const Owned source(type, shape, layout), order(i64, shape), places(i64, some, layout),
      target(i64, some, layout);
  fill(*source, content, static_cast<uint64_t>(n + count));
  kernels::argsort(*order, *source, -1);
  const std::vector<int64_t> wanted = places_in(n, count, static_cast<uint64_t>(n));
  Values all, expected;
  const Values sorted = read(*order);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i) {
      all.push_back(static_cast<double>(wanted[static_cast<size_t>(i)]));
      expected.push_back(sorted[static_cast<size_t>(row * n + wanted[static_cast<size_t>(i)])]);
    }
  write(*places, all);
  kernels::argselect(*target, *source, *places);
  ASSERT_EQ(expected, read(*target)) << type << ' ' << shape << ", " << count << " places, content "
                                     << static_cast<int>(content);
}

TEST(ArgSelect, IsArgsortTakenAtThePlaces) {
  for (DType type : kAllDTypes)
    for (Content content : kContents)
      for (int64_t n : {1, 2, 7, 24, 25, 300, 1024, 1025, 5000})
        check_select(type, {2, n}, kTargets[static_cast<size_t>(n) % 4], content, 5);
}

TEST(ArgSelect, TakesAnyNumberOfPlaces) {
  for (DType type : {f64, f32, f16, i64, u8})
    for (Content content : kContents)
      for (int64_t count : {6, 40, 100, 700, 6000})
        check_select(type, {2, 5000}, kTargets[0], content, count);
}

TEST(ArgSelect, LongRowsAreSharedAmongThreads) {
  for (int threads : {1, 2, 3})
    test::with_threads(threads, [] {
      for (DType type : {f64, f32, i32, i8})
        for (Content content : kContents) check_select(type, {1, 300'001}, kTargets[0], content, 7);
    });
}

TEST(ArgSelect, RefusesWhatDoesNotFit) {
  const Owned x(f32, {2, 3}), places(i64, {2, 2}), other(i64, {3, 2}), target(i64, {2, 2}),
      narrow(i32, {2, 2});
  write(*places, Values{0, 1, 3, 0});
  EXPECT_TRUE(
      test::contains(test::error_of<InvalidArgument>([&] { kernels::argselect(*target, *x, *places); }),
                     "[argselect] expected indices from 0 to 2"));
  write(*places, Values{0, 1, -1, 0});
  EXPECT_NE("", test::error_of<InvalidArgument>([&] { kernels::argselect(*target, *x, *places); }));
  EXPECT_NE("", test::error_of<InvalidArgument>([&] { kernels::argselect(*target, *x, *other); }));
  EXPECT_NE("", test::error_of<InvalidArgument>([&] { kernels::argselect(*narrow, *x, *places); }));
}

/// Expects the smaller elements, those equal to the one at `kth`, and the larger ones, each in their order.
void check_partition(DType type, int64_t n, int64_t kth, Content content, Layout layout) {
  const Owned source(type, {n, 2}, layout), order(i64, {n, 2}), target(i64, {n, 2}, layout);
  fill(*source, content, static_cast<uint64_t>(n));
  kernels::argsort(*order, *source, 0);
  kernels::argpartition(*target, *source, 0, kth);
  const Values values = read(*source), sorted = read(*order), got = read(*target);
  for (size_t column : {size_t{0}, size_t{1}}) {
    const auto value = [&](double i) { return values[2 * static_cast<size_t>(i) + column]; };
    const auto before = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
    const double pivot = value(sorted[2 * static_cast<size_t>(kth) + column]);
    Values expected;
    for (int part : {0, 1, 2})
      for (int64_t i = 0; i < n; ++i) {
        const double v = value(static_cast<double>(i));
        if ((before(v, pivot) ? 0 : before(pivot, v) ? 2 : 1) == part)
          expected.push_back(static_cast<double>(i));
      }
    Values found;
    for (int64_t i = 0; i < n; ++i) found.push_back(got[2 * static_cast<size_t>(i) + column]);
    ASSERT_EQ(expected, found) << type << ", " << kth << " of " << n << ", content "
                               << static_cast<int>(content);
    ASSERT_EQ(sorted[2 * static_cast<size_t>(kth) + column], found[static_cast<size_t>(kth)])
        << "not at its place";
  }
}

TEST(ArgPartition, DividesAtAPlaceAndKeepsTheOrder) {
  for (DType type : kAllDTypes)
    for (Content content : kContents)
      for (int64_t n : {1, 2, 30, 1500})
        for (int64_t kth : {int64_t{0}, n / 3, n - 1})
          check_partition(type, n, kth, content, kTargets[static_cast<size_t>(n + kth) % 4]);
  for (int threads : {1, 3})
    test::with_threads(threads, [] {
      for (Content content : kContents) check_partition(f64, 200'000, 77'777, content, kTargets[0]);
    });
}

}  // namespace
}  // namespace mx
