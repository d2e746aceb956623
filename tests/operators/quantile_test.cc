// Quantiles and partitions select elements instead of sorting: their results are those of a sort.
// numpy_test.cc tests the edge cases of quantiles, numpy_golden_test.cc their usual values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::expect_error;
using test::kInfinity;
using test::kNan;
using test::Values;

TEST(Quantile, WithoutNansTakesNothingFromTheInfinityBehindItsPlace) {
  test::expect_values({2}, nanmedian(array({1., 2., kInfinity})), "the next element is infinite");
  const NDArray x =
      array({{-kInfinity, 0., kInfinity}, {-kInfinity, -kInfinity, kNan}, {0., kInfinity, kNan}});
  test::expect_values({0, -kInfinity, kInfinity}, nanmedian(x, 1), "nanmedian");
  test::expect_values({-kInfinity, -kInfinity, 0}, nanquantile(x, 0, 1), "the smallest");
  test::expect_values({kInfinity, -kInfinity, kInfinity}, nanquantile(x, 1, 1), "the largest");
  test::expect_values({kInfinity, -kInfinity, kInfinity},
                      nanquantile(x, 0.75, 1, false, Interpolation::midpoint), "midpoint");
  test::expect_values({0}, nanmedian(array({-1.5e308, 1.5e308, kNan})), "the difference is too large");
}

TEST(Quantile, OfLongRowsIsThatOfTheSortedElements) {
  for (DType type : {f64, f32, f16, i64}) {
    for (bool holes : {false, true}) {
      NDArray x = test::numbers({3, 4001}, type, 5);
      if (holes && is_floating(type)) x = masked_fill(x, x > 0.8, kNan);
      const NDArray sorted = sort(x, 1);
      const Values numbers = test::values(count_nonzero(logical_not(isnan(x)), 1));
      for (double q : {0., 0.25, 0.5, 0.731, 1.}) {
        const Values got = test::values(quantile(x, q, 1, false, Interpolation::lower));
        const Values without = test::values(nanquantile(x, q, 1, false, Interpolation::lower));
        for (int64_t row = 0; row < 3; ++row) {
          const auto at = [&](double count) {
            return sorted[{row, static_cast<int64_t>(std::floor(q * (count - 1)))}].item<double>();
          };
          const double own = numbers[static_cast<size_t>(row)];
          const auto i = static_cast<size_t>(row);
          if (own < 4001) {
            EXPECT_TRUE(std::isnan(got[i])) << type << q;
          } else {
            EXPECT_EQ(at(4001), got[i]) << type << q;
          }
          EXPECT_EQ(at(own), without[i]) << type << q;
        }
      }
    }
  }
  // Many at once, more than are worth a selection.
  const NDArray x = test::numbers({2, 1000}, f64, 6);
  std::vector<double> shares;
  for (int i = 0; i <= 500; ++i) shares.push_back(i / 500.);
  const NDArray all = quantile(x, shares, 1);
  for (size_t i = 0; i < shares.size(); i += 37)
    EXPECT_EQ(test::values(quantile(x, shares[i], 1)), test::values(all[static_cast<int64_t>(i)])) << i;
  EXPECT_EQ(test::values(median(x)), test::values(quantile(x, {0.5})));
}

TEST(Partition, KeepsTheOrderOfTheOthers) {
  const NDArray x = array({5., kNan, 2., 4., -0., 2., kNan, 0., 7.});
  test::expect_values({2, -0., 2, 0, 4, 5, kNan, kNan, 7}, partition(x, 4), "behind 4: larger ones in order");
  EXPECT_EQ((std::vector<int64_t>{2, 4, 5, 7, 3, 0, 1, 6, 8}), argpartition(x, 4).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{0, 2, 3, 4, 5, 7, 8, 1, 6}), argpartition(x, -1).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{4, 8, 1}), argselect(x, array<int64_t>({0, 6, 7})).to_vector<int64_t>());
  expect_error<InvalidArgument>("[argselect] expected places of x's shape", [&] {
    argselect(x, zeros({1, 2}, i64));
  });
  expect_error<InvalidArgument>("[argselect] expected places of type i64", [&] { argselect(x, zeros({2})); });
}

TEST(Partition, PutsOneElementInItsPlace) {
  const NDArray x = test::numbers({5, 40}, f64);
  for (int64_t kth : {0, 17, 39, -1}) {
    const Values p = test::values(partition(x, kth)), order = test::values(argpartition(x, kth));
    const auto k = static_cast<size_t>(kth < 0 ? kth + 40 : kth);
    const Values all = test::values(x);
    for (size_t row = 0; row < 5; ++row)
      for (size_t i = 0; i < 40; ++i) {
        EXPECT_TRUE(i < k ? p[row * 40 + i] <= p[row * 40 + k] : p[row * 40 + i] >= p[row * 40 + k]);
        EXPECT_EQ(p[row * 40 + i], all[row * 40 + static_cast<size_t>(order[row * 40 + i])]);
      }
  }
  expect_error<InvalidArgument>("[partition] expected kth from -40 to 39", [&] { partition(x, 40); });
  expect_error<InvalidArgument>("[argpartition]", [&] { argpartition(zeros({0}), 0); });
  expect_error<InvalidArgument>("[lexsort] expected keys of the same shape", [] {
    lexsort({ones({2}), ones({3})});
  });
  expect_error<InvalidArgument>("at least one key", [] { lexsort(std::vector<NDArray>{}); });
}

}  // namespace
}  // namespace mx
