// Gradients of what an Autocast scope computes: their types, their values, and the conversions of parameters
// that a scope keeps.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/checkpoint.h"
#include "executor/autograd/functional.h"
#include "ndarray/grad_mode.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using List = std::vector<NDArray>;

/// Small numbers, at which tanh does not magnify the rounding of its results.
NDArray some_f32(const Shape& shape, uint64_t seed) { return (test::some(shape, seed) * 0.25).to(f32); }

std::vector<double> doubles(const NDArray& a) { return a.to(f64).to_vector<double>(); }

/// The largest difference, as a fraction of the largest expected value.
double gradient_distance(const NDArray& expected, const NDArray& got) {
  return max(abs(expected.to(f64) - got.to(f64))).item<double>() / max(abs(expected.to(f64))).item<double>();
}

NDArray small_loss(const NDArray& x, const NDArray& w, const NDArray& b) {
  const NDArray h = tanh(linear(x, w, b));
  return mean(square(matmul(h, h.transpose())));
}

TEST(AutocastGradient, ArrivesInTheTypeOfTheParameterAndNearThatOfF32) {
  const NDArray x = some_f32({4, 3}, 1), w = some_f32({5, 3}, 2).requires_grad_(),
                b = some_f32({5}, 3).requires_grad_(), y = some_f32({5, 3}, 4).to(f64).requires_grad_();
  const List exact = gradients({small_loss(x, w, b)}, {w, b});
  for (const DType type : {bf16, f16}) {
    const Autocast scope(type);
    w.set_grad({});
    b.set_grad({});
    small_loss(x, w, b).backward();
    const double tolerance = type == bf16 ? 0.05 : 0.006;
    for (size_t i = 0; i < 2; ++i) {
      const NDArray g = i == 0 ? w.grad() : b.grad();
      EXPECT_EQ(f32, g.dtype());
      EXPECT_LT(gradient_distance(exact[i], g), tolerance) << type;
      EXPECT_NE(doubles(exact[i]), doubles(g)) << "nothing was computed in the lower type";
    }
    sum(matmul(x.to(f64), y.transpose())).backward();
    EXPECT_EQ(f64, y.grad().dtype());
  }
}

// The backward pass has the types of the forward pass, whether it runs inside of the scope or outside.
TEST(AutocastGradient, IsTheSameInsideAndOutsideOfTheScope) {
  const NDArray x = some_f32({4, 3}, 1), w = some_f32({5, 3}, 2).requires_grad_(),
                b = some_f32({5}, 3).requires_grad_();
  NDArray loss;
  std::vector<double> inside;
  {
    const Autocast scope;
    loss = small_loss(x, w, b);
    inside = doubles(gradients({small_loss(x, w, b)}, {w})[0]);
  }
  EXPECT_EQ(inside, doubles(gradients({loss}, {w})[0]));
}

TEST(AutocastGradient, OfGradientsAreNearThoseOfF32) {
  const NDArray x = some_f32({4, 3}, 1), w = some_f32({5, 3}, 2).requires_grad_(),
                b = some_f32({5}, 3).requires_grad_();
  const auto penalty = [&] {
    const NDArray g = gradients({small_loss(x, w, b)}, {w}, {.create_graph = true})[0];
    return sum(g * g);
  };
  const List exact = gradients({penalty()}, {w, b});
  const Autocast scope(bf16);
  const List found = gradients({penalty()}, {w, b});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(f32, found[i].dtype());
    EXPECT_LT(gradient_distance(exact[i], found[i]), 0.1);
  }
  const NDArray v = hvp([&](const NDArray& a) { return small_loss(x, a, b); }, w, ones({5, 3}));
  EXPECT_EQ(f32, v.dtype());
}

