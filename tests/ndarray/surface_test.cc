// Tests that every way in which a C++ program writes shapes, indices and numbers compiles and has the
// expected meaning.
#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/print.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

using Numbers = std::vector<double>;
Numbers numbers_of(const NDArray& a) { return a.to_vector<double>(); }

template <class T>
concept IndexesArrays = requires(const NDArray& a, T i) {
  a[i];
};
template <class T>
concept IsExtent = std::constructible_from<Extent, T>;

static_assert(IndexesArrays<int> && IndexesArrays<size_t> && IndexesArrays<uint32_t> &&
              IndexesArrays<short> && IndexesArrays<Slice> && IndexesArrays<Ellipsis> &&
              IndexesArrays<std::vector<Index>>);
static_assert(!IndexesArrays<bool>, "a bool is no place");
static_assert(!IndexesArrays<double>, "a fraction is no place");
enum Place { kOne = 1 };
enum Far : uint64_t { kFar = UINT64_MAX };
template <class T>
concept IsSliceEnd = requires(T end) {
  Slice{0, end};
};
static_assert(IsSliceEnd<int> && IsSliceEnd<size_t> && !IsSliceEnd<bool>);
static_assert(IsExtent<size_t> && IsExtent<int8_t> && IsExtent<long long>);
static_assert(!IsExtent<double> && !IsExtent<bool>);

TEST(Surface, ShapesOfAnyIntegers) {
  const std::vector<float> v(4);
  const int8_t small = 2;
  const uint32_t middle = 5;
  EXPECT_EQ((Shape{4, 3}), zeros({v.size(), 3}).shape());
  EXPECT_EQ((Shape{2, 5, 4}), empty({small, middle, v.size()}).shape());
  EXPECT_EQ((Shape{2, 2}), zeros({4}).reshape({-1, v.size() / 2}).shape());
  const Shape longest = {1, 2, 3, 4, 5, 6, v.size()};
  EXPECT_EQ(7, longest.rank());
  EXPECT_EQ(0, Shape{}.rank());
  // Too large, not negative.
  EXPECT_EQ(INT64_MAX, Shape{std::numeric_limits<size_t>::max()}[0]);
  error_of<InvalidArgument>([] { zeros({std::numeric_limits<size_t>::max()}); });
  error_of<InvalidArgument>([] { zeros({4}).reshape({std::numeric_limits<size_t>::max()}); });
  EXPECT_EQ((Shape{5, 2}), zeros({IntArg(middle), 2}).shape());
  EXPECT_EQ((Shape{7, 1}), zeros({'\a', kOne}).shape());
}

TEST(Surface, IndicesOfAnyKind) {
  const NDArray a = arange(24).reshape({2, 3, 4});
  const size_t i = 1;
  const uint32_t j = 2;
  const int16_t k = -1;
  EXPECT_EQ(23, (a[{i, j, k}].item<int64_t>()));
  EXPECT_EQ((Shape{3, 4}), a[i].shape());
  // A list of one number is an index of one entry, for every integer type.
  EXPECT_EQ((Shape{3, 4}), (a[{i}].shape()));
  EXPECT_EQ(12, (a[{j - 1}][{0}][{size_t{0}}].item<int64_t>()));
  EXPECT_EQ((Shape{3, 4}), a[kOne].shape());
  EXPECT_EQ(16, (a[{kOne, kOne, kOne - 1}].item<int64_t>()));
  EXPECT_EQ(99, arange(100)['c'].item<int64_t>());
  error_of<InvalidArgument>([&] { a[kFar]; });
  EXPECT_EQ((Shape{3, 4}), a[{'\1'}].shape());
  EXPECT_EQ((Shape{1, 3, 4}), (a[Slice{kOne}].shape()));
  EXPECT_EQ(3, a.size(kOne));
  EXPECT_EQ((Shape{3, 4}), a[IntArg(1)].shape());
  EXPECT_EQ(20, a[k][j][0].item<int64_t>());
  EXPECT_EQ((Shape{1, 3, 4}), (a[Slice{0, 1}].shape()));
  EXPECT_EQ((Shape{2, 3, 4}), a[colon].shape());
  EXPECT_EQ((Shape{2, 3, 4}), a[ellipsis].shape());
  EXPECT_EQ((Shape{1, 2, 3, 4}), a[newaxis].shape());
  EXPECT_EQ((Numbers{12, 0}), numbers_of(a[{Slice{{}, {}, -1}, 0, 0}]));
  // Indices that are collected at run time.
  std::vector<Index> entries = {1};
  entries.emplace_back(Slice{0, i});
  EXPECT_EQ((Shape{1, 4}), a[entries].shape());
  EXPECT_EQ((Numbers{12, 13, 14, 15}), numbers_of(a[std::span<const Index>(entries)]));
  // An assignment through an indexed view.
  NDArray b = zeros({3, 2});
  b[Slice{1, 3}] = 5;
  b[{i, i}] = 7;
  EXPECT_EQ((Numbers{0, 0, 5, 7, 5, 5}), numbers_of(b));
  b[colon] = 1;
  EXPECT_EQ((Numbers{1, 1, 1, 1, 1, 1}), numbers_of(b));
}

