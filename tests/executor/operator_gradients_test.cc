// Gradients of recorded calls of all operators, and derivatives of those gradients; and gradients of
// functions that are composed of several operators.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/functional.h"
#include "operators/operators.h"
#include "tests/operators/gradient_support.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::Arrays;

/// Returns the arrays with the floating-point ones as leaves.
Arrays leaves_of(const Arrays& arrays) {
  Arrays leaves;
  for (const NDArray& a : arrays)
    leaves.push_back(a.defined() && is_floating(a.dtype()) ? a.clone().requires_grad_() : a);
  return leaves;
}

/// Returns the gradients of sum(head * op(inputs)) with respect to the inputs, which are leaves, by a
/// backward pass through the recorded call. Handles are empty for integer inputs and for inputs without a
/// gradient.
Arrays recorded_gradients(const Operator& op, const Attrs& attrs, const Arrays& inputs, const Arrays& heads,
                          bool create_graph) {
  Arrays outputs, given, wanted;
  const Arrays results = call(op, attrs, inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!heads[i].defined()) continue;
    outputs.push_back(results[i]);
    given.push_back(heads[i]);
  }
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_floating(inputs[i].dtype())) {
      wanted.push_back(inputs[i]);
      places.push_back(i);
    }
  const Arrays found =
      gradients(outputs, wanted, {.heads = given, .create_graph = create_graph, .allow_unused = true});
  Arrays all(inputs.size());
  for (size_t i = 0; i < found.size(); ++i) all[places[i]] = found[i];
  return all;
}

// For each sample, s = sum(weight * gradient). Compares the gradients of s with respect to inputs and heads,
// from a backward pass through the recorded gradient, with finite differences of the first gradient.
TEST(OperatorGradients, OfGradientsAgreeWithFiniteDifferences) {
  int samples = 0;
  test::for_each_differentiable([&](const Operator& op, const Sample& sample) {
    if (std::string(op.name()) == "ctc_loss") return;  // its gradient has none
    const Sample wide = test::with_floats(sample, f64);
    const Arrays heads = test::heads_for(call(op, wide.attrs, wide.inputs));
    // Inputs, then heads.
    Arrays arguments = wide.inputs;
    arguments.insert(arguments.end(), heads.begin(), heads.end());
    const size_t n = wide.inputs.size();
    const auto split = [&](const Arrays& all, bool create_graph) {
      const auto middle = all.begin() + static_cast<int64_t>(n);
      return recorded_gradients(op, wide.attrs, Arrays(all.begin(), middle), Arrays(middle, all.end()),
                                create_graph);
    };
    const Arrays leaves = leaves_of(arguments);
    const Arrays first = split(leaves, true);
    Arrays outputs, weights, all_weights(n), inputs;
    for (size_t i = 0; i < n; ++i) {
      if (!first[i].defined() || !first[i].requires_grad()) continue;
      all_weights[i] = test::some(first[i].shape(), 7 + i);
      outputs.push_back(first[i]);
      weights.push_back(all_weights[i]);
    }
    if (outputs.empty()) return;  // all gradients are zero
    for (const NDArray& leaf : leaves)
      if (leaf.defined() && is_floating(leaf.dtype())) inputs.push_back(leaf);
    const Arrays second = gradients(outputs, inputs, {.heads = weights, .allow_unused = true});
    const auto once = [&](const Arrays& all) {
      Arrays result = split(leaves_of(all), false);
      for (size_t i = 0; i < n; ++i)
        if (!all_weights[i].defined()) result[i] = NDArray();
      return result;
    };
    for (size_t i = 0, k = 0; i < arguments.size(); ++i) {
      if (!arguments[i].defined() || !is_floating(arguments[i].dtype())) continue;
      const std::vector<double> expected = test::finite_differences(once, arguments, all_weights, i);
      test::expect_near(expected, test::values_of(second[k++], arguments[i]), 2e-6,
                        (i < n ? "input " : "head ") + std::to_string(i < n ? i : i - n));
    }
    ++samples;
  });
  EXPECT_GT(samples, 300);
}

using Composite = NDArray (*)(const Arrays& a);

/// Compares the gradients of sum(weight * f), where f may have any shape, with finite differences.
void expect_gradients_of(const char* name, Composite f, const Arrays& arguments) {
  SCOPED_TRACE(name);
  const NDArray weight = test::some(f(arguments).shape(), 9);
  test::expect_gradients([&](const Arrays& a) { return sum(f(a) * weight); }, arguments, 1e-6);
}

