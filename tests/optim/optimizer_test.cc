// Properties of every optimiser: which parameters change, one operation per device, no waits, nothing
// recorded, and errors.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "engine/engine.h"
#include "engine/segment.h"
#include "ndarray/grad_mode.h"
#include "optim/optimizers.h"
#include "tests/optim/held_gradients.h"
#include "tests/optim/plain_rules.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/processors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;
using test::RandomNumbers;
using test::values_of;

using Floats = std::vector<float>;

TEST(Optimizer, IsUsedAsInATrainingLoop) {
  test::HeldGradients held;
  NDArray w = array({1.f, 2.f}).requires_grad_(), b = array({3.f}).requires_grad_();
  SGD opt({w, b}, {.lr = 0.5, .momentum = 0.5});
  w.set_grad(array({2.f, -2.f}));
  opt.step();
  EXPECT_EQ((Floats{0, 3}), w.to_vector<float>());
  EXPECT_EQ(Floats{3}, b.to_vector<float>());
  opt.zero_grad();
  EXPECT_FALSE(w.grad().defined());
  opt.step();
  EXPECT_EQ((Floats{0, 3}), w.to_vector<float>());
  w.set_grad(array({0.f, 0.f}));
  b.set_grad(array({1.f}));
  opt.step();
  EXPECT_EQ((Floats{-0.5, 3.5}), w.to_vector<float>());
  EXPECT_EQ(Floats{2.5}, b.to_vector<float>());
  EXPECT_EQ(0, held.recorded());
}

TEST(Optimizer, GradientsBecomeNothingOrZeroWhereTheyAre) {
  test::HeldGradients held;
  NDArray w = ones({3}).requires_grad_(), other = ones({3}).requires_grad_(), fixed = ones({3});
  Adam opt({w, other, fixed});
  const NDArray g = full({3}, 2);
  w.set_grad(g);
  opt.zero_grad(true);
  EXPECT_EQ(Floats(3, 0), g.to_vector<float>());
  EXPECT_TRUE(w.grad().shares_memory(g));
  EXPECT_FALSE(other.grad().defined());
  opt.zero_grad();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(0, held.recorded());
}

TEST(Optimizer, RecordsNothingWhateverItDoes) {
  test::HeldGradients held;
  NDArray w = ones({3}, f16).requires_grad_();
  AdamW opt({w}, {.max_norm = 1});
  w.set_grad(ones({3}, f16));
  opt.set_loss_scale(LossScale({.scale = 8}));
  opt.step();
  opt.sync_masters();
  opt.load_state_dict(opt.state_dict());
  opt.zero_grad(true);
  EXPECT_EQ(0, held.recorded());
  EXPECT_TRUE(grad_enabled());
}

TEST(Optimizer, NeedsAParameterThatRequiresAGradient) {
  SGD opt({ones({3})});
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { opt.step(); }), "requires_grad_()"));
  SGD empty(std::vector<NDArray>{});
  error_of<InvalidState>([&] { empty.step(); });
  empty.step(std::vector<NDArray>{});
  EXPECT_EQ(1u, empty.groups());
}

TEST(Optimizer, WithoutAGradientNothingOfAParameterChanges) {
  const NDArray a = full({3}, 2), b = full({3}, 2);
  AdamW opt({{"a", a}, {"b", b}}, {.weight_decay = 0.5});
  opt.step({ones({3}), NDArray()});
  const NamedArrays state = opt.state_dict();
  EXPECT_EQ(Floats(3, 2), b.to_vector<float>());
  EXPECT_NE(Floats(3, 2), a.to_vector<float>());
  EXPECT_EQ(1.0, state.at("state.a.step").item<double>());
  EXPECT_EQ(0.0, state.at("state.b.step").item<double>());
  EXPECT_EQ(Floats(3, 0), state.at("state.b.exp_avg").to_vector<float>());
}

