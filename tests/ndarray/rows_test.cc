// Iteration over an array's first dimension.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <type_traits>
#include <vector>

#include "ndarray/ndarray.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

static_assert(std::random_access_iterator<RowIterator>);
static_assert(std::sentinel_for<RowIterator, RowIterator>);
static_assert(std::ranges::random_access_range<const NDArray>);
// Algorithms that move elements would read rows that they have already overwritten, so they must not compile.
static_assert(!std::indirectly_writable<RowIterator, NDArray>);
static_assert(!std::permutable<RowIterator>);
static_assert(!std::sortable<RowIterator, bool (*)(const NDArray&, const NDArray&)>);
static_assert(!std::is_assignable_v<decltype(*RowIterator()), NDArray>, "std::sort assigns so");
static_assert(!std::is_assignable_v<decltype(*RowIterator()), View>);
static_assert(std::is_same_v<std::iter_value_t<RowIterator>, std::iter_reference_t<RowIterator>>);

TEST(Rows, AreTheEntriesOfTheFirstDimensionInOrder) {
  const NDArray a = array({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}});
  std::vector<std::vector<float>> seen;
  for (const NDArray& row : a) seen.push_back(row.to_vector<float>());
  EXPECT_EQ((std::vector<std::vector<float>>{{1, 2}, {3, 4}, {5, 6}}), seen);
  std::vector<float> numbers;
  for (const NDArray& number : a[1]) numbers.push_back(number.item<float>());
  EXPECT_EQ((std::vector<float>{3, 4}), numbers);
  std::vector<float> columns;
  for (const NDArray& column : a.transpose()) columns.push_back(column[2].item<float>());
  EXPECT_EQ((std::vector<float>{5, 6}), columns);
}

TEST(Rows, ShareTheArraysMemory) {
  NDArray a = zeros({3, 2});
  float value = 0;
  for (NDArray row : a) row.fill_(++value);
  EXPECT_EQ((std::vector<float>{1, 1, 2, 2, 3, 3}), a.to_vector<float>());
  for (auto row : a) row.copy_from(row.clone().fill_(7));
  for (auto row : a.slice(0, {1, {}})) row[0] = 9;
  EXPECT_EQ((std::vector<float>{7, 7, 9, 7, 9, 7}), a.to_vector<float>());
  for (const NDArray& row : a) EXPECT_TRUE(row.shares_memory(a));
}

TEST(Rows, AssigningToTheNameOfARowChangesTheNameOnly) {
  const NDArray a = array({{1.f, 2.f}, {3.f, 4.f}}), other = zeros({2});
  for (NDArray row : a) row = other;
  for (auto row : a) row = other;
  for (auto&& row : a) row = other;
  EXPECT_EQ((std::vector<float>{1, 2, 3, 4}), a.to_vector<float>());
  for (auto row : a) row[1] = 0;
  EXPECT_EQ((std::vector<float>{1, 0, 3, 0}), a.to_vector<float>());
}

TEST(Rows, OfNothingAreNone) {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}}) {
    int n = 0;
    for (const NDArray& row : zeros(shape)) n += static_cast<int>(row.rank()) + 1;
    EXPECT_EQ(0, n) << shape;
  }
  int n = 0;
  for (const NDArray& row : zeros({2, 0})) n += row.shape() == Shape{0} ? 1 : 0;
  EXPECT_EQ(2, n);
}

TEST(Rows, OfARankOfZeroOrNoArrayAreRefused) {
  const auto go_through = [](const NDArray& a) {
    for (const NDArray& row : a) row.wait();
  };
  const std::string text = error_of<InvalidArgument>([&] { go_through(zeros({})); });
  EXPECT_TRUE(contains(text, "expected an array of rank 1 or more")) << text;
  EXPECT_THROW(go_through({}), InvalidArgument);
  const NDArray a = zeros({2});
  EXPECT_THROW(*a.end(), InvalidArgument);
}

TEST(Rows, IteratorsOwnTheArrayAndWorkInAlgorithms) {
  RowIterator first = arange(4).begin(), last = first + 4;
  EXPECT_EQ(4, last - first);
  EXPECT_EQ(3, (*--last).item<int64_t>());
  EXPECT_EQ(2, first[2].item<int64_t>());
  EXPECT_EQ(0, (*first++).item<int64_t>());
  EXPECT_LT(first, last);
  const NDArray a = arange(6).reshape({3, 2});
  const std::vector<NDArray> rows(a.begin(), a.end());
  ASSERT_EQ(3U, rows.size());
  EXPECT_EQ(5, rows[2][1].item<int64_t>());
  const auto found = std::ranges::find_if(a, [](const NDArray& row) { return row[0].item<int64_t>() == 2; });
  EXPECT_EQ(1, found - a.begin());
  int64_t back = 0;
  for (const NDArray& row : std::views::reverse(arange(3))) back = back * 10 + row.item<int64_t>();
  EXPECT_EQ(210, back);
}

}  // namespace
}  // namespace mx