// A parameter is converted once for each scope: the conversion that both products share adds its two
// gradients in bf16, so a hook on it would run once. Several backward passes may go through it.
TEST(AutocastGradient, OneConversionServesAllUsesAndAllPasses) {
  const NDArray x = some_f32({4, 3}, 1), w = some_f32({3, 3}, 2).requires_grad_();
  const auto bits = [&](bool cached) {
    const Autocast scope(bf16, {.cache_casts = cached});
    for (int pass = 0; pass < 2; ++pass) {
      w.set_grad({});
      sum(matmul(matmul(x, w), w)).backward();
    }
    return doubles(w.grad());
  };
  // Expected: both gradients in bf16, added in bf16 (one conversion) or in f32 (two).
  const NDArray lower = w.detach().to(bf16).requires_grad_(), xl = x.to(bf16);
  sum(matmul(matmul(xl, lower), lower).to(f32)).backward();
  EXPECT_EQ(doubles(lower.grad()), bits(true));
  const NDArray first = w.detach().to(bf16).requires_grad_(), second = w.detach().to(bf16).requires_grad_();
  sum(matmul(matmul(xl, first), second).to(f32)).backward();
  EXPECT_EQ(doubles(first.grad().to(f32) + second.grad().to(f32)), bits(false));
  EXPECT_NE(bits(true), bits(false)) << "the values do not tell the cases apart";
}

TEST(AutocastGradient, AParameterThatChangesIsConvertedAgain) {
  const NDArray x = ones({1, 1});
  NDArray w = full({1, 1}, 2.f).requires_grad_();
  const Autocast scope;
  EXPECT_EQ(2.f, matmul(x, w)[0][0].item<float>());
  {
    const NoGrad pause;
    w += 1;
    EXPECT_EQ(3.f, matmul(x, w)[0][0].item<float>());
  }
  const NDArray y = matmul(x, w);  // the conversion of NoGrad has no graph, so it cannot serve here
  EXPECT_TRUE(y.requires_grad());
  y.backward(ones({1, 1}, bf16));
  EXPECT_EQ(1.f, w.grad()[0][0].item<float>());
}

TEST(AutocastGradient, AConversionOfARecordedSegmentServesOnlyThere) {
  NDArray w = full({1, 1}, 2.f).requires_grad_();
  const NDArray x = ones({1, 1});
  NDArray y;
  const NoGrad pause;
  const Autocast scope;
  EXPECT_EQ(2.f, matmul(x, w)[0][0].item<float>());
  Segment segment = current_engine().record([&] { y = matmul(x, w); });
  EXPECT_EQ(2.f, matmul(x, w)[0][0].item<float>());
  w += 1;
  segment.replay();
  EXPECT_EQ(3.f, y[0][0].item<float>());
}

TEST(AutocastGradient, CheckpointsRunTwiceWithTheSettingOfTheirCall) {
  const NDArray x = some_f32({4, 3}, 1).requires_grad_(), w = some_f32({3, 3}, 2).requires_grad_();
  std::vector<std::optional<DType>> seen;
  const auto block = [&](const NDArray& a) {
    seen.push_back(autocast_dtype());
    return tanh(matmul(matmul(a, w), w));
  };
  std::vector<double> direct;
  NDArray y;
  {
    const Autocast scope(f16);
    matmul(x, w);  // its conversion of w is not that of the checkpoint
    direct = doubles(gradients({sum(block(x))}, {x})[0]);
    y = checkpoint(block, x);
    EXPECT_EQ(f16, y.dtype());
  }
  EXPECT_EQ(direct, doubles(gradients({sum(y)}, {x}, {.retain_graph = true})[0]));
  {
    const Autocast other(bf16);
    sum(y).backward();
    EXPECT_EQ(bf16, autocast_dtype());
  }
  EXPECT_EQ(f32, w.grad().dtype());
  for (const auto& type : seen) EXPECT_EQ(f16, type);
  seen.clear();
  y = checkpoint(block, x);
  const Autocast scope;
  sum(y).backward();
  for (const auto& type : seen) EXPECT_EQ(std::nullopt, type);
  EXPECT_EQ(2u, seen.size());
}

TEST(AutocastGradient, ThreadsDoNotShareTheirScopes) {
  const NDArray x = some_f32({4, 3}, 1), w = some_f32({3, 3}, 2).requires_grad_();
  const Autocast scope;
  const NDArray y = matmul(x, w);
  std::thread([&] {
    sum(y).backward();  // the graph of another thread's scope
    EXPECT_EQ(f32, matmul(x, w).dtype());
  }).join();
  EXPECT_EQ(f32, w.grad().dtype());
}

}  // namespace
}  // namespace mx
