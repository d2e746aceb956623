// Normalisation: plain loops in float64 for every shape, type and path of the kernels.
#include "operators/norm.h"

#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::kNan;
using test::numbers;
using test::Values;

/// Which statistics and which parameter each element has.
struct NormOracle {
  std::vector<size_t> group, parameter;
  size_t groups = 0, parameters = 0;
  bool centred = true;

  static NormOracle batch(const Shape& x) {
    NormOracle o;
    o.fill(
        x.numel(), [&](int64_t i) { return i / (x.numel() / (x[0] * x[1])) % x[1]; },
        [&](int64_t i) { return i / (x.numel() / (x[0] * x[1])) % x[1]; });
    return o;
  }
  static NormOracle of_groups(const Shape& x, int64_t groups) {
    NormOracle o;
    const int64_t run = x.numel() / (x[0] * x[1]);
    o.fill(
        x.numel(), [&](int64_t i) { return i / (run * (x[1] / groups)); },
        [&](int64_t i) { return i / run % x[1]; });
    return o;
  }
  static NormOracle layer(const Shape& x, int64_t dims, bool centred) {
    NormOracle o;
    int64_t n = 1;
    for (int64_t d = x.rank() - dims; d < x.rank(); ++d) n *= x[static_cast<int>(d)];
    o.fill(
        x.numel(), [&](int64_t i) { return i / n; }, [&](int64_t i) { return i % n; });
    o.centred = centred;
    return o;
  }
  template <class G, class P>
  void fill(int64_t n, const G& group_of, const P& parameter_of) {
    for (int64_t i = 0; i < n; ++i) {
      group.push_back(static_cast<size_t>(group_of(i)));
      parameter.push_back(static_cast<size_t>(parameter_of(i)));
      groups = std::max(groups, group.back() + 1);
      parameters = std::max(parameters, parameter.back() + 1);
    }
  }
  double count() const { return static_cast<double>(group.size() / groups); }
  Values means(const Values& x) const {
    Values mean(groups, 0.);
    for (size_t i = 0; i < x.size(); ++i) mean[group[i]] += x[i] / count();
    return mean;
  }

  /// y, mean (if centred) and rstd.
  std::vector<Values> forward(const Values& x, const Values& weight, const Values& bias, double eps) const {
    const Values mean = centred ? means(x) : Values(groups, 0.);
    Values rstd(groups, 0.), y(x.size());
    for (size_t i = 0; i < x.size(); ++i) rstd[group[i]] += std::pow(x[i] - mean[group[i]], 2) / count();
    for (double& v : rstd) v = 1 / std::sqrt(v + eps);
    for (size_t i = 0; i < x.size(); ++i)
      y[i] = (x[i] - mean[group[i]]) * rstd[group[i]] * (weight.empty() ? 1 : weight[parameter[i]]) +
             (bias.empty() ? 0 : bias[parameter[i]]);
    if (centred) return {y, mean, rstd};
    return {y, rstd};
  }
  /// dx, dweight and dbias (if centred).
  std::vector<Values> backward(const Values& dy, const Values& x, const Values& mean, const Values& rstd,
                               const Values& weight) const {
    Values dx(x.size()), dweight(parameters, 0.), dbias(parameters, 0.), heads(groups, 0.), dots(groups, 0.);
    const auto normal = [&](size_t i) { return (x[i] - (centred ? mean[group[i]] : 0)) * rstd[group[i]]; };
    const auto head = [&](size_t i) { return dy[i] * (weight.empty() ? 1 : weight[parameter[i]]); };
    for (size_t i = 0; i < x.size(); ++i) {
      dweight[parameter[i]] += dy[i] * normal(i);
      dbias[parameter[i]] += dy[i];
      if (centred) heads[group[i]] += head(i) / count();
      dots[group[i]] += head(i) * normal(i) / count();
    }
    for (size_t i = 0; i < x.size(); ++i)
      dx[i] = rstd[group[i]] * (head(i) - heads[group[i]] - normal(i) * dots[group[i]]);
    if (centred) return {dx, dweight, dbias};
    return {dx, dweight};
  }
};

Values optional_values(const std::vector<NDArray>& inputs, size_t i) {
  return i < inputs.size() ? test::values(inputs[i]) : Values{};
}

void expect_results(const std::vector<Values>& want, const std::vector<NDArray>& got,
                    const std::string& label, double scale = 8) {
  ASSERT_EQ(want.size(), got.size()) << label;
  for (size_t k = 0; k < got.size(); ++k)
    test::expect_values(want[k], got[k], label + ", output " + std::to_string(k), scale);
}

void expect_forward(const Operator& op, const Attrs& attrs, const std::vector<NDArray>& in,
                    const NormOracle& oracle, double eps, const std::string& label) {
  expect_results(oracle.forward(test::values(in[0]), optional_values(in, 1), optional_values(in, 2), eps),
                 call(op, attrs, in), label);
}

