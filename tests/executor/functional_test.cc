// grad, value_and_grad, jacobian, hvp.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "executor/autograd/functional.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::error_of;

TEST(Functional, GradOfAnArgument) {
  const auto f = [](const NDArray& w, const NDArray& x) { return sum(tanh(matmul(x, w))); };
  const NDArray w = test::some({3, 2}, 1), x = test::some({4, 3}, 2);
  const auto list = [&](const std::vector<NDArray>& a) { return f(a[0], a[1]); };
  test::expect_close(test::numeric_gradient(list, {w, x}, 0), grad(f, 0)(w, x).to_vector<double>(), 1e-6,
                     "w");
  test::expect_close(test::numeric_gradient(list, {w, x}, 1), grad(f, 1)(w, x).to_vector<double>(), 1e-6,
                     "x");
  EXPECT_FALSE(w.requires_grad());
  EXPECT_FALSE(grad(f, 0)(w, x).requires_grad()) << "nobody differentiates it again";
}

TEST(Functional, GradOfGradOfGrad) {
  const auto f = [](const NDArray& x) { return sum(exp(x * 2)); };
  const auto first = grad(f);
  const auto second = grad([&](const NDArray& x) { return sum(first(x)); });
  const auto third = grad([&](const NDArray& x) { return sum(second(x)); });
  const NDArray x = test::some({3});
  test::expect_close((exp(x * 2) * 2).to_vector<double>(), first(x).to_vector<double>(), 1e-12, "first");
  test::expect_close((exp(x * 2) * 4).to_vector<double>(), second(x).to_vector<double>(), 1e-12, "second");
  test::expect_close((exp(x * 2) * 8).to_vector<double>(), third(x).to_vector<double>(), 1e-12, "third");
}

TEST(Functional, ValueAndGrad) {
  const NDArray x = test::some({3});
  const auto [value, gradient] = value_and_grad([](const NDArray& a) { return sum(a * a); })(x);
  EXPECT_DOUBLE_EQ(sum(x * x).item<double>(), value.item<double>());
  test::expect_close((x * 2).to_vector<double>(), gradient.to_vector<double>(), 1e-12, "gradient");
  EXPECT_FALSE(value.requires_grad());
}

TEST(Functional, JacobianOfAnyShape) {
  const NDArray x = test::some({2, 3});
  const NDArray j = jacobian([](const NDArray& a) { return tanh(a).transpose(); })(x);
  ASSERT_EQ((Shape{3, 2, 2, 3}), j.shape());
  for (int64_t a = 0; a < 3; ++a)
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t c = 0; c < 2; ++c)
        for (int64_t d = 0; d < 3; ++d) {
          const double t = std::tanh(x[{c, d}].item<double>());
          EXPECT_NEAR(a == d && b == c ? 1 - t * t : 0, (j[{a, b, c, d}].item<double>()), 1e-12);
        }
  EXPECT_EQ((Shape{0, 2}), jacobian([](const NDArray& a) {
                             return a.slice(0, Slice{0, 0});
                           })(ones({2}, f64))
                               .shape());
}

TEST(Functional, HessianVectorProduct) {
  const auto f = [](const NDArray& x) { return sum(x * x * x) + prod(x); };
  const NDArray x = test::some({3}, 1), v = test::some({3}, 2);
  const NDArray hessian = jacobian(grad(f))(x);
  test::expect_close(matmul(hessian, v).to_vector<double>(), hvp(f, x, v).to_vector<double>(), 1e-10, "H v");
  const std::vector<double> a = x.to_vector<double>();
  EXPECT_NEAR(6 * a[0], (hessian[{0, 0}].item<double>()), 1e-10);
  EXPECT_NEAR(a[2], (hessian[{0, 1}].item<double>()), 1e-10);
}

TEST(Functional, HessianVectorProductOfOneArgumentOfSeveral) {
  const auto f = [](const NDArray& a, const NDArray& b) { return sum(a * a * a * b); };
  const NDArray a = test::some({3}, 1), b = test::some({3}, 2), v = test::some({3}, 3);
  test::expect_close((a * b * v * 6).to_vector<double>(),
                     hvp([&](const NDArray& x) { return f(x, b); }, a, v).to_vector<double>(), 1e-10, "H v");
}

TEST(Functional, CapturedRecordedArraysGetGradientsFromOutside) {
  NDArray w = test::some({3}).requires_grad_();
  const NDArray x = test::some({3}, 2).requires_grad_();
  const NDArray g = grad([&](const NDArray& a) { return sum(a * a * w); })(x);
  sum(g).backward();
  test::expect_close((x.detach() * 2).to_vector<double>(), w.grad().to_vector<double>(), 1e-12, "w");
  test::expect_close((w.detach() * 2).to_vector<double>(), x.grad().to_vector<double>(), 1e-12, "x");
}

