// Creation, values and conversions of arrays.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/print.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

TEST(Create, FullHoldsItsValueInEveryTypeOnEveryDevice) {
  for (const Context context : {cpu(), virt(0)}) {
    for (DType dtype : kAllDTypes) {
      const NDArray a = full({2, 3}, 1.0, dtype, context);
      EXPECT_EQ(dtype, a.dtype());
      EXPECT_EQ(context, a.context());
      EXPECT_EQ(std::vector<double>(6, 1), a.to_vector<double>()) << dtype;
      EXPECT_EQ(std::vector<double>(6, 1), ones_like(a).to_vector<double>()) << dtype;
      EXPECT_EQ(std::vector<double>(6, 0), zeros_like(a).to_vector<double>()) << dtype;
      EXPECT_EQ(3, scalar_array(3, dtype, context).item<double>() + (dtype == bool_ ? 2 : 0)) << dtype;
    }
  }
}

TEST(Create, IntegersAreExactBeyondTheMantissaOfADouble) {
  const int64_t large = (int64_t{1} << 53) + 1;
  EXPECT_EQ(large, full({}, large, i64).item<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{large, large + 1, large + 2}),
            arange(large, large + 3).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{INT64_MIN, -1, INT64_MAX - 1}),
            arange(INT64_MIN, INT64_MAX, INT64_MAX).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{INT64_MAX, 0, -INT64_MAX}),
            arange(INT64_MAX, INT64_MIN, -INT64_MAX).to_vector<int64_t>());
}

TEST(Create, ArangeCountsAsNumPyDoes) {
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2}), arange(3).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{5, 3, 1}), arange(5, 0, -2).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{5, 3}), arange(5, 1, -2).to_vector<int64_t>());
  EXPECT_EQ(0, arange(0).numel());
  EXPECT_EQ(0, arange(3, 1).numel());
  EXPECT_EQ(0, arange(1, 3, -1).numel());
  EXPECT_EQ(f32, arange(1.5).dtype());
  EXPECT_EQ((std::vector<float>{0.f, 0.25f, 0.5f, 0.75f}), arange(0, 1, 0.25).to_vector<float>());
  const std::vector<double> tenths = arange(0, 1, 0.1, f64).to_vector<double>();
  ASSERT_EQ(10u, tenths.size());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(i * 0.1, tenths[static_cast<size_t>(i)]) << "errors add up";
  error_of<InvalidArgument>([] { arange(0, 1, 0); });
  error_of<InvalidArgument>([] { arange(std::nan("")); });
  error_of<InvalidArgument>([] { arange(std::numeric_limits<double>::infinity()); });
  error_of<InvalidArgument>([] { arange(INT64_MIN, INT64_MAX); });
}

TEST(Create, LinspaceEndsWhereItIsTold) {
  for (int64_t count : {2, 3, 7, 50, 1001}) {
    const std::vector<double> values = linspace(0.1, 0.7, count, f64).to_vector<double>();
    ASSERT_EQ(static_cast<size_t>(count), values.size());
    EXPECT_EQ(0.1, values.front());
    EXPECT_EQ(0.7, values.back());
    for (size_t i = 1; i < values.size(); ++i) EXPECT_LT(values[i - 1], values[i]);
  }
  EXPECT_EQ((std::vector<float>{3.f}), linspace(3, 9, 1).to_vector<float>());
  EXPECT_EQ(0, linspace(0, 1, 0).numel());
  error_of<InvalidArgument>([] { linspace(0, 1, -1); });
}

TEST(Create, EyeHasOnesOnTheDiagonal) {
  for (const Context context : {cpu(), virt(1)}) {
    EXPECT_EQ((std::vector<float>{1, 0, 0, 0, 1, 0}), eye(2, 3, f32, context).to_vector<float>());
    EXPECT_EQ((std::vector<float>{1, 0, 0, 1, 0, 0}), eye(3, 2, f32, context).to_vector<float>());
  }
  EXPECT_EQ(Shape({4, 4}), eye(4).shape());
  EXPECT_EQ(0, eye(0).numel());
  error_of<InvalidArgument>([] { eye(-2); });
}

TEST(Create, SizesThatDoNotFitThrow) {
  error_of<InvalidArgument>([] { empty({-1}); });
  error_of<InvalidArgument>([] { empty({INT64_MAX, 2}); });
  error_of<InvalidArgument>([] { empty({INT64_MAX / 2}, f64); });
  error_of<InvalidArgument>([] { Shape::filled(kMaxRank + 1, 1); });
  error_of<InvalidArgument>([] { empty({1}, f32, virt(1000)); });
}

TEST(Create, NoMemoryIsRefusedWhereThereAreElements) {
  const float* const nothing = nullptr;
  const std::string text = error_of<InvalidArgument>([&] { from_data(nothing, {3}); });
  EXPECT_TRUE(contains(text, "got null for shape (3,)")) << text;
  error_of<InvalidArgument>([&] { from_external(nullptr, f32, {3}, {1}, [] {}); });
  EXPECT_EQ((Shape{0, 3}), from_data(nothing, {0, 3}).shape());
}

