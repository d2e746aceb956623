// Edge cases of the functions with NumPy's names: empty arrays, one element, NaN, infinities, extreme
// integers, result types, and invalid calls. numpy_golden_test.cc tests their usual values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
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

TEST(Compare, CloseIsSymmetricOnlyInTheAbsolutePart) {
  const NDArray a = array({1., 1., 0., 100.}), b = array({1. + 1e-6, 1. + 1e-4, 1e-9, 101.});
  EXPECT_EQ((Values{1, 0, 1, 0}), test::values(isclose(a, b)));
  EXPECT_EQ((Values{1, 1, 1, 1}), test::values(isclose(a, b, {.rtol = 0.01})));
  EXPECT_EQ((Values{0, 0, 1, 0}), test::values(isclose(a, b, {.rtol = 0})));
  EXPECT_FALSE(allclose(array({10.}), array({9.}), {.rtol = 0.105, .atol = 0}));
  EXPECT_TRUE(allclose(array({9.}), array({10.}), {.rtol = 0.105, .atol = 0}));
  EXPECT_TRUE(allclose(a, a + 1e-9));
  EXPECT_TRUE(allclose(ones({2, 3}), 1));
  EXPECT_TRUE(allclose(1.0, ones({2, 3})));
  EXPECT_EQ((Shape{2, 3}), isclose(ones({2, 1}), ones({3})).shape());
  EXPECT_EQ(bool_, isclose(a, b).dtype());
}

TEST(Compare, CloseOfNanInfinityAndNothing) {
  const NDArray a = array({kNan, kInfinity, kInfinity, -kInfinity, 1., kInfinity}),
                b = array({kNan, kInfinity, -kInfinity, -kInfinity, kInfinity, 1.});
  EXPECT_EQ((Values{0, 1, 0, 1, 0, 0}), test::values(isclose(a, b)));
  EXPECT_EQ((Values{1, 1, 0, 1, 0, 0}), test::values(isclose(a, b, {.equal_nan = true})));
  EXPECT_TRUE(allclose(zeros({0, 3}), ones({3})));
  EXPECT_FALSE(allclose(array({65504.f}).to(f16), array({-65504.f}).to(f16)));
}

TEST(Compare, IntegersAreComparedBeyondFloatingPoint) {
  const int64_t large = int64_t{1} << 53;
  EXPECT_TRUE(allclose(array<int64_t>({large + 1}), array<int64_t>({large + 1}), {.rtol = 0, .atol = 0}));
  EXPECT_FALSE(allclose(array<int64_t>({INT64_MIN}), array<int64_t>({INT64_MAX})));
  EXPECT_TRUE(allclose(array<uint8_t>({0}), array<uint8_t>({255}), {.atol = 255}));
  EXPECT_FALSE(allclose(array<uint8_t>({0}), array<uint8_t>({255}), {.atol = 254}));
  EXPECT_TRUE(allclose(array<int64_t>({100000001}), 1e8, {.rtol = 1e-7}));
}

TEST(Compare, CloseRefusesWhatIsNoTolerance) {
  expect_error<InvalidArgument>("[isclose] expected tolerances", [] { isclose(ones({1}), 1, {.rtol = -1}); });
  expect_error<InvalidArgument>("[isclose] expected tolerances",
                                [] { isclose(ones({1}), 1, {.atol = kNan}); });
  expect_error<InvalidArgument>("two numbers", [] { allclose(1, 1); });
  expect_error<InvalidArgument>("(2,)", [] { allclose(ones({2}), ones({3})); });
}

TEST(Compare, ArraysAreEqualInShapeAndElements) {
  EXPECT_TRUE(array_equal(arange(6).reshape({2, 3}), arange(6).reshape({2, 3})));
  EXPECT_FALSE(array_equal(arange(6), arange(6).reshape({2, 3})));
  EXPECT_FALSE(array_equal(ones({1}), ones({3})));
  EXPECT_TRUE(array_equal(arange(3), arange(3.f)));
  EXPECT_FALSE(array_equal(array<int64_t>({16777217}), array({16777216.f})));
  EXPECT_FALSE(array_equal(array({kNan}), array({kNan})));
  EXPECT_TRUE(array_equal(array({kNan}), array({kNan}), true));
  EXPECT_FALSE(array_equal(array({kNan}), array({1.}), true));
  EXPECT_TRUE(array_equal(zeros({0, 2}), ones({0, 2})));
}

