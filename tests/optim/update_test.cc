// Update rules on arrays: a thousand steps compared with the formulas in float64, and invalid calls that are
// refused.
#include "optim/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "operators/elementwise_binary.h"
#include "tests/support/errors.h"
#include "tests/support/failures.h"
#include "tests/support/held.h"
#include "tests/support/processors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;

const std::vector<Shape> kShapes = {{}, {3}, {0}, {4, 5}, {2, 3, 7}, {1}};

double gradient_of(int64_t parameter, int64_t element, int64_t step) {
  return std::sin(0.37 * static_cast<double>(element + 1) * static_cast<double>(parameter + 1) +
                  0.011 * static_cast<double>(step)) +
         0.1 * std::cos(1.7 * static_cast<double>(step + element));
}

double start_of(int64_t parameter, int64_t element) {
  return std::cos(static_cast<double>(parameter) + 0.3 * static_cast<double>(element));
}

NDArray made(const Shape& shape, DType type, const std::function<double(int64_t)>& value) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(value(i));
  return from_data(values.data(), shape).to(type);
}

/// The state of one element of a parameter, in float64.
struct Element {
  double w, s0 = 0, s1 = 0;
};

struct Case {
  std::string name;
  bool adam = false;
  SgdRule sgd{};
  AdamRule adam_rule{};
  double max_norm = 0;
};

double prepared(double g, double w, double scale, double clip, double decay, bool maximize) {
  g *= scale * (maximize ? -1 : 1);
  if (clip > 0) g = std::min(std::max(g, -clip), clip);
  return g + decay * w;
}

void step_element(const Case& c, Element& e, double g, double rate, int64_t t, double scale) {
  if (!c.adam) {
    const SgdRule& r = c.sgd;
    g = prepared(g, e.w, scale, r.clip, r.weight_decay, r.maximize);
    double direction = g;
    if (r.momentum != 0) {
      const double share = r.ema ? 1 - r.momentum : 1 - r.dampening;
      e.s0 = t == 1 ? g : r.momentum * e.s0 + share * g;
      direction = r.nesterov ? (r.ema ? share : 1) * g + r.momentum * e.s0 : e.s0;
    }
    e.w -= rate * direction;
    return;
  }
  const AdamRule& r = c.adam_rule;
  g = prepared(g, e.w, scale, r.clip, r.decoupled ? 0 : r.weight_decay, r.maximize);
  if (r.decoupled) e.w -= rate * r.weight_decay * e.w;
  e.s0 = r.beta1 * e.s0 + (1 - r.beta1) * g;
  e.s1 = r.beta2 * e.s1 + (1 - r.beta2) * g * g;
  const double d = static_cast<double>(t);
  const double m = r.bias_correction ? e.s0 / (1 - std::pow(r.beta1, d)) : e.s0;
  const double v = r.bias_correction ? e.s1 / (1 - std::pow(r.beta2, d)) : e.s1;
  e.w -= rate * m / (std::sqrt(v) + r.eps);
}

std::vector<Case> cases() {
  return {
      {.name = "sgd"},
      {.name = "sgd, decay, clipped", .sgd = {.weight_decay = 0.01, .clip = 0.5}},
      {.name = "momentum", .sgd = {.momentum = 0.9}},
      {.name = "momentum, dampening", .sgd = {.momentum = 0.9, .dampening = 0.3, .weight_decay = 1e-3}},
      {.name = "nesterov", .sgd = {.momentum = 0.9, .nesterov = true}},
      {.name = "ema", .sgd = {.momentum = 0.9, .ema = true}},
      {.name = "nesterov, ema", .sgd = {.momentum = 0.9, .nesterov = true, .ema = true}},
      {.name = "maximize", .sgd = {.momentum = 0.5, .maximize = true}},
      {.name = "global norm", .sgd = {.momentum = 0.9}, .max_norm = 0.7},
      {.name = "adam", .adam = true},
      {.name = "adam, decay", .adam = true, .adam_rule = {.weight_decay = 0.02}},
      {.name = "adamw", .adam = true, .adam_rule = {.weight_decay = 0.02, .decoupled = true}},
      {.name = "adam, as in the first version",
       .adam = true,
       .adam_rule = {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4, .bias_correction = false}},
      {.name = "adam, global norm", .adam = true, .max_norm = 0.3},
  };
}