// An operator may return one array as the gradient of several operands, or the head itself. The pass then
// must not add to it in place while it is still pending for another operand.
TEST(OperatorGradients, OfOperandsThatAreUsedElsewhereTooAddUp) {
  int samples = 0;
  test::for_each_differentiable([&](const Operator& op, const Sample& sample) {
    const Sample wide = test::with_floats(sample, f64);
    const Arrays heads = test::heads_for(call(op, wide.attrs, wide.inputs));
    const Arrays leaves = leaves_of(wide.inputs);
    const Arrays alone = recorded_gradients(op, wide.attrs, leaves, heads, false);
    Arrays operands, outputs, given, wanted;
    for (const NDArray& leaf : leaves)
      operands.push_back(leaf.defined() && leaf.requires_grad() ? leaf * 1 : leaf);
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].defined() || !leaves[i].requires_grad()) continue;
      outputs.push_back(operands[i] * 3);  // made before the call, so the pass visits it afterwards
      given.push_back(ones_like(leaves[i].detach()));
      wanted.push_back(leaves[i]);
    }
    const Arrays results = call(op, wide.attrs, operands);
    for (size_t k = 0; k < results.size(); ++k) {
      if (!heads[k].defined()) continue;
      outputs.push_back(results[k] * 1);  // the pass owns the head that it hands to the operator
      given.push_back(heads[k]);
    }
    const Arrays found = gradients(outputs, wanted, {.heads = given, .allow_unused = true});
    for (size_t i = 0, next = 0; i < leaves.size(); ++i) {
      if (!leaves[i].defined() || !leaves[i].requires_grad()) continue;
      const NDArray expected = (alone[i].defined() ? alone[i] : zeros_like(leaves[i].detach())) + 3;
      const NDArray got = found[next++];
      ASSERT_TRUE(got.defined());
      EXPECT_TRUE(allclose(expected, got, {.rtol = 1e-12, .atol = 1e-12, .equal_nan = true}))
          << op.name() << " '" << sample.label << "', input " << i;
    }
    ++samples;
  });
  EXPECT_GT(samples, 500);
}

TEST(OperatorGradients, OfElementwiseLosses) {
  const NDArray x = test::some({2, 3}, 1), t = test::some({2, 3}, 2), p = x * 0.5, q = t * 0.4;
  expect_gradients_of("bce_loss", [](const Arrays& a) { return bce_loss(a[0], a[1]); }, {p, q});
  expect_gradients_of("bce_loss", [](const Arrays& a) { return bce_loss(a[0], a[1], "none"); }, {p, q});
  expect_gradients_of("bce_with_logits",
                      [](const Arrays& a) { return bce_with_logits(a[0] - 1, a[1], "sum"); }, {x, q});
  expect_gradients_of("pos_weight",
                      [](const Arrays& a) { return bce_with_logits(a[0] - 1, a[1], "mean", a[2]); },
                      {x, q, test::some({3}, 3)});
  expect_gradients_of("mse_loss", [](const Arrays& a) { return mse_loss(a[0], a[1]); }, {x, t});
  expect_gradients_of("l1_loss", [](const Arrays& a) { return l1_loss(a[0], a[1]); }, {x, t});
  expect_gradients_of("huber_loss", [](const Arrays& a) { return huber_loss(a[0] * 2, a[1], 0.4); }, {x, t});
  expect_gradients_of("smooth_l1_loss", [](const Arrays& a) { return smooth_l1_loss(a[0] * 2, a[1], 0.4); },
                      {x, t});
  expect_gradients_of("kl_div", [](const Arrays& a) { return kl_div(log(a[0]), a[1], "batchmean"); }, {x, t});
  expect_gradients_of("log_target", [](const Arrays& a) { return kl_div(a[0], a[1], "mean", true); }, {x, t});
  const NDArray sides = where(t > 1, 1., -1.).to(f64);
  expect_gradients_of("hinge_loss", [](const Arrays& a) { return hinge_loss(a[0], a[1]); }, {x, sides});
  static const NDArray fixed = sides;
  expect_gradients_of("hinge_embedding_loss",
                      [](const Arrays& a) { return hinge_embedding_loss(a[0] - 0.5, fixed); }, {x});
}

