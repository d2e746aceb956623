// Conversions of numbers into and out of arrays: exact, or refused.
#include "ndarray/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

struct Fit {
  Scalar number;
  DType dtype;
  bool fits;
};

const Fit kFits[] = {
    {255, u8, true},
    {256, u8, false},
    {-1, u8, false},
    {-0.5, u8, true},  // truncated to 0
    {-1.0, u8, false},
    {255.99, u8, true},
    {256.0, u8, false},
    {127, i8, true},
    {128, i8, false},
    {-128, i8, true},
    {-129, i8, false},
    {-128.5, i8, true},
    {-129.0, i8, false},
    {INT32_MAX, i32, true},
    {3e9, i32, false},
    {int64_t{1} << 31, i32, false},
    {INT64_MAX, i64, true},
    {INT64_MIN, i64, true},
    {uint64_t{1} << 63, i64, false},
    {~uint64_t{0}, i64, false},
    {0x1p63, i64, false},
    {std::nextafter(0x1p63, 0), i64, true},
    {-0x1p63, i64, true},
    {std::nextafter(-0x1p63, -kInf), i64, false},
    {kNan, i32, false},
    {kInf, i64, false},
    {65504, f16, true},
    {65519, f16, true},  // rounds to 65504
    {65520, f16, false},
    {-1e30, f16, false},
    {1e30, bf16, true},
    {1e39, f32, false},
    {1e39, f64, true},
    {~uint64_t{0}, f32, true},
    {~uint64_t{0}, f16, false},
    {kInf, f16, true},
    {kNan, f32, true},
    {300, bool_, true},
    {kNan, bool_, true},
};

TEST(ScalarFits, WhatATypeHoldsAndNothingElse) {
  for (const Fit& fit : kFits)
    EXPECT_EQ(fit.fits, fits(fit.number, fit.dtype)) << fit.number << ' ' << fit.dtype;
}

// Every function that sets elements to a number accepts a number that fits and refuses any other, naming
// number and type.
TEST(ScalarFits, EverythingThatStoresANumberRefusesOneThatDoesNotFit) {
  for (const Context context : {cpu(), virt(0)}) {
    for (const Fit& fit : kFits) {
      SCOPED_TRACE(to_string(fit.number) + " in " + to_string(fit.dtype));
      NDArray x = zeros({3}, fit.dtype, context);
      const auto all = [&](const auto& check) {
        check([&] { full({2}, fit.number, fit.dtype, context); });
        check([&] { full_like(x, fit.number); });
        check([&] { scalar_array(fit.number, fit.dtype, context); });
        check([&] { x.fill_(fit.number); });
        check([&] { x[1] = fit.number; });
        check([&] { x[{Slice{0, 2}}] = fit.number; });
      };
      if (fit.fits) {
        all([](const auto& f) { EXPECT_NO_THROW(f()); });
        continue;
      }
      all([&](const auto& f) {
        const std::string text = error_of<InvalidArgument>(f);
        EXPECT_TRUE(contains(text, to_string(fit.number))) << text;
        EXPECT_TRUE(contains(text, to_string(fit.dtype))) << text;
      });
      EXPECT_EQ((std::vector<double>{0, 0, 0}), x.to_vector<double>()) << "refused, and yet it wrote";
    }
  }
}

TEST(ScalarFits, RangesStayInsideTheirType) {
  EXPECT_EQ(255, arange(0, 256, 1, u8)[-1].item<int>());
  for (const auto& f : {+[] { arange(0, 257, 1, u8); }, +[] { arange(-1, 3, 1, u8); },
                        +[] { arange(0, 1e10, 1e9, i32); }, +[] { linspace(0, 1000, 5, u8); },
                        +[] { linspace(-1, 5, 3, u8); }, +[] { arange(0, 100'000, 10'000, f16); }})
    EXPECT_TRUE(contains(error_of<InvalidArgument>(f), "can hold, got"));
  EXPECT_EQ(0, arange(300, 300, 1, u8).numel()) << "no element, no number that does not fit";
  // The last element is the largest that exists.
  EXPECT_EQ(INT64_MAX, arange(INT64_MIN, INT64_MAX, INT64_MAX)[-1].item<int64_t>() + 1);
}