TEST(NanReductions, WhereNothingIsANumber) {
  const NDArray x = array({{kNan, kNan}, {1., kNan}});
  test::expect_values({0, 1}, nansum(x, 1), "nansum");
  test::expect_values({1, 1}, nanprod(x, 1), "nanprod");
  test::expect_values({kNan, 1}, nanmean(x, 1), "nanmean");
  test::expect_values({kNan, 1}, nanmax(x, 1), "nanmax");
  test::expect_values({kNan, 1}, nanmin(x, 1), "nanmin");
  test::expect_values({kNan, 1}, nanmedian(x, 1), "nanmedian");
  test::expect_values({kNan, kNan}, nanvar(x, 1), "one number is less than two");
  test::expect_values({kNan, 0}, nanvar(x, 1, 0), "correction=0");
  test::expect_values({0, 0}, nanargmax(x, 1), "nanargmax");
  test::expect_values({kNan, -kInfinity}, nanmax(array({{kNan, kNan}, {kNan, -kInfinity}}), 1), "-inf");
  test::expect_values({1}, nanargmax(array({{kNan, -kInfinity}}), 1), "the place of -inf");
  test::expect_values({1}, nanargmin(array({{kNan, kInfinity}}), 1), "the place of inf");
}

TEST(NanReductions, OfNothingOfOneAndOfOtherTypes) {
  EXPECT_EQ(0, nansum(zeros({0})).item<float>());
  EXPECT_TRUE(std::isnan(nanmean(zeros({0})).item<float>()));
  expect_error<InvalidArgument>("at least one element", [] { nanmax(zeros({0})); });
  EXPECT_EQ(3, nanmax(full({}, 3)).item<float>());
  EXPECT_EQ(i64, nansum(ones({2}, i32)).dtype());
  EXPECT_EQ(2, nansum(ones({2}, i32)).item<int64_t>());
  EXPECT_EQ(INT64_MIN, nanmin(array<int64_t>({INT64_MIN, 0})).item<int64_t>());
  EXPECT_EQ(f16, nanmean(ones({2}, f16)).dtype());
  test::expect_values({60000}, nanmean(full({3}, 60000, f16)), "a sum beyond f16");
  EXPECT_EQ(f64, nanvar(ones({3}, f64)).dtype());
  expect_error<InvalidArgument>("axis", [] { nansum(ones({2}), 1); });
}

TEST(Quantile, AtEdges) {
  EXPECT_EQ(2.5f, median(array({4.f, 1.f, 3.f, 2.f})).item<float>());
  EXPECT_EQ(7, median(full({}, 7)).item<float>());
  EXPECT_TRUE(std::isnan(median(zeros({0})).item<float>()));
  test::expect_values({kNan, kNan}, median(zeros({2, 0}), 1), "no elements in a row");
  EXPECT_EQ((Shape{0}), median(zeros({0, 2}), 1).shape());
  EXPECT_TRUE(std::isnan(median(array({1.f, NAN})).item<float>()));
  EXPECT_EQ(kInfinity, median(array({kInfinity, kInfinity, 1., kInfinity})).item<double>());
  EXPECT_EQ(kInfinity, quantile(array({kInfinity, kInfinity}), 0.3).item<double>());
  EXPECT_EQ(0, median(array({-3e38f, 3e38f})).item<float>());
  EXPECT_EQ(f16, median(ones({3}, f16)).dtype());
  EXPECT_EQ((Shape{2, 1, 1}), quantile(ones({3, 4}), {0.5, 1.0}, {}, true).shape());
  EXPECT_EQ((Shape{0, 3}), quantile(ones({3, 4}), std::vector<double>{}, 1).shape());
  EXPECT_EQ((Shape{1, 3}), quantile(ones({3, 4}), {0.5}, 1).shape());
  EXPECT_EQ((Shape{3}), quantile(ones({3, 4}), 1, 1).shape());
  EXPECT_EQ(1.7e9f, median(array<int64_t>({1699999999, 1700000001})).item<float>());
  const NDArray turned = arange(12.).reshape({3, 4}).transpose();
  test::expect_values({1.5, 5.5, 9.5}, median(turned, 0), "of a view");
}

TEST(Quantile, RefusesWhatIsNoShare) {
  expect_error<InvalidArgument>("[quantile] expected q from 0 to 1, got 1.5",
                                [] { quantile(ones({2}), 1.5); });
  expect_error<InvalidArgument>("got nan", [] { quantile(ones({2}), kNan); });
  expect_error<InvalidArgument>("[percentile]", [] { percentile(ones({2}), 101); });
  expect_error<InvalidArgument>("[percentile] expected q from 0 to 100, got -1", [] {
    percentile(ones({2}), {50, -1});
  });
  expect_error<InvalidArgument>("[median]", [] { median(ones({2}), 1); });
}

