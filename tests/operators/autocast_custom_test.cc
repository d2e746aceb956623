// Operators of a program inside of Autocast scopes. In this program, because the operator stays registered.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "operators/autocast.h"
#include "operators/operators.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

TEST(AutocastCustom, OperatorsOfTheProgramKeepTheirTypesUntilTheyGetARule) {
  struct Half : CustomOp {
    static Operator record() { return {.kernel = {"autocast_test_half"}, .doc = "0.5 x.", .inputs = {"x"}}; }
    void infer(InferContext& c) const { c.output(c.shape(0), c.dtype(0)); }
    std::vector<NDArray> compose(std::span<const NDArray> in) const {
      return {matmul(in[0], 0.5 * ones({1, 1}, in[0].dtype()))};
    }
  };
  const NDArray x = ones({2, 1});
  const Autocast scope;
  EXPECT_EQ(f32, custom<Half>({x}).dtype());
  set_autocast_rule(register_custom<Half>(), AutocastRule::lower);
  EXPECT_EQ(bf16, custom<Half>({x}).dtype());
  EXPECT_EQ(0.5f, custom<Half>({x})[0][0].item<float>());
  set_autocast_rule(register_custom<Half>(), AutocastRule::single);
  EXPECT_EQ(f32, custom<Half>({x.to(bf16)}).dtype());
  test::expect_error<InvalidArgument>(
      "whose rule is fixed", [] { set_autocast_rule(*find_operator("matmul"), AutocastRule::keep); });
}

}  // namespace
}  // namespace mx