TEST(Item, OfAValueThatTDoesNotHoldThrows) {
  const NDArray large = full({}, int64_t{1} << 40, i64), byte = full({}, 200, u8), minus = full({}, -1, i32),
                real = full({}, 1e300, f64);
  const auto refused = [](const auto& f, const char* number) {
    EXPECT_TRUE(contains(error_of<InvalidArgument>(f), std::string("can hold, got ") + number));
  };
  refused([&] { large.item<int>(); }, "1099511627776");
  refused([&] { byte.item<int8_t>(); }, "200");
  refused([&] { minus.item<uint8_t>(); }, "-1");
  refused([&] { real.item<float>(); }, "1e+300");
  refused([&] { large.item<float16>(); }, "1099511627776");
  EXPECT_EQ(int64_t{1} << 40, large.item<int64_t>());
  EXPECT_EQ(0x1p40f, large.item<float>());
  EXPECT_EQ(200, byte.item<int>());
  EXPECT_EQ(-1, minus.item<int8_t>());
  EXPECT_TRUE(byte.item<bool>() && real.item<bool>());
  EXPECT_EQ(static_cast<float>(kInf), full({}, kInf, f64).item<float>());
  EXPECT_EQ(1.f / 3, full({}, 1. / 3, f64).item<float>()) << "rounding is no loss of range";
}

TEST(Scalar, KeepsEveryNumberExactly) {
  EXPECT_EQ(INT64_MIN, Scalar(INT64_MIN).integer());
  EXPECT_EQ(~uint64_t{0} - 1, Scalar(~uint64_t{0} - 1).unsigned_integer());
  EXPECT_EQ(0.1, Scalar(0.1).real());
  EXPECT_EQ("18446744073709551615", to_string(Scalar(~uint64_t{0})));
  EXPECT_EQ("true", to_string(Scalar(true)));
  EXPECT_EQ("-3", to_string(Scalar(-3)));
  EXPECT_EQ("2.5", to_string(Scalar(2.5f)));
  EXPECT_EQ(bool_, Scalar(false).category());
  EXPECT_EQ(i64, Scalar(char{1}).category());
  EXPECT_EQ(f64, Scalar(bfloat16(1)).category());
}

static_assert(int64_t{IntArg(~uint64_t{0})} == INT64_MAX && int64_t{IntArg(int8_t{-1})} == -1);
TEST(IntArg, IsUsedAsAnInteger) {
  struct Options {
    IntArg steps = 10;
  } options{.steps = size_t{4}};
  options.steps *= 2;
  ++options.steps;
  EXPECT_EQ(9, options.steps);
  EXPECT_EQ(3, options.steps / 3);
  std::istringstream("12") >> options.steps;
  std::ostringstream text;
  text << options.steps;
  EXPECT_EQ("12", text.str());
  options.steps = 7;
  EXPECT_EQ(7, static_cast<double>(options.steps));
}

// Characters and enumerators are numbers in C++.
enum Axis { kBatch, kTime };
enum class Scoped { kOne = 1 };
static_assert(int64_t{IntArg('c')} == 99 && int64_t{IntArg(kTime)} == 1 && int64_t{IntArg(L'c')} == 99 &&
              !std::convertible_to<Scoped, IntArg>);

static_assert(std::convertible_to<int, RealArg> && std::convertible_to<float, RealArg> &&
              !std::convertible_to<bool, RealArg>);
static_assert(std::convertible_to<int, IntArg> && std::convertible_to<size_t, IntArg> &&
              !std::convertible_to<bool, IntArg> && !std::convertible_to<double, IntArg>);

}  // namespace
}  // namespace mx