TEST(Counting, OfNothingAndOfWhatCannotBe) {
  EXPECT_EQ(0, bincount(zeros({0}, i64)).numel());
  EXPECT_EQ(3, bincount(zeros({0}, i64), {}, 3).numel());
  EXPECT_EQ(i64, bincount(ones({2}, u8)).dtype());
  EXPECT_EQ(f64, bincount(ones({2}, i64), ones({2}, i32)).dtype());
  EXPECT_EQ(f32, bincount(ones({2}, i64), ones({2})).dtype());
  expect_error<InvalidArgument>("[bincount] expected numbers of 0 or more, got -1", [] {
    bincount(array<int64_t>({3, -1}));
  });
  expect_error<InvalidArgument>("an array of integers of rank 1", [] { bincount(ones({2})); });
  expect_error<InvalidArgument>("weights of x's shape (2,)", [] { bincount(ones({2}, i64), ones({3})); });
  expect_error<InvalidArgument>("2^63", [] { bincount(array<int64_t>({INT64_MAX})); });
  EXPECT_EQ((Values{0, 0}), test::values(histogram(zeros({0}), {.bins = 2}).counts));
  EXPECT_EQ((Values{0, 1}), test::values(histogram(zeros({0}), {.bins = 1}).edges));
  EXPECT_EQ((Values{2.5, 3.5}), test::values(histogram(full({4}, 3), {.bins = 1}).edges));
  EXPECT_EQ(4, histogram(full({4}, 3), {.bins = 1}).counts.item<int64_t>());
  EXPECT_EQ(f64, histogram(arange(3)).edges.dtype());
  EXPECT_EQ(f32, histogram(arange(3.f)).edges.dtype());
  expect_error<InvalidArgument>("1 bin or more", [] { histogram(ones({2}), {.bins = 0}); });
  expect_error<InvalidArgument>("1 bin or more", [] { histogram(ones({2}), {.bins = INT64_MAX}); });
  expect_error<InvalidArgument>("a finite range, low <= high", [] { histogram(array({1.f, NAN})); });
  expect_error<InvalidArgument>("a finite range, low <= high", [] {
    histogram(ones({2}), {.range = {{2, 1}}});
  });
  expect_error<InvalidArgument>("edges in ascending order, got descending ones", [] {
    histogram(ones({2}), array({2.f, 1.f}));
  });
  expect_error<InvalidArgument>("2 edges", [] { histogram(ones({2}), array({1.f})); });
  // Timestamps keep all their digits.
  const int64_t t = 1700000000000000;
  EXPECT_EQ((Values{1, 2}), test::values(histogram(array<int64_t>({t, t + 2, t + 3}), {.bins = 2}).counts));
}

TEST(Counting, DigitizeAtNanAndWithoutEdges) {
  const NDArray edges = array({0.f, 1.f});
  EXPECT_EQ((Values{2, 0, 2}), test::values(digitize(array({NAN, -INFINITY, INFINITY}), edges)));
  EXPECT_EQ((Values{0, 0}), test::values(digitize(ones({2}), zeros({0}))));
  EXPECT_EQ(1, digitize(full({}, 0), edges).item<int64_t>());
  expect_error<InvalidArgument>("edges in ascending or descending order, got unsorted ones", [] {
    digitize(ones({2}), array({0.f, 2.f, 1.f}));
  });
  expect_error<InvalidArgument>("edges in ascending or descending order, got unsorted ones", [] {
    digitize(ones({2}), array({0.f, NAN, 1.f}));
  });
  expect_error<InvalidArgument>("edges of rank 1", [] { digitize(ones({2}), ones({2, 2})); });
}

TEST(Statistics, AtEdges) {
  EXPECT_EQ(2.5f, average(array<int64_t>({1, 4})).item<float>());
  EXPECT_EQ(f32, average(arange(3), arange(3)).dtype());
  EXPECT_TRUE(std::isnan(average(ones({2}), zeros({2})).item<float>()));
  EXPECT_EQ((Shape{1, 3}), average(ones({2, 3}), ones({2}), 0, true).shape());
  expect_error<InvalidArgument>("3 weights for axis 1", [] { average(ones({2, 3}), ones({2}), 1); });
  expect_error<InvalidArgument>("weights of x's shape (2, 3)", [] { average(ones({2, 3}), ones({3})); });
  EXPECT_EQ(-1, ptp(array<int8_t>({-128, 127})).item<int64_t>());  // as in NumPy
  expect_error<InvalidArgument>("at least one element", [] { ptp(zeros({0})); });
  EXPECT_EQ(0, cov(array({1.f, 2.f, 3.f})).rank());
  EXPECT_EQ(1, cov(array<int64_t>({1700000000, 1700000001, 1700000002})).item<float>());
  EXPECT_TRUE(std::isnan(cov(array({1.f})).item<float>()));
  test::expect_values({1, kNan, kNan, kNan}, corrcoef(array({{1.f, 2.f}, {5.f, 5.f}})), "a constant");
  EXPECT_EQ(1, corrcoef(array({1.f, 2.f})).item<float>());
  expect_error<InvalidArgument>("[cov] expected an array of rank 2", [] { cov(ones({2, 2, 2})); });
  expect_error<InvalidArgument>("[cov] expected aweights of shape (3,)", [] {
    cov(ones({2, 3}), {.aweights = ones({2})});
  });
  expect_error<InvalidArgument>("fweights of an integer type", [] {
    cov(ones({2, 3}), {.fweights = ones({3})});
  });
}