TEST(Optimizer, MultipliersStayOnTopOfTheRate) {
  const NDArray a = ones({1}), b = ones({1}), c = ones({1});
  SGD opt({a}, {.lr = 0.5});
  opt.add_group({b}, {.lr = 0.25}, {.lr = 0.5});
  opt.add_group({c}, {.lr = 1, .weight_decay = 1}, {.weight_decay = 0.25});
  EXPECT_EQ(3u, opt.groups());
  const std::vector<NDArray> g(3, ones({1}));
  opt.step(g);
  EXPECT_EQ((std::vector<double>{0.5, 0.875, -0.25}), values_of({a, b, c}));
  EXPECT_EQ(0.25, opt.learning_rate(1));
  opt.set_learning_rate(1);
  EXPECT_EQ(1.0, opt.learning_rate(1));
  opt.step(g);
  EXPECT_EQ((std::vector<double>{-0.5, 0.375, -0.25 - 1 + 0.0625}), values_of({a, b, c}));
  opt.set_learning_rate(0, 0);
  opt.step(g);
  EXPECT_EQ((std::vector<double>{-0.5, -0.125}), values_of({a, b}));
  EXPECT_EQ(0.0, opt.learning_rate());
}

/// Parameters of several types on several devices, and their gradients.
struct Spread {
  std::vector<NDArray> parameters;
  explicit Spread(const std::vector<Context>& contexts, DType type = f32) {
    RandomNumbers random(3);
    for (int64_t i = 0; i < 12; ++i)
      parameters.push_back(random.array({600 + i}, type, contexts[static_cast<size_t>(i) % contexts.size()]));
  }
  std::vector<NDArray> gradients(uint64_t seed) const {
    RandomNumbers random(seed);
    std::vector<NDArray> all;
    for (const NDArray& p : parameters) all.push_back(random.array(p.shape(), p.dtype(), p.context()));
    return all;
  }
};

TEST(Optimizer, AStepIsOneOperationForEachDeviceAndGroup) {
  if (!test::larger_operations_are_pushed()) GTEST_SKIP() << "one processor";
  Engine engine(test::options_for_counting());
  const EngineScope scope(engine);
  const Spread model({cpu(), virt(0), virt(1)});
  const auto& all = model.parameters;
  AdamW opt(std::vector<NDArray>(all.begin(), all.begin() + 6));
  opt.add_group(std::vector<NDArray>(all.begin() + 6, all.end()), {.weight_decay = 0});
  const std::vector<NDArray> g = model.gradients(1);
  wait_all();
  const uint64_t before = engine.stats().pushed;
  opt.step(g);
  EXPECT_EQ(before + 6, engine.stats().pushed);
}

TEST(Optimizer, WhereParametersAreChangesNoBit) {
  const auto run = [](const std::vector<Context>& contexts, auto&& make) {
    const Spread model(contexts);
    auto opt = make(model.parameters);
    for (uint64_t t = 1; t <= 5; ++t) opt->step(model.gradients(t));
    return values_of(model.parameters);
  };
  const auto sgd = [](const Parameters& p) {
    return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .max_norm = 0.1});
  };
  const auto adam = [](const Parameters& p) { return std::make_unique<Adam>(p); };
  EXPECT_EQ(run({cpu()}, sgd), run({virt(0)}, sgd));
  EXPECT_EQ(run({cpu()}, adam), run({virt(2)}, adam));
  EXPECT_EQ(run({cpu()}, adam), run({cpu(), virt(0), virt(1)}, adam));
}

TEST(Optimizer, HalfWeightsFollowTheirMasters) {
  for (DType type : {f16, bf16}) {
    const Spread model({cpu(), virt(0)}, type);
    std::vector<NDArray> exact;
    for (const NDArray& p : model.parameters) exact.push_back(p.to(f32));
    SGD opt(model.parameters, {.lr = 1e-3, .momentum = 0.9}), plain(exact, {.lr = 1e-3, .momentum = 0.9});
    for (uint64_t t = 1; t <= 20; ++t) {
      const std::vector<NDArray> g = model.gradients(t);
      opt.step(g);
      plain.step(g);
    }
    const NamedArrays state = opt.state_dict();
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(values_of({exact[i].to(type)}), values_of({model.parameters[i]})) << type << i;
      EXPECT_EQ(values_of({exact[i]}), values_of({state.at("state." + std::to_string(i) + ".master")}));
    }
    // The program changes a weight outside the optimiser.
    NDArray w = model.parameters[0];
    w.fill_(2);
    opt.sync_masters();
    EXPECT_EQ(std::vector<double>(600, 2), values_of({state.at("state.0.master")}));
  }
}

