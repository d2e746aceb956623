// Averages of parameters, accumulation of gradients, and clipping, compared with plain loops.
#include "optim/averages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "optim/clip.h"
#include "tests/optim/held_gradients.h"
#include "tests/optim/plain_rules.h"
#include "tests/support/errors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;
using test::HeldGradients;
using test::RandomNumbers;
using test::values_of;

TEST(Averages, FollowTheirFormulas) {
  for (const AveragesOptions& options :
       {AveragesOptions{.decay = 0.9}, AveragesOptions{.decay = 0.99, .warmup = true},
        AveragesOptions{.equal = true}}) {
    RandomNumbers random(3);
    std::vector<NDArray> parameters = {random.array({4}), random.array({2, 3}, f64), random.array({5}, bf16),
                                       random.array({3}, f32, virt(0))};
    std::vector<double> expected = values_of(parameters);
    Averages averages(parameters, options);
    for (int n = 0; n < 50; ++n) {
      for (NDArray& p : parameters) p.copy_from(random.array(p.shape(), p.dtype()).to(p.context()));
      averages.update();
      double decay = options.warmup ? std::min(options.decay, (1.0 + n) / (10.0 + n)) : options.decay;
      if (options.equal) decay = n / (n + 1.0);
      const std::vector<double> now = values_of(parameters);
      for (size_t i = 0; i < now.size(); ++i) expected[i] = decay * expected[i] + (1 - decay) * now[i];
    }
    const std::vector<double> got = values_of(averages.values());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(expected[i], got[i], 1e-5) << i;

    // Tests with the averages do not disturb the training.
    const std::vector<double> own = values_of(parameters);
    averages.apply();
    EXPECT_TRUE(averages.applied());
    for (size_t p = 0; p < parameters.size(); ++p)
      EXPECT_EQ(values_of({averages.values()[p].to(parameters[p].dtype())}), values_of({parameters[p]}));
    error_of<InvalidState>([&] { averages.apply(); });
    error_of<InvalidState>([&] { averages.update(); });
    averages.restore();
    EXPECT_EQ(own, values_of(parameters));
    EXPECT_EQ(got, values_of(averages.values()));
    error_of<InvalidState>([&] { averages.restore(); });

    Averages resumed(parameters, options);
    resumed.load_state_dict(averages.state_dict());
    EXPECT_EQ(50, resumed.updates());
    averages.update();
    resumed.update();
    EXPECT_EQ(values_of(averages.values()), values_of(resumed.values()));
  }
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { Averages({ones({2}, i32)}, {.decay = 2}); }),
                       "decay from 0 to 1, got 2; expected parameter 0"));
}

TEST(Averages, OfTwoModulesWithEqualNamesCanBeSaved) {
  const Parameters parameters = {NamedParameter("weight", full({2}, 1)), NamedParameter("bias", full({1}, 2)),
                                 NamedParameter("weight", full({2}, 3)), NamedParameter(full({1}, 4))};
  const Averages averages(parameters);
  std::string names;
  for (const auto& [name, array] : averages.state_dict()) names += name + ' ';
  EXPECT_EQ("updates average.weight average.bias average.weight@2 average.3 ", names);
  const Parameters other = {NamedParameter("weight", zeros({2})), NamedParameter("bias", zeros({1})),
                            NamedParameter("weight", zeros({2})), NamedParameter(zeros({1}))};
  Averages loaded(other);
  loaded.load_state_dict(averages.state_dict());
  EXPECT_EQ(values_of(averages.values()), values_of(loaded.values()));
}

TEST(Accumulation, CountsAndScales) {
  Accumulation accumulation(3);
  std::vector<bool> steps;
  for (int i = 0; i < 7; ++i) steps.push_back(accumulation.step());
  EXPECT_EQ((std::vector<bool>{false, false, true, false, false, true, false}), steps);
  EXPECT_FLOAT_EQ(2, accumulation.scale(full({}, 6)).item<float>());
  error_of<InvalidArgument>([] { Accumulation none(0); });
}

TEST(ClipGradients, LimitNormsAndElements) {
  const HeldGradients held;
  RandomNumbers random(5);
  for (const double limit : {0.5, 1e6}) {
    std::vector<NDArray> parameters;
    std::vector<std::vector<double>> gradients;
    const auto begin = [&] {
      parameters = {ones({4}), ones({2, 3}, f64), ones({5}, f16), ones({3}, f32, virt(0)), ones({2})};
      gradients.clear();
      for (size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].requires_grad_();
        parameters[i].set_grad(NDArray());
        if (i == 4) continue;  // without a gradient
        parameters[i].set_grad(
            random.array(parameters[i].shape(), parameters[i].dtype()).to(parameters[i].context()));
        gradients.push_back(values_of({parameters[i].grad()}));
      }
    };
    const auto norm = [](const std::vector<double>& x) {
      double sum = 0;
      for (const double v : x) sum += v * v;
      return std::sqrt(sum);
    };
    const auto expect = [&](const std::function<double(size_t i, double g)>& f) {
      for (size_t i = 0; i < gradients.size(); ++i) {
        const std::vector<double> got = values_of({parameters[i].grad()});
        for (size_t k = 0; k < got.size(); ++k)
          EXPECT_NEAR(f(i, gradients[i][k]), got[k], i == 2 ? 2e-3 : 1e-6) << i;
      }
      EXPECT_FALSE(parameters[4].grad().defined());
    };
    begin();
    std::vector<double> all;
    for (const auto& g : gradients) all.insert(all.end(), g.begin(), g.end());
    EXPECT_NEAR(norm(all), clip_grad_norm(parameters, limit).item<double>(), 1e-6);
    expect([&](size_t, double g) { return g * std::min(1.0, limit / norm(all)); });
    begin();
    clip_each_grad_norm(parameters, limit);
    expect([&](size_t i, double g) { return g * std::min(1.0, limit / norm(gradients[i])); });
    begin();
    clip_grad_value(parameters, limit);
    expect([&](size_t, double g) { return std::clamp(g, -limit, limit); });
  }
  error_of<InvalidArgument>([] { clip_grad_value({ones({2})}, 0); });
  error_of<InvalidArgument>([] { clip_grad_norm({ones({2})}, std::nan("")); });
  // An infinite limit, as programs pass it that want only the norm.
  const double infinite = std::numeric_limits<double>::infinity();
  const NDArray w = ones({2}).requires_grad_();
  for (const std::vector<float>& gradient : {std::vector<float>{3, 4}, std::vector<float>{HUGE_VALF, 4}}) {
    w.set_grad(array(gradient));
    EXPECT_EQ(gradient[0] > 3 ? infinite : 5, clip_grad_norm({w}, infinite).to(f64).item<double>());
    clip_each_grad_norm({w}, infinite);
    clip_grad_value({w}, infinite);
    EXPECT_EQ(gradient, w.grad().to_vector<float>());
  }
}

}  // namespace
}  // namespace mx::optim
