// Losses compared with their definitions in float64, and gradients with finite differences of those.
#include "operators/kernels/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using kernels::CrossEntropyOptions;
using kernels::LossReduction;
using test::Array;

constexpr LossReduction kReductions[] = {LossReduction::none, LossReduction::mean, LossReduction::sum};

// A test case in plain numbers: rows of scores, and for each row the weighted target distribution.
struct Plain {
  int64_t rows, classes;
  std::vector<double> x, q;
  double divisor;
  bool logits = true;

  double row_loss(int64_t r) const {
    double level = 0, sum = 0, loss = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(at(x, r, c));
    if (logits) level = std::log(sum);
    for (int64_t c = 0; c < classes; ++c) loss += at(q, r, c) * (level - at(x, r, c));
    return loss;
  }
  double gradient(int64_t r, int64_t c) const {
    double sum = 0, mass = 0;
    for (int64_t k = 0; k < classes; ++k) sum += std::exp(at(x, r, k)), mass += at(q, r, k);
    return (logits ? mass * std::exp(at(x, r, c)) / sum : 0) - at(q, r, c);
  }
  double at(const std::vector<double>& v, int64_t r, int64_t c) const {
    return v[static_cast<size_t>(r * classes + c)];
  }
};

// Returns the row-major index of element (row, class) of an array with classes along `axis`.
int64_t element(const Shape& shape, int axis, int64_t row, int64_t c) {
  const int64_t step = contiguous_strides(shape)[axis];
  return row / step * step * shape[axis] + c * step + row % step;
}

Plain plain_labels(const Array& x, const Array& labels, const Array* weight, const CrossEntropyOptions& o,
                   int axis) {
  Plain p{labels.t.numel(), x.t.shape[axis], {}, {}, 0};
  for (int64_t r = 0; r < p.rows; ++r) {
    const bool ignored = labels.get(r) == static_cast<double>(o.ignore_index);
    const auto label = static_cast<int64_t>(labels.get(r));
    if (!ignored) p.divisor += weight == nullptr ? 1 : weight->get(label);
    for (int64_t c = 0; c < p.classes; ++c) {
      const double w = weight == nullptr ? 1 : weight->get(c);
      p.x.push_back(x.get(element(x.t.shape, axis, r, c)));
      p.q.push_back(ignored ? 0
                            : w * ((c == label ? 1 - o.label_smoothing : 0) +
                                   o.label_smoothing / static_cast<double>(p.classes)));
    }
  }
  return p;
}

Plain plain_distribution(const Array& x, const Array& t, const Array* weight, const CrossEntropyOptions& o,
                         int axis) {
  Plain p{x.t.numel() / x.t.shape[axis], x.t.shape[axis], {}, {}, 0};
  p.divisor = static_cast<double>(p.rows);
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.classes; ++c) {
      const int64_t at = element(x.t.shape, axis, r, c);
      p.x.push_back(x.get(at));
      p.q.push_back(
          (weight == nullptr ? 1 : weight->get(c)) *
          ((1 - o.label_smoothing) * t.get(at) + o.label_smoothing / static_cast<double>(p.classes)));
    }
  }
  return p;
}

using Forward = decltype(&kernels::cross_entropy);
using Backward = decltype(&kernels::cross_entropy_backward);

void check(const Plain& p, const Array& x, const Array& target, const Array* weight, CrossEntropyOptions o,
           int axis, Forward forward = kernels::cross_entropy,
           Backward backward = kernels::cross_entropy_backward) {
  const double tolerance = 4 * test::tolerance(x.t.dtype);
  Shape rows = x.t.shape;
  rows.erase(axis);
  const Tensor* const w = weight == nullptr ? nullptr : &weight->t;
  for (LossReduction reduction : kReductions) {
    o.reduction = reduction;
    o.axis = axis;
    const bool each = reduction == LossReduction::none;
    Array loss(x.t.dtype, each ? rows : Shape{}), dloss(x.t.dtype, loss.t.shape),
        dx(x.t.dtype, x.t.shape, "transposed");
    forward(loss.t, x.t, target.t, w, o);
    dloss.fill([](int64_t i) { return 1 + static_cast<double>(i % 3); });
    backward(dx.t, dloss.t, x.t, target.t, w, o);
    const double divisor = reduction == LossReduction::mean ? p.divisor : 1;
    double total = 0;
    for (int64_t r = 0; r < p.rows; ++r) {
      total += p.row_loss(r);
      if (each) {
        ASSERT_NEAR(p.row_loss(r), loss.get(r), tolerance * (1 + std::abs(p.row_loss(r))));
      }
      for (int64_t c = 0; c < p.classes; ++c)
        ASSERT_NEAR(p.gradient(r, c) * dloss.get(each ? r : 0) / divisor,
                    dx.get(element(x.t.shape, axis, r, c)), tolerance)
            << to_string(x.t.dtype) << " row " << r << " class " << c;
    }
    if (!each) {
      ASSERT_NEAR(total / divisor, loss.get(0), tolerance * (1 + std::abs(total / divisor)));
    }
  }
}

