// State of optimisers and schedules: training resumes from it with the same bits, and an entry that does not
// fit is named in the error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "optim/adaptive.h"
#include "optim/optimizers.h"
#include "optim/plateau.h"
#include "optim/schedule.h"
#include "tests/optim/plain_rules.h"
#include "tests/support/errors.h"
#include "tests/support/failures.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;
using test::RandomNumbers;
using test::values_of;

/// A training run that can be saved to files and loaded from them.
struct Run {
  std::vector<NDArray> parameters;
  std::unique_ptr<Optimizer> opt;
  std::unique_ptr<CosineLR> schedule;
  LossScale scale{{.scale = 16, .interval = 3}};

  template <class Make>
  Run(DType type, const Make& make) {
    RandomNumbers random(5);
    for (const Context context : {cpu(), cpu(), virt(0)})
      for (const Shape& shape : {Shape{40}, Shape{}, Shape{3, 7}})
        parameters.push_back(random.array(shape, type, context));
    opt = make(parameters);
    opt->set_loss_scale(scale);
    schedule =
        std::make_unique<CosineLR>(*opt, CosineLROptions{.steps = 40, .warmup = 5, .warmup_start = 0.1});
  }

  void steps(int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      RandomNumbers random(static_cast<uint64_t>(t) + 100);
      std::vector<NDArray> gradients;
      for (size_t i = 0; i < parameters.size(); ++i) {
        const NDArray& p = opt->parameters()[i];
        const NDArray g = random.array(p.shape(), p.dtype(), p.context());
        gradients.push_back((static_cast<size_t>(t) + i) % 5 == 0 ? NDArray() : g);
      }
      opt->step(gradients);
      scale.update();
      schedule->step();
    }
  }

  NamedArrays all() const {
    NamedArrays arrays;
    for (size_t i = 0; i < parameters.size(); ++i)
      arrays.emplace_back("model." + std::to_string(i), parameters[i]);
    const auto add = [&](const std::string& prefix, const NamedArrays& part) {
      for (const auto& [name, array] : part) arrays.emplace_back(prefix + name, array);
    };
    add("opt.", opt->state_dict());
    add("schedule.", schedule->state_dict());
    add("scale.", scale.state_dict());
    return arrays;
  }
  static NamedArrays part(const NamedArrays& arrays, const std::string& prefix) {
    NamedArrays result;
    for (const auto& [name, array] : arrays)
      if (name.rfind(prefix, 0) == 0) result.emplace_back(name.substr(prefix.size()), array);
    return result;
  }
  void load(const NamedArrays& arrays) {
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i].copy_from(arrays.at("model." + std::to_string(i)));
    opt->load_state_dict(part(arrays, "opt."));
    schedule->load_state_dict(part(arrays, "schedule."));
    scale.load_state_dict(part(arrays, "scale."));
  }
  std::vector<double> bits() const {
    std::vector<NDArray> arrays;
    for (const auto& entry : all()) arrays.push_back(entry.second);
    return values_of(arrays);
  }
};

template <class Make>
void check_resume(DType type, const Make& make) {
  const std::string path =
      testing::TempDir() + "optimizer_state_" + std::to_string(::getpid()) + ".safetensors";
  Run whole(type, make), half(type, make), resumed(type, make);
  whole.steps(0, 40);
  half.steps(0, 17);
  save_safetensors(path, half.all());
  resumed.steps(0, 3);  // its earlier steps must not matter
  resumed.load(load_safetensors(path));
  EXPECT_EQ(half.bits(), resumed.bits());
  EXPECT_EQ(half.opt->learning_rate(), resumed.opt->learning_rate());
  resumed.steps(17, 40);
  EXPECT_EQ(whole.bits(), resumed.bits());
  std::filesystem::remove(path);
}

TEST(OptimizerState, ARunThatIsResumedHasTheSameBits) {
  for (DType type : {f32, f64, f16, bf16}) {
    SCOPED_TRACE(type);
    check_resume(type, [](const std::vector<NDArray>& p) {
      auto opt =
          std::make_unique<SGD>(Parameters({p[0], p[1], p[6], p[2], p[3]}),
                                SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .max_norm = 3});
      opt->add_group({p[4], p[5], p[7], p[8]}, {.lr = 0.02});
      return opt;
    });
    check_resume(type, [](const std::vector<NDArray>& p) {
      auto opt = std::make_unique<AdamW>(Parameters({p[0], p[1], p[6], p[2], p[3]}));
      opt->add_group({{"u", p[4]}, {"v", p[5]}, {"w", p[7]}, {"x", p[8]}}, {.lr = 0.02}, {.lr = 3});
      return opt;
    });
    check_resume(type, [](const std::vector<NDArray>& p) { return std::make_unique<Adam>(p); });
    for (const std::string& name : optimizer_names())
      check_resume(type, [&](const std::vector<NDArray>& p) {
        SCOPED_TRACE(name);
        return make_optimizer(name, {}, Parameters({p[0], p[1], p[6], p[2], p[3], p[4], p[5], p[7], p[8]}));
      });
  }
}