TEST(Create, OutsideMemoryBeyondTheAddressSpaceIsRefused) {
  float memory[4] = {};
  bool released = false;
  const auto refused = [&](const Shape& shape, const Strides& strides) {
    const std::string text = error_of<InvalidArgument>(
        [&] { from_external(memory, f32, shape, strides, [&] { released = true; }); });
    EXPECT_TRUE(contains(text, "[from_external]")) << text;
  };
  refused({2, 2}, {INT64_MAX, 1});
  refused({3, 2}, {INT64_MAX / 2, 1});
  refused({3}, {INT64_MIN / 2});
  refused({2}, {INT64_MIN});
  refused({2}, {INT64_MIN / 8});
  refused({2}, {1, 1});
  EXPECT_FALSE(released);
}

TEST(Create, LiteralsKeepTheirTypeAndRowsMustHaveOneLength) {
  EXPECT_EQ(f32, array({1.f}).dtype());
  EXPECT_EQ(i32, array({1}).dtype());
  EXPECT_EQ(bool_, array({true, false}).dtype());
  EXPECT_EQ(bool_, array(std::vector<bool>{true}).dtype());
  EXPECT_EQ(Shape({2, 3}), array({{1, 2, 3}, {4, 5, 6}}).shape());
  const NDArray cube = array({{{1., 2.}}, {{3., 4.}}});
  EXPECT_EQ(Shape({2, 1, 2}), cube.shape());
  EXPECT_EQ((std::vector<double>{1, 2, 3, 4}), cube.to_vector<double>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { array({{1, 2}, {3}}); }), "got lengths 2 and 1"));
  error_of<InvalidArgument>([] { array({{{1, 2}, {3, 4}}, {{5, 6}}}); });
  error_of<InvalidArgument>([] { array({{{1, 2}, {3}}}); });
}

TEST(Values, ItemGoesUpInCategoryOnly) {
  EXPECT_EQ(3.f, full({1, 1}, 3, i32).item<float>());
  EXPECT_EQ(1, full({}, true, bool_).item<int64_t>());
  EXPECT_TRUE(full({}, 0.5).item<bool>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { full({}, 0.5).item<int>(); }), "holds f32, got i32"));
  error_of<InvalidArgument>([] { ones({2}).item<float>(); });
  error_of<InvalidArgument>([] { ones({0}).item<float>(); });
}

TEST(Values, VectorsConvertAsTheCopyDoes) {
  const NDArray a = array({-1.5f, 0.f, 300.75f});
  EXPECT_EQ((std::vector<int64_t>{-1, 0, 300}), a.to_vector<int64_t>());
  EXPECT_EQ((std::vector<bool>{true, false, true}), a.to_vector<bool>());
  for (DType dtype : kAllDTypes) {
    const NDArray small = arange(0, 2, 1, i64).to(dtype);
    EXPECT_EQ((std::vector<double>{0, 1}), small.to_vector<double>()) << dtype;
  }
}

TEST(Values, TruthNeedsOneElement) {
  EXPECT_TRUE(static_cast<bool>(ones({1})));
  EXPECT_FALSE(static_cast<bool>(zeros({}, i64, virt(0))));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { (void)static_cast<bool>(ones({2})); }), "any() or all()"));
}

TEST(Values, DataIsTheMemoryItself) {
  NDArray a = zeros({3}, i32);
  a.mutable_data<int>()[1] = 5;
  EXPECT_EQ((std::vector<int>{0, 5, 0}), a.to_vector<int>());
  EXPECT_EQ(a.data<int>() + 1, (a[{Slice{1, {}}}].data<int>()));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a.data<float>(); }), "element type i32, got f32"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { ones({1}, f32, virt(0)).data<float>(); }), "to(cpu())"));
}

TEST(Values, AnEmptyHandleSaysSo) {
  NDArray none;
  EXPECT_FALSE(none.defined());
  const NDArray copy = none;
  none = copy;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { none.shape(); }), "empty handle"));
  error_of<InvalidArgument>([&] { none.clone(); });
  error_of<InvalidArgument>([&] { none.wait(); });
  error_of<InvalidArgument>([&] { none[0]; });
  error_of<InvalidArgument>([&] { none.to_vector<float>(); });
  error_of<InvalidArgument>([&] { none.fill_(1); });
  error_of<InvalidArgument>([&] { none.copy_from(ones({1})); });
  error_of<InvalidArgument>([&] { ones({1}).copy_from(none); });
  error_of<InvalidArgument>([&] { to_string(none); });
  error_of<InvalidArgument>([&] { ones({1})[{Index(none)}]; });
}