// Runs a case. The learning rate changes during the run, in place, as a schedule does it.
void run_case(const Case& c, DType type, Context context, double tolerance) {
  UpdateArrays arrays;
  UpdateState state(c.adam ? 2 : c.sgd.momentum != 0 ? 1 : 0);
  std::vector<std::vector<Element>> expected;
  for (size_t p = 0; p < kShapes.size(); ++p) {
    const auto id = static_cast<int64_t>(p);
    arrays.parameters.push_back(
        made(kShapes[p], type, [&](int64_t i) { return start_of(id, i); }).to(context));
    for (auto& list : state) list.push_back(zeros(kShapes[p], type, context));
    expected.emplace_back();
    for (int64_t i = 0; i < kShapes[p].numel(); ++i)
      expected.back().push_back({type == f32 ? static_cast<float>(start_of(id, i)) : start_of(id, i)});
  }
  NDArray rate = full({}, 0.05, f64), step = full({}, 0, f32);
  for (int64_t t = 1; t <= 1000; ++t) {
    const double now = t <= 500 ? 0.05 : 0.01;
    if (t == 501) rate.fill_(now);
    step += 1;
    arrays.gradients.clear();
    double squares = 0;
    for (size_t p = 0; p < kShapes.size(); ++p) {
      const auto id = static_cast<int64_t>(p);
      arrays.gradients.push_back(
          made(kShapes[p], f64, [&](int64_t i) { return gradient_of(id, i, t); }).to(type).to(context));
      for (int64_t i = 0; i < kShapes[p].numel(); ++i) squares += std::pow(gradient_of(id, i, t), 2);
    }
    UpdateNumbers numbers{rate, step};
    double scale = 1;
    if (c.max_norm > 0) {
      numbers.scale = clip_scale(global_norm(arrays.gradients), c.max_norm);
      scale = std::min(1.0, c.max_norm / (std::sqrt(squares) + 1e-6));
    }
    if (c.adam) {
      adam_update(arrays, state, numbers, c.adam_rule);
    } else {
      sgd_update(arrays, state, numbers, c.sgd);
    }
    for (size_t p = 0; p < kShapes.size(); ++p)
      for (int64_t i = 0; i < kShapes[p].numel(); ++i)
        step_element(c, expected[p][static_cast<size_t>(i)], gradient_of(static_cast<int64_t>(p), i, t), now,
                     t, scale);
  }
  for (size_t p = 0; p < kShapes.size(); ++p) {
    const std::vector<double> got = arrays.parameters[p].to(cpu()).to_vector<double>();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(expected[p][i].w, got[i], tolerance * (1 + std::fabs(expected[p][i].w)))
          << c.name << ' ' << type << " parameter " << p << " element " << i;
  }
}

class Rules : public testing::TestWithParam<size_t> {};
TEST_P(Rules, AThousandStepsAreThoseOfTheFormula) {
  const Case c = cases()[GetParam()];
  SCOPED_TRACE(c.name);
  run_case(c, f64, cpu(), 1e-11);
  run_case(c, f32, cpu(), 2e-4);
}
INSTANTIATE_TEST_SUITE_P(All, Rules, testing::Range<size_t>(0, cases().size()));

TEST(Update, ADeviceGivesTheSame) { run_case(cases()[11], f64, virt(0), 1e-11); }

/// Two parameters with everything that a rule may need.
struct Step {
  UpdateArrays arrays{{ones({3}), ones({2, 2})}, {ones({3}), full({2, 2}, 2)}};
  UpdateState velocity{{zeros({3}), zeros({2, 2})}};
  UpdateNumbers numbers{full({}, 0.5), full({}, 1)};
};

TEST(Update, ParametersOfSeveralDevicesAreUpdatedTogether) {
  Step s;
  s.arrays.parameters.push_back(ones({3}, f32, virt(0)));
  s.arrays.gradients.push_back(full({3}, 4, f32, virt(0)));
  const NDArray norm = global_norm(s.arrays.gradients);
  EXPECT_NEAR(std::sqrt(3 + 16 + 48.0), norm.item<float>(), 1e-5);
  sgd_update(s.arrays, {}, s.numbers);
  EXPECT_EQ(std::vector<float>(3, 0.5f), s.arrays.parameters[0].to_vector<float>());
  EXPECT_EQ(std::vector<float>(4, 0.f), s.arrays.parameters[1].to_vector<float>());
  EXPECT_EQ(std::vector<float>(3, -1.f), s.arrays.parameters[2].to(cpu()).to_vector<float>());
}

