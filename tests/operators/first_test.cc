#include <gtest/gtest.h>

#include <limits>
#include <type_traits>
#include <vector>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"

namespace mx {
namespace {

TEST(First, ThePictureOnEverySlide) {
  NDArray a = ones({2, 2}) * 2;
  NDArray c = a + 2, b = a + 1;
  NDArray d = b * c;
  EXPECT_EQ(std::vector<float>(4, 12.f), d.to_vector<float>());
}

TEST(First, LargeOnesGoThroughTheEngine) {
  NDArray a = ones({300, 300}) * 2;
  for (int i = 0; i < 20; ++i) a = a + 1;
  a += 1;
  a[0] = 7;
  a[{1, Slice{0, 2}}] += 1;
  EXPECT_EQ(7.f, a[0][5].item<float>());
  EXPECT_EQ(24.f, a[1][1].item<float>());
  EXPECT_EQ(23.f, a[1][2].item<float>());
  NDArray v = a.to(virt(0));
  NDArray w = exp(v * 0.f) + v;
  EXPECT_EQ(24.f, (w.to(cpu())[{5, 5}].item<float>()));
}

// 16-bit numbers are valid operands of arrays, too; two of them are plain numbers.
template <class A, class B>
void expect_numbers(A two, B three) {
  static_assert(std::is_same_v<float, decltype(two + three)>);
  EXPECT_EQ(5.f, two + three);
  EXPECT_EQ(-1.f, two - three);
  EXPECT_EQ(6.f, two * three);
  EXPECT_EQ(0.5f, two / (two + two));
  static_assert(std::is_same_v<bool, decltype(two < three)>);
  EXPECT_TRUE(two < three && two <= three && !(two > three) && !(two >= three));
  EXPECT_TRUE(two != three && !(two == three) && three == three);
  const A none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(none != none && !(none == none) && !(none < three) && !(none >= three));
}

TEST(First, NumbersOf16BitsMeetAsFloats) {
  expect_numbers(float16(2), float16(3));
  expect_numbers(bfloat16(2), bfloat16(3));
  expect_numbers(float16(2), bfloat16(3));
  EXPECT_EQ((std::vector<float>{3, 4}), (array({1.f, 2.f}) + float16(2)).to_vector<float>());
}

}  // namespace
}  // namespace mx
