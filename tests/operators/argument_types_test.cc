// Arguments that must not compile, and spellings that must: a bool is not an axis, a count, an index or a
// tolerance.
#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Values;

/// Does f(array, T...) compile? The overload set is given as a lambda that calls it.
template <class... T, class F>
constexpr bool takes(const F&) {
  return std::invocable<const F&, const NDArray&, T...>;
}

constexpr auto kStddev = [](const NDArray& x, auto... a) -> decltype(stddev(x, a...)) { return {}; };
constexpr auto kVar = [](const NDArray& x, auto... a) -> decltype(var(x, a...)) { return {}; };
constexpr auto kNorm = [](const NDArray& x, auto... a) -> decltype(norm(x, a...)) { return {}; };
constexpr auto kSum = [](const NDArray& x, auto... a) -> decltype(sum(x, a...)) { return {}; };
constexpr auto kSort = [](const NDArray& x, auto... a) -> decltype(sort(x, a...)) { return {}; };
constexpr auto kTopK = [](const NDArray& x, auto... a) -> decltype(topk(x, a...)) { return {}; };
constexpr auto kCumsum = [](const NDArray& x, auto... a) -> decltype(cumsum(x, a...)) { return {}; };
constexpr auto kSoftmax = [](const NDArray& x, auto... a) -> decltype(softmax(x, a...)) { return {}; };
constexpr auto kDropout = [](const NDArray& x, auto... a) -> decltype(dropout(x, a...)) { return {}; };
static_assert(takes<int, int, bool>(kStddev) && takes<int, double>(kStddev) && !takes<int, bool>(kStddev) &&
              !takes<bool>(kStddev));
static_assert(takes<int, int, bool>(kVar) && !takes<int, bool>(kVar));
static_assert(takes<int, int, bool>(kNorm) && takes<double>(kNorm) && !takes<bool>(kNorm));
static_assert(takes<int, bool>(kSum) && !takes<bool>(kSum));
static_assert(takes<int, bool>(kSort) && !takes<bool>(kSort));
static_assert(takes<int, int, bool>(kTopK) && !takes<int, bool>(kTopK) && !takes<bool>(kTopK) &&
              !takes<bool, int>(kTopK));
static_assert(takes<int, bool, bool>(kCumsum) && !takes<bool>(kCumsum));
static_assert(takes<int>(kSoftmax) && !takes<bool>(kSoftmax));
static_assert(takes<double, bool>(kDropout) && !takes<bool>(kDropout));

// Indexing.
constexpr auto kTake = [](const NDArray& x, auto... a) -> decltype(take(x, x, a...)) { return {}; };
constexpr auto kGather = [](const NDArray& x, auto... a) -> decltype(gather(x, x, a...)) { return {}; };
constexpr auto kAlong = [](const NDArray& x, auto... a) -> decltype(take_along_axis(x, x, a...)) {
  return {};
};
constexpr auto kScatter = [](const NDArray& x, auto... a) -> decltype(scatter(x, x, x, a...)) { return {}; };
constexpr auto kIndexAdd = [](const NDArray& x, auto... a) -> decltype(index_add(x, x, x, a...)) {
  return {};
};
constexpr auto kIndexCopy = [](const NDArray& x, auto... a) -> decltype(index_copy(x, x, x, a...)) {
  return {};
};
constexpr auto kOneHot = [](const NDArray& x, auto... a) -> decltype(one_hot(x, a...)) { return {}; };
static_assert(takes<int>(kTake) && takes<size_t>(kTake) && !takes<bool>(kTake));
static_assert(takes<int>(kGather) && !takes<bool>(kGather));
static_assert(takes<int>(kAlong) && !takes<bool>(kAlong));
static_assert(takes<int>(kScatter) && !takes<bool>(kScatter));
static_assert(takes<int>(kIndexAdd) && !takes<bool>(kIndexAdd));
static_assert(takes<int>(kIndexCopy) && !takes<bool>(kIndexCopy));
static_assert(takes<int>(kOneHot) && !takes<bool>(kOneHot));

// Counts and axes of functions that move elements.
constexpr auto kSplit = [](const NDArray& x, auto... a) -> decltype(split(x, a...)) { return {}; };
constexpr auto kChunk = [](const NDArray& x, auto... a) -> decltype(chunk(x, a...)) { return {}; };
constexpr auto kRepeat = [](const NDArray& x, auto... a) -> decltype(repeat(x, a...)) { return {}; };
constexpr auto kDiff = [](const NDArray& x, auto... a) -> decltype(diff(x, a...)) { return {}; };
constexpr auto kRot90 = [](const NDArray& x, auto... a) -> decltype(rot90(x, a...)) { return {}; };
constexpr auto kWindow = [](const NDArray& x, auto... a) -> decltype(sliding_window(x, a...)) { return {}; };
constexpr auto kPartition = [](const NDArray& x, auto... a) -> decltype(partition(x, a...)) { return {}; };
constexpr auto kTrace = [](const NDArray& x, auto... a) -> decltype(trace(x, a...)) { return {}; };
constexpr auto kDot = [](const NDArray& x, auto... a) -> decltype(tensordot(x, x, a...)) { return {}; };
constexpr auto kRound = [](const NDArray& x, auto... a) -> decltype(round(x, a...)) { return {}; };
constexpr auto kHistogram = [](const NDArray& x, auto... a) -> decltype(histogram(x, a...)) { return {}; };
constexpr auto kClose = [](const NDArray& x, auto... a) -> decltype(allclose(x, x, a...)) { return {}; };
static_assert(takes<int>(kSplit) && takes<int, int>(kSplit) && takes<std::vector<int64_t>>(kSplit) &&
              !takes<bool>(kSplit) && !takes<int, bool>(kSplit));