TEST(Optimizer, GroupsMayMixTypes) {
  const NDArray a = ones({2}), b = ones({2}, f64), c = ones({2}, f16), d = ones({2}, bf16);
  AdamW opt({a, b, c, d}, {.lr = 0.5, .weight_decay = 0});
  opt.step({ones({2}, f16), ones({2}, f32), ones({2}, f32), ones({2}, bf16)});
  for (const NDArray& p : {a, b, c, d})
    for (double v : values_of({p})) EXPECT_NEAR(0.5, v, 1e-6) << p.dtype();
}

TEST(Optimizer, KeepsNoGradient) {
  NDArray g = ones({3});
  SGD opt({ones({3})}, {.max_norm = 1});
  opt.step({g});
  wait_all();
  EXPECT_EQ(1u, g.ref()->refs.load());
}

TEST(Optimizer, ReturnsBeforeAGradientIsThere) {
  const NDArray w = ones({3}), g = ones({3});
  SGD opt({w}, {.lr = 0.5, .momentum = 0.9, .max_norm = 100});
  test::Hold hold;
  current_engine().push_async(hold.operation(), {.updates = {g.var()}});
  opt.step({g});
  opt.set_learning_rate(100);  // applies from the next step
  EXPECT_FALSE(w.wait(0));
  hold.release();
  EXPECT_EQ(Floats(3, 0.5), w.to_vector<float>());
}

// Each optimiser has its own parameters and its own thread; both use one shared array as a gradient.
TEST(Optimizer, TwoWorkSideBySide) {
  const auto train = [](int which, const NDArray& shared) {
    RandomNumbers random(static_cast<uint64_t>(which) + 1);
    const NDArray w = random.array({2000});
    std::unique_ptr<Optimizer> opt;
    if (which == 0)
      opt = std::make_unique<SGD>(Parameters{w}, SGDOptions{.momentum = 0.9, .max_norm = 1});
    else
      opt = std::make_unique<Adam>(Parameters{w});
    for (int t = 0; t < 50; ++t) opt->step({t % 2 == 0 ? shared : random.array({2000})});
    return w;
  };
  const NDArray shared = RandomNumbers(9).array({2000});
  NDArray together[2];
  {
    std::thread first([&] { together[0] = train(0, shared); });
    std::thread second([&] { together[1] = train(1, shared); });
    first.join();
    second.join();
  }
  for (int which : {0, 1}) EXPECT_EQ(values_of({train(which, shared)}), values_of({together[which]}));
}

TEST(Optimizer, AReplayedStepSeesTheCurrentNumbers) {
  const auto start = [] { return RandomNumbers(1).array({3000}); };
  const auto gradient = [](int t) { return RandomNumbers(static_cast<uint64_t>(t) + 10).array({3000}); };
  const NDArray eager = start(), replayed = start(), g = zeros({3000});
  const AdamWOptions options{.lr = 0.01, .weight_decay = 0.1, .max_norm = 20};
  AdamW a({eager}, options), b({replayed}, options);
  NDArray(g).copy_from(gradient(0));
  a.step({g});
  b.step({g});
  wait_all();
  Segment segment = current_engine().record([&] { b.step({g}); });
  for (int t = 1; t <= 4; ++t) {
    NDArray(g).copy_from(gradient(t));
    if (t == 3)
      for (Optimizer* opt : {static_cast<Optimizer*>(&a), static_cast<Optimizer*>(&b)})
        opt->set_learning_rate(0.001);
    a.step({g});
    segment.replay();
  }
  EXPECT_EQ(values_of({eager}), values_of({replayed}));
  EXPECT_EQ(5.0, b.state_dict().at("state.0.step").item<double>());
}

class OptimizerModes : public testing::TestWithParam<test::EngineCase> {};
TEST_P(OptimizerModes, GiveTheSame) {
  const auto run = [] {
    const Spread model({cpu(), virt(0)}, f16);
    AdamW opt(model.parameters, {.max_norm = 5});
    LossScale scale({.scale = 4, .interval = 2});
    opt.set_loss_scale(scale);
    for (uint64_t t = 1; t <= 4; ++t) {
      std::vector<NDArray> g = model.gradients(t);
      g[t] = NDArray();
      opt.step(g);
      scale.update();
    }
    return values_of(model.parameters);
  };
  const std::vector<double> expected = run();
  Engine engine(GetParam().options);
  EngineScope scope(engine);
  EXPECT_EQ(expected, run());
}
INSTANTIATE_TEST_SUITE_P(All, OptimizerModes, testing::ValuesIn(test::all_cases()), test::CaseName());