void expect_backward(const Operator& op, const Attrs& attrs, const std::vector<NDArray>& in,
                     const NormOracle& oracle, bool parameters, const std::string& label) {
  const size_t rstd = oracle.centred ? 3 : 2;
  std::vector<Values> want = oracle.backward(test::values(in[0]), test::values(in[1]), test::values(in[2]),
                                             test::values(in[rstd]), optional_values(in, rstd + 1));
  if (!parameters)
    for (size_t k = 1; k < want.size(); ++k) want[k].clear();
  expect_results(want, call(op, attrs, in), label, 32);
}

TEST(NormOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  test::each_sample("batch_norm", [](const Operator& op, const Sample& s) {
    expect_forward(op, s.attrs, s.inputs, NormOracle::batch(s.inputs[0].shape()),
                   s.attrs.get<BatchNormAttrs>().eps, s.label);
  });
  test::each_sample("group_norm", [](const Operator& op, const Sample& s) {
    const auto& attrs = s.attrs.get<GroupNormAttrs>();
    expect_forward(op, s.attrs, s.inputs, NormOracle::of_groups(s.inputs[0].shape(), attrs.groups), attrs.eps,
                   s.label);
  });
  for (const char* name : {"layer_norm", "rms_norm"})
    test::each_sample(name, [&](const Operator& op, const Sample& s) {
      const auto& attrs = s.attrs.get<LayerNormAttrs>();
      const bool centred = std::string(name) == "layer_norm";
      expect_forward(op, s.attrs, s.inputs, NormOracle::layer(s.inputs[0].shape(), attrs.dims, centred),
                     attrs.eps, s.label);
    });
}

TEST(NormOp, BackwardAgreesWithAPlainLoopForAllSamplesAndTypes) {
  test::each_sample("batch_norm_backward", [](const Operator& op, const Sample& s) {
    expect_backward(op, s.attrs, s.inputs, NormOracle::batch(s.inputs[1].shape()),
                    s.attrs.get<BatchNormBackwardAttrs>().parameters, s.label);
  });
  test::each_sample("group_norm_backward", [](const Operator& op, const Sample& s) {
    const auto& attrs = s.attrs.get<GroupNormBackwardAttrs>();
    expect_backward(op, s.attrs, s.inputs, NormOracle::of_groups(s.inputs[1].shape(), attrs.groups),
                    attrs.parameters, s.label);
  });
  for (const char* name : {"layer_norm_backward", "rms_norm_backward"})
    test::each_sample(name, [&](const Operator& op, const Sample& s) {
      const auto& attrs = s.attrs.get<LayerNormBackwardAttrs>();
      const bool centred = std::string(name) == "layer_norm_backward";
      expect_backward(op, s.attrs, s.inputs, NormOracle::layer(s.inputs[1].shape(), attrs.dims, centred),
                      attrs.parameters, s.label);
    });
}

struct NormCase {
  const char* name;
  Shape x;
  Attrs forward, backward;
  NormOracle oracle;
  double eps;
};

/// Shapes with short and long runs, more elements than are folded at once, and several pieces of a loop.
std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const Shape& x : std::vector<Shape>{{300, 5},
                                           {130, 3, 7},
                                           {40, 2, 16},
                                           {9, 3, 31},
                                           {3, 2, 2500},
                                           {1, 1, 33},
                                           {2, 1, 1, 1},
                                           {260, 150}})
    cases.push_back(
        {"batch_norm", x, BatchNormAttrs{}, BatchNormBackwardAttrs{}, NormOracle::batch(x), 1e-5});
  for (const Shape& x : std::vector<Shape>{{300, 6}, {20, 6, 7}, {5, 6, 2100}, {70, 12, 50}, {1, 6, 1}})
    for (const int64_t groups : {1, 3, 6})
      cases.push_back({"group_norm", x, GroupNormAttrs{groups, 1e-3}, GroupNormBackwardAttrs{groups},
                       NormOracle::of_groups(x, groups), 1e-3});
  for (const Shape& x : std::vector<Shape>{{500, 3}, {7, 129}, {3, 5000}, {1, 1}, {123, 600}})
    for (const bool centred : {true, false})
      cases.push_back({centred ? "layer_norm" : "rms_norm", x, LayerNormAttrs{1, 1e-3},
                       LayerNormBackwardAttrs{1}, NormOracle::layer(x, 1, centred), 1e-3});
  return cases;
}

