// Copies between all types and layouts, compared with the conversion of one element at a time.
#include "ndarray/kernels/copy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ndarray/kernels/convert_rows.h"
#include "tests/support/held_tensor.h"

namespace mx {
namespace {

using test::element_at;
using test::fill_values;
using test::first_difference;
using test::Held;
using test::make_tensor;

/// Copies element by element with convert().
void copy_slowly(const Tensor& target, const Tensor& source) {
  visit(target.dtype, [&](auto t) {
    visit(source.dtype, [&](auto s) {
      using T = typename decltype(t)::type;
      using S = typename decltype(s)::type;
      for (int64_t i = 0; i < target.numel(); ++i)
        *static_cast<T*>(element_at(target, i)) = convert<T>(*static_cast<const S*>(element_at(source, i)));
    });
  });
}

void expect_copied(DType to, DType from, const Shape& shape, const std::string& mine,
                   const std::string& other) {
  Held source = make_tensor(from, shape, mine), target = make_tensor(to, shape, other);
  Held expected = make_tensor(to, shape);
  fill_values(source.tensor);
  copy_slowly(expected.tensor, source.tensor);
  kernels::copy(target.tensor, source.tensor);
  ASSERT_EQ(-1, first_difference(expected.tensor, target.tensor))
      << from << " to " << to << " " << shape << " " << mine << " to " << other;
  ASSERT_TRUE(untouched_between(target));
}

TEST(Copy, EveryPairOfTypesInEveryLayout) {
  for (const DType to : kAllDTypes)
    for (const DType from : kAllDTypes)
      for (const Shape& shape :
           {Shape{}, Shape{0}, Shape{3, 0}, Shape{83}, Shape{3, 17, 19}, Shape{3, 67, 71}})
        for (size_t i = 0; i < 6; ++i)
          for (const std::string& other : {std::string("contiguous"), test::layouts()[(i + 3) % 6]}) {
            // The large shape exceeds one tile; one layout of it per pair of types is enough.
            if (shape.numel() > 10000 && to != from && i != (size_of(to) + size_of(from)) % 6) continue;
            ASSERT_NO_FATAL_FAILURE(expect_copied(to, from, shape, test::layouts()[i], other));
          }
}

TEST(Copy, ShortRunsInEveryLayout) {
  for (const auto& [to, from] :
       {std::pair(u8, u8), std::pair(f32, f32), std::pair(f32, u8), std::pair(f16, f64)})
    for (const Shape& shape :
         {Shape{64, 2}, Shape{2, 200}, Shape{2, 1030, 3}, Shape{3, 2, 70, 7}, Shape{7, 2100, 1, 2}})
      for (const std::string& mine : test::layouts())
        for (const std::string& other : test::layouts())
          ASSERT_NO_FATAL_FAILURE(expect_copied(to, from, shape, mine, other));
}

TEST(Copy, EveryHalfBecomesAFloatAndReturns) {
  for (const DType half : {f16, bf16}) {
    Held source = make_tensor(half, {65536}), wide = make_tensor(f32, {65536}),
         back = make_tensor(half, {65536});
    for (int64_t i = 0; i < 65536; ++i) source.tensor.as<uint16_t>()[i] = static_cast<uint16_t>(i);
    kernels::copy(wide.tensor, source.tensor);
    kernels::copy(back.tensor, wide.tensor);
    EXPECT_EQ(-1, first_difference(source.tensor, back.tensor)) << half;
  }
}

// Bit patterns at a fixed distance cover all exponents, midpoints between f16 numbers, and NaNs with any
// payload.
TEST(Copy, FloatsRoundToTheNearestHalf) {
  constexpr int64_t n = 1 << 20;
  Held source = make_tensor(f32, {n});
  for (int64_t i = 0; i < n; ++i) source.tensor.as<uint32_t>()[i] = static_cast<uint32_t>(i) << 12;
  for (const DType half : {f16, bf16}) {
    Held fast = make_tensor(half, {n}), slow = make_tensor(half, {n});
    kernels::copy(fast.tensor, source.tensor);
    copy_slowly(slow.tensor, source.tensor);
    EXPECT_EQ(-1, first_difference(slow.tensor, fast.tensor)) << half;
  }
}

TEST(Copy, BroadcastSourcesAreRepeated) {
  for (const DType dtype : kAllDTypes) {
    for (int kept = -1; kept < 3; ++kept) {
      Held source = make_tensor(dtype, {40, 50, 60}), target = make_tensor(dtype, {40, 50, 60});
      Held expected = make_tensor(dtype, {40, 50, 60});
      fill_values(source.tensor);
      Tensor repeated = source.tensor;
      for (int i = 0; i < 3; ++i)
        if (i != kept) repeated.strides[i] = 0;
      copy_slowly(expected.tensor, repeated);
      kernels::copy(target.tensor, repeated);
      EXPECT_EQ(-1, first_difference(expected.tensor, target.tensor)) << dtype << " " << kept;
    }
  }
}

// Exchanged dimensions of every size around that of a tile, with other dimensions outside, between and
// reversed.
TEST(Copy, TransposedCopiesHaveNoSeams) {
  for (const DType to : {u8, f16, f32, f64}) {
    for (const DType from : {to, i64, u8}) {
      for (const Shape& shape : {Shape{65, 130}, Shape{2, 64, 33}, Shape{300, 5, 70}, Shape{17, 300}}) {
        Held source = make_tensor(from, shape, "transposed"), target = make_tensor(to, shape);
        Held expected = make_tensor(to, shape);
        fill_values(source.tensor);
        copy_slowly(expected.tensor, source.tensor);
        kernels::copy(target.tensor, source.tensor);
        ASSERT_EQ(-1, first_difference(expected.tensor, target.tensor))
            << from << " to " << to << " " << shape;
        ASSERT_TRUE(untouched_between(target));
        // Reads the source backwards along its first dimension, which crosses the tiles.
        Tensor turned = source.tensor;
        turned.data = element_at(source.tensor, (shape[0] - 1) * (shape.numel() / shape[0]));
        turned.strides[0] = -turned.strides[0];
        copy_slowly(expected.tensor, turned);
        kernels::copy(target.tensor, turned);
        ASSERT_EQ(-1, first_difference(expected.tensor, target.tensor))
            << from << " to " << to << " " << shape;
      }
    }
  }
}

// Targets beyond the size from which results bypass the caches, at every alignment.
TEST(Copy, VeryLargeTargetsAreWrittenCompletely) {
  const int64_t n = kernels::kStreamBytes / 4 + 40009;
  for (const DType from : {f32, u8}) {
    Held source = make_tensor(from, {n}, "unaligned");
    for (int64_t i = 0; i < n; ++i)
      visit(from, [&](auto tag) {
        using T = typename decltype(tag)::type;
        source.tensor.as<T>()[i] = convert<T>(i % 127);
      });
    Held target = make_tensor(f32, {n}, "unaligned");
    kernels::copy(target.tensor, source.tensor);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(static_cast<float>(i % 127), target.tensor.as<float>()[i]) << i;
    ASSERT_EQ(Held::kPattern, target.memory.front());
    ASSERT_EQ(Held::kPattern, target.memory.back());
  }
}

TEST(Copy, OntoItselfChangesNothing) {
  for (const std::string& layout : test::layouts()) {
    Held a = make_tensor(f32, {20, 30}, layout), b = make_tensor(f32, {20, 30}, layout);
    fill_values(a.tensor);
    fill_values(b.tensor);
    kernels::copy(a.tensor, a.tensor);
    EXPECT_EQ(-1, first_difference(b.tensor, a.tensor)) << layout;
  }
}

TEST(Fill, EveryTypeAndLayout) {
  for (const DType dtype : kAllDTypes) {
    for (const std::string& layout : test::layouts()) {
      Held a = make_tensor(dtype, {7, 9, 11}, layout);
      kernels::fill(a.tensor, 3.0);
      for (int64_t i = 0; i < a.tensor.numel(); ++i)
        ASSERT_EQ(dtype == bool_ ? 1 : 3, test::value_at(a.tensor, i)) << dtype << " " << layout;
      EXPECT_TRUE(untouched_between(a));
      kernels::fill(a.tensor, int64_t{0});
      for (int64_t i = 0; i < a.tensor.numel(); ++i) ASSERT_EQ(0, test::value_at(a.tensor, i));
    }
  }
}

}  // namespace
}  // namespace mx