TEST(Arrange, AtEdges) {
  EXPECT_EQ((Shape{0}), diff(ones({1})).shape());
  EXPECT_EQ((Shape{0}), diff(ones({2}), 5).shape());
  EXPECT_EQ((Values{1, 0}), test::values(diff(array(std::vector<bool>{true, false, false}))));
  EXPECT_EQ(bool_, diff(array(std::vector<bool>{true, false})).dtype());
  EXPECT_EQ(255, diff(array<uint8_t>({1, 0})).item<int64_t>());
  EXPECT_EQ((Values{1, 2}), test::values(diff(array({1., 2.}), 0)));
  expect_error<InvalidArgument>("[diff]", [] { diff(full({}, 1)); });
  expect_error<InvalidArgument>("[diff] expected a number of differences", [] { diff(ones({2}), -1); });
  EXPECT_EQ((Shape{0, 0}), diag(zeros({0})).shape());
  EXPECT_EQ((Shape{2, 2}), diag(zeros({0}), -2).shape());
  test::expect_values({kNan, 0, 0, kInfinity}, diag(array({kNan, kInfinity})), "nothing spreads");
  EXPECT_EQ((Shape{0}), diag(ones({2, 3}), 7).shape());
  expect_error<InvalidArgument>("vector or a matrix", [] { diag(ones({2, 2, 2})); });
  expect_error<InvalidArgument>("[diag]", [] { diag(ones({2}), INT64_MIN); });
  expect_error<InvalidArgument>("[diag]", [] { diag(ones({2}), INT64_MAX); });
  EXPECT_EQ((Shape{1, 3}), sliding_window(ones({3}), 3).shape());
  EXPECT_EQ((Shape{4, 0}), sliding_window(ones({3}), 0).shape());
  const NDArray base = arange(5);
  EXPECT_TRUE(sliding_window(base, 2).shares_memory(base));
  expect_error<InvalidArgument>("window of 0 to 3", [] { sliding_window(ones({3}), 4); });
  expect_error<InvalidArgument>("window of 0 to 3", [] { sliding_window(ones({3}), -1); });
  expect_error<InvalidArgument>("for each of the 2 axes", [] { sliding_window(ones({3, 3}), Shape{2}); });
  EXPECT_EQ(0u, unbind(zeros({2, 0}), 1).size());
  const std::vector<NDArray> columns = unbind(arange(6).reshape({2, 3}), -1);
  ASSERT_EQ(3u, columns.size());
  EXPECT_EQ((Values{1, 4}), test::values(columns[1]));
  EXPECT_EQ((Shape{0}), array_split(ones({1}), 3)[2].shape());
  expect_error<InvalidArgument>("[array_split]", [] { array_split(ones({3}), 0); });
  EXPECT_EQ((Values{3, 0, 4, 1, 5, 2}), test::values(rot90(arange(6).reshape({2, 3}), INT64_MIN + 3)));
  expect_error<InvalidArgument>("two different axes", [] { rot90(ones({2, 2}), 1, {0, -2}); });
  expect_error<InvalidArgument>("[rot90]", [] { rot90(ones({2})); });
  EXPECT_EQ(0, logspace(0, 1, 0).numel());
  EXPECT_EQ((Values{1000}), test::values(geomspace(1000, 1, 1, f64)));
  EXPECT_EQ(1e-300, geomspace(1e-300, 1e300, 3, f64)[0].item<double>());
  expect_error<InvalidArgument>("[geomspace]", [] { geomspace(0, 1, 3); });
  expect_error<InvalidArgument>("[geomspace]", [] { geomspace(-1, 1, 3); });
}

/// Computes einsum as the sum of products over all values of all labels.
Values einsum_by_hand(const std::string& inputs, const std::string& output,
                      const std::vector<NDArray>& operands) {
  std::map<char, int64_t> sizes;
  std::vector<std::string> terms(1);
  for (char c : inputs)
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  std::vector<Values> list;
  for (size_t i = 0; i < terms.size(); ++i) {
    for (size_t d = 0; d < terms[i].size(); ++d) {
      int64_t& size = sizes.try_emplace(terms[i][d], 1).first->second;
      size = std::max(size, operands[i].shape()[static_cast<int>(d)]);
    }
    list.push_back(test::values(operands[i]));
  }
  Shape all;
  std::string names;
  for (const auto& [name, size] : sizes) {
    names += name;
    all.push_back(size);
  }
  int64_t count = 1;
  for (char c : output) count *= sizes.at(c);
  Values result(static_cast<size_t>(count));
  for (int64_t i = 0; i < all.numel(); ++i) {
    const Shape at = test::place(all, i);
    const auto index = [&](char c) { return at[static_cast<int>(names.find(c))]; };
    double product = 1;
    for (size_t t = 0; t < terms.size(); ++t) {
      int64_t place = 0;
      for (size_t d = 0; d < terms[t].size(); ++d) {
        const int64_t size = operands[t].shape()[static_cast<int>(d)];
        place = place * size + (size == 1 ? 0 : index(terms[t][d]));
      }
      product *= list[t][static_cast<size_t>(place)];
    }
    int64_t to = 0;
    for (char c : output) to = to * sizes.at(c) + index(c);
    result[static_cast<size_t>(to)] += product;
  }
  return result;
}