void expect_every_path() {
  for (const NormCase& c : norm_cases()) {
    const Operator &op = *find_operator(c.name), &back = *find_operator(c.name + std::string("_backward"));
    const auto parameters = static_cast<int64_t>(c.oracle.parameters);
    for (const DType type : {f32, f64, bf16}) {
      const std::string label = std::string(c.name) + ' ' + to_string(c.x) + ' ' + to_string(type) + ' ' +
                                to_string(c.forward.to_map().begin()->second);
      const NDArray x = (numbers(c.x, f64, 1) + 0.5).to(type), dy = numbers(c.x, type, 2);
      const NDArray weight = numbers({parameters}, f32, 3), bias = numbers({parameters}, f32, 4);
      for (size_t affine = 0; affine <= (c.oracle.centred ? 2u : 1u); ++affine) {
        std::vector<NDArray> in = {x};
        if (affine > 0) in.push_back(weight);
        if (affine > 1) in.push_back(bias);
        expect_forward(op, c.forward, in, c.oracle, c.eps, label);
      }
      const std::vector<NDArray> results = call(op, c.forward, std::vector<NDArray>{x});
      for (const bool weighted : {false, true}) {
        std::vector<NDArray> in = {dy, x};
        in.insert(in.end(), results.begin() + 1, results.end());
        if (weighted) in.push_back(weight);
        expect_backward(back, c.backward, in, c.oracle, true, label);
      }
    }
  }
}

TEST(NormOp, EveryPathAgreesWithAPlainLoopInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) { expect_every_path(); });
}

TEST(NormOp, TheNumberOfThreadsDoesNotChangeABit) {
  const auto all = [] {
    std::vector<test::Content> contents;
    for (const NormCase& c : norm_cases()) {
      const NDArray x = numbers(c.x, f32, 1), dy = numbers(c.x, f32, 2);
      const NDArray weight = numbers({static_cast<int64_t>(c.oracle.parameters)}, f32, 3);
      const std::vector<NDArray> y = call(*find_operator(c.name), c.forward, std::vector<NDArray>{x, weight});
      std::vector<NDArray> in = {dy, x};
      in.insert(in.end(), y.begin() + 1, y.end());
      in.push_back(weight);
      for (const NDArray& a : y) contents.push_back(content_of(a));
      for (const NDArray& a : call(*find_operator(c.name + std::string("_backward")), c.backward, in))
        contents.push_back(content_of(a));
    }
    return contents;
  };
  std::vector<test::Content> one, four;
  test::with_threads(1, [&] { one = all(); });
  test::with_threads(4, [&] { four = all(); });
  EXPECT_TRUE(one == four);
}

// In f32, the sum of the squares of these numbers has no digit of the variance.
TEST(NormOp, ALargeMeanCostsNoDigitsOfTheVariance) {
  for (const Shape& shape : std::vector<Shape>{{64, 2, 40}, {512, 2}, {16, 2, 3000}}) {
    const NDArray deviations = round(numbers(shape, f64, 5) * 64) / 64;
    const NDArray x = (deviations + 65536).to(f32);  // exact
    const Values want = NormOracle::batch(shape).forward(test::values(deviations), {}, {}, 0)[0];
    test::expect_values(want, batch_norm(x, {}, {}, 0).y, "batch", 4);
    const Values rows = NormOracle::layer(shape, 1, true).forward(test::values(deviations), {}, {}, 0)[0];
    test::expect_values(rows, layer_norm(x, {shape[shape.rank() - 1]}, {}, {}, 0), "layer", 4);
    const Values groups = NormOracle::of_groups(shape, 1).forward(test::values(deviations), {}, {}, 0)[0];
    test::expect_values(groups, group_norm(x, 1, {}, {}, 0), "group", 4);
  }
}

TEST(NormOp, ANanOrAnInfinityReachesItsGroupAlone) {
  for (const double bad : {kNan, test::kInfinity})
    for (const int64_t run : {1, 40}) {
      NDArray x = numbers({3, 2, run}, f32);
      x[{1, 0, 0}] = bad;
      const Values batch = test::values(batch_norm(x).y), instance = test::values(instance_norm(x));
      for (int64_t i = 0; i < x.numel(); ++i) {
        const auto k = static_cast<size_t>(i);
        EXPECT_EQ(i / run % 2 == 0, std::isnan(batch[k])) << i;
        EXPECT_EQ(i / run == 2, std::isnan(instance[k])) << i;
      }
    }
}

TEST(NormOp, InferenceIsTheFormula) {
  const NDArray x = numbers({3, 4, 21}, f64, 1), mean = numbers({4}, f64, 2),
                variance = square(numbers({4}, f64, 3));
  const NDArray weight = numbers({4}, f64, 4), bias = numbers({4}, f64, 5);
  const auto by_channel = [](const NDArray& a) { return a.reshape({4, 1}); };
  const NDArray plain = (x - by_channel(mean)) * rsqrt(by_channel(variance) + 1e-5);
  test::expect_values(test::values(plain), batch_norm_inference(x, mean, variance), "plain");
  test::expect_values(test::values(plain * by_channel(weight) + by_channel(bias)),
                      batch_norm_inference(x, mean, variance, weight, bias), "affine");
  test::expect_values(test::values(plain + by_channel(bias)),
                      batch_norm_inference(x, mean, variance, {}, bias), "bias alone");
}