TEST(Update, ParametersWithoutAGradientStayAsTheyAre) {
  Step s;
  s.arrays.gradients[1] = NDArray();
  sgd_update(s.arrays, s.velocity, s.numbers, {.momentum = 0.9, .weight_decay = 0.1});
  EXPECT_EQ(std::vector<float>(4, 1.f), s.arrays.parameters[1].to_vector<float>());
  EXPECT_EQ(std::vector<float>(4, 0.f), s.velocity[0][1].to_vector<float>());
  EXPECT_EQ(0.45f, s.arrays.parameters[0][0].item<float>());
  sgd_update({{ones({2})}, {NDArray()}}, {}, s.numbers);
  sgd_update({}, {}, s.numbers);
  EXPECT_EQ(0.f, global_norm({NDArray()}).item<float>());
}

// A parameter whose first gradient comes late starts with its own step 1. Its count and the rest of its state
// change together or not at all.
TEST(Update, CountsGoOnWithTheGradient) {
  for (const Context context : {cpu(), virt(0)}) {
    Step s;
    for (auto* list : {&s.arrays.parameters, &s.arrays.gradients, &s.velocity[0]})
      for (NDArray& array : *list) array = array.to(context);
    s.numbers = {.learning_rate = full({}, 0.5), .counts = zeros({2}, f64, context)};
    const SgdRule rule{.momentum = 0.5, .dampening = 0.5};
    const std::vector<NDArray> both = s.arrays.gradients;
    s.arrays.gradients = {both[0], NDArray()};
    sgd_update(s.arrays, s.velocity, s.numbers, rule);
    s.arrays.gradients = {NDArray(), both[1]};
    sgd_update(s.arrays, s.velocity, s.numbers, rule);
    s.arrays.gradients = both;
    s.numbers.skip = ones({});
    sgd_update(s.arrays, s.velocity, s.numbers, rule);
    EXPECT_EQ((std::vector<double>{1, 1}), s.numbers.counts.to(cpu()).to_vector<double>());
    EXPECT_EQ(std::vector<float>(3, 1), s.velocity[0][0].to(cpu()).to_vector<float>());
    EXPECT_EQ(std::vector<float>(4, 2), s.velocity[0][1].to(cpu()).to_vector<float>());
    s.numbers.skip = zeros({});
    sgd_update(s.arrays, s.velocity, s.numbers, rule);
    EXPECT_EQ((std::vector<double>{2, 2}), s.numbers.counts.to(cpu()).to_vector<double>());
    EXPECT_EQ(std::vector<float>(4, 2), s.velocity[0][1].to(cpu()).to_vector<float>());
    EXPECT_EQ(std::vector<float>(4, -1), s.arrays.parameters[1].to(cpu()).to_vector<float>());
  }
}

TEST(Update, HalfWeightsAreTheRoundedMasters) {
  UpdateArrays arrays{{full({1000}, 1.001)}, {ones({1000}, f16)}, {zeros({1000}, bf16)}};
  sgd_update(arrays, {}, {full({}, 0.25, f64)});
  EXPECT_EQ(arrays.parameters[0].to(bf16).to_vector<float>(), arrays.copies[0].to_vector<float>());
  EXPECT_NEAR(0.751, arrays.parameters[0][7].item<float>(), 1e-6);
}

TEST(Update, HundredsOfParametersAreOneOperation) {
  Engine engine(test::options_for_counting());
  const EngineScope scope(engine);
  UpdateArrays arrays;
  for (int i = 0; i < 300; ++i) {
    arrays.parameters.push_back(full({10}, i));
    arrays.gradients.push_back(ones({10}));
  }
  const NDArray rate = full({}, 1);
  const uint64_t before = engine.stats().pushed;
  sgd_update(arrays, {}, {rate});
  EXPECT_EQ(before + 1, engine.stats().pushed);
  for (int i = 0; i < 300; ++i)
    EXPECT_EQ(std::vector<float>(10, static_cast<float>(i - 1)),
              arrays.parameters[static_cast<size_t>(i)].to_vector<float>());
}

// Earlier readers get the old values, later readers the new ones.
TEST(Update, IsOrderedWithItsNeighbours) {
  NDArray w = ones({5000});
  const NDArray g = ones({5000}), rate = full({}, 1);
  const NDArray before = w * 10;
  sgd_update({{w}, {g}}, {}, {rate});
  const NDArray after = w * 10;
  w.fill_(7);
  EXPECT_EQ(10.f, before[4999].item<float>());
  EXPECT_EQ(0.f, after[4999].item<float>());
}