TEST(Einsum, IsTheSumOfProductsThatItsTextSays) {
  const std::map<char, int64_t> sizes = {{'i', 2}, {'j', 3}, {'k', 4}, {'l', 2}, {'b', 3}, {'a', 5}};
  for (const char* text :
       {"i->i",          "i->",          "ij->ji",       "ij->",        "ij->j",        "ii->i",
        "ii->",          "iji->j",       "iii->i",       "ij,jk->ik",   "ij,jk->ki",    "ij,kj->ik",
        "bij,bjk->bik",  "bij,bjk->ikb", "ij,ij->",      "ij,ij->ij",   "i,j->ij",      "i,j->ji",
        "i,i->",         "ij,j->i",      "ijk,jil->kl",  "ijk,l->ljki", "ij,jk,kl->il", "ij,jk,kl,la->ia",
        "i,ij,j->",      "ijj,jk->ik",   "abk,abl->kl",  "aij,bij->ab", "ij,kl->",      "a,a,a->a",
        "ba,bi,bj->aij", ",ij->ji",      "bi,bj,bk->ijk"}) {
    SCOPED_TRACE(text);
    const std::string all = text;
    const std::string left = all.substr(0, all.find("->")), right = all.substr(all.find("->") + 2);
    std::vector<Shape> shapes(1);
    for (char c : left)
      if (c == ',') {
        shapes.emplace_back();
      } else {
        shapes.back().push_back(sizes.at(c));
      }
    for (DType dtype : {f64, f32, i32}) {
      std::vector<NDArray> operands;
      for (size_t i = 0; i < shapes.size(); ++i) operands.push_back(test::numbers(shapes[i], dtype, i + 1));
      const NDArray y = einsum(all, operands);
      Shape want;
      for (char c : right) want.push_back(sizes.at(c));
      EXPECT_EQ(want, y.shape());
      EXPECT_EQ(dtype, y.dtype());
      test::expect_values(einsum_by_hand(left, right, operands), y, all, 20);
      // The result does not depend on layouts.
      for (NDArray& operand : operands) operand = operand.transpose().clone().transpose();
      test::expect_values(einsum_by_hand(left, right, operands), einsum(all, operands), all, 20);
    }
  }
}

TEST(Einsum, ImplicitOutputsEllipsesAndBroadcasting) {
  const NDArray a = test::numbers({2, 3, 4}, f64), b = test::numbers({2, 4, 5}, f64, 2);
  const auto same = [](const NDArray& x, const NDArray& y) {
    EXPECT_EQ(x.shape(), y.shape());
    EXPECT_TRUE(allclose(x, y)) << x << y;
  };
  same(sum(matmul(a, b), 0), einsum("bij,bjk", a, b));  // label b occurs in both operands
  same(matmul(a, b), einsum(" ... ij , ...jk -> ...ik ", a, b));
  same(a[0].transpose(), einsum("ba", a[0]));
  same(a[0].transpose(), einsum("bA", a[0]).transpose().transpose());
  same(sum(a * a), einsum("...,...->", a[{0, 0, 0}], sum(a * a) / a[{0, 0, 0}]));
  same(a.transpose({1, 2, 0}), einsum("i...->...i", a));
  same(matmul(a, ones({4}, f64)), einsum("...i,i", a, ones({4}, f64)));
  same(a * b[{colon, Slice{0, 1}, Slice{0, 4}}],
       einsum("...i,...i->...i", a, b[{colon, Slice{0, 1}, Slice{0, 4}}]));
  // A size of 1 broadcasts, even along a label that is summed.
  test::expect_values(einsum_by_hand("ij,jk", "ik", {a[0][{colon, Slice{0, 1}}], b[0]}),
                      einsum("ij,jk->ik", a[0][{colon, Slice{0, 1}}], b[0]), "1 against 4", 20);
  EXPECT_EQ((Shape{0, 2}), einsum("ij,jk->ik", zeros({0, 3}), zeros({3, 2})).shape());
  test::expect_values({0, 0}, einsum("ij,j->i", zeros({2, 0}), zeros({0})), "sums of nothing");
  const NDArray m = arange(6).reshape({2, 3});
  EXPECT_TRUE(einsum("ij->ji", m).shares_memory(m));
}

