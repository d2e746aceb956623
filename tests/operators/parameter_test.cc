// A Parameter can be used like the array in its slot.
#include <gtest/gtest.h>

#include <vector>

#include "operators/operators.h"
#include "operators/parameter.h"

namespace mx {
namespace {

TEST(Parameter, IsIndexedAndChangedAsItsArray) {
  const Parameter weight(array({{1.f, 2.f}, {3.f, 4.f}}));
  EXPECT_EQ((std::vector<float>{3, 4}), weight[1].to_vector<float>());
  EXPECT_EQ(2, (weight[{0, 1}].item<float>()));
  EXPECT_EQ((std::vector<float>{2, 4}), (weight[{colon, 1}].to_vector<float>()));
  EXPECT_EQ((std::vector<float>{3, 4}), weight[weight > 2].to_vector<float>());
  weight[0] = 7;
  weight[{1, 0}] += 1;
  EXPECT_EQ((std::vector<float>{7, 7, 4, 4}), weight.to_vector<float>());
  weight += 1;
  weight -= weight.array() / 2;
  weight *= 3;
  weight /= 2;
  EXPECT_EQ((std::vector<float>{6, 6, 3.75f, 3.75f}), weight.to_vector<float>());
  EXPECT_EQ(5, Parameter(full({1, 1}, 5)).item<float>());
}

}  // namespace
}  // namespace mx
