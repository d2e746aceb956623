// Optimizer::unscale(): gradients without their loss scale before the step.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/elementwise_binary.h"
#include "operators/row_sparse.h"
#include "optim/clip.h"
#include "optim/loss_scale.h"
#include "optim/optimizers.h"
#include "tests/optim/plain_rules.h"
#include "tests/support/errors.h"

namespace mx::optim {
namespace {

using test::RandomNumbers;
using test::values_of;

TEST(Unscale, GradientsMayBeUnscaledBeforeTheStep) {
  const auto run = [](bool unscales, double limit) {
    const NDArray w = RandomNumbers(1).array({20}, f32).requires_grad_(),
                  table = RandomNumbers(2).array({6, 2}, f32).requires_grad_();
    Adam opt({{"w", w}, {"table", table}}, {.lr = 0.1});
    LossScale scale({.scale = 1024});
    opt.set_loss_scale(scale);
    for (uint64_t t = 0; t < 3; ++t) {
      const NDArray g = RandomNumbers(t).array({20});
      w.set_grad(mul(g, 1024));
      table.set_grad(mx::detail::make_row_sparse({array({1, 4}).to(i64), full({2, 2}, 1024.f)}, 6));
      if (unscales) {
        opt.unscale();
        EXPECT_TRUE(row_sparse(table.grad()).has_value());
        EXPECT_EQ(values_of({g}), values_of({w.grad()}));
        if (limit > 0) clip_grad_value({{"w", w}}, limit);
      }
      opt.step();
      EXPECT_EQ(1024.0, scale.value().item<double>());
    }
    return values_of({w, table});
  };
  EXPECT_EQ(run(false, 0), run(true, 0));
  EXPECT_NE(run(true, 0), run(true, 0.01));
}

TEST(Unscale, AnUnscaledOverflowIsSkippedAndUnscaleIsForOneStep) {
  const NDArray w = ones({2}).requires_grad_();
  SGD opt({{"w", w}}, {.lr = 1});
  test::expect_error<InvalidState>("with a loss scale", [&] { opt.unscale(); });
  LossScale scale({.scale = 8});
  opt.set_loss_scale(scale);
  w.set_grad(full({2}, std::numeric_limits<float>::infinity()));
  opt.unscale();
  test::expect_error<InvalidState>("unscale_test.cc", [&] { opt.unscale(); });
  opt.step();
  scale.update();
  EXPECT_EQ(4.0, scale.value().item<double>());
  EXPECT_EQ(std::vector<double>(2, 1), values_of({w}));
  w.set_grad(full({2}, 4.f));
  opt.step();  // divides by the scale again
  EXPECT_EQ(std::vector<double>(2, 0), values_of({w}));
}

TEST(Unscale, GradientsThatAreDroppedAreForgotten) {
  const NDArray w = ones({2}).requires_grad_();
  SGD opt({{"w", w}}, {.lr = 1});
  opt.set_loss_scale(LossScale({.scale = 8}));
  w.set_grad(full({2}, 8.f));
  opt.unscale();
  opt.zero_grad();
  w.set_grad(full({2}, 8.f));
  opt.step();  // these gradients still have the scale
  EXPECT_EQ(std::vector<double>(2, 0), values_of({w}));
}

}  // namespace
}  // namespace mx::optim