TEST(Surface, IndicesBeyondAnInt64AreOutOfRange) {
  const NDArray a = arange(4);
  const auto last = std::numeric_limits<size_t>::max();  // as an int64_t it would be -1, the last element
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a[last]; }), "got 9223372036854775807"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a[{Index(last)}]; }), "got 9223372036854775807"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a[std::numeric_limits<unsigned long long>::max()]; }),
                       "[index]"));
}

TEST(Surface, SlicesThatEndBeyondAnInt64EndAtTheLastElement) {
  const NDArray a = arange(4);
  EXPECT_EQ((Numbers{1, 2, 3}), numbers_of(a[Slice{1, std::string::npos}]));
  EXPECT_EQ((Numbers{}), numbers_of(a[Slice{std::numeric_limits<size_t>::max(), {}}]));
  EXPECT_EQ((Numbers{0}), numbers_of(a[Slice{{}, {}, std::numeric_limits<size_t>::max()}]));
}

TEST(Surface, ArraysFromRanges) {
  const std::vector<float> v = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ((Shape{6}), array(v).shape());
  EXPECT_EQ(f32, array(v).dtype());
  EXPECT_EQ((Shape{2, 3}), array(v, {2, 3}).shape());
  EXPECT_EQ(numbers_of(array(v)), numbers_of(array(v, {3, v.size() / 3})));
  EXPECT_EQ((Shape{1, 6}), array(v, Shape{1, 6}, cpu()).shape());
  EXPECT_EQ((Numbers{2, 3}), numbers_of(array(std::span(v).subspan(1, 2))));
  EXPECT_EQ((Numbers{1, 2, 3}), numbers_of(array(std::array<int32_t, 3>{1, 2, 3})));
  EXPECT_EQ(i32, array(std::array<int32_t, 3>{1, 2, 3}).dtype());
  EXPECT_EQ((Numbers{7, 8}), numbers_of(array(std::deque<double>{7, 8})));
  EXPECT_EQ((Numbers{7, 8}), numbers_of(array(std::list<double>{7, 8})));
  EXPECT_EQ((Shape{2, 2}), array({1., 2., 3., 4.}, {2, 2}).shape());
  EXPECT_EQ((Numbers{1, 0, 1}), numbers_of(array(std::vector<bool>{true, false, true})));
  EXPECT_EQ(bool_, array({true, false}).dtype());
  const float plain[2][2] = {{1, 2}, {3, 4}};
  EXPECT_EQ((Shape{2, 2}), array(plain).shape());
  EXPECT_EQ((Shape{}), array(std::vector<int>{5}, Shape{}).shape());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         array(v, {4, 2});
                       }),
                       "shape (4, 2) has elements, got 6"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { array(v, {-1, 2}); }), "[array]"));
}

