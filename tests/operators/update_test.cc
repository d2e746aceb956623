// Update rules compared with plain loops in float64, which are written from PyTorch's formulas.
#include "operators/kernels/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Array;

// Sizes that put borders of tensors inside pieces and exactly on their borders; one tensor is empty.
const std::vector<Shape> kShapes = {{3, 5}, {}, {16353}, {0, 4}, {16384}, {7}, {40'000}, {1}};

struct Model {
  std::vector<Array> w, g, s0, s1, copies;
  std::vector<Tensor> wt, gt, s0t, s1t, copies_t;

  Model(DType type, DType gradient, DType copy = f16) {
    uint64_t seed = 1;
    for (const Shape& shape : kShapes) {
      add(w, wt, type, shape), add(g, gt, gradient, shape), add(s0, s0t, type, shape),
          add(s1, s1t, type, shape);
      add(copies, copies_t, copy, shape);
      w.back().fill_random(seed++), g.back().fill_random(seed++);
    }
  }
  static void add(std::vector<Array>& arrays, std::vector<Tensor>& tensors, DType type, const Shape& shape) {
    arrays.emplace_back(type, shape);
    tensors.push_back(arrays.back().t);
  }
  kernels::UpdateLists lists() const { return {wt, gt}; }
  void new_gradients(uint64_t seed) {
    for (Array& a : g) a.fill_random(seed++);
  }
  static std::vector<double> all(const std::vector<Array>& arrays) {
    std::vector<double> result;
    for (const Array& a : arrays)
      for (double v : a.values()) result.push_back(v);
    return result;
  }
};

struct Scalar : Array {
  explicit Scalar(double value, DType type = f64) : Array(type, {}) { set(0, value); }
};

void expect_near(const std::vector<double>& want, const std::vector<double>& got, double tolerance) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(want[i], got[i], tolerance * (1 + std::abs(want[i]))) << i;
}

double prepared(double g, double w, double scale, double clip, double decay) {
  g *= scale;
  if (clip > 0) g = std::clamp(g, -clip, clip);
  return g + decay * w;
}

void check_sgd(DType type, DType gradient, kernels::SgdOptions o, double clip, double decay, double factor) {
  Model model(type, gradient);
  std::vector<double> w = Model::all(model.w), u(w.size(), 0.0);
  const Scalar rate(0.1, f32), scale(factor);
  for (int step = 1; step <= 3; ++step) {
    model.new_gradients(static_cast<uint64_t>(100 * step));
    const Scalar t(step);
    kernels::SgdOptions now = o;
    if (o.step != nullptr) now.step = &t.t;
    kernels::sgd_update(model.lists(),
                        o.momentum != 0 ? std::span<const Tensor>(model.s0t) : std::span<const Tensor>(),
                        {rate.t, &scale.t, clip, decay}, now);
    const std::vector<double> g = Model::all(model.g);
    for (size_t i = 0; i < w.size(); ++i) {
      double d = prepared((o.maximize ? -1 : 1) * g[i], w[i], factor, clip, decay);
      if (o.momentum != 0) {
        const double kept = o.ema ? 1 - o.momentum : 1 - o.dampening;
        u[i] = o.step != nullptr && step == 1 ? d : o.momentum * u[i] + kept * d;
        d = o.nesterov ? (o.ema ? 1 - o.momentum : 1) * d + o.momentum * u[i] : u[i];
      }
      w[i] -= static_cast<double>(0.1f) * d;
    }
  }
  expect_near(w, Model::all(model.w), test::tolerance(type));
  if (o.momentum != 0) expect_near(u, Model::all(model.s0), test::tolerance(type));
}

TEST(SgdUpdate, AgreesWithAPlainLoopForAllOptions) {
  const Scalar given(1);
  for (DType type : {f32, f64}) {
    for (double momentum : {0.0, 0.9}) {
      check_sgd(type, type, {.momentum = momentum}, 0, 0, 1);
      check_sgd(type, type, {.momentum = momentum, .maximize = true}, 0.5, 0.01, 0.25);
    }
    check_sgd(type, type, {.momentum = 0.9, .nesterov = true}, 0, 0.01, 1);
    check_sgd(type, type, {.momentum = 0.9, .dampening = 0.3}, 0, 0, 1);
    check_sgd(type, type, {.momentum = 0.9, .dampening = 0.3, .step = &given.t}, 0, 0, 1);
    check_sgd(type, type, {.momentum = 0.9, .ema = true}, 0, 0, 2);
    check_sgd(type, type, {.momentum = 0.9, .nesterov = true, .ema = true}, 0, 0, 2);
  }
  for (DType gradient : {f16, bf16, f64}) check_sgd(f32, gradient, {.momentum = 0.9}, 0, 0.01, 1);
}

void check_adam(DType type, DType gradient, const kernels::AdamOptions& o, double clip, double decay) {
  Model model(type, gradient);
  std::vector<double> w = Model::all(model.w), m(w.size(), 0.0), v(w.size(), 0.0);
  const Scalar rate(0.01), scale(0.5, f32);
  for (int step = 1; step <= 4; ++step) {
    model.new_gradients(static_cast<uint64_t>(100 * step));
    const Scalar t(step, step % 2 ? f32 : f64);
    kernels::AdamOptions now = o;
    now.step = &t.t;
    kernels::adam_update(model.lists(), model.s0t, model.s1t, {rate.t, &scale.t, clip, decay}, now);
    const std::vector<double> g = Model::all(model.g);
    for (size_t i = 0; i < w.size(); ++i) {
      const double d = prepared((o.maximize ? -1 : 1) * g[i], w[i], 0.5, clip, o.decoupled ? 0 : decay);
      if (o.decoupled) w[i] -= 0.01 * decay * w[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * d;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * d * d;
      const double m_hat = m[i] / (o.bias_correction ? 1 - std::pow(o.beta1, step) : 1);
      const double v_hat = v[i] / (o.bias_correction ? 1 - std::pow(o.beta2, step) : 1);
      w[i] -= 0.01 * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
  expect_near(w, Model::all(model.w), 4 * test::tolerance(type));
  expect_near(m, Model::all(model.s0), test::tolerance(type));
  expect_near(v, Model::all(model.s1), test::tolerance(type));
}

TEST(AdamUpdate, AgreesWithAPlainLoopForAllOptions) {
  for (DType type : {f32, f64}) {
    check_adam(type, type, {}, 0, 0);
    check_adam(type, type, {.eps = 0.5}, 0, 0.1);
    check_adam(type, type, {.decoupled = true}, 0, 0.1);
    check_adam(type, type, {.eps = 1e-3, .bias_correction = false}, 0, 0.1);
    check_adam(type, type, {.beta1 = 0.5, .beta2 = 0.9, .maximize = true}, 0.3, 0.1);
  }
  for (DType gradient : {f16, bf16}) check_adam(f32, gradient, {}, 0, 0.01);
}

TEST(Updates, CopiesGetTheRoundedMasters) {
  for (DType copy : {f16, bf16, f32}) {
    Model model(f32, f16, copy);
    const Scalar rate(0.1);
    kernels::UpdateLists lists = model.lists();
    lists.copies = model.copies_t;
    kernels::sgd_update(lists, {}, {.learning_rate = rate.t});
    for (size_t i = 0; i < kShapes.size(); ++i) {
      Array rounded(copy, kShapes[i]);
      rounded.fill([&](int64_t k) { return model.w[i].get(k); });
      EXPECT_TRUE(rounded.same_bits(model.copies[i])) << to_string(copy) << i;
    }
  }
}

// Parameters with different step counts in one call get the same results as in separate calls.
TEST(Updates, CountEachParametersSteps) {
  const auto run = [](Model& together, Model& apart, auto&& update) {
    Array counts(f64, {20});
    const std::vector<int64_t> rows = {19, 0, 4, 7, 3, 12, 8, 1};
    for (size_t i = 0; i < rows.size(); ++i) counts.set(rows[i], static_cast<double>(i % 3));
    for (int round = 1; round <= 2; ++round) {
      const Scalar rate(0.1);
      update(together.lists(), together.s0t, together.s1t,
             kernels::UpdateCommon{.learning_rate = rate.t, .counts = &counts.t, .rows = rows}, nullptr);
      for (size_t i = 0; i < rows.size(); ++i) {
        const Scalar t(static_cast<double>(i % 3) + round);
        update(kernels::UpdateLists{{&apart.wt[i], 1}, {&apart.gt[i], 1}}, {&apart.s0t[i], 1},
               {&apart.s1t[i], 1}, kernels::UpdateCommon{.learning_rate = rate.t}, &t.t);
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(together.w[i].same_bits(apart.w[i])) << i;
      EXPECT_TRUE(together.s0[i].same_bits(apart.s0[i])) << i;
      EXPECT_EQ(static_cast<double>(i % 3) + 2, counts.get(rows[i])) << i;
    }
    EXPECT_EQ(0.0, counts.get(2));
  };
  using Tensors = std::span<const Tensor>;
  using kernels::UpdateCommon;
  using kernels::UpdateLists;
  Model a(f32, f32), b(f32, f32);
  run(a, b, [](const UpdateLists& l, Tensors s0, Tensors, const UpdateCommon& c, const Tensor* t) {
    kernels::sgd_update(l, s0, c, {.momentum = 0.9, .dampening = 0.5, .step = t});
  });
  Model c(f64, f32), d(f64, f32);
  run(c, d, [](const UpdateLists& l, Tensors s0, Tensors s1, const UpdateCommon& common, const Tensor* t) {
    kernels::adam_update(l, s0, s1, common, {.step = t});
  });
}

TEST(Updates, ASkippedOneChangesNothing) {
  Model model(f32, f32), before(f32, f32);
  Array counts(f64, {static_cast<int64_t>(kShapes.size())});
  counts.fill([](int64_t) { return 2; });
  const Scalar rate(0.1), no(0, f32);
  for (const double value : {1.0, std::nan("")}) {
    const Scalar yes(value);
    const kernels::UpdateCommon common{.learning_rate = rate.t, .skip = &yes.t, .counts = &counts.t};
    kernels::sgd_update(model.lists(), {}, common);
    kernels::adam_update(model.lists(), model.s0t, model.s1t, common);
  }
  for (size_t i = 0; i < kShapes.size(); ++i) {
    EXPECT_TRUE(model.w[i].same_bits(before.w[i])) << i;
    EXPECT_TRUE(model.s0[i].same_bits(before.s0[i])) << i;
    EXPECT_EQ(2.0, counts.get(static_cast<int64_t>(i)));
  }
  kernels::sgd_update(model.lists(), {}, {.learning_rate = rate.t, .skip = &no.t, .counts = &counts.t});
  EXPECT_FALSE(model.w[0].same_bits(before.w[0]));
  EXPECT_EQ(3.0, counts.get(0));
}

TEST(Updates, NaNsArePassedOnAlsoWhenClipped) {
  Array w(f32, {20}), g(f32, {20});
  g.set(3, std::nan(""));
  g.set(18, std::nan(""));
  const Scalar rate(1);
  kernels::sgd_update({{&w.t, 1}, {&g.t, 1}}, {}, {.learning_rate = rate.t, .clip = 1});
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(i == 3 || i == 18, std::isnan(w.get(i)));
}

TEST(Updates, ResultsDoNotDependOnTheNumberOfThreads) {
  Model one(f32, f32), two(f32, f32);
  const Scalar rate(0.01), step(1);
  const auto run = [&](int threads, Model& model) {
    Scalar norm(0), scale(0);
    test::with_threads(threads, [&] {
      kernels::total_norm(norm.t, model.gt);
      kernels::clip_scale(scale.t, norm.t, 1);
      kernels::adam_update(model.lists(), model.s0t, model.s1t, {.learning_rate = rate.t, .scale = &scale.t},
                           {.step = &step.t});
    });
  };
  run(1, one);
  run(2, two);
  for (size_t i = 0; i < kShapes.size(); ++i) EXPECT_TRUE(one.w[i].same_bits(two.w[i]));
}

TEST(TotalNorm, IsThatOfAllElementsTogether) {
  for (DType type : {f32, f64, f16, bf16}) {
    Model model(type, type);
    double squares = 0;
    for (double v : Model::all(model.g)) squares += v * v;
    const Scalar norm(0), scale(0);
    kernels::total_norm(norm.t, model.gt);
    EXPECT_NEAR(std::sqrt(squares), norm.get(0), 1e-9 * std::sqrt(squares));
    kernels::clip_scale(scale.t, norm.t, 2);
    EXPECT_NEAR(2 / (std::sqrt(squares) + 1e-6), scale.get(0), 1e-9);
    kernels::clip_scale(scale.t, norm.t, 1e9);
    EXPECT_EQ(1.0, scale.get(0));
  }
  // The squares exceed float's range; their sum is in double.
  Array big(f32, {4});
  big.fill([](int64_t) { return 1e30; });
  const Scalar norm(0);
  kernels::total_norm(norm.t, {&big.t, 1});
  EXPECT_NEAR(2e30, norm.get(0), 1e24);
  kernels::total_norm(norm.t, {});
  EXPECT_EQ(0.0, norm.get(0));
}

TEST(Updates, ListsThatDoNotFitAreRefused) {
  Array w(f32, {4}), g(f32, {5}), d(f64, {4}), h(f16, {4}), gap(f32, {4}, "padded");
  const Scalar rate(1), step(0);
  const kernels::UpdateCommon common{.learning_rate = rate.t};
  const auto refused = [](auto&& f) { return test::error_of<InvalidArgument>(f); };
  const std::string message = refused([&] { kernels::sgd_update({{&w.t, 1}, {&g.t, 1}}, {}, common); });
  EXPECT_TRUE(test::contains(message, "(4,)") && test::contains(message, "(5,)")) << message;
  refused([&] { kernels::sgd_update({{&w.t, 1}, {}}, {}, common); });
  refused([&] { kernels::sgd_update({{&h.t, 1}, {&h.t, 1}}, {}, common); });
  refused([&] { kernels::sgd_update({{&w.t, 1}, {&gap.t, 1}}, {}, common); });
  refused([&] { kernels::sgd_update({{&w.t, 1}, {&w.t, 1}}, {}, common, {.momentum = 0.9}); });
  refused([&] { kernels::sgd_update({{&w.t, 1}, {&w.t, 1}}, {&d.t, 1}, common, {.momentum = 0.9}); });
  const auto adam = [&](std::span<const Tensor> state, const kernels::UpdateCommon& c,
                        const kernels::AdamOptions& o) {
    return refused([&] { kernels::adam_update({{&w.t, 1}, {&w.t, 1}}, state, state, c, o); });
  };
  adam({&w.t, 1}, common, {});
  adam({&w.t, 1}, common, {.step = &step.t});
  adam({}, common, {.step = &rate.t});
  Array counts(f64, {1}), many(f64, {3}), narrow(f32, {1});
  const std::vector<int64_t> beyond = {3};
  adam({&w.t, 1}, {.learning_rate = rate.t, .counts = &many.t}, {});
  adam({&w.t, 1}, {.learning_rate = rate.t, .counts = &narrow.t}, {});
  adam({&w.t, 1}, {.learning_rate = rate.t, .counts = &many.t, .rows = beyond}, {});
  counts.set(0, -1);
  adam({&w.t, 1}, {.learning_rate = rate.t, .counts = &counts.t}, {});
  EXPECT_EQ(-1.0, counts.get(0));
  refused([&] { kernels::sgd_update({{&w.t, 1}, {&w.t, 1}}, {}, {.learning_rate = w.t}); });
}

}  // namespace
}  // namespace mx