TEST(Optimizer, AFailedGradientLeavesItsGroupWhereItWas) {
  const NDArray a = ones({3}), b = ones({3}), bad = ones({3});
  AdamW opt({{"a", a}}, {.lr = 0.5, .weight_decay = 0});
  opt.add_group({{"b", b}}, {.lr = 0.5, .weight_decay = 0});
  opt.step({ones({3}), ones({3})});
  NamedArrays saved;
  for (const auto& [name, array] : opt.state_dict()) saved.emplace_back(name, array.clone());

  const auto fail = [] { throw InvalidArgument("no gradient today"); };
  current_engine().push(fail, {.updates = {bad.var()}});
  opt.step({bad, ones({3})});
  for (const char* name : {"state.a.exp_avg", "state.a.step"}) {
    const NDArray spoiled = opt.state_dict().at(name);
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { spoiled.wait(); }), "no gradient today"));
  }
  error_of<InvalidArgument>([&] { a.wait(); });
  EXPECT_NEAR(0, b[2].item<float>(), 1e-6);

  // The step is skipped as a whole, and the engine keeps the last good values, so restoring the state works.
  opt.load_state_dict(saved);
  NDArray(a).copy_from(full({3}, 0.5));
  EXPECT_EQ(1.0, opt.state_dict().at("state.a.step").item<double>());
  opt.step({ones({3}), NDArray()});
  EXPECT_NEAR(0, a[0].item<float>(), 1e-6);
  error_of<InvalidArgument>([] { wait_all(); });
}

TEST(Optimizer, RecoverUndoesABadBatch) {
  for (const DType type : {f32, f16}) {
    const NDArray a = ones({3}, type), b = ones({3}, type), bad = ones({3}, type);
    AdamW opt({{"a", a}, {"b", b}}, {.lr = 0.5, .weight_decay = 0, .max_norm = 100});
    opt.set_loss_scale(LossScale({.scale = 1}));
    opt.step({ones({3}, type), ones({3}, type)});
    std::vector<NDArray> before = {a.clone(), b.clone()};
    for (const auto& entry : opt.state_dict()) before.push_back(entry.second.clone());
    current_engine().push([] { throw InvalidArgument("no gradient today"); }, {.updates = {bad.var()}});
    opt.step({bad, ones({3}, type)});
    opt.step({ones({3}, type), ones({3}, type)});  // cannot help: the parameters are poisoned
    error_of<InvalidArgument>([&] { b.wait(); });

    opt.recover();
    std::vector<NDArray> after = {a, b};
    for (const auto& entry : opt.state_dict()) after.push_back(entry.second);
    EXPECT_EQ(values_of(before), values_of(after));
    opt.step({ones({3}, type), ones({3}, type)});
    EXPECT_NEAR(0, a[0].to(f32).item<float>(), 1e-3);
    error_of<InvalidArgument>([] { wait_all(); });

    // A parameter whose own operation failed stays poisoned: nobody knows its value.
    current_engine().push([] { throw InvalidArgument("no weight today"); }, {.updates = {a.var()}});
    const std::string message = error_of<InvalidState>([&] { opt.recover(); });
    EXPECT_TRUE(contains(message, type == f32 ? "lost values in 'a'; load" : "lost values in 'a'"))
        << message;
    EXPECT_TRUE(contains(message, "no weight today")) << message;
    error_of<InvalidArgument>([&] { a.wait(); });
    error_of<InvalidArgument>([] { wait_all(); });
  }
}

TEST(Optimizer, RulesWithNormsNeedWholeParameters) {
  for (const std::string& name : optimizer_names())
    EXPECT_EQ(name != "lars" && name != "lamb", make_optimizer(name, {}, {ones({2})})->elementwise()) << name;
}

