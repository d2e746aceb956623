// Loss functions that are not operators, and the modules of all losses.
#include "nn/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ndarray/grad_mode.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::inputs;
using test::Values;

/// Returns the rows of a matrix.
std::vector<Values> rows_of(const NDArray& a) {
  std::vector<Values> rows;
  for (int64_t i = 0; i < a.shape()[0]; ++i) rows.push_back(test::values(a[i]));
  return rows;
}

double distance(const Values& a, const Values& b, double p, double eps) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += std::pow(std::abs(a[i] - b[i] + eps), p);
  return std::pow(total, 1 / p);
}

double inner(const Values& a, const Values& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

Values reduced(const Values& losses, const std::string& reduction) {
  if (reduction == "none") return losses;
  double total = 0;
  for (double loss : losses) total += loss;
  return {reduction == "sum" ? total : total / static_cast<double>(losses.size())};
}

class Losses : public ::testing::Test {
 protected:
  const NDArray a_ = inputs({4, 5}, f64), b_ = inputs({5, 5}, f64).slice(0, {1, 5}) * 0.75,
                c_ = sin(inputs({4, 5}, f64) * 3);
};

TEST_F(Losses, TripletAgreesWithItsDefinition) {
  for (const char* reduction : {"none", "mean", "sum"})
    for (const double p : {2.0, 1.0, 3.0})
      for (const bool swap : {false, true}) {
        const nn::TripletOptions options{.margin = 0.8, .p = p, .swap = swap, .reduction = reduction};
        Values losses;
        const auto a = rows_of(a_), b = rows_of(b_), c = rows_of(c_);
        for (size_t i = 0; i < a.size(); ++i) {
          double apart = distance(a[i], c[i], p, 1e-6);
          if (swap) apart = std::min(apart, distance(b[i], c[i], p, 1e-6));
          losses.push_back(std::max(0.0, distance(a[i], b[i], p, 1e-6) - apart + 0.8));
        }
        test::expect_values(reduced(losses, reduction), nn::triplet_margin_loss(a_, b_, c_, options),
                            reduction);
        test::expect_values(reduced(losses, reduction), nn::TripletMarginLoss(options)(a_, b_, c_),
                            reduction);
      }
}

TEST_F(Losses, CosineEmbeddingAgreesWithItsDefinition) {
  const NDArray target = array<double>({1, -1, -1, 1});
  for (const char* reduction : {"none", "mean", "sum"}) {
    Values losses;
    const auto a = rows_of(a_), b = rows_of(b_);
    for (size_t i = 0; i < a.size(); ++i) {
      const double cosine =
          inner(a[i], b[i]) / std::sqrt((inner(a[i], a[i]) + 1e-12) * (inner(b[i], b[i]) + 1e-12));
      losses.push_back(test::values(target)[i] == 1 ? 1 - cosine : std::max(0.0, cosine - 0.25));
    }
    test::expect_values(reduced(losses, reduction),
                        nn::cosine_embedding_loss(a_, b_, target, 0.25, reduction), reduction);
    test::expect_values(reduced(losses, reduction), nn::CosineEmbeddingLoss(0.25, reduction)(a_, b_, target),
                        reduction);
  }
  // The cosine of zero vectors is 0, not NaN.
  test::expect_values({1}, nn::cosine_embedding_loss(zeros({3}, f64), ones({3}, f64), ones({}, f64)), "zero");
}

TEST_F(Losses, MarginRankingAgreesWithItsDefinition) {
  const NDArray target = where(c_ > 0, 1, -1).to(f64);
  for (const char* reduction : {"none", "mean", "sum"}) {
    Values losses;
    const Values a = test::values(a_), b = test::values(b_), t = test::values(target);
    for (size_t i = 0; i < a.size(); ++i) losses.push_back(std::max(0.0, 0.5 - t[i] * (a[i] - b[i])));
    test::expect_values(reduced(losses, reduction), nn::margin_ranking_loss(a_, b_, target, 0.5, reduction),
                        reduction);
    test::expect_values(reduced(losses, reduction), nn::MarginRankingLoss(0.5, reduction)(a_, b_, target),
                        reduction);
  }
}

TEST_F(Losses, CosineSimilarityAgreesWithItsDefinition) {
  Values cosines;
  const auto a = rows_of(a_), b = rows_of(b_);
  for (size_t i = 0; i < a.size(); ++i)
    cosines.push_back(inner(a[i], b[i]) / (std::sqrt(inner(a[i], a[i])) * std::sqrt(inner(b[i], b[i]))));
  test::expect_values(cosines, nn::cosine_similarity(a_, b_), "rows");
  test::expect_values({1}, nn::cosine_similarity(a_[0], a_[0], 0), "itself");
  test::expect_values({0}, nn::cosine_similarity(zeros({3}, f64), ones({3}, f64), 0), "nothing");
}

// A module returns the result of its function and passes every option on.
TEST_F(Losses, ModulesAreTheirFunctions) {
  const NDArray x = inputs({6, 4}), t = inputs({7, 4}).slice(0, {1, 7}), labels = arange(6) % 4,
                p = sigmoid(x), q = softmax(t), signs = where(t > 0, 1.f, -1.f),
                weight = array({0.5f, 1.f, 2.f, 0.25f});
  const auto same = [](const NDArray& expected, const NDArray& got) {
    EXPECT_EQ(content_of(expected), content_of(got));
  };
  const ClassLossOptions options{
      .weight = weight, .ignore_index = 2, .reduction = "sum", .label_smoothing = 0.125};
  ClassLossOptions plain = options;
  plain.label_smoothing = 0;
  same(nn::cross_entropy(x, labels), nn::CrossEntropyLoss()(x, labels));
  same(nn::cross_entropy(x, labels, options), nn::CrossEntropyLoss(options)(x, labels));
  same(nn::nll_loss(log_softmax(x), labels, plain), nn::NLLLoss(plain)(log_softmax(x), labels));
  for (const char* reduction : {"none", "mean", "sum"}) {
    same(nn::bce_loss(p, q, reduction), nn::BCELoss(reduction)(p, q));
    same(nn::bce_with_logits(x, q, reduction), nn::BCEWithLogitsLoss(reduction)(x, q));
    same(nn::bce_with_logits(x, q, reduction, weight), nn::BCEWithLogitsLoss(reduction, weight)(x, q));
    same(nn::mse_loss(x, t, reduction), nn::MSELoss(reduction)(x, t));
    same(nn::l1_loss(x, t, reduction), nn::L1Loss(reduction)(x, t));
    same(nn::huber_loss(x, t, 0.5, reduction), nn::HuberLoss(0.5, reduction)(x, t));
    same(nn::smooth_l1_loss(x, t, 0.5, reduction), nn::SmoothL1Loss(0.5, reduction)(x, t));
    same(nn::kl_div(x, q, reduction), nn::KLDivLoss(reduction)(x, q));
    same(nn::kl_div(x, t, reduction, true), nn::KLDivLoss(reduction, true)(x, t));
    same(nn::hinge_loss(x, signs, 0.5, reduction), nn::HingeLoss(0.5, reduction)(x, signs));
    same(nn::hinge_embedding_loss(x, signs, 0.5, reduction),
         nn::HingeEmbeddingLoss(0.5, reduction)(x, signs));
  }
  same(nn::kl_div(x, q, "batchmean"), nn::KLDivLoss("batchmean")(x, q));
}

TEST_F(Losses, ClassWeightsAreBuffersThatMove) {
  nn::CrossEntropyLoss loss({.weight = array({0.5f, 2.f})});
  EXPECT_EQ(std::vector<std::string>{"weight"}, test::names(loss.state_dict()));
  EXPECT_TRUE(loss.parameters().empty());
  const NDArray x = inputs({3, 2}), labels = array<int64_t>({0, 1, 1});
  const NDArray y = loss(x, labels);
  const nn::CrossEntropyLoss copy = loss.clone();
  loss.to(virt(0));
  EXPECT_EQ(content_of(y), content_of(loss(x.to(virt(0)), labels.to(virt(0)))));
  EXPECT_EQ(content_of(y), content_of(copy(x, labels)));
}

// Losses of three arrays have gradients with respect to all of them.
TEST_F(Losses, GradientsOfTheThreeArrayLossesAgreeWithDifferences) {
  const NDArray signs = array<double>({1, -1, -1, 1}), all_signs = where(c_ > 0, 1, -1).to(f64);
  const std::function<NDArray(const NDArray&)> losses[] = {
      [&](const NDArray& x) { return nn::triplet_margin_loss(x, b_, c_, {.margin = 3}); },
      [&](const NDArray& x) { return nn::cosine_embedding_loss(x, b_, signs, -1); },
      [&](const NDArray& x) { return nn::margin_ranking_loss(x, b_, all_signs, 5); }};
  for (const auto& loss : losses) {
    NDArray x = a_.clone().requires_grad_();
    loss(x).backward();
    const Values found = test::values(x.grad());
    NDArray flat = x.detach().reshape({-1});
    const NoGrad pause;
    for (int64_t i = 0; i < flat.numel(); ++i) {
      constexpr double kStep = 1e-6;
      NDArray element = flat[i];
      element += kStep;
      const double above = loss(x).item<double>();
      element -= 2 * kStep;
      const double below = loss(x).item<double>();
      element += kStep;
      EXPECT_NEAR((above - below) / (2 * kStep), found[static_cast<size_t>(i)], 1e-7) << "element " << i;
    }
  }
}

// For an empty batch, the function returns NaN, as in PyTorch; the module throws an error that says so.
TEST_F(Losses, TheMeanOfAnEmptyBatchIsAnErrorOfTheModule) {
  const NDArray x = zeros({0, 3}), row = zeros({0}), labels = zeros({0}, i64);
  const auto refuses = [](const std::string& name, auto f) {
    EXPECT_TRUE(
        contains(error_of<InvalidArgument>(f), "[" + name + "] expected a batch with at least one element"));
  };
  refuses("CrossEntropyLoss", [&] { nn::CrossEntropyLoss()(x, labels); });
  refuses("NLLLoss", [&] { nn::NLLLoss()(x, labels); });
  refuses("BCELoss", [&] { nn::BCELoss()(x, x); });
  refuses("BCEWithLogitsLoss", [&] { nn::BCEWithLogitsLoss()(x, x); });
  refuses("MSELoss", [&] { nn::MSELoss()(x, x); });
  refuses("L1Loss", [&] { nn::L1Loss()(x, x); });
  refuses("HuberLoss", [&] { nn::HuberLoss()(x, x); });
  refuses("SmoothL1Loss", [&] { nn::SmoothL1Loss()(x, x); });
  refuses("KLDivLoss", [&] { nn::KLDivLoss()(x, x); });
  refuses("KLDivLoss", [&] { nn::KLDivLoss("batchmean")(x, x); });
  refuses("HingeLoss", [&] { nn::HingeLoss()(x, x); });
  refuses("HingeEmbeddingLoss", [&] { nn::HingeEmbeddingLoss()(x, x); });
  refuses("TripletMarginLoss", [&] { nn::TripletMarginLoss()(x, x, x); });
  refuses("CosineEmbeddingLoss", [&] { nn::CosineEmbeddingLoss()(x, x, row); });
  refuses("MarginRankingLoss", [&] { nn::MarginRankingLoss()(x, x, x); });
  EXPECT_EQ(0, nn::MSELoss("sum")(x, x).item<float>());
  EXPECT_EQ((Shape{0, 3}), nn::MSELoss("none")(x, x).shape());
  EXPECT_TRUE(std::isnan(nn::mse_loss(x, x).item<float>()));
  EXPECT_TRUE(std::isnan(nn::cross_entropy(x, labels).item<float>()));
}

TEST_F(Losses, ErrorsNameWhatCame) {
  const NDArray x = ones({3, 2}), y = ones({3});
  const auto text = [](auto f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(
      contains(text([&] { nn::triplet_margin_loss(x, y, x); }), "anchor and positive of the same shape"));
  EXPECT_TRUE(contains(text([&] { nn::triplet_margin_loss(x, x, y); }), "got (3, 2) and (3,)"));
  EXPECT_TRUE(contains(text([&] { nn::triplet_margin_loss(x, x, x, {.reduction = "avg"}); }), "\"avg\""));
  EXPECT_TRUE(contains(text([&] { nn::cosine_embedding_loss(x, x, x); }), "a target (n,)"));
  EXPECT_TRUE(contains(text([&] { nn::cosine_embedding_loss(x, y, y); }), "two inputs of the same shape"));
  EXPECT_TRUE(contains(text([&] { nn::margin_ranking_loss(x, x, y); }), "inputs and target"));
  EXPECT_TRUE(contains(text([&] { nn::MSELoss("avg")(x, x); }), "\n  in MSELoss"));
}

}  // namespace
}  // namespace mx