TEST(NormOp, RunningStatisticsAreAverages) {
  const NoGrad pause;
  NDArray mean = zeros({2}), variance = ones({2}), batches = zeros({}, i64);
  NDArray all_mean = zeros({2}, f64), all_variance = ones({2}, f64), all_batches = zeros({}, i64);
  std::vector<NDArray> means, variances;
  double expected_mean = 0, expected_variance = 1;
  for (uint64_t i = 1; i <= 3; ++i) {
    const NDArray x = numbers({5, 2, 3}, f64, i);
    const NormResult r = batch_norm(x, {}, {}, 1e-3);
    const RunningStatisticsOptions options{.momentum = 0.25, .eps = 1e-3, .elements = 15};
    update_running_statistics(mean, variance, batches, r.mean, r.rstd, options);
    update_running_statistics(all_mean, all_variance, all_batches, r.mean, r.rstd,
                              {.momentum = {}, .eps = 1e-3, .elements = 15});
    means.push_back(mx::mean(x, {0, 2}));
    variances.push_back(var(x, {0, 2}));
    expected_mean += 0.25 * (means.back()[0].item<double>() - expected_mean);
    expected_variance += 0.25 * (variances.back()[0].item<double>() - expected_variance);
  }
  EXPECT_NEAR(expected_mean, mean[0].item<float>(), 1e-6);
  EXPECT_NEAR(expected_variance, variance[0].item<float>(), 1e-6);
  EXPECT_EQ(3, batches.item<int64_t>());
  test::expect_values(test::values((means[0] + means[1] + means[2]) / 3), all_mean, "average of means");
  test::expect_values(test::values((variances[0] + variances[1] + variances[2]) / 3), all_variance,
                      "average of variances");
}

TEST(NormOp, LpNormalizeAndLocalResponseAreTheirFormulas) {
  const NDArray x = numbers({2, 5, 3}, f64);
  const Values v = test::values(x);
  Values unit(v.size()), response(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const size_t n = i / 15, c = i / 3 % 5, s = i % 3;
    double total = 0, window = 0;
    for (size_t k = 0; k < 5; ++k) {
      const double other = v[n * 15 + k * 3 + s];
      total += std::abs(other);
      if (k + 2 >= c && k <= c + 1) window += other * other;  // a window of 4: two before, one after
    }
    unit[i] = v[i] / total;
    response[i] = v[i] / std::pow(2 + 0.5 * window / 4, 0.75);
  }
  test::expect_values(unit, lp_normalize(x, 1), "normalize");
  test::expect_values(response, local_response_norm(x, 4, {.alpha = 0.5, .k = 2}), "local response");
  EXPECT_EQ(Values(3, 0.), test::values(lp_normalize(zeros({1, 3}))));
}

TEST(NormOp, ErrorsNameWhatCame) {
  const auto message = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(
      contains(message([] { batch_norm(ones({3})); }), "[batch_norm] expected an array of rank 2 or more"));
  EXPECT_TRUE(contains(message([] {
                         batch_norm(ones({2, 3}), ones({2}));
                       }),
                       "expected a weight of shape (3,), got (2,)"));
  EXPECT_TRUE(contains(message([] { batch_norm(ones({2, 3}, i32)); }), "got i32"));
  EXPECT_TRUE(contains(message([] { batch_norm(ones({2, 3}), {}, {}, -1); }), "eps of 0 or more, got -1"));
  EXPECT_TRUE(contains(message([] { group_norm(ones({2, 6}), 4); }), "divides the 6 channels"));
  EXPECT_TRUE(contains(message([] { group_norm(ones({2, 6}), 0); }), "got 0"));
  EXPECT_TRUE(contains(message([] { layer_norm(ones({2, 6}), {3}); }), "last dimensions are (3,)"));
  EXPECT_TRUE(contains(message([] { rms_norm(ones({6}), {2, 6}); }), "last dimensions are (2, 6)"));
  EXPECT_TRUE(contains(message([] { instance_norm(ones({6})); }), "[instance_norm]"));
  EXPECT_TRUE(contains(message([] { local_response_norm(ones({2, 6}), 0); }), "size 0"));
  NDArray mean = zeros({2}), variance = ones({2}), batches = zeros({}, i64);
  EXPECT_TRUE(contains(message([&] {
                         update_running_statistics(mean, variance, batches, zeros({2}), ones({2}),
                                                   {.elements = 1});
                       }),
                       "at least 2 elements"));
}

}  // namespace
}  // namespace mx