static_assert(takes<int>(kChunk) && !takes<bool>(kChunk));
static_assert(takes<int>(kRepeat) && takes<std::vector<int64_t>>(kRepeat) && !takes<bool>(kRepeat));
static_assert(takes<int, int>(kDiff) && !takes<bool>(kDiff));
static_assert(takes<int>(kRot90) && !takes<bool>(kRot90));
static_assert(takes<int>(kWindow) && takes<Shape>(kWindow) && !takes<bool>(kWindow));
static_assert(takes<int>(kPartition) && !takes<bool>(kPartition));
static_assert(takes<int>(kTrace) && !takes<bool>(kTrace));
static_assert(takes<int>(kDot) && !takes<bool>(kDot));
static_assert(takes<int>(kRound) && !takes<bool>(kRound));
static_assert(takes<int>(kHistogram) && takes<size_t>(kHistogram) && !takes<bool>(kHistogram) &&
              !takes<double>(kHistogram));
static_assert(takes<double>(kClose) && takes<double, double, bool>(kClose) && !takes<bool>(kClose) &&
              !takes<double, bool>(kClose));

// Members.
constexpr auto kSelect = [](const NDArray& x, auto... a) -> decltype(x.select(a...)) { return {}; };
constexpr auto kSwapped = [](const NDArray& x, auto... a) -> decltype(x.swap_axes(a...)) { return {}; };
constexpr auto kExpanded = [](const NDArray& x, auto... a) -> decltype(x.expand_dims(a...)) { return {}; };
constexpr auto kSorted = [](const NDArray& x, auto... a) -> decltype(x.sort(a...)) { return {}; };
constexpr auto kVariance = [](const NDArray& x, auto... a) -> decltype(x.variance(a...)) { return {}; };
static_assert(takes<int, int>(kSelect) && !takes<bool, int>(kSelect) && !takes<int, bool>(kSelect));
static_assert(takes<int, int>(kSwapped) && !takes<int, bool>(kSwapped));
static_assert(takes<int>(kExpanded) && !takes<bool>(kExpanded));
static_assert(takes<int, bool>(kSorted) && !takes<bool>(kSorted));
static_assert(takes<int, int, bool>(kVariance) && !takes<int, bool>(kVariance));

// Options. `O{.field = value}` with a value of type T.
template <class T>
concept Bins = requires(T value) {
  HistogramOptions{.bins = value};
};
template <class T>
concept ClassAxis = requires(T value) {
  ClassLossOptions{.axis = value};
};
static_assert(Bins<int> && Bins<size_t> && !Bins<bool>);
static_assert(ClassAxis<int> && !ClassAxis<bool>);

TEST(Arguments, IntegersBeyondAnInt64AreOutOfRangeAndNotNegative) {
  const NDArray x = ones({2, 3});
  const auto most = std::numeric_limits<size_t>::max();
  EXPECT_THROW(take(x, arange(2), most), InvalidArgument);
  EXPECT_THROW(topk(x, most), InvalidArgument);
  EXPECT_THROW(x.select(most, 0), InvalidArgument);
  EXPECT_THROW(x.select(0, most), InvalidArgument);
  EXPECT_THROW(x.expand_dims(most), InvalidArgument);
}

TEST(Arguments, ANumberOfBins) {
  const NDArray x = array({0.f, 1.f, 2.f, 4.f});
  EXPECT_EQ((Values{1, 1, 1, 1}), test::values(histogram(x, 4).counts));
  EXPECT_EQ((Values{1, 1}), test::values(histogram(x, size_t{2}, {{0.5, 3}}).counts));
  EXPECT_EQ((Values{2, 2}), test::values(histogram(x, {2}).counts)) << "options in braces";
  EXPECT_EQ((Values{3, 1}), test::values(histogram(x, array({0.f, 3.f, 5.f})).counts));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { histogram(x, 0); }), "1 bin or more"));
}

TEST(Arguments, TolerancesInTheOrderOfPyTorch) {
  const NDArray a = array({1., 10.}), b = array({1.0005, 10.005});
  EXPECT_FALSE(allclose(a, b));
  EXPECT_TRUE(allclose(a, b, 1e-3, 1e-3));
  EXPECT_TRUE(allclose(a, b, 1e-3));
  EXPECT_FALSE(allclose(a, b, 0, 1e-3));
  EXPECT_TRUE(allclose(a, b, {1e-3}));
  EXPECT_EQ((Values{1, 0}), test::values(isclose(a, b, 0, 1e-3)));
  const NDArray nan = array({test::kNan});
  EXPECT_TRUE(allclose(nan, nan, 0, 0, true));
}

TEST(Arguments, PaddingAsPairs) {
  const NDArray x = arange(6.f).reshape({2, 3});
  EXPECT_EQ((Shape{4, 5}), pad(x, {{1, 1}, {0, 2}}).shape());
  EXPECT_EQ(test::values(pad(x, {1, 1, 0, 2}, PadMode::edge)),
            test::values(pad(x, {{1, 1}, {0, 2}}, PadMode::edge)));
  const size_t before = 2;
  EXPECT_EQ((Values{7, 7, 1, 1}), test::values(pad(ones({2}), {{before, 0}}, PadMode::constant, 7)));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { pad(x, {{1, 1}}); }), "4 widths"));
}

}  // namespace
}  // namespace mx
