// Element types: conversions are correct for every bit pattern, and promotion is a lattice.
#include "ndarray/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "ndarray/kernels/convert.h"

namespace mx {
namespace {

// The oracle finds the binary16 nearest to a float by a search among all of them.
TEST(Half, EveryValueComesBackAndMidpointsRoundToEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = detail::half_to_float(static_cast<uint16_t>(bits));
    const double exact = bits < 0x400 ? std::ldexp(bits, -24)
                                      : std::ldexp(1024 + (bits & 0x3ff), static_cast<int>(bits >> 10) - 25);
    ASSERT_EQ(exact, value) << bits;
    ASSERT_EQ(bits, detail::float_to_half(value));
    ASSERT_EQ(bits | 0x8000, detail::float_to_half(-value));
    const float next = bits == 0x7bff ? 65536.f : detail::half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(bits + (bits & 1), detail::float_to_half(middle)) << bits;
    ASSERT_EQ(bits, detail::float_to_half(std::nextafter(middle, 0.f)));
    ASSERT_EQ(bits + 1, detail::float_to_half(std::nextafter(middle, 1e9f)));
  }
  EXPECT_TRUE(std::isinf(float(float16(1e6f))));
  EXPECT_TRUE(std::isnan(float(float16(std::nanf("")))));
}

TEST(BFloat, EveryValueComesBackAndMidpointsRoundToEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    ASSERT_EQ(bits, detail::float_to_bfloat(value));
    ASSERT_EQ(bits + (bits & 1), detail::float_to_bfloat(std::bit_cast<float>((bits << 16) | 0x8000)));
    ASSERT_EQ(bits + 1, detail::float_to_bfloat(std::bit_cast<float>((bits << 16) | 0x8001)));
    ASSERT_EQ(bits, detail::float_to_bfloat(std::bit_cast<float>((bits << 16) | 0x7fff)));
  }
  EXPECT_TRUE(std::isnan(float(bfloat16(std::nanf("")))));
}

TEST(DType, PromotionIsSymmetricAndAssociativeExceptWhereU8MeetsI8) {
  for (DType a : kAllDTypes) {
    EXPECT_EQ(a, promote(a, a));
    for (DType b : kAllDTypes) {
      EXPECT_EQ(promote(a, b), promote(b, a));
      EXPECT_GE(size_of(promote(a, b)), std::max(is_floating(a) ? size_of(a) : 1, size_t{1}));
    }
  }
  EXPECT_EQ(f32, promote(f16, bf16));
  EXPECT_EQ(f16, promote(f16, i64));
  EXPECT_EQ(i32, promote(i8, u8));
  EXPECT_EQ(u8, promote(bool_, u8));
}

TEST(DType, WeakScalarsMatterOnlyWhenTheirCategoryIsHigher) {
  EXPECT_EQ(f16, promote_weak(f16, f64));
  EXPECT_EQ(i8, promote_weak(i8, i64));
  EXPECT_EQ(f32, promote_weak(i64, f64));
  EXPECT_EQ(i64, promote_weak(bool_, i64));
  EXPECT_EQ(bool_, promote_weak(bool_, bool_));
}

TEST(DType, NamesComeBackAndOthersAreRefusedWithTheList) {
  for (DType type : kAllDTypes) EXPECT_EQ(type, dtype_from_string(to_string(type)));
  try {
    dtype_from_string("f128");
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("bf16"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("'f128'"), std::string::npos) << e.what();
  }
}

TEST(Convert, IsDefinedWhereACastIsNot) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(INT32_MAX, convert<int32_t>(inf));
  EXPECT_EQ(INT32_MIN, convert<int32_t>(-inf));
  EXPECT_EQ(0, convert<int32_t>(std::nan("")));
  EXPECT_EQ(INT64_MAX, convert<int64_t>(0x1p63));
  EXPECT_EQ(INT64_MIN, convert<int64_t>(-0x1p63));
  EXPECT_EQ(INT64_MAX, convert<int64_t>(0x1p63f));
  EXPECT_EQ(255, convert<uint8_t>(300.0f));
  EXPECT_EQ(0, convert<uint8_t>(-0.5f));
  EXPECT_EQ(0, convert<uint8_t>(-7.0));
  EXPECT_EQ(-128, convert<int8_t>(-128.9f));
  EXPECT_EQ(-2, convert<int8_t>(-2.9f));
  EXPECT_TRUE(convert<bool>(0.1f));
  EXPECT_TRUE(convert<bool>(std::nan("")));
  EXPECT_FALSE(convert<bool>(-0.0));
}

}  // namespace
}  // namespace mx