TEST(Update, AllThatDoesNotFitIsListedAndNothingIsChanged) {
  Step s;
  s.arrays.gradients[0] = ones({4});
  s.arrays.gradients[1] = ones({2, 2}, i32);
  s.velocity[0][1] = zeros({2, 2}, f64);
  std::string message =
      error_of<InvalidArgument>([&] { sgd_update(s.arrays, s.velocity, s.numbers, {.momentum = 0.9}); });
  for (const char* part : {"[sgd_update]", "gradient 0", "f32 (4,)", "gradient 1", "i32", "parameter 1",
                           "f64 (2, 2)", "update_test.cc"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  EXPECT_EQ(std::vector<float>(3, 1.f), s.arrays.parameters[0].to_vector<float>());

  const auto refused = [](auto change, const char* part) {
    Step t;
    change(t);
    const std::string text = error_of<InvalidArgument>([&] {
      adam_update(t.arrays, {t.velocity[0], {zeros({3}), zeros({2, 2})}}, t.numbers);
    });
    EXPECT_TRUE(contains(text, part)) << text;
  };
  refused([](Step& t) { t.numbers.step = NDArray(); }, "the step");
  refused([](Step& t) { t.numbers.learning_rate = ones({1}); }, "the learning rate");
  refused([](Step& t) { t.numbers.scale = full({}, 1, i64); }, "the scale");
  refused([](Step& t) { t.numbers.skip = ones({1}); }, "the skip flag");
  refused([](Step& t) { t.numbers.counts = zeros({2}, f64); }, "either the step or the counts");
  refused([](Step& t) { t.numbers.counts = zeros({2}); }, "counts as contiguous f64 (2,), got f32 (2,)");
  refused([](Step& t) { t.numbers.counts = zeros({3}, f64); }, "f64 (3,)");
  refused([](Step& t) { t.numbers.counts = zeros({2}, f64, virt(0)); }, "counts on the device");
  refused([](Step& t) { t.arrays.gradients.pop_back(); },
          "as many gradients as there are parameters, 2, got 1");
  refused([](Step& t) { t.velocity[0].pop_back(); }, "state");
  refused([](Step& t) { t.arrays.gradients[0] = ones({3}, f32, virt(0)); }, "virt(0)");
  refused([](Step& t) { t.arrays.parameters[1] = ones({2, 2}, f64); }, "parameter 1");
  refused([](Step& t) { t.arrays.parameters[1] = ones({2, 3}).transpose(); }, "which is not contiguous");
  refused([](Step& t) { t.arrays.parameters[0] = NDArray(); }, "empty handle");
  refused([](Step& t) { t.velocity[0][0] = t.arrays.parameters[0]; }, "overlap");
  refused([](Step& t) { t.arrays.copies = {zeros({3}, f16), zeros({2, 2}, i32)}; }, "copy of parameter 1");
  error_of<InvalidArgument>([&] { sgd_update(Step().arrays, {}, s.numbers, {.nesterov = true}); });
  error_of<InvalidArgument>([] { clip_scale(ones({2}), 1); });
  error_of<InvalidArgument>([] { clip_scale(ones({}), 0); });
  error_of<InvalidArgument>([] { global_norm({ones({2}), arange(3)}); });
}

TEST(Update, AStepThatIsNotFromOneIsAnErrorOfTheParameters) {
  Step s;
  s.numbers.step.fill_(0);
  adam_update(s.arrays, {s.velocity[0], {zeros({3}), zeros({2, 2})}}, s.numbers);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { s.arrays.parameters[0].wait(); }), "step"));
  test::settle();  // the next test of this process waits for all operations as well
}

TEST(GlobalNorm, IsThatOfAllElementsTogether) {
  const NDArray x = arange(0, 100, 1, f64).reshape({10, 10});
  double squares = 0;
  for (double v : x.to_vector<double>()) squares += v * v;
  const NDArray norm =
      global_norm({x.transpose().slice(0, {0, 5}), x.transpose().slice(0, {5, 10}), zeros({0}, f64)});
  EXPECT_EQ(f64, norm.dtype());
  EXPECT_DOUBLE_EQ(std::sqrt(squares), norm.item<double>());
  EXPECT_EQ(1.f, clip_scale(full({}, 0.5), 1).item<float>());
  EXPECT_NEAR(0.5, clip_scale(full({}, 2, f64), 1).item<double>(), 1e-6);
  EXPECT_EQ(0.f, clip_scale(full({}, INFINITY), 1).item<float>());
  EXPECT_TRUE(std::isnan(clip_scale(full({}, NAN), 1).item<float>()));
}

}  // namespace
}  // namespace mx::optim
