// Views whose base is changed after they were taken. The gradient of a view is that of its current contents.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using Doubles = std::vector<double>;

// A change of y = 2 x, an array of two rows with six elements, and the gradient with respect to x that 10 *
// sum(first row of y) has after the change.
struct Change {
  const char* what;
  std::function<void(NDArray& y)> change;
  Doubles gradient;
};

NDArray two_rows() { return arange(1, 7, 1, f64).reshape({2, 3}); }

std::vector<Change> changes() {
  const Doubles none(6, 0);
  return {
      {"fill_", [](NDArray& y) { y.fill_(7); }, none},
      {"copy_from a plain array",
       [](NDArray& y) {
         y.copy_from(ones({2, 3}, f64));
       },
       none},
      {"assignment to every element",
       [](NDArray& y) {
         y[{colon, colon}] = 7;
       },
       none},
      {"assignment of a plain array to every element",
       [](NDArray& y) {
         y[{colon, colon}] = ones({2, 3}, f64);
       },
       none},
      {"fill_ through a view of all", [](NDArray& y) { y.flatten().fill_(7); }, none},
      {"fill_ through a view of a view",
       [](NDArray& y) {
         y.transpose()[{colon, 0}].fill_(7);
       },
       none},
      {"assignment to the row", [](NDArray& y) { y[0] = 7; }, none},
      {"assignment to an element",
       [](NDArray& y) {
         y[{0, 1}] = 7;
       },
       {20, 0, 20, 0, 0, 0}},
      {"assignment to the other row", [](NDArray& y) { y[1] = 7; }, {20, 20, 20, 0, 0, 0}},
      {"assignment by index", [](NDArray& y) { y[array<int64_t>({0})] = 7; }, none},
      {"assignment by mask",
       [](NDArray& y) {
         y[array({{true, false, true}, {false, false, false}})] = 7;
       },
       {0, 20, 0, 0, 0, 0}},
      {"adding", [](NDArray& y) { y += 1; }, {20, 20, 20, 0, 0, 0}},
      {"multiplying", [](NDArray& y) { y *= 3; }, {60, 60, 60, 0, 0, 0}},
      {"multiplying a row", [](NDArray& y) { y[0] *= 3; }, {60, 60, 60, 0, 0, 0}},
      {"the other row", [](NDArray& y) { y[0] = y[1]; }, {0, 0, 0, 20, 20, 20}},
      {"itself turned",
       [](NDArray& y) {
         y.copy_from(y[{Slice{{}, {}, -1}}]);
       },
       {0, 0, 0, 20, 20, 20}},
      {"replaced, then recorded again",
       [](NDArray& y) {
         const NDArray before = y.clone();
         y.fill_(7);
         y += before * 2;
       },
       {40, 40, 40, 0, 0, 0}},
      {"recorded again, then replaced",
       [](NDArray& y) {
         y += y.clone();
         y.fill_(0);
       },
       none},
      {"index_add_",
       [](NDArray& y) {
         index_add_(y, array<int64_t>({0}), y[{Slice{1, 2}}].clone());
       },
       {20, 20, 20, 20, 20, 20}},
      {"index_copy_",
       [](NDArray& y) {
         index_copy_(y, array<int64_t>({0}), ones({1, 3}, f64));
       },
       none},
  };
}

TEST(ChangedBase, AViewTakenBeforeHasTheGradientOfWhatItShows) {
  for (const Change& c : changes()) {
    SCOPED_TRACE(c.what);
    const NDArray x = two_rows().requires_grad_();
    NDArray y = x * 2;
    const NDArray row = y[0], of_row = row[{Slice{0, 3}}], all = y.transpose();
    const NDArray used = row * 1;  // so that the views have graph nodes before the change
    c.change(y);
    for (const NDArray& view : {row, of_row, NDArray(all[{colon, 0}])}) {
      EXPECT_EQ(y[0].to_vector<double>(), view.to_vector<double>());
      const NDArray total = sum(view * 10) + sum(x * 0);
      EXPECT_EQ(c.gradient, gradients({total}, {x}, {.retain_graph = true})[0].to_vector<double>());
    }
  }
}

TEST(ChangedBase, AViewOfWhatIsNoLongerRecordedIsNotRecorded) {
  NDArray x = array({1.0, 2.0}).requires_grad_();
  NDArray y = x * 2;
  const NDArray v = y[0], w = y.slice(0, {0, 1});
  EXPECT_TRUE(v.requires_grad());
  y.fill_(7);
  EXPECT_FALSE(v.requires_grad());
  test::error_of<InvalidState>([&] { (v * 10).backward(); });
  y.copy_from(x);
  EXPECT_TRUE(v.requires_grad() && w.requires_grad());
  (v * w[0]).backward();
  EXPECT_EQ((Doubles{2, 0}), x.grad().to_vector<double>());
}

TEST(ChangedBase, WhatWasComputedFromAViewBeforeKeepsItsGradient) {
  const NDArray x = array({1.0, 2.0}).requires_grad_();
  NDArray y = x * 2;
  const NDArray v = y[0];
  const NDArray before = v * 10;
  y.fill_(7);
  before.backward();
  EXPECT_EQ((Doubles{20, 0}), x.grad().to_vector<double>());
}

TEST(ChangedBase, ALeafThatBecomesPlainTakesItsViewsAlong) {
  NDArray x = array({1.0, 2.0}).requires_grad_();
  const NDArray v = x[1];
  x.requires_grad_(false);
  EXPECT_FALSE(v.requires_grad());
  x.requires_grad_();
  (v * 3).backward();
  EXPECT_EQ((Doubles{0, 3}), x.grad().to_vector<double>());
}

TEST(ChangedBase, AViewThatIsALeafIsTheBaseOfItsOwnViews) {
  NDArray base = arange(1, 7, 1, f64).reshape({2, 3});
  NDArray leaf = base.transpose();
  leaf.requires_grad_();
  const NDArray part = leaf[1], of_part = part[{Slice{0, 1}}];
  const NDArray v = array({5.0}).requires_grad_();
  base[{1, 2}] = v[0];  // a recorded change of another part of the memory
  (sum(part) + sum(of_part)).backward();
  EXPECT_EQ((Doubles{0, 0, 2, 1, 0, 0}), leaf.grad().to_vector<double>());
  leaf.requires_grad_(false);
  EXPECT_TRUE(leaf.requires_grad()) << "a view of its base again, which is recorded";
  sum(leaf[2] * 2).backward();
  EXPECT_EQ(2, v.grad().item<double>());
}

}  // namespace
}  // namespace mx