// A warm-up may begin with a rate of 0. Ftrl divides by the rate.
TEST(Optimizer, ARateOfZeroKeepsTheParameters) {
  for (const std::string& name : optimizer_names()) {
    if (name == "rprop") continue;  // its rate is only the first step size
    const NDArray w = ones({3});
    const auto opt = make_optimizer(name, {{"lr", 0.0}}, {w});
    if (opt->learning_rate() != 0) continue;  // an optimiser of another test
    for (int i = 0; i < 3; ++i) opt->step({ones({3})});
    EXPECT_EQ((Floats{1, 1, 1}), w.to_vector<float>()) << name;
  }
}

TEST(Optimizer, ParametersThatCannotBeAreListed) {
  const NDArray w = ones({4, 4}), e;
  std::string message = error_of<InvalidArgument>([&] {
    SGD opt({{"fc.weight", w}, {"i", ones({2}, i32)}, {"gap", w.transpose()}, {"none", e}});
  });
  for (const char* part : {"[sgd]", "'i'", "i32", "'gap'", "which is not contiguous", "'none'", "nothing",
                           "'fc.weight' and 'gap', which share memory", "optimizer_test.cc"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;

  message = error_of<InvalidArgument>([&] { Adam opt({ones({2}), w, w}); });
  EXPECT_TRUE(contains(message, "[adam] expected each parameter once, got '1' and '2'")) << message;
  message = error_of<InvalidArgument>([&] { SGD opt({w, w[0]}); });
  EXPECT_TRUE(contains(message, "'0' and '1'")) << message;

  Adam opt({{"w", w}});
  message = error_of<InvalidArgument>([&] { opt.add_group({{"again", w}}, {}, {.lr = -1}); });
  EXPECT_TRUE(contains(message, "'w' and 'again'")) << message;
  EXPECT_TRUE(contains(message, "multipliers")) << message;
  message = error_of<InvalidArgument>([&] { opt.add_group({{"\xff", ones({2})}}, {}); });
  EXPECT_TRUE(contains(message, "UTF-8")) << message;
  message = error_of<InvalidArgument>([&] { opt.add_group({Parameter()}, {}); });
  EXPECT_TRUE(contains(message, "'1' to be contiguous and of a floating-point type, got nothing")) << message;
  EXPECT_EQ(1u, opt.groups());
  EXPECT_EQ(1u, opt.parameters().size());

  test::HeldGradients held;
  const NDArray result = ones({2});
  held.mark_result(result);
  message = error_of<InvalidArgument>([&] { SGD wrong({result}); });
  EXPECT_TRUE(contains(message, "result of a recorded operation")) << message;
}

TEST(Optimizer, OptionsThatCannotBeAreListed) {
  const auto refused = [](auto&& make, std::vector<const char*> parts) {
    const std::string message = error_of<InvalidArgument>(make);
    for (const char* part : parts) EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  };
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  const Parameters p{ones({2})};
  refused(
      [&] { SGD opt(p, {.lr = -1, .momentum = nan, .dampening = infinite, .weight_decay = -2, .clip = -3}); },
      {"[sgd]", "lr of at least 0, got -1", "momentum", "nan", "dampening", "weight_decay", "-2", "clip",
       "-3"});
  refused([&] { SGD opt(p, {.dampening = 0.5, .nesterov = true, .max_norm = -1}); },
          {"max_norm", "momentum above 0 with nesterov", "a dampening of 0 with nesterov"});
  refused([&] { SGD opt(p, {.momentum = 1, .dampening = 0.5, .ema = true}); },
          {"momentum below 1 with ema", "a dampening of 0 with ema"});
  refused([&] { Adam opt(p, {.lr = infinite, .beta1 = 1, .beta2 = -0.1, .eps = nan}); },
          {"[adam]", "lr of at least 0 and finite, got inf", "beta1", "beta2", "eps"});
  refused([&] { AdamW opt(p, {.weight_decay = -1}); }, {"[adamw]", "weight_decay"});

  AdamW opt(p, {.max_norm = 1});
  refused([&] { opt.add_group({ones({2})}, {.max_norm = 2}); }, {"max_norm", "1", "2"});
  opt.add_group({ones({2})}, {});
  refused([&] { opt.set_learning_rate(-1); }, {"learning rate", "-1"});
  refused([&] { opt.set_learning_rate(nan); }, {"nan"});
  refused([&] { opt.set_learning_rate(infinite); }, {"at least 0 and finite, got inf"});
  refused([&] { p.where(nullptr); }, {"expected a function, got an empty one"});
  refused([&] { opt.set_learning_rate(1, 2); }, {"group index below 2, got 2"});
  refused([&] { (void)opt.learning_rate(7); }, {"group index below 2, got 7"});
}

// Moving a module replaces the arrays of its parameters.
TEST(Optimizer, FollowsParametersWithTheirState) {
  const auto run = [](DType type, bool moves, const auto& make) {
    const Spread model({cpu(), virt(1)}, type);
    std::vector<Parameter> places;
    for (const NDArray& array : model.parameters) places.emplace_back(array);
    const std::unique_ptr<Optimizer> opt = make(places);
    for (uint64_t t = 1; t <= 6; ++t) {
      std::vector<NDArray> gradients = model.gradients(t);
      if (moves && (t == 3 || t == 5))
        for (size_t i = 0; i < places.size(); ++i)
          if (i % 3 == 0 || t == 5) places[i].replace(places[i]->to(t == 3 ? virt(0) : cpu()));
      gradients[t] = NDArray();
      std::vector<NDArray> in_order;
      for (const NamedParameter& p : opt->parameters())
        for (size_t i = 0; i < places.size(); ++i)
          if (p.same_as(places[i]))
            in_order.push_back(gradients[i].defined() ? gradients[i].to(p.context()) : NDArray());
      opt->step(in_order);
    }
    std::vector<NDArray> all;
    for (const Parameter& place : places) all.push_back(place);
    for (const auto& entry : opt->state_dict()) all.push_back(entry.second);
    return values_of(all);
  };
  const auto check = [&](const auto& make) {
    for (const DType type : {f32, f64, f16}) EXPECT_EQ(run(type, false, make), run(type, true, make)) << type;
  };
  check([](const std::vector<Parameter>& p) {
    auto opt = std::make_unique<SGD>(Parameters{p[5], p[0]}, SGDOptions{.lr = 0.1, .momentum = 0.9});
    opt->add_group({p[1], p[2], p[3], p[4]}, {.lr = 0.2});
    opt->add_group({p[6], p[7], p[8], p[9], p[10], p[11]}, {.lr = 0.3, .momentum = 0.5});
    opt->set_learning_rate(0.25, 1);
    return opt;
  });
  check([](const std::vector<Parameter>& p) { return std::make_unique<Adam>(p); });
}

TEST(Optimizer, FollowsAChangeOfType) {
  const Parameter place(full({3}, 2));
  Adam opt({{"w", place}});
  opt.step({ones({3})});
  const std::vector<double> moment = values_of({opt.state_dict().at("state.w.exp_avg")});
  place.replace(place->to(f16));
  NamedArrays state = opt.state_dict();
  EXPECT_EQ(moment, values_of({state.at("state.w.exp_avg")}));
  EXPECT_EQ(values_of({place}), values_of({state.at("state.w.master")}));
  EXPECT_EQ(1.0, state.at("state.w.step").item<double>());
  opt.step({ones({3}, f16)});
  EXPECT_EQ(f16, place.dtype());
  place.replace(place->to(f64));
  state = opt.state_dict();
  EXPECT_EQ(nullptr, state.find("state.w.master"));
  EXPECT_EQ(f64, state.at("state.w.exp_avg").dtype());
  EXPECT_EQ(2.0, state.at("state.w.step").item<double>());
}

TEST(Optimizer, AParameterOfAnotherShapeIsNamed) {
  const Parameter place(ones({3}));
  SGD opt({{"w", place}}, {.momentum = 0.5});
  place.replace(ones({4}));
  const std::string message = error_of<InvalidArgument>([&] { opt.step({ones({4})}); });
  EXPECT_TRUE(contains(message, "expected parameter 'w' to keep its shape, (3,), got f32 (4,)")) << message;
}

// Two modules have parameters with the same names, and a program adds both.
TEST(Optimizer, ParametersOfOneNameAreToldApart) {
  SGD opt({{"w", ones({2})}, {"b", ones({1})}}, {.momentum = 0.5});
  opt.add_group({{"w", ones({3})}, {"w@2", ones({4})}}, {.momentum = 0.5});
  opt.add_group({ones({5})}, {});
  std::vector<std::string> names;
  for (const NamedParameter& p : opt.parameters()) names.push_back(p.name);
  EXPECT_EQ((std::vector<std::string>{"w", "b", "w@2", "w@2@3", "4"}), names);
  const NamedArrays state = opt.state_dict();
  EXPECT_EQ(Shape{3}, state.at("state.w@2.momentum_buffer").shape());
  EXPECT_EQ(Shape{4}, state.at("state.w@2@3.momentum_buffer").shape());
  opt.load_state_dict(state);
}

TEST(Optimizer, WeightDecayLeavesOutParametersByName) {
  const Parameters all{{"fc.weight", ones({1})}, {"fc.bias", ones({1})}, {"norm.bias", ones({1})}};
  const auto is_bias = [](const NamedParameter& p) { return p.name.ends_with("bias"); };
  SGD opt(all.where(std::not_fn(is_bias)), {.lr = 1, .weight_decay = 0.5});
  opt.add_group(all.where(is_bias), {.lr = 1});
  opt.step(std::vector<NDArray>(3, zeros({1})));
  EXPECT_EQ((std::vector<double>{0.5, 1, 1}), values_of(all));
}

/// w -= lr * sign(g); the last update is kept in the state.
struct SignMethod {
  struct Options {
    double lr = 0.5, weight_decay = 0, max_norm = 0;
    template <class V>
    static void fields(V&& v) {
      v("lr", &Options::lr, "learning rate");
    }
  };
  static constexpr const char* kName = "sign";
  static void check(detail::Problems& problems, const Options& options) {
    problems.expect(options.lr > 0, "expected lr above 0, got ", options.lr);
  }
  static RuleState state(const Options&) { return {{"last"}, false}; }
  static void update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                     const Options&, double, std::source_location where) {
    // u = 0 * u + g, w -= lr * u
    sgd_update(arrays, state, {.learning_rate = numbers.learning_rate}, {.momentum = 1e-300}, where);
  }
};

TEST(Optimizer, AProgramsOwnRuleIsOneStruct) {
  const NDArray w = ones({2});
  RuleOptimizer<SignMethod> opt({{"w", w}});
  opt.step({ones({2})});
  EXPECT_EQ((std::vector<double>{0.5, 0.5}), values_of({w}));
  EXPECT_EQ((std::vector<double>{1, 1}), values_of({opt.state_dict().at("state.w.last")}));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { opt.add_group({ones({1})}, {.lr = 0}); }),
                       "[sign] expected lr above 0"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { opt.options(1); }), "group index below 1, got 1"));
}