TEST(OperatorGradients, OfChoices) {
  const NDArray x = test::some({2, 3}, 1), y = test::some({2, 3}, 2);
  expect_gradients_of("clip", [](const Arrays& a) { return clip(a[0], 0.6, 1.2); }, {x});
  expect_gradients_of("clamp_min", [](const Arrays& a) { return clamp_min(a[0], a[1]); }, {x, y});
  expect_gradients_of("clamp_max", [](const Arrays& a) { return clamp_max(a[0], a[1]); }, {x, y});
  for (double weight : {0.25, 0.75}) {
    static double w;
    w = weight;
    expect_gradients_of("lerp", [](const Arrays& a) { return lerp(a[0], a[1], w); }, {x, y});
  }
  expect_gradients_of("lerp of arrays", [](const Arrays& a) { return lerp(a[0], a[1], a[2] * 0.5); },
                      {x, y, test::some({3}, 3)});
  expect_gradients_of("masked_fill", [](const Arrays& a) { return masked_fill(a[0], a[0].detach() > 1, 5.); },
                      {x});
  expect_gradients_of("masked_select", [](const Arrays& a) { return masked_select(a[0], a[0].detach() > 1); },
                      {x});
  expect_gradients_of("masked_scatter",
                      [](const Arrays& a) { return masked_scatter(a[0], a[0].detach() > 1, a[1]); }, {x, y});
}

NDArray assigned_at_mask(const NDArray& x, const NDArray& values) {
  NDArray result = x * 2;
  result[x.detach() > 1] = values;
  return result;
}

TEST(OperatorGradients, OfMovedElements) {
  const NDArray x = test::some({2, 3}, 1), y = test::some({2, 3}, 2);
  expect_gradients_of("stack", [](const Arrays& a) { return stack({a[0], a[1], a[0]}, 1); }, {x, y});
  expect_gradients_of("hstack", [](const Arrays& a) { return hstack({a[0], a[1]}); }, {x, y});
  expect_gradients_of("vstack", [](const Arrays& a) { return vstack({a[0][0], a[1]}); }, {x, y});
  expect_gradients_of("chunk", [](const Arrays& a) { return chunk(a[0], 2, 1)[1] * 2; }, {x});
  expect_gradients_of("flip", [](const Arrays& a) { return flip(a[0]) * a[0]; }, {x});
  expect_gradients_of("repeat",
                      [](const Arrays& a) {
                        return repeat(a[0], std::vector<int64_t>{2, 0, 1}, 1);
                      },
                      {x});
  expect_gradients_of("roll", [](const Arrays& a) { return roll(a[0], {2}) * a[0]; }, {x});
  expect_gradients_of("meshgrid",
                      [](const Arrays& a) {
                        const Arrays grid = meshgrid(Arrays{a[0].flatten(), a[1][0]});
                        return grid[0] * grid[1];
                      },
                      {x, y});
  expect_gradients_of("outer", [](const Arrays& a) { return outer(a[0][0], a[1][1]); }, {x, y});
  expect_gradients_of("take_along_axis",
                      [](const Arrays& a) {
                        return take_along_axis(a[0], array<int64_t>({{2, 0, 2, 1}}), 1);
                      },
                      {x});
  expect_gradients_of("topk", [](const Arrays& a) { return topk(a[0], 2).values * 3; }, {x});
  expect_gradients_of("indices",
                      [](const Arrays& a) -> NDArray {
                        return a[0][{colon, array<int64_t>({2, 0, 2})}];
                      },
                      {x});
  expect_gradients_of("a mask", [](const Arrays& a) -> NDArray { return a[0][a[0].detach() > 1]; }, {x});
  expect_gradients_of("a number at a mask",
                      [](const Arrays& a) { return assigned_at_mask(a[0], full({}, 5., f64)); }, {x});
  expect_gradients_of("an array of one number at a mask",
                      [](const Arrays& a) { return assigned_at_mask(a[0], sum(a[0])); }, {x});
  expect_gradients_of(
      "values at a mask",
      [](const Arrays& a) { return assigned_at_mask(a[0], square(NDArray(a[0][a[0].detach() > 1]))); }, {x});
  expect_gradients_of("assignment at indices",
                      [](const Arrays& a) {
                        NDArray z = a[0] * 2;
                        z[{colon, array<int64_t>({2, 0})}] = a[1].slice(1, Slice{0, 2});
                        return z * a[0];
                      },
                      {x, y});
}

