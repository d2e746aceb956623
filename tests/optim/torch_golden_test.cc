// Optimisers compared with torch.optim over 1,000 steps in float64 (tests/optim/golden/make_torch.py).
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "optim/lbfgs.h"
#include "optim/optimizers.h"
#include "tests/optim/held_gradients.h"

namespace mx::optim {
namespace {

const char kTorch[] =
#include <golden_torch.inc>
    ;
const std::vector<double> kStart = {0.3, -1.2, 0.05, 2.0, -0.4};

struct GoldenCase {
  std::string name, text;
  AttrMap options;
  std::vector<double> w;
};

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  std::istringstream lines(kTorch);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    GoldenCase& c = cases.emplace_back();
    c.text = line.substr(0, line.find(" : "));
    std::istringstream words(line);
    words >> c.name;
    for (std::string word; words >> word && word != ":";) {
      const size_t equal = word.find('=');
      const std::string value = word.substr(equal + 1);
      if (value == "true" || value == "false") {
        c.options[word.substr(0, equal)] = value == "true";
      } else {
        c.options[word.substr(0, equal)] = std::stod(value);
      }
    }
    for (double value = 0; words >> value;) c.w.push_back(value);
  }
  return cases;
}

void expect_close(const GoldenCase& c, const NDArray& w, double tolerance) {
  const std::vector<double> got = w.to_vector<double>();
  ASSERT_EQ(c.w.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(c.w[i], got[i], tolerance) << c.text << ", element " << i;
}

TEST(TorchGolden, AThousandStepsEndWhereTorchEnds) {
  int count = 0;
  for (const GoldenCase& c : golden_cases()) {
    if (c.name == "lbfgs") continue;
    ++count;
    const NDArray w = array(kStart);
    const auto opt = make_optimizer(c.name, c.options, {w});
    for (int t = 1; t <= 1000; ++t) {
      std::vector<double> g = w.to_vector<double>();
      for (size_t i = 0; i < g.size(); ++i) {
        const auto place = static_cast<double>(i);
        g[i] = std::sin(0.7 * (place + 1) + 0.13 * t) * (1 + 0.1 * place) + 0.05 * g[i];
      }
      opt->step({array(g)});
    }
    // torch rounds the decayed learning rate of ASGD to float32.
    expect_close(c, w, c.name == "asgd" ? 1e-7 : 1e-10);
  }
  EXPECT_EQ(15, count);
}

TEST(TorchGolden, LbfgsEndsWhereTorchEnds) {
  const test::HeldGradients held;
  int count = 0;
  for (const GoldenCase& c : golden_cases()) {
    if (c.name != "lbfgs") continue;
    ++count;
    LBFGSOptions options;
    for (const auto& [name, value] : c.options) {
      const double number = std::get<double>(value);
      if (name == "lr") options.lr = number;
      if (name == "max_iter") options.max_iter = static_cast<int64_t>(number);
      if (name == "history_size") options.history_size = static_cast<int64_t>(number);
    }
    NDArray w = array(kStart);
    w.requires_grad_();
    LBFGS opt({w}, options);
    for (int step = 0; step < 5; ++step)
      opt.step([&] {
        const std::vector<double> x = w.detach().to_vector<double>();
        std::vector<double> g(x.size());
        double loss = 0;
        for (size_t i = 0; i + 1 < x.size(); ++i) {
          const double gap = x[i + 1] - x[i] * x[i];
          loss += (100 * gap * gap + (1 - x[i]) * (1 - x[i])) / 50;
          g[i] += (-400 * gap * x[i] - 2 * (1 - x[i])) / 50;
          g[i + 1] += 200 * gap / 50;
        }
        w.set_grad(array(g));
        return scalar_array(loss, f64);
      });
    expect_close(c, w.detach(), 1e-8);
  }
  EXPECT_EQ(2, count);
}

}  // namespace
}  // namespace mx::optim