TEST(Einsum, TypesAreThoseOfTheOperands) {
  EXPECT_EQ(f32, einsum("i,i->", ones({2}), ones({2}, i64)).dtype());
  EXPECT_EQ(u8, einsum("i->", full({2}, 200, u8)).dtype());
  EXPECT_EQ(144, einsum("i->", full({2}, 200, u8)).item<int64_t>());
  const NDArray t = full({2}, true, bool_);
  EXPECT_EQ(bool_, einsum("i,i->", t, t).dtype());
  EXPECT_TRUE(einsum("i->", t).item<bool>());
}

TEST(Einsum, SaysWhatDoesNotFit) {
  const NDArray a = ones({2, 3}), b = ones({4, 5});
  expect_error<InvalidArgument>("one size for 'j' in \"ij,jk->ik\", got 3 and 4",
                                [&] { einsum("ij,jk->ik", a, b); });
  expect_error<InvalidArgument>("expected 2 operands", [&] { einsum("ij,jk->ik", a); });
  expect_error<InvalidArgument>("rank 3", [&] { einsum("ijk->i", a); });
  expect_error<InvalidArgument>("rank 1 or more", [&] { einsum("i...->i...", full({}, 1)); });
  expect_error<InvalidArgument>("'z' to appear before '->' too", [&] { einsum("ij->iz", a); });
  expect_error<InvalidArgument>("'i' only once after '->'", [&] { einsum("ij->ii", a); });
  expect_error<InvalidArgument>("got '3'", [&] { einsum("i3->i", a); });
  expect_error<InvalidArgument>("one size for 'i' in \"ii\", got 2 and 3", [&] { einsum("ii", a); });
  expect_error<InvalidArgument>("equal sizes for 'i'", [&] { einsum("ii", ones({1, 3})); });
  expect_error<InvalidArgument>("'...' after '->'", [&] { einsum("...j->j", a); });
  expect_error<InvalidArgument>("at least one operand", [&] { einsum("", std::vector<NDArray>{}); });
  expect_error<InvalidArgument>("got '.'", [&] { einsum("..i->i", a); });
}

TEST(Products, AtEdges) {
  test::expect_values({2, 4}, inner(array({1., 2.}), full({}, 2)), "a number");
  expect_error<InvalidArgument>("[inner] expected last dimensions of the same size",
                                [] { inner(ones({2}), ones({3})); });
  expect_error<InvalidArgument>("[tensordot] expected equal sizes", [] {
    tensordot(ones({2, 3}), ones({2, 3}), 1);
  });
  expect_error<InvalidArgument>("a number of axes from 0 to the smaller rank",
                                [] { tensordot(ones({2}), ones({2}), 2); });
  expect_error<InvalidArgument>("each axis once", [] {
    tensordot(ones({2, 2}), ones({2, 2}), {0, 0}, {0, 1});
  });
  EXPECT_EQ((Shape{}), tensordot(ones({2, 3}), ones({2, 3})).shape());
  EXPECT_EQ(0, tensordot(ones({0}), ones({0}), 1).item<float>());
  EXPECT_EQ(6, kron(full({}, 2), full({}, 3)).item<float>());
  EXPECT_EQ((Shape{0, 6}), kron(ones({0, 2}), ones({2, 3})).shape());
  expect_error<InvalidArgument>("rank 6 at most", [] { kron(ones({1, 1, 1, 1, 1, 1, 1}), ones({1})); });
  expect_error<InvalidArgument>("vectors of 3", [] { cross(ones({2}), ones({2})); });
  EXPECT_EQ((Shape{4, 2, 3}), cross(ones({4, 1, 3}), ones({2, 3})).shape());
  EXPECT_EQ(i64, trace(ones({2, 2}, i32)).dtype());
  EXPECT_EQ(0, trace(ones({2, 2}), 5).item<float>());
  expect_error<InvalidArgument>("[trace]", [] { trace(ones({2})); });
  EXPECT_EQ((Shape{0, 2}), cdist(ones({0, 3}), ones({2, 3})).shape());
  test::expect_values({0, 0}, cdist(ones({1, 0}), ones({2, 0})), "no coordinates");
  EXPECT_EQ((Shape{5, 2, 4}), cdist(ones({5, 2, 3}), ones({4, 3})).shape());
  expect_error<InvalidArgument>("[cdist] expected rows of one size", [] {
    cdist(ones({2, 3}), ones({2, 2}));
  });
  expect_error<InvalidArgument>("p of 0 or more", [] { cdist(ones({2, 3}), ones({2, 3}), -1); });
}

TEST(Products, DistancesOfManyRowsAreExactForNearOnes) {
  // More differences than are computed at once, so the rows are split.
  const NDArray a = test::numbers({3000, 3}, f64), b = a + 1e-9;
  const NDArray d = cdist(a, b);
  EXPECT_EQ((Shape{3000, 3000}), d.shape());
  const Values diagonal = test::values(d.diagonal());
  for (double value : diagonal) EXPECT_NEAR(std::sqrt(3.) * 1e-9, value, 1e-15);
  const Values x = test::values(a), y = test::values(b);
  for (size_t i : {size_t{0}, size_t{1398}, size_t{1399}, size_t{2999}}) {
    const double want = std::hypot(x[3 * i] - y[30], x[3 * i + 1] - y[31], x[3 * i + 2] - y[32]);
    EXPECT_NEAR(want, (d[{static_cast<int64_t>(i), 10}].item<double>()), 1e-12);
  }
}