double slope(const NDArray& at, Composite f) {
  NDArray x = at.clone().requires_grad_();
  f({x}).backward();
  return x.grad().item<double>();
}

TEST(OperatorGradients, OfFunctionsOfSeveralOperatorsAtKinks) {
  const auto number = [](double value) { return full({}, value, f64); };
  EXPECT_EQ(0, slope(number(2), [](const Arrays& a) { return clamp_min(a[0], 2); }));
  EXPECT_EQ(0, slope(number(2), [](const Arrays& a) { return clamp_max(a[0], 2); }));
  EXPECT_EQ(0, slope(number(2), [](const Arrays& a) { return clip(a[0], 0, 2); }));
  EXPECT_EQ(0, slope(number(0), [](const Arrays& a) { return clip(a[0], 0, 2); }));
  EXPECT_EQ(1, slope(number(1), [](const Arrays& a) { return clip(a[0], 0, 2); }));
  EXPECT_EQ(0.5, slope(number(2), [](const Arrays& a) { return clamp_min(a[0], full({}, 2, f64)); }));
  EXPECT_EQ(0.5, slope(number(2), [](const Arrays& a) { return fmax(a[0], 2); }));
  EXPECT_EQ(0.5, slope(number(2), [](const Arrays& a) { return fmin(a[0], 2); }));
  EXPECT_EQ(0.5, slope(number(1.5), [](const Arrays& a) { return huber_loss(a[0], ones({}, f64), 0.5); }));
  EXPECT_EQ(0, slope(number(1), [](const Arrays& a) { return l1_loss(a[0], ones({}, f64)); }));
  EXPECT_EQ(0, slope(number(1), [](const Arrays& a) { return hinge_loss(a[0], ones({}, f64)); }));
  EXPECT_EQ(0, slope(number(1), [](const Arrays& a) { return bce_loss(a[0], ones({}, f64)); }));
  EXPECT_EQ(-1e12, slope(number(0), [](const Arrays& a) { return bce_loss(a[0], ones({}, f64)); }));
  EXPECT_EQ(0.5, slope(number(0), [](const Arrays& a) { return kl_div(full({}, -0.5, f64), a[0]); }));
  EXPECT_EQ(0, slope(number(0), [](const Arrays& a) { return norm(a[0]); }));
}

/// Returns all second derivatives of f, which returns one element.
std::vector<double> second_derivatives(const NDArray& x, Composite f) {
  const auto first = grad([f](const NDArray& a) { return f({a}); });
  return jacobian(first)(x).to_vector<double>();
}

TEST(OperatorGradients, SecondDerivativesWhereFormulasDivideByZero) {
  using Values = std::vector<double>;
  const NDArray zero = full({1}, 0., f64), zeros_of_two = zeros({2}, f64);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  // For a product, d2/dxi dxj is the product of all the other factors.
  const NDArray x = array({0., 2., 3.});
  EXPECT_EQ((Values{0, 3, 2, 3, 0, 0, 2, 0, 0}),
            second_derivatives(x, [](const Arrays& a) { return prod(a[0]); }));
  EXPECT_EQ((Values{0, 4, 0, 4, 0, 2, 0, 2, 0}),
            second_derivatives(array({2., 0., 3.}), [](const Arrays& a) { return sum(cumprod(a[0])); }));
  EXPECT_EQ((Values{2}), second_derivatives(zero, [](const Arrays& a) { return sum(pow(a[0], 2.)); }));
  EXPECT_EQ((Values{0}), second_derivatives(zero, [](const Arrays& a) { return sum(pow(a[0], 3.)); }));
  EXPECT_EQ((Values{0}), second_derivatives(zero, [](const Arrays& a) { return sum(pow(a[0], 1.)); }));
  EXPECT_EQ((Values{0}), second_derivatives(zero, [](const Arrays& a) { return sum(pow(a[0], 0.)); }));
  // The second derivative does not exist here. The result must be 0, not a NaN that spreads.
  const Values none{0, 0, 0, 0};
  EXPECT_EQ(none, second_derivatives(zeros_of_two, [](const Arrays& a) { return norm(a[0]); }));
  EXPECT_EQ(none, second_derivatives(zeros_of_two, [](const Arrays& a) { return norm(a[0], 3); }));
  EXPECT_EQ(none, second_derivatives(zeros_of_two, [](const Arrays& a) { return stddev(a[0]); }));
  EXPECT_EQ(none, second_derivatives(zeros_of_two, [](const Arrays& a) { return hypot(a[0][0], a[0][1]); }));
  EXPECT_EQ(none, second_derivatives(zeros_of_two, [](const Arrays& a) { return atan2(a[0][0], a[0][1]); }));
  const NDArray nothing = full({2}, -kInf, f64);
  EXPECT_EQ(none, second_derivatives(nothing, [](const Arrays& a) { return logsumexp(a[0]); }));
  EXPECT_EQ(none, second_derivatives(nothing, [](const Arrays& a) { return logaddexp(a[0][0], a[0][1]); }));
  EXPECT_EQ(none, second_derivatives(nothing, [](const Arrays& a) { return sum(logcumsumexp(a[0])); }));
}