TEST(Functional, CapturedRecordedArraysGetGradientsWherePlainArgumentsCame) {
  NDArray w = test::some({3}).requires_grad_();
  const NDArray x = test::some({3}, 2);
  const auto f = [&](const NDArray& a) { return sum(a * a * w); };
  const auto [value, g] = value_and_grad(f)(x);
  sum(g).backward();
  test::expect_close((x * 2).to_vector<double>(), w.grad().to_vector<double>(), 1e-12, "of the gradient");
  EXPECT_FALSE(x.requires_grad());
  w.set_grad({});
  value_and_grad(f)(x).value.backward();
  test::expect_close((x * x).to_vector<double>(), w.grad().to_vector<double>(), 1e-12, "of the value");
  w.set_grad({});
  sum(jacobian([&](const NDArray& a) { return a * a * w; })(x)).backward();
  test::expect_close((x * 2).to_vector<double>(), w.grad().to_vector<double>(), 1e-12, "of the jacobian");
  w.set_grad({});
  sum(hvp(f, x, ones({3}, f64))).backward();
  EXPECT_EQ((std::vector<double>{2, 2, 2}), w.grad().to_vector<double>()) << "of the product";
  w.set_grad({});
  value_and_grad([&](const NDArray&) { return sum(w * w); })(x).value.backward();
  test::expect_close((w.detach() * 2).to_vector<double>(), w.grad().to_vector<double>(), 1e-12,
                     "of a value without the argument");
}

TEST(Functional, CapturedRecordedArraysAreLeftAloneWhereTheCallerDoesNotRecord) {
  const NDArray w = test::some({3}).requires_grad_(), x = test::some({3}, 2);
  NoGrad pause;
  const auto [value, g] = value_and_grad([&](const NDArray& a) { return sum(a * a * w); })(x);
  EXPECT_FALSE(value.requires_grad());
  EXPECT_FALSE(g.requires_grad());
  test::expect_close((x * w * 2).to_vector<double>(), g.to_vector<double>(), 1e-12, "gradient");
}

TEST(Functional, AnArgumentThatIsNotUsedHasAGradientOfZero) {
  const NDArray x = test::some({3});
  EXPECT_EQ((std::vector<double>{0, 0, 0}),
            grad([](const NDArray&) { return ones({}, f64); })(x).to_vector<double>());
  EXPECT_EQ((std::vector<double>{0, 0, 0}),
            grad([](const NDArray&, const NDArray& b) { return sum(b); })(x, x).to_vector<double>());
}

// The function gets an array of the argument's memory. A change would reach the caller's array, and the
// gradient would be that with respect to the changed values.
TEST(Functional, AFunctionMustNotChangeItsArgument) {
  const auto f = [](const NDArray& a) {
    NDArray t = a;
    t *= 2.0;
    return sum(t * t);
  };
  const auto part = [](const NDArray& a) {
    NDArray t = a[Slice{0, 1}];
    t.fill_(7);
    return sum(a * a);
  };
  const NDArray plain = array({1.0, 2.0}), leaf = array({1.0, 2.0}).requires_grad_(), result = leaf * 1.0;
  const std::vector<double> unchanged{1, 2};
  for (const NDArray& x : {plain, leaf, result}) {
    const auto expect_refused = [&](const auto& call, const char* what) {
      const std::string text = error_of<InvalidState>(call);
      EXPECT_TRUE(test::contains(text, "argument of a function given to grad()")) << what << ": " << text;
      EXPECT_TRUE(test::contains(text, "functional_test.cc")) << what << ": " << text;
      EXPECT_EQ(unchanged, x.to_vector<double>()) << what;
    };
    expect_refused([&] { grad(f)(x); }, "grad");
    expect_refused([&] { value_and_grad(f)(x); }, "value_and_grad");
    expect_refused([&] { jacobian(f)(x); }, "jacobian");
    expect_refused([&] { hvp(f, x, ones({2}, f64)); }, "hvp");
    expect_refused([&] { grad(part)(x); }, "a view");
    expect_refused([&] { grad([&](const NDArray& a) { return sum(grad(f)(a)); })(x); }, "a nested function");
  }
  const auto of_clone = [&](const NDArray& a) { return f(a.clone()); };
  EXPECT_EQ((std::vector<double>{8, 16}), grad(of_clone)(leaf).to_vector<double>());
  EXPECT_EQ((std::vector<double>{8, 8}), hvp(of_clone, leaf, ones({2}, f64)).to_vector<double>());
  EXPECT_EQ(unchanged, leaf.to_vector<double>());
}

TEST(Functional, AnArgumentThatChangesWhileTheFunctionRunsIsAnError) {
  NDArray y = array({1.0, 2.0}).requires_grad_() * 1.0;
  error_of<InvalidState>([&] {
    grad([&](const NDArray& a) {
      y *= 2.0;
      return sum(a * 3);
    })(y);
  });
  const NDArray x = array({1.0, 2.0});
  error_of<InvalidState>([&] {
    grad([](const NDArray& a) {
      const NoGrad pause;
      NDArray t = a;
      t += 1.0;
      return sum(a);
    })(x);
  });
}

TEST(Functional, AValueSharesNoMemoryWithTheArgument) {
  const NDArray plain = array({3.0}), leaf = array({3.0}).requires_grad_();
  for (const NDArray& x : {plain, leaf}) {
    auto [value, g] = value_and_grad([](const NDArray& a) { return a; })(x);
    value += 1.0;
    EXPECT_EQ(3, x.item<double>());
    EXPECT_EQ(4, value.item<double>());
    EXPECT_EQ(1, g.item<double>());
  }
}

TEST(Functional, BadUse) {
  const NDArray x = test::some({3});
  error_of<InvalidArgument>([&] { grad([](const NDArray& a) { return a; })(x); });
  error_of<InvalidArgument>([&] { grad([](const NDArray& a) { return sum(a); }, 1)(x); });
  error_of<InvalidArgument>([&] { grad([](const NDArray& a) { return sum(a); })(array<int64_t>({1})); });
  error_of<InvalidArgument>([&] { hvp([](const NDArray& a) { return sum(a); }, x, ones({2}, f64)); });
}

}  // namespace
}  // namespace mx
