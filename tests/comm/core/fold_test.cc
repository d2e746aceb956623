#include "comm/fold.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "engine/base/half.h"

namespace mx::comm {
namespace {

template <class T>
using Wide = std::conditional_t<HalfFloat<T>, float, T>;

template <class T>
constexpr Type fold_type() {
  if constexpr (std::is_same_v<T, float>) return Type::f32;
  if constexpr (std::is_same_v<T, double>) return Type::f64;
  if constexpr (std::is_same_v<T, float16>) return Type::f16;
  if constexpr (std::is_same_v<T, bfloat16>) return Type::bf16;
  if constexpr (std::is_same_v<T, int8_t>) return Type::i8;
  if constexpr (std::is_same_v<T, uint8_t>) return Type::u8;
  if constexpr (std::is_same_v<T, int32_t>) return Type::i32;
  if constexpr (std::is_same_v<T, int64_t>) return Type::i64;
}

template <class T>
Wide<T> combine_slowly(Reduction reduction, Wide<T> a, Wide<T> b) {
  if constexpr (std::is_integral_v<T>) {
    if (reduction == Reduction::sum)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    if (reduction == Reduction::sum) return a + b;
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  if (reduction == Reduction::min) return a < b ? a : b;
  return a > b ? a : b;
}

template <class T>
class FoldTest : public testing::Test {};
using FoldTypes = testing::Types<float, double, float16, bfloat16, int8_t, uint8_t, int32_t, int64_t>;
TYPED_TEST_SUITE(FoldTest, FoldTypes);

template <class T>
std::vector<std::vector<T>> random_rows(int ranks, size_t count) {
  std::mt19937_64 random(7);
  std::vector<std::vector<T>> rows(static_cast<size_t>(ranks), std::vector<T>(count));
  for (auto& row : rows)
    for (T& value : row) {
      if constexpr (std::is_integral_v<T>)
        value = static_cast<T>(random());
      else
        value = static_cast<T>(static_cast<float>(
            std::ldexp(static_cast<double>(random() % 4096) - 2048., static_cast<int>(random() % 12) - 16)));
    }
  return rows;
}

template <class T>
void expect_fold(const std::vector<std::vector<T>>& rows, Reduction reduction, bool in_place) {
  const size_t count = rows[0].size();
  std::vector<T> expected(count);
  for (size_t i = 0; i < count; ++i) {
    Wide<T> value = rows[0][i];
    for (size_t r = 1; r < rows.size(); ++r)
      value = combine_slowly<T>(reduction, value, static_cast<Wide<T>>(rows[r][i]));
    expected[i] = static_cast<T>(value);
  }
  auto inputs_kept = rows;
  std::vector<const void*> inputs;
  for (const auto& row : inputs_kept) inputs.push_back(row.data());
  std::vector<T> separate(count);
  auto& out = in_place ? inputs_kept.back() : separate;
  fold_ranks(out.data(), inputs.data(), static_cast<int>(inputs.size()), count, fold_type<T>(), reduction);
  if (count == 0) return;
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), count * sizeof(T)), 0)
      << rows.size() << " ranks, " << count << " x " << to_string(fold_type<T>()) << " "
      << to_string(reduction);
}

TYPED_TEST(FoldTest, IsTheLeftFoldOverTheRanks) {
  for (const int ranks : {1, 2, 3, 4, 5, 9})
    for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{64}, size_t{1000}, size_t{5003}})
      for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
        for (const bool in_place : {false, true})
          expect_fold(random_rows<TypeParam>(ranks, count), reduction, in_place);
}

TYPED_TEST(FoldTest, FoldsIntoAnAccumulator) {
  const auto rows = random_rows<TypeParam>(2, 301);
  auto acc = rows[0];
  fold(Reduction::sum, fold_type<TypeParam>(), acc.data(), rows[1].data(), acc.size());
  for (size_t i = 0; i < acc.size(); ++i) {
    const TypeParam expected =
        static_cast<TypeParam>(combine_slowly<TypeParam>(Reduction::sum, rows[0][i], rows[1][i]));
    ASSERT_EQ(std::memcmp(&acc[i], &expected, sizeof(TypeParam)), 0) << i;
  }
}

TYPED_TEST(FoldTest, SpecialValuesGoThroughVectorsAndRemaindersAlike) {
  if constexpr (!std::is_integral_v<TypeParam>) {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const float values[] = {nan, 1.f, inf, -inf, -0.f, 0.f, 3.4e38f, 65504.f, 65520.f, 6e-8f, 1e-40f};
    std::vector<std::vector<TypeParam>> rows(3);
    for (const float x : values)
      for (const float y : values)
        for (const float z : values) {
          const auto a = static_cast<TypeParam>(x), b = static_cast<TypeParam>(y),
                     c = static_cast<TypeParam>(z);
          // Compilers may exchange the operands of an addition. Of two different NaNs the result is then the
          // other one, so there is at most one NaN here, also as the sum of infinities.
          int special = 0;
          for (const TypeParam value : {a, b, c}) special += !std::isfinite(static_cast<double>(value));
          if (special > 1) continue;
          rows[0].push_back(a);
          rows[1].push_back(b);
          rows[2].push_back(c);
        }
    for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
      expect_fold(rows, reduction, false);
  }
}

// Every value of a half type, signalling NaNs and zeros of both signs among them, with special ones.
template <class T>
void expect_extremes_of_all_halves() {
  const uint16_t specials[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x3c00, 0xbc00, 0x7c00, 0xfc00,
                               0x7f80, 0xff80, 0x7c01, 0xfc01, 0x7e00, 0xfe55, 0x7f81, 0x7fff};
  std::vector<std::vector<T>> rows(3);
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    for (const uint16_t special : specials) {
      rows[0].push_back(std::bit_cast<T>(static_cast<uint16_t>(bits)));
      rows[1].push_back(std::bit_cast<T>(special));
      rows[2].push_back(std::bit_cast<T>(static_cast<uint16_t>(bits * 40503u)));
    }
  for (const Reduction reduction : {Reduction::min, Reduction::max}) {
    expect_fold(rows, reduction, false);
    expect_fold<T>({rows[1], rows[0]}, reduction, true);
  }
}

TEST(FoldHalves, ExtremesOfAllFloat16AreThoseOfScalars) { expect_extremes_of_all_halves<float16>(); }
TEST(FoldHalves, ExtremesOfAllBfloat16AreThoseOfScalars) { expect_extremes_of_all_halves<bfloat16>(); }

TEST(FoldRounding, HalvesAreRoundedOnce) {
  // In float16, 2048 + 1 is 2048; summed in float, the two ones count.
  const float16 inputs[] = {float16(2048.f), float16(1.f), float16(1.f)};
  const void* const pointers[] = {&inputs[0], &inputs[1], &inputs[2]};
  float16 sum;
  fold_ranks(&sum, pointers, 3, 1, Type::f16, Reduction::sum);
  EXPECT_EQ(static_cast<float>(sum), 2050.f);
}

}  // namespace
}  // namespace mx::comm