TEST(Values, RankZeroAndNothingAreArraysLikeOthers) {
  for (const Context context : {cpu(), virt(0)}) {
    const NDArray number = full({}, 4, i64, context);
    EXPECT_EQ(1, number.numel());
    EXPECT_EQ(4, number.transpose().reshape({1, 1}).squeeze().clone().item<int64_t>());
    EXPECT_EQ((std::vector<int64_t>{4, 4}), number.broadcast_to({2}).to_vector<int64_t>());
    NDArray nothing = zeros({2, 0, 3}, f32, context);
    EXPECT_TRUE(nothing.to_vector<float>().empty());
    nothing.fill_(1);
    nothing.copy_from(nothing);
    nothing[0] = 3;
    EXPECT_EQ(Shape({3, 0, 2}), nothing.transpose().clone().to(f64).to(cpu()).to(virt(1)).shape());
    EXPECT_EQ(Shape({0}), nothing.flatten().shape());
    nothing.wait();
  }
}

TEST(Values, CloneIsAnotherArrayAndConversionKeepsWhatFitsAlready) {
  NDArray a = arange(6).reshape({2, 3});
  const NDArray b = a.clone(), t = a.transpose();
  EXPECT_FALSE(a.shares_memory(b));
  EXPECT_TRUE(a.shares_memory(a.to(i64)) && a.shares_memory(a.to(cpu())) &&
              a.shares_memory(a.to_contiguous()));
  EXPECT_FALSE(t.shares_memory(t.to_contiguous()));
  EXPECT_TRUE(t.clone().contiguous());
  a.fill_(9);
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3, 4, 5}), b.to_vector<int64_t>());
}

TEST(Print, ArraysPrintAsTheirElementsDoOnAnyDevice) {
  for (const Context context : {cpu(), virt(1)}) {
    const NDArray a = arange(6).reshape({2, 3}).to(context);
    std::ostringstream out;
    out << a;
    EXPECT_EQ("[[0 1 2]\n [3 4 5]]", out.str());
    EXPECT_EQ("[[0 3]\n [1 4]\n [2 5]]", to_string(a.transpose()));
    EXPECT_EQ("[5 3]", to_string(a[{Slice{{}, {}, -1}}].select(0, 0)[{Slice{{}, {}, -2}}]));
    EXPECT_EQ("7", to_string(full({}, 7, i64, context)));
    EXPECT_EQ("[]", to_string(zeros({0}, f32, context)));
    EXPECT_EQ("[   0    1    2 ... 1997 1998 1999]", to_string(arange(2000).to(context)));
  }
}

TEST(Print, PrintingSeesWhatWasPushedBefore) {
  NDArray a = zeros({1 << 16}, i32);
  a.fill_(3);
  a[{Slice{1, -1}}] = full({(1 << 16) - 2}, 4, i32);
  EXPECT_EQ("[3 4 4 ... 4 4 3]", to_string(a));
}

TEST(Create, IntegersBeyondInt64AreKeptWhereTheyFitAndRefusedWhereTheyDoNot) {
  const uint64_t most = ~uint64_t{0}, half = uint64_t{1} << 63;
  EXPECT_EQ(0x1p64, full({}, most, f64).item<double>());
  EXPECT_EQ(0x1p63, full({}, half, f32).item<double>());
  EXPECT_EQ(0x1p63, scalar_array(half, f64).item<double>());
  EXPECT_EQ(INT64_MAX, full({}, half - 1, i64).item<int64_t>());
  EXPECT_TRUE(full({}, half, bool_).item<bool>());
  NDArray x = zeros({2}, f64);
  x[1] = most;
  EXPECT_EQ((std::vector<double>{0, 0x1p64}), x.to_vector<double>());
  EXPECT_EQ(DType::i64, Scalar(most).category()) << "an integer all the same";
  EXPECT_FALSE(Scalar(most).fits());
  EXPECT_TRUE(Scalar(half - 1).fits() && Scalar(-1).fits() && Scalar(1e30).fits());
  for (const DType dtype : {i8, u8, i32, i64}) {
    NDArray y = zeros({2}, dtype);
    for (const std::string& text : {error_of<InvalidArgument>([&] { full({}, half, dtype); }),
                                    error_of<InvalidArgument>([&] { scalar_array(half, dtype); }),
                                    error_of<InvalidArgument>([&] { y.fill_(half); }),
                                    error_of<InvalidArgument>([&] { y[0] = half; })}) {
      EXPECT_TRUE(contains(text, "can hold, got 9223372036854775808")) << text;
      EXPECT_TRUE(contains(text, to_string(dtype))) << text;
    }
  }
  EXPECT_THROW(arange(uint64_t{0}, most), InvalidArgument);
  EXPECT_EQ((std::vector<double>{0, 0x1p62, 0x1p63, 0x1.8p63}),
            arange(0, most, uint64_t{1} << 62, f64).to_vector<double>());
}

}  // namespace
}  // namespace mx