std::vector<std::string> names_of(const NamedArrays& arrays) {
  std::vector<std::string> names;
  for (const auto& entry : arrays) names.push_back(entry.first);
  return names;
}

TEST(OptimizerState, HasTheNamesOfTorch) {
  using Names = std::vector<std::string>;
  SGD plain({ones({2})});
  EXPECT_EQ(Names{"group.0.learning_rate"}, names_of(plain.state_dict()));
  SGD momentum({{"w", ones({2}, f16)}}, {.momentum = 0.5});
  EXPECT_EQ((Names{"group.0.learning_rate", "state.w.step", "state.w.momentum_buffer", "state.w.master"}),
            names_of(momentum.state_dict()));
  Adam adam({ones({2})});
  adam.add_group({ones({3})}, {});
  EXPECT_EQ((Names{"group.0.learning_rate", "group.1.learning_rate", "state.0.step", "state.0.exp_avg",
                   "state.0.exp_avg_sq", "state.1.step", "state.1.exp_avg", "state.1.exp_avg_sq"}),
            names_of(adam.state_dict()));
}

TEST(OptimizerState, OfEveryRuleHasTheNamesOfTorch) {
  const std::map<std::string, std::pair<AttrMap, std::vector<std::string>>> expected = {
      {"adam", {{{"amsgrad", true}}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}}},
      {"adagrad", {{}, {"step", "sum"}}},
      {"adadelta", {{}, {"step", "square_avg", "acc_delta"}}},
      {"rmsprop",
       {{{"momentum", 0.5}, {"centered", true}}, {"step", "square_avg", "momentum_buffer", "grad_avg"}}},
      {"adamax", {{}, {"step", "exp_avg", "exp_inf"}}},
      {"nadam", {{}, {"step", "exp_avg", "exp_avg_sq"}}},
      {"radam", {{}, {"step", "exp_avg", "exp_avg_sq"}}},
      {"rprop", {{}, {"step", "prev", "step_size"}}},
      {"asgd", {{}, {"step", "ax"}}},
      {"ftrl", {{}, {"z", "n"}}},
      {"signum", {{}, {"momentum_buffer"}}},
      {"lars", {{{"momentum", 0.9}}, {"momentum_buffer"}}},
      {"lamb", {{}, {"step", "exp_avg", "exp_avg_sq"}}}};
  for (const auto& [name, entry] : expected) {
    std::vector<std::string> names = {"group.0.learning_rate"};
    for (const std::string& what : entry.second) names.push_back("state.w." + what);
    const auto opt = make_optimizer(name, entry.first, {{"w", ones({2})}});
    EXPECT_EQ(names, names_of(opt->state_dict())) << name;
  }
  Adagrad first({{"w", ones({2})}}, {.initial_accumulator_value = 3});
  EXPECT_EQ(3, first.state_dict().at("state.w.sum")[1].item<float>());
}

TEST(OptimizerState, IsWhatIsInUse) {
  const NDArray w = ones({2});
  Adam opt({w});
  const NamedArrays state = opt.state_dict();
  opt.step({ones({2})});
  EXPECT_EQ(1.0, state.at("state.0.step").item<double>());
  opt.load_state_dict(state);  // loading its own state changes nothing
  EXPECT_EQ(1.0, state.at("state.0.step").item<double>());
  EXPECT_NEAR(0.1, state.at("state.0.exp_avg")[0].item<float>(), 1e-7);
}

// The loaded arrays may be the optimiser's own, even under other names.
TEST(OptimizerState, ItsOwnArraysCanBeExchanged) {
  Adam opt({{"a", ones({2})}, {"b", ones({2})}});
  opt.step({full({2}, 10), NDArray()});
  NamedArrays state = opt.state_dict();
  const size_t half = (state.size() - 1) / 2;  // the first entry is the learning rate
  std::vector<std::vector<double>> before;
  for (const auto& [name, array] : state) before.push_back(array.to_vector<double>());
  for (size_t i = 1; i <= half; ++i) std::swap(state[i].second, state[i + half].second);
  opt.load_state_dict(state);
  const NamedArrays after = opt.state_dict();
  for (size_t i = 1; i <= half; ++i) {
    EXPECT_EQ(before[i + half], after[i].second.to_vector<double>()) << after[i].first;
    EXPECT_EQ(before[i], after[i + half].second.to_vector<double>()) << after[i + half].first;
  }
}

