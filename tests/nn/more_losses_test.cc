// Losses for counts, several labels, margins and alignments, and activations: PyTorch's values and gradients.
#include "nn/more_losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nn/activations.h"
#include "tests/nn/golden.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::golden_numbers;
using test::inputs;

const char* const kLossGolden =
#include <golden_losses.inc>
    ;

using GoldenFunction = std::function<NDArray(const std::vector<NDArray>&)>;

/// Compares f and the gradients of sum(f * golden_numbers(7)) with the golden arrays.
void expect_golden_call(test::GoldenFile& golden, const std::string& name, const GoldenFunction& f,
                        const std::vector<NDArray>& arguments) {
  std::vector<NDArray> leaves;
  for (const NDArray& a : arguments) leaves.push_back(a.clone().requires_grad_());
  const NDArray y = f(leaves);
  sum(y * golden_numbers(y.shape(), 7)).backward();
  golden.expect(name, y.detach());
  for (size_t i = 0; i < leaves.size(); ++i) golden.expect(name + "/d" + std::to_string(i), leaves[i].grad());
}

class GoldenLosses : public ::testing::Test {
 protected:
  void run(const std::string& name, const GoldenFunction& f, const std::vector<NDArray>& arguments) {
    expect_golden_call(golden_, name, f, arguments);
  }

  test::GoldenFile golden_{kLossGolden};
  const NDArray x_ = golden_numbers({4, 5}, 1), t_ = golden_numbers({4, 5}, 2), positive_ = abs(t_) * 2.,
                signs_ = where(t_ > 0, 1., -1.), weight_ = abs(golden_numbers({5}, 3)) + 0.5,
                labels_ = array<int64_t>({0, 3, 4, 1});
  const NDArray lists_ =
      array<int64_t>({{3, 0, -1, 1, 2}, {4, -1, 0, 0, 0}, {-1, 1, 2, 3, 4}, {1, 2, 3, 4, 0}});
};

TEST_F(GoldenLosses, AgreeWithPyTorch) {
  using In = std::vector<NDArray>;
  const nn::Distance manhattan = [](const NDArray& a, const NDArray& b) { return sum(abs(a - b), -1); };
  for (const std::string r : {"none", "mean", "sum"}) {
    run("poisson/" + r, [&](const In& a) { return nn::PoissonNLLLoss({.reduction = r})(a[0], a[1]); },
        {x_, positive_});
    run("poisson full/" + r,
        [&](const In& a) { return nn::PoissonNLLLoss({.full = true, .reduction = r})(a[0], positive_); },
        {x_});
    run("poisson of rates/" + r,
        [&](const In& a) {
          return nn::PoissonNLLLoss({.log_input = false, .eps = 0.25, .reduction = r})(a[0], positive_);
        },
        {abs(x_)});
    run("gaussian/" + r, [&](const In& a) { return nn::GaussianNLLLoss({.reduction = r})(a[0], a[1], a[2]); },
        {x_, t_, positive_});
    run("gaussian full/" + r,
        [&](const In& a) {
          return nn::GaussianNLLLoss({.full = true, .eps = 0.5, .reduction = r})(a[0], a[1], a[2]);
        },
        {x_, t_, positive_.select(1, 0)});
    run("multilabel margin/" + r, [&](const In& a) { return nn::MultiLabelMarginLoss(r)(a[0], lists_); },
        {x_});
    run("multi margin/" + r,
        [&](const In& a) { return nn::MultiMarginLoss({.reduction = r})(a[0], labels_); }, {x_});
    run("multi margin of squares/" + r,
        [&](const In& a) {
          return nn::MultiMarginLoss({.p = 2, .margin = 0.5, .weight = weight_, .reduction = r})(a[0],
                                                                                                 labels_);
        },
        {x_});
    run("multilabel soft margin/" + r,
        [&](const In& a) { return nn::MultiLabelSoftMarginLoss({}, r)(a[0], sigmoid(t_)); }, {x_});
    run("multilabel soft margin weighted/" + r,
        [&](const In& a) { return nn::MultiLabelSoftMarginLoss(weight_, r)(a[0], sigmoid(t_)); }, {x_});
    run("soft margin/" + r, [&](const In& a) { return nn::SoftMarginLoss(r)(a[0], signs_); }, {x_});
    run("triplet with distance/" + r,
        [&](const In& a) {
          return nn::TripletMarginWithDistanceLoss(
              {.distance = manhattan, .margin = 0.75, .swap = true, .reduction = r})(a[0], a[1], a[2]);
        },
        {x_, t_, golden_numbers({4, 5}, 5)});
    const NDArray scores = golden_numbers({6, 2, 4}, 4);
    run("ctc/" + r,
        [&](const In& a) {
          return nn::CTCLoss({.reduction = r})(log_softmax(a[0], 2), array<int64_t>({{1, 2, 2}, {3, 1, 0}}),
                                               array<int64_t>({6, 4}), array<int64_t>({3, 2}));
        },
        {scores});
    run("ctc with infinities/" + r,
        [&](const In& a) {
          return nn::CTCLoss({.blank = 3, .reduction = r, .zero_infinity = true})(
              log_softmax(a[0], 2), array<int64_t>({2, 2, 2, 1}), array<int64_t>({3, 6}),
              array<int64_t>({3, 1}));
        },
        {scores});
  }
  run("multilabel margin of one", [&](const In& a) { return nn::multilabel_margin_loss(a[0], lists_[0]); },
      {x_[0]});
  run("multi margin of one", [&](const In& a) { return nn::multi_margin_loss(a[0], labels_[0]); }, {x_[0]});
  run("pairwise distance", [&](const In& a) { return nn::PairwiseDistance(3, 1e-6, true)(a[0], a[1]); },
      {x_, t_});
  run("cosine similarity", [&](const In& a) { return nn::CosineSimilarity(0)(a[0], a[1]); }, {x_, t_});
}