TEST(Special, InverseOfErfIsOne) {
  Values x;
  for (int i = -999; i < 1000; ++i) x.push_back(i / 1000.0);
  const Values y = test::values(erfinv(array(x)));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], std::erf(y[i]), 4e-16) << x[i];
  EXPECT_EQ(f32, erfinv(zeros({1}, i32)).dtype());
  EXPECT_TRUE(std::isnan(erfinv(full({}, NAN)).item<float>()));
  EXPECT_TRUE(std::signbit(erfinv(full({}, -0.0)).item<float>()));
}

TEST(Special, LogitOfCutNumbers) {
  test::expect_values({std::log(0.1 / 0.9), std::log(9)}, logit(array({-1., 2.}), 0.1), "eps");
  expect_error<InvalidArgument>("[logit] expected an eps", [] { logit(ones({1}), 0.7); });
}

TEST(Special, DivisorsOfExtremes) {
  EXPECT_EQ((Values{-128, 128}), test::values(gcd(array<int8_t>({-128, -128}), array<int8_t>({-128, 0})) *
                                              array<int64_t>({1, -1})));  // |-128| wraps, as in NumPy
  EXPECT_EQ(INT64_MIN, gcd(array<int64_t>({INT64_MIN}), 0).item<int64_t>());
  EXPECT_EQ(i32, gcd(ones({2}, u8), ones({2}, i8)).dtype());
  EXPECT_EQ(6, gcd(full({}, 250, u8), full({}, -6, i8)).item<int64_t>() * 3);
  EXPECT_EQ((Shape{2, 3}), lcm(ones({2, 1}, i64), ones({3}, i64)).shape());
  expect_error<InvalidArgument>("[gcd] expected integers", [] { gcd(ones({2}), ones({2})); });
  expect_error<InvalidArgument>("[lcm] expected integers",
                                [] { lcm(ones({2}, i64), full({2}, true, bool_)); });
}

TEST(Special, RoundsToDecimals) {
  test::expect_values({1.2, -1.2, kNan, kInfinity}, round(array({1.25, -1.25, kNan, kInfinity}), 1), "f64");
  EXPECT_EQ(1e308, round(full({}, 1e308, f64), 10).item<double>());
  EXPECT_EQ(f16, round(ones({1}, f16), 2).dtype());
  EXPECT_EQ((Values{127, -100}), test::values(round(array<int8_t>({127, -100}), 0)));
  EXPECT_EQ((Values{0, -100}), test::values(round(array<int8_t>({50, -120}), -2)));
  EXPECT_EQ(5000000000000000000, round(array<int64_t>({5000000000000000001}), -18).item<int64_t>());
  expect_error<InvalidArgument>("[round] expected decimals of -18 or more",
                                [] { round(ones({1}, i64), -19); });
  expect_error<InvalidArgument>("[round] expected decimals of -18 or more",
                                [] { round(ones({1}, i64), INT64_MIN); });
  test::expect_values({1.5}, round(full({}, 1.5), INT64_MAX), "more decimals than there are");
  test::expect_values({0}, round(full({}, 1.5), -40), "no multiple but 0");
  EXPECT_EQ(1200, round(full({}, 1234.f), -2).item<float>());
}

TEST(Special, NumbersInsteadOfNanAndInfinities) {
  EXPECT_EQ((Values{0, 65504, -65504}), test::values(nan_to_num(array({NAN, INFINITY, -INFINITY}).to(f16))));
  test::expect_values({-1, 2, -3}, nan_to_num(array({kNan, kInfinity, -kInfinity}), {-1, 2, -3}), "given");
  test::expect_values({kInfinity}, nan_to_num(array({kNan}), {.nan = kInfinity}), "what is put in stays");
  EXPECT_EQ(i32, nan_to_num(ones({2}, i32)).dtype());
}

TEST(Sets, AtEdges) {
  EXPECT_EQ((Values{0, 0}), test::values(isin(ones({2}), zeros({0}))));
  EXPECT_EQ((Values{1, 1}), test::values(isin(ones({2}), zeros({0}), true)));
  EXPECT_EQ((Shape{2, 2}), isin(ones({2, 2}), full({}, 1)).shape());
  EXPECT_TRUE(isin(full({}, 3), arange(5)).item<bool>());
  EXPECT_FALSE(isin(array<int64_t>({16777217}), array({16777216.f})).item<bool>());
  EXPECT_EQ((Values{INT64_MIN, 0}), test::values(union1d(array<int64_t>({0, INT64_MIN}), zeros({0}, i64))));
  EXPECT_EQ(0, intersect1d(zeros({0}), zeros({0})).numel());
  EXPECT_EQ(i8, setdiff1d(ones({2}, i8), ones({2})).dtype());
  EXPECT_EQ((Values{0, 1}), test::values(setxor1d(full({3, 1}, true, bool_), full({2}, false, bool_))));
}