TEST(OptimizerState, AnArrayThatFailedComesOutBeforeAnythingIsChanged) {
  Adam opt({{"a", ones({3})}}, {.lr = 0.5});
  LossScale scale({.scale = 4});
  NamedArrays bad, bad_scale;
  for (const auto& [name, array] : opt.state_dict()) bad.emplace_back(name, full_like(array, 9));
  bad.back().second = test::failed_array({3});
  EXPECT_TRUE(contains(error_of<Error>([&] { opt.load_state_dict(bad); }), "no such luck"));
  for (const auto& [name, array] : opt.state_dict()) {
    const bool rate = name == "group.0.learning_rate";
    EXPECT_EQ(std::vector<double>(static_cast<size_t>(array.numel()), rate ? 0.5 : 0),
              array.to_vector<double>())
        << name;
  }
  EXPECT_EQ(0.5, opt.learning_rate());
  for (const auto& [name, array] : scale.state_dict())
    bad_scale.emplace_back(name, test::failed_array(array.shape()).to(array.dtype()));
  EXPECT_TRUE(contains(error_of<Error>([&] { scale.load_state_dict(bad_scale); }), "no such luck"));
  EXPECT_EQ(4.0, scale.value().item<double>());
  test::settle();
}

TEST(OptimizerState, AllThatDoesNotFitIsListedAndNothingIsChanged) {
  Adam opt({{"a", ones({2})}, {"b", ones({3})}}, {.lr = 0.5});
  const NamedArrays good = opt.state_dict();
  NamedArrays bad;
  for (const auto& [name, array] : good) {
    if (name == "state.a.exp_avg") {
      bad.emplace_back(name, ones({3}));
    } else if (name == "state.a.exp_avg_sq") {
      bad.emplace_back(name, ones({2}, f64));
    } else if (name == "state.b.exp_avg") {
      bad.emplace_back(name, NDArray());
    } else if (name == "group.0.learning_rate") {
      bad.emplace_back(name, full({}, 7, f64));
    } else if (name != "state.b.step") {
      bad.emplace_back(name, full_like(array, 9));
    }
  }
  bad.emplace_back("state.c.step", zeros({}, f64));
  bad.emplace_back("extra", zeros({}));
  bad.emplace_back("state.a.step", zeros({}, f64));
  std::string message = error_of<InvalidArgument>([&] { opt.load_state_dict(bad); });
  for (const char* part : {"[adam] expected the arrays of a state_dict of adam, got 7 problems:",
                           "\n  state.b.step f64 () is missing", "\n  extra f32 () is unexpected",
                           "\n  state.c.step f64 () is unexpected", "\n  state.a.step is given twice",
                           "\n  state.a.exp_avg: expected f32 (2,), got f32 (3,)",
                           "\n  state.a.exp_avg_sq: expected f32 (2,), got f64 (2,)",
                           "\n  state.b.exp_avg is an empty handle", "optimizer_state_test.cc"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  EXPECT_EQ(0.5, opt.learning_rate());
  std::vector<NDArray> arrays;
  for (const auto& [name, array] : opt.state_dict())
    if (name != "group.0.learning_rate") arrays.push_back(array);
  EXPECT_EQ(std::vector<double>(12, 0), values_of(arrays));

  NamedArrays negative = good;
  negative[0].second = full({}, -1, f64);
  message = error_of<InvalidArgument>([&] { opt.load_state_dict(negative); });
  EXPECT_TRUE(contains(message, "learning rate of at least 0, got -1")) << message;
  // Without momentum, SGD has no state to load.
  SGD sgd({ones({2})});
  message = error_of<InvalidArgument>([&] { sgd.load_state_dict(good); });
  EXPECT_TRUE(contains(message, "[sgd]") && contains(message, "state.a.exp_avg f32 (2,) is unexpected"))
      << message;
}

TEST(ScheduleState, AllThatDoesNotFitIsListedAndNothingIsChanged) {
  SGD opt({ones({2})}, {.lr = 1});
  opt.add_group({ones({2})}, {.lr = 2});
  StepLR schedule(opt, {.step_size = 2, .gamma = 0.5});
  const auto load = [&](const NamedArrays& state) {
    return error_of<InvalidArgument>([&] { schedule.load_state_dict(state); });
  };
  std::string message = load({{"base_rates", ones({3}, f64)}, {"steps", zeros({}, i64)}});
  for (const char* part :
       {"[StepLR]", "step i64 () is missing", "steps i64 () is unexpected", "f64 (2,), got f64 (3,)"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  message = load({{"base_rates", full({2}, -3, f64)}, {"step", full({}, -5, i64)}});
  EXPECT_TRUE(contains(message, "-3") && contains(message, "-5")) << message;
  message = load({{"base_rates", ones({2}, f64)}, {"step", full({}, INT64_MAX, i64)}});
  EXPECT_TRUE(contains(message, "expected a step from 0 to below")) << "it could not be counted on from";
  EXPECT_EQ(1.0, opt.learning_rate());
  schedule.load_state_dict({{"base_rates", full({2}, 8, f64)}, {"step", full({}, 3, i64)}});
  EXPECT_EQ(4.0, opt.learning_rate());
  EXPECT_EQ(3, schedule.steps_done());

  ReduceOnPlateau plateau(opt);
  message = error_of<InvalidArgument>([&] { plateau.load_state_dict(schedule.state_dict()); });
  for (const char* part : {"[ReduceOnPlateau]", "best f64 () is missing", "rates f64 (2,) is missing",
                           "base_rates f64 (2,) is unexpected"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
}

}  // namespace
}  // namespace mx::optim
