// gradcheck: right gradients pass, wrong ones are named.
#include "executor/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

/// x * x with a gradient that is wrong where x is above 1.
struct WrongSquare : Function {
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    save({in[0]});
    return {in[0] * in[0]};
  }
  std::vector<NDArray> backward(std::span<const NDArray> g) override {
    const NDArray& x = saved(0);
    return {g[0] * where(x > 1, 3 * x, 2 * x)};
  }
};

NDArray wrong_square(const NDArray& x) { return apply<WrongSquare>({x})[0]; }

TEST(Gradcheck, PassesForRightGradientsOfSeveralArraysAndResults) {
  const NDArray w = randn({3, 4}, f64), x = randn({2, 4}, f64);
  EXPECT_TRUE(gradcheck([](const NDArray& a, const NDArray& b) { return tanh(matmul(b, a.T())); }, {w, x}));
  EXPECT_TRUE(gradcheck([](const std::vector<NDArray>& a) { return a[0] * a[0]; }, {w}));
  EXPECT_FALSE(w.requires_grad());
}

TEST(Gradcheck, PassesOnArraysOfOtherTypesAndTakesUnusedOnes) {
  const NDArray table = randn({4, 2}, f64), rows = array<int64_t>({3, 0, 3}), unused = randn({2}, f64);
  EXPECT_TRUE(gradcheck([](const NDArray& t, const NDArray& i, const NDArray&) { return take(t, i, 0); },
                        {table, rows, unused}));
  EXPECT_TRUE(gradcheck([](const NDArray& x) { return x.detach() * 0; }, {unused}));
}

TEST(Gradcheck, NamesTheFirstDerivativeThatDiffers) {
  const NDArray x = array({0.5, 2.0});
  int line = 0;
  const auto check = [&](const GradcheckOptions& options) {
    line = std::source_location::current().line() + 1;
    return gradcheck(wrong_square, {x}, options);
  };
  const std::string text = error_of<InvalidArgument>([&] { check({}); });
  EXPECT_TRUE(contains(text, "element 1 of the result with respect to element 1 of array 0")) << text;
  EXPECT_TRUE(contains(text, "got 6")) << text;
  EXPECT_TRUE(contains(text, "gradcheck_test.cc:" + std::to_string(line))) << text;
  EXPECT_FALSE(check({.raise = false}));
  EXPECT_TRUE(check({.rtol = 0.6}));
  EXPECT_TRUE(gradcheck(wrong_square, {array({0.5, 0.9})}));
}

TEST(Gradcheck, FindsAResultThatIsCutOff) {
  error_of<InvalidArgument>(
      [] { gradcheck([](const NDArray& x) { return x.detach() * x; }, {array({2.0})}); });
  error_of<InvalidArgument>(
      [] { gradcheck([](const NDArray& x) { return x.detach() * 3; }, {array({2.0})}); });
}

TEST(Gradcheck, RefusesWhatItCannotCompare) {
  const auto square = [](const NDArray& x) { return x * x; };
  const NDArray x = array({1.0});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { gradcheck(square, {x.to(f32)}); }), "f32"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { gradcheck(square, {x.to(i64)}); }), "1 others"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { gradcheck(square, {x, x}); }), "got 2"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { gradcheck(square, {x}, {.step = 0}); }), "step"));
  const auto noisy = [](const NDArray& a) { return a * randn_like(a); };
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { gradcheck(noisy, {x}); }), "second call"));
}

}  // namespace
}  // namespace mx