TEST(CrossEntropy, AgreesWithItsDefinitionForLabels) {
  for (DType type : {f32, f64, f16, bf16}) {
    for (DType label_type : {i32, i64, u8}) {
      for (const char* layout : {"contiguous", "transposed", "negative", "broadcast"}) {
        for (int axis : {0, 1, 2}) {
          const Shape shape{4, 5, 6};
          Shape rows = shape;
          rows.erase(axis);
          Array x(type, shape, layout), labels(label_type, rows, layout), weight(f32, {shape[axis]});
          x.fill_random(1);
          const int64_t classes = shape[axis];
          labels.fill(
              [&](int64_t i) { return static_cast<double>(i * 7 % (classes + 1)); });  // `classes` is ignored
          weight.fill([](int64_t i) { return 0.5 + static_cast<double>(i); });
          for (double smoothing : {0.0, 0.2}) {
            const CrossEntropyOptions o{.ignore_index = classes, .label_smoothing = smoothing};
            check(plain_labels(x, labels, nullptr, o, axis), x, labels, nullptr, o, axis);
            check(plain_labels(x, labels, &weight, o, axis), x, labels, &weight, o, axis);
          }
        }
      }
    }
  }
}

TEST(CrossEntropy, AgreesWithItsDefinitionForDistributions) {
  for (DType type : {f32, f64, f16, bf16}) {
    for (const char* layout : {"contiguous", "transposed", "broadcast"}) {
      for (int axis : {0, 1}) {
        Array x(type, {7, 19}, layout), t(type, {7, 19}), weight(f64, {x.t.shape[axis]});
        x.fill_random(2);
        t.fill([](int64_t i) { return static_cast<double>(i % 5) / 32; });
        weight.fill([](int64_t i) { return 1 + 0.25 * static_cast<double>(i); });
        for (double smoothing : {0.0, 0.5}) {
          const CrossEntropyOptions o{.label_smoothing = smoothing};
          check(plain_distribution(x, t, nullptr, o, axis), x, t, nullptr, o, axis);
          check(plain_distribution(x, t, &weight, o, axis), x, t, &weight, o, axis);
        }
      }
    }
  }
}

TEST(Nll, AgreesWithItsDefinition) {
  Array x(f32, {9, 7}), labels(i64, {9}), weight(f32, {7});
  x.fill_random(3);
  labels.fill([](int64_t i) { return i == 4 ? -100.0 : static_cast<double>(i % 7); });
  weight.fill([](int64_t i) { return 1 + static_cast<double>(i); });
  for (const Array* w : {static_cast<const Array*>(nullptr), static_cast<const Array*>(&weight)}) {
    Plain p = plain_labels(x, labels, w, {}, 1);
    p.logits = false;
    check(p, x, labels, w, {}, 1, kernels::nll, kernels::nll_backward);
  }
}

TEST(CrossEntropy, TakesOneRowOfRankOneAndNoRows) {
  Array x(f32, {3}), label(i64, {}), loss(f32, {}), dx(f32, {3});
  x.fill([](int64_t) { return 7; });
  label.set(0, 2);
  kernels::cross_entropy(loss.t, x.t, label.t);
  EXPECT_NEAR(std::log(3.0), loss.get(0), 1e-6);
  Array none(f32, {0, 3}), labels(i64, {0});
  kernels::cross_entropy(loss.t, none.t, labels.t);
  EXPECT_TRUE(std::isnan(loss.get(0)));
  kernels::cross_entropy(loss.t, none.t, labels.t, nullptr, {.reduction = LossReduction::sum});
  EXPECT_EQ(0.0, loss.get(0));
  // The mean over rows that are all ignored.
  label.set(0, -100);
  kernels::cross_entropy(loss.t, x.t, label.t);
  EXPECT_TRUE(std::isnan(loss.get(0)));
}