// Options in the order of the arguments in torch's documentation.
TEST(Optimizer, OptionsHaveTheOrderOfTorch) {
  const Parameters p{ones({2})};
  SGD(p, {.lr = 0.1,
          .momentum = 0.9,
          .dampening = 0,
          .weight_decay = 1e-4,
          .nesterov = true,
          .maximize = false});
  Adam(p, {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0, .maximize = false});
  AdamW(p, {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0, .maximize = false});
  sgd_update({}, {{}}, {.learning_rate = full({}, 1)},
             {.momentum = 0.9, .dampening = 0, .weight_decay = 0.1, .nesterov = true, .maximize = false});
  LossScale({.scale = 2, .growth = 2, .backoff = 0.5, .interval = 2000});
  EXPECT_EQ(1u, p.size());
}

TEST(Optimizer, GradientsThatDoNotFitAreListedAndNothingIsChanged) {
  const NDArray a = ones({2}), b = ones({3}), c = ones({2}, f32, virt(0)), d = ones({2});
  SGD opt({{"a", a}, {"b", b}, {"c", c}}, {.lr = 1});
  opt.add_group({{"d", d}}, {.lr = 1});
  const std::string message = error_of<InvalidArgument>([&] {
    opt.step({ones({2}), ones({2}), ones({2}), ones({2}, i64)});
  });
  for (const char* part : {"[sgd]", "'b'", "f32 (3,)", "'c'", "virt(0)", "'d'", "i64", "optimizer_test.cc"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  EXPECT_FALSE(contains(message, "'a'")) << message;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { opt.step({a}); }), "each of 4 parameters, got 1"));
  EXPECT_EQ(std::vector<double>(9, 1), values_of({a, b, c, d}));
}

}  // namespace
}  // namespace mx::optim
