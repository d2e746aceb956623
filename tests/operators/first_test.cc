#include <gtest/gtest.h>

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

}  // namespace
}  // namespace mx