TEST(CrossEntropy, HugeLogitsStayFinite) {
  Array x(f32, {2, 3}), labels(i64, {2}), loss(f32, {2}), dloss(f32, {2}), dx(f32, {2, 3});
  x.fill([](int64_t i) { return i % 3 == 0 ? 1e20 : -1e20; });
  dloss.fill([](int64_t) { return 1; });
  const CrossEntropyOptions o{.reduction = LossReduction::none};
  kernels::cross_entropy(loss.t, x.t, labels.t, nullptr, o);
  kernels::cross_entropy_backward(dx.t, dloss.t, x.t, labels.t, nullptr, o);
  for (double v : loss.values()) EXPECT_EQ(0.0, v);
  for (double v : dx.values()) EXPECT_EQ(0.0, v);
}

TEST(CrossEntropy, ALabelThatIsNoClassIsNamedWithItsPlace) {
  Array x(f32, {2, 10, 4}), labels(i32, {2, 4}), loss(f32, {});
  for (double bad : {10.0, -1.0}) {
    labels.fill([&](int64_t i) { return i == 6 ? bad : 0; });
    const std::string message =
        test::error_of<InvalidArgument>([&] { kernels::cross_entropy(loss.t, x.t, labels.t); });
    EXPECT_TRUE(
        test::contains(message, "got " + std::to_string(static_cast<int>(bad)) + " at position (1, 2)"))
        << message;
    EXPECT_TRUE(test::contains(message, "10 classes")) << message;
  }
}

TEST(CrossEntropy, WrongOperandsAreRefused) {
  Array x(f32, {2, 3}), labels(i64, {2}), three(i64, {3}), loss(f32, {}), weight(f32, {2}), t(f32, {2, 2}),
      ix(i32, {2, 3});
  using kernels::cross_entropy;
  const auto refused = [](auto&& f) { return test::error_of<InvalidArgument>(f); };
  EXPECT_TRUE(test::contains(refused([&] { cross_entropy(loss.t, x.t, three.t); }), "(3,)"));
  refused([&] { cross_entropy(loss.t, x.t, labels.t, &weight.t); });
  refused([&] { cross_entropy(loss.t, x.t, t.t); });
  refused([&] { cross_entropy(loss.t, ix.t, labels.t); });
  refused([&] { cross_entropy(x.t, x.t, labels.t); });
  refused([&] { cross_entropy(loss.t, x.t, labels.t, nullptr, {.label_smoothing = 1.5}); });
  refused([&] { cross_entropy(loss.t, x.t, labels.t, nullptr, {.axis = 2}); });
  refused([&] { kernels::nll(loss.t, x.t, x.t); });
}

TEST(CrossEntropy, ResultsDoNotDependOnTheNumberOfThreads) {
  Array x(f32, {3000, 101}), labels(i64, {3000}), one(f32, {}), two(f32, {}), dx1(f32, {3000, 101}),
      dx2(f32, {3000, 101});
  x.fill_random(1);
  labels.fill([](int64_t i) { return static_cast<double>(i % 101); });
  test::with_threads(1, [&] { kernels::cross_entropy(one.t, x.t, labels.t); });
  test::with_threads(2, [&] { kernels::cross_entropy(two.t, x.t, labels.t); });
  EXPECT_TRUE(one.same_bits(two));
  Array seed(f32, {});
  seed.set(0, 1);
  test::with_threads(1, [&] { kernels::cross_entropy_backward(dx1.t, seed.t, x.t, labels.t); });
  test::with_threads(2, [&] { kernels::cross_entropy_backward(dx2.t, seed.t, x.t, labels.t); });
  EXPECT_TRUE(dx1.same_bits(dx2));
}

}  // namespace
}  // namespace mx