// Saturated probabilities must not turn the gradient of their input into NaN or infinity.
TEST(OperatorGradients, OfSureProbabilitiesStayFinite) {
  NDArray x = array({-1000.f, -100.f, 0.f, 100.f, 1000.f}).requires_grad_();
  bce_loss(sigmoid(x), array({0.f, 1.f, 1.f, 0.f, 1.f})).backward();
  for (double v : x.grad().to_vector<double>()) EXPECT_TRUE(std::isfinite(v)) << v;
}

// The graph node of an operator with a number stores the number. No array that could change is kept, and the
// gradient is again one operation with the number.
TEST(OperatorGradients, OfNumbersKeepNoValues) {
  NDArray x = test::some({4}, 1).requires_grad_();
  NDArray a = x * 2;
  const NDArray y = a * 3 + 1 - a / 4 - (5 - a) + a % 7 + 2 * a;
  a += 1;
  sum(y).backward();
  EXPECT_EQ((std::vector<double>(4, 2 * (3 - 0.25 + 1 + 1 + 2))), x.grad().to_vector<double>());
}

TEST(OperatorGradients, OfPowersOfNumbersAreProducts) {
  const auto slopes = [](const NDArray& values, double exponent) {
    NDArray x = values.clone().requires_grad_();
    sum(pow(x, exponent)).backward();
    return x.grad().to_vector<double>();
  };
  const NDArray x = array({-2., 0., 3.});
  EXPECT_EQ((std::vector<double>{0, 0, 0}), slopes(x, 0));
  EXPECT_EQ((std::vector<double>{1, 1, 1}), slopes(x, 1));
  EXPECT_EQ((std::vector<double>{-4, 0, 6}), slopes(x, 2));
  EXPECT_EQ((std::vector<double>{12, 0, 27}), slopes(x, 3));
  // 0 to the power of x tends to 0 together with all its derivatives.
  NDArray exponent = array({1., 2.}).requires_grad_();
  sum(pow(0, exponent)).backward();
  EXPECT_EQ((std::vector<double>{0, 0}), exponent.grad().to_vector<double>());
}

// A value that is needed only by other variants of the operator may change after the call.
TEST(OperatorGradients, OfAssignmentsNeedNoOldValues) {
  NDArray x = test::some({4}, 1).requires_grad_(), u = test::some({2}, 2).requires_grad_();
  NDArray y = x * 2;
  const NDArray at = array<int64_t>({1, 3});
  NDArray z = index_update(y, at, u, 0, Scatter::set);
  const NDArray w = index_add(z, at, u);
  y += 1;
  z += 1;
  sum(w).backward();
  EXPECT_EQ((std::vector<double>{2, 0, 2, 0}), x.grad().to_vector<double>());
  EXPECT_EQ((std::vector<double>{2, 2}), u.grad().to_vector<double>());
}

TEST(OperatorGradients, OfBatchNormInferenceAddUpInTheTypeOfTheStatistics) {
  const NDArray x = ones({8, 1, 128, 128}, f16);  // the sum of as many ones is beyond f16
  const NDArray average = zeros({1}).requires_grad_(), bias = zeros({1}).requires_grad_();
  sum(batch_norm_inference(x, average, ones({1}), {}, bias).to(f32)).backward();
  EXPECT_EQ(131072.f, bias.grad().item<float>());
  EXPECT_NEAR(-131072.f, average.grad().item<float>(), 2);
}

}  // namespace
}  // namespace mx
