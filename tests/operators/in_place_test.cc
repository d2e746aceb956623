// Operators that write where an array lies: what they must not write.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

TEST(WriteTargets, AViewThatRepeatsElementsIsRefusedByOperators) {
  for (const Context context : {cpu(), virt(0)}) {
    const NDArray one = ones({1, 3}, f32, context);
    NDArray wide = one.broadcast_to({1000, 3});
    const NDArray y = zeros({1000, 3}, f32, context), index = zeros({1}, i64, context);
    const auto refused = [&](const char* op, const auto& write) {
      const std::string text = error_of<InvalidArgument>(write);
      EXPECT_TRUE(contains(text, "expected a target whose elements are all different")) << text;
      EXPECT_TRUE(contains(text, std::string("[") + op + "]")) << text;
      EXPECT_TRUE(contains(text, "shape (1000, 3) and strides (0, 1)")) << text;
    };
    refused("add", [&] { wide += 1; });
    refused("mul", [&] { wide *= y; });
    refused("add", [&] { wide[{colon}] += y; });
    refused("sub", [&] { wide -= wide; });
    refused("index_update", [&] { index_add_(wide, index, y.slice(0, {0, 1})); });
    refused("index_update", [&] { index_copy_(wide, index, y.slice(0, {0, 1})); });
    refused("scatter", [&] { scatter_(wide, zeros({1, 1}, i64, context), ones({1, 1}, f32, context), 0); });
    refused("put_nd", [&] { wide[index] = 2; });
    refused("put_nd", [&] { wide[index] += 2; });
    refused("masked_scatter", [&] { masked_scatter_(wide, y == 0, y); });
    const NDArray inputs[] = {y};
    refused("exp", [&] { call_into(wide, *find_operator("exp"), {}, inputs); });
    refused("copy_from", [&] { shuffle_(wide); });
    EXPECT_EQ((std::vector<float>(3, 1)), one.to_vector<float>()) << "nothing has been written";
  }
}

}  // namespace
}  // namespace mx