TEST(Surface, ArraysFromNestedRanges) {
  const std::vector<std::vector<double>> rows = {{1, 2, 3}, {4, 5, 6}};
  EXPECT_EQ((Shape{2, 3}), array(rows).shape());
  EXPECT_EQ((Numbers{1, 2, 3, 4, 5, 6}), numbers_of(array(rows)));
  EXPECT_EQ(f64, array(rows).dtype());
  const std::vector<std::vector<std::array<int64_t, 2>>> planes = {{{1, 2}, {3, 4}, {5, 6}}};
  EXPECT_EQ((Shape{1, 3, 2}), array(planes).shape());
  EXPECT_EQ((Shape{3, 2}), array(rows, {3, 2}).shape());
  EXPECT_EQ((Shape{2, 2}), array(std::vector<std::vector<bool>>{{true, false}, {false, true}}).shape());
  EXPECT_EQ((Shape{0, 0}), array(std::vector<std::vector<float>>{}).shape());
  EXPECT_EQ((Shape{2, 0}), array(std::vector<std::vector<float>>{{}, {}}).shape());
  EXPECT_EQ((Shape{2, 0, 0}), array(std::vector<std::vector<std::vector<float>>>{{}, {}}).shape());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         array(std::vector<std::vector<float>>{{1, 2}, {3}});
                       }),
                       "[array] expected nested lists of equal length, got lengths 2 and 1"));
}

TEST(Surface, NumbersThatArraysDoNotHaveAreWidened) {
  EXPECT_EQ(i64, array(std::vector<size_t>{1, 2}).dtype());
  EXPECT_EQ(i64, array(std::vector<uint32_t>{4294967295u}).dtype());
  EXPECT_EQ(4294967295, array(std::vector<uint32_t>{4294967295u}).item<int64_t>());
  EXPECT_EQ(i32, array(std::vector<uint16_t>{65535}).dtype());
  EXPECT_EQ(65535, array(std::vector<uint16_t>{65535}).item<int64_t>());
  EXPECT_EQ(-3, array(std::array<short, 1>{-3}).item<int64_t>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         array(std::vector<size_t>{1, std::numeric_limits<size_t>::max()});
                       }),
                       "below 2^63, got 18446744073709551615"));
}

TEST(Surface, RangesOfAType) {
  EXPECT_EQ(f32, arange(3, f32).dtype());
  EXPECT_EQ((Numbers{0, 1, 2}), numbers_of(arange(3, f32)));
  EXPECT_EQ((Numbers{2, 3}), numbers_of(arange(2, 4, u8)));
  EXPECT_EQ(u8, arange(2, 4, u8).dtype());
  EXPECT_EQ(0, arange(-1, f64).numel());
}

TEST(Surface, MembersOfOtherLayersSayWhatIsMissing) {
  EXPECT_TRUE(contains(error_of<InvalidState>([] { ones({2}).sum(); }),
                       "[sum] expected a program with the operators"));
  EXPECT_EQ((Shape{3, 2}), zeros({2, 3}).T().shape());
}

TEST(Surface, PrintingFollowsTheOptionsOfTheProcess) {
  const NDArray a = array({0.123456789, 1.});
  const std::string before = to_string(a);
  {
    const PrintOptionsScope scope({.precision = 3});
    EXPECT_EQ("[0.123 1.   ]", to_string(a));
    EXPECT_EQ(3, print_options().precision);
  }
  EXPECT_EQ(before, to_string(a));
  EXPECT_EQ("[0.12 1.  ]", to_string(a, {.precision = 2}));
  set_print_options({.threshold = 1, .edge_items = 1});
  EXPECT_EQ("[0 ... 4]", to_string(arange(5)));
  set_print_options({});
  EXPECT_EQ(before, to_string(a));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { set_print_options({.precision = -1}); }),
                       "[set_print_options] expected a precision"));
  EXPECT_EQ(before, to_string(a));
}

}  // namespace
}  // namespace mx