TEST(NumpyFunctions, RunOnTheDeviceOfTheirArrays) {
  const NDArray at_home = test::numbers({4, 6}, f32), whole_at_home = test::numbers({4, 6}, u8);
  using Made = NDArray (*)(const NDArray& x, const NDArray& whole);
  const std::pair<const char*, Made> functions[] = {
      {"isclose", [](const NDArray& x, const NDArray&) { return isclose(x, x[0]); }},
      {"nanvar", [](const NDArray& x, const NDArray&) { return nanvar(x, 1); }},
      {"nanmax", [](const NDArray& x, const NDArray&) { return nanmax(x); }},
      {"quantile",
       [](const NDArray& x, const NDArray&) {
         return quantile(x, {0.1, 0.5}, 1);
       }},
      {"nanmedian", [](const NDArray& x, const NDArray&) { return nanmedian(x, 1); }},
      {"median of nothing",
       [](const NDArray& x, const NDArray&) {
         return median(x.slice(1, {0, 0}), 1);
       }},
      {"average", [](const NDArray& x, const NDArray&) { return average(x, x[0], 1); }},
      {"cov", [](const NDArray& x, const NDArray&) { return cov(x, {.aweights = abs(x[0])}); }},
      {"cov of counts", [](const NDArray& x, const NDArray& w) { return cov(x, {.fweights = w[0]}); }},
      {"corrcoef", [](const NDArray& x, const NDArray&) { return corrcoef(x); }},
      {"bincount", [](const NDArray&, const NDArray& w) { return bincount(w.flatten()); }},
      {"weights", [](const NDArray& x, const NDArray& w) { return bincount(w.flatten(), x.flatten()); }},
      {"histogram", [](const NDArray& x, const NDArray&) { return histogram(x, {.bins = 3}).counts; }},
      {"density", [](const NDArray& x, const NDArray&) { return histogram(x, {.density = true}).counts; }},
      {"digitize", [](const NDArray& x, const NDArray&) { return digitize(x, sort(x[0])); }},
      {"diff", [](const NDArray& x, const NDArray&) { return diff(x); }},
      {"diag", [](const NDArray& x, const NDArray&) { return diag(x[0], 1); }},
      {"window", [](const NDArray& x, const NDArray&) { return sliding_window(x, 2) * 1; }},
      {"tensordot", [](const NDArray& x, const NDArray&) { return tensordot(x, x, 2); }},
      {"kron", [](const NDArray& x, const NDArray&) { return kron(x, x[0]); }},
      {"cdist", [](const NDArray& x, const NDArray&) { return cdist(x, x); }},
      {"einsum", [](const NDArray& x, const NDArray&) { return einsum("ij,kj,ij->ik", x, x, x); }},
      {"isin", [](const NDArray& x, const NDArray& w) { return isin(w, x.to(u8)); }},
      {"isin nothing", [](const NDArray& x, const NDArray& w) { return isin(w, x.slice(0, {0, 0})); }},
      {"setxor1d", [](const NDArray& x, const NDArray& w) { return setxor1d(w, x); }},
      {"lexsort", [](const NDArray& x, const NDArray& w) { return lexsort({x, w}); }},
      {"erfinv", [](const NDArray& x, const NDArray&) { return erfinv(x); }},
      {"xlogy", [](const NDArray& x, const NDArray&) { return xlogy(x, 2); }},
      {"gcd", [](const NDArray&, const NDArray& w) { return gcd(w, 6); }},
      {"round", [](const NDArray& x, const NDArray&) { return round(x, 1); }},
      {"round of integers", [](const NDArray&, const NDArray& w) { return round(w, -1); }},
      {"nan_to_num", [](const NDArray& x, const NDArray&) { return nan_to_num(log(x)); }}};
  for (const auto& [name, f] : functions) {
    SCOPED_TRACE(name);
    const NDArray here = f(at_home, whole_at_home), there = f(at_home.to(virt(0)), whole_at_home.to(virt(0)));
    EXPECT_EQ(virt(0), there.context());
    EXPECT_TRUE(array_equal(here, there.to(cpu()), true));
  }
  Generator draws(3, virt(0));
  EXPECT_EQ(virt(0), draws.binomial(9, 0.4, {5}).context());
  EXPECT_EQ(virt(0), draws.beta(2, 3, {5}).context());
  EXPECT_EQ(virt(0), draws.choice(9, {5}, false).context());
  EXPECT_EQ(virt(0), draws.choice(3, {2}, false, array({1.f, 2.f, 3.f}).to(virt(0))).context());
}

}  // namespace
}  // namespace mx