TEST_F(GoldenLosses, ActivationsAgreeWithPyTorch) {
  const auto layer = [&](const std::string& name, nn::AnyModule f, const NDArray& x) {
    f->eval();
    run(name, [&](const std::vector<NDArray>& a) { return f(a[0]); }, {x});
  };
  layer("Tanhshrink", nn::Tanhshrink(), x_);
  layer("Softshrink", nn::Softshrink(0.75), x_);
  layer("Hardshrink", nn::Hardshrink(0.75), x_);
  layer("Threshold", nn::Threshold(0.25, -3), x_);
  layer("Softmin", nn::Softmin(1), x_);
  layer("Softmax2d", nn::Softmax2d(), golden_numbers({2, 3, 2, 2}, 1));
  layer("RReLU", nn::RReLU(0.25, 0.5), x_);
}

TEST(MoreLosses, BadInputsAreErrors) {
  const NDArray x = inputs({4, 5}), labels = arange(4);
  const auto message = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(message([&] { nn::poisson_nll_loss(x, x[0]); }), "same shape"));
  EXPECT_TRUE(contains(message([&] { nn::gaussian_nll_loss(x, x, ones({3})); }), "got (3,)"));
  EXPECT_TRUE(contains(message([&] { nn::gaussian_nll_loss(x, x, x, {.eps = 0}); }), "eps above 0"));
  EXPECT_TRUE(contains(message([&] { nn::multilabel_margin_loss(x, x); }), "integer labels"));
  EXPECT_TRUE(contains(message([&] { nn::multi_margin_loss(x, labels, {.p = 3}); }), "got 3"));
  EXPECT_TRUE(contains(message([&] { nn::multi_margin_loss(x, arange(3)); }), "(3,)"));
  EXPECT_TRUE(
      contains(message([&] { nn::multi_margin_loss(x, labels, {.weight = ones({4})}); }), "5 classes"));
  EXPECT_TRUE(contains(message([&] { nn::soft_margin_loss(x, x, "most"); }), "\"most\""));
  EXPECT_TRUE(
      contains(message([&] { nn::SoftMarginLoss()(zeros({0}), zeros({0})); }), "at least one element"));
  EXPECT_THROW(nn::Softshrink(-1)(x), InvalidArgument);
  EXPECT_THROW(nn::Hardshrink(-1)(x), InvalidArgument);
  EXPECT_THROW(nn::RReLU(0.5, 0.25), InvalidArgument);
  EXPECT_THROW(nn::Softmax2d()(x), InvalidArgument);
}

// PyTorch has the same gradient at the limits.
TEST(MoreLosses, SoftshrinkHasTheGradientZeroFromLimitToLimit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  NDArray x = array({-1., -0.5, 0., 0.5, 1., nan}).requires_grad_();
  const NDArray y = nn::softshrink(x, 0.5);
  sum(y).backward();
  EXPECT_EQ((std::vector<double>{1, 0, 0, 0, 1, 1}), x.grad().to_vector<double>());
  EXPECT_EQ((std::vector<double>{-0.5, 0, 0, 0, 0.5}), y.slice(0, {0, 5}).to_vector<double>());
  EXPECT_TRUE(std::isnan(y[5].item<double>()));
}

TEST(MoreLosses, TheWeightsOfClassesAreBuffers) {
  nn::MultiMarginLoss margin({.weight = ones({3})});
  nn::MultiLabelSoftMarginLoss soft(ones({3}));
  for (const nn::AnyModule& module : {nn::AnyModule(margin), nn::AnyModule(soft)})
    EXPECT_EQ(std::vector<std::string>{"weight"}, test::names(module->named_buffers()));
}

TEST(RReLULayer, SlopesAreDrawnBetweenTheLimits) {
  nn::RReLU layer(0.25, 0.5, Generator(3));
  const NDArray x = full({10000}, -1);
  const std::vector<float> y = layer(x).to_vector<float>();
  double total = 0;
  for (const float v : y) {
    EXPECT_TRUE(v <= -0.25f && v >= -0.5f) << v;
    total += v;
  }
  EXPECT_NEAR(-0.375, total / 10000, 0.005);
  EXPECT_EQ(content_of(ones({3})), content_of(layer(ones({3}))));
  layer.eval();
  EXPECT_EQ(content_of(full({3}, -0.375)), content_of(layer(full({3}, -1))));
}

}  // namespace
}  // namespace mx
