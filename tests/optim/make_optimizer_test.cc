// Optimisers by name: a server that gets a name and a map builds the same optimiser as a program that uses
// the struct.
#include <gtest/gtest.h>

#include "optim/adaptive.h"
#include "optim/direct.h"
#include "optim/optimizers.h"
#include "tests/optim/plain_rules.h"
#include "tests/support/errors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;
using test::RandomNumbers;
using test::values_of;

std::vector<double> after_steps(Optimizer& opt) {
  for (uint64_t t = 0; t < 5; ++t) opt.step({RandomNumbers(t).array({20})});
  return values_of(opt.parameters());
}
NDArray start() { return RandomNumbers(99).array({20}); }

TEST(MakeOptimizer, OptionsTravelByName) {
  SGD sgd({start()}, {.lr = 0.1, .momentum = 0.5, .weight_decay = 0.1, .nesterov = true, .clip = 1});
  Adam adam({start()}, {.lr = 0.1, .beta1 = 0.5, .eps = 1e-3, .bias_correction = false, .max_norm = 1});
  AdamW adamw({start()}, {.beta2 = 0.9, .weight_decay = 0.5, .maximize = true});
  RMSprop rmsprop({start()}, {.eps = 0.1, .momentum = 0.5, .centered = true});
  Rprop rprop({start()}, {.lr = 0.3, .eta_plus = 2, .step_max = 1});
  LAMB lamb({start()}, {.weight_decay = 0.1, .upper_bound = 2, .maximize = true});
  const std::vector<Optimizer*> all = {&sgd, &adam, &adamw, &rmsprop, &rprop, &lamb};
  for (Optimizer* opt : all) {
    const auto made = make_optimizer(opt->name(), opt->option_map(), {start()});
    EXPECT_STREQ(opt->name(), made->name());
    EXPECT_EQ(opt->option_map(), made->option_map());
    EXPECT_EQ(after_steps(*opt), after_steps(*made)) << opt->name();
  }
}

TEST(MakeOptimizer, WhatIsNotNamedHasItsDefault) {
  const auto made = make_optimizer("adamw", {{"lr", int64_t{1}}}, {{"w", start()}});
  EXPECT_EQ(1.0, made->learning_rate());
  EXPECT_EQ(AttrValue(0.01), made->option_map().at("weight_decay"));
  EXPECT_EQ("w", made->parameters()[0].name);
}

TEST(MakeOptimizer, AllThatIsWrongIsListed) {
  std::string message = error_of<InvalidArgument>([] {
    make_optimizer(
        "sgd",
        {{"lr", std::string("fast")}, {"momentum", -1.0}, {"speed", 1.0}, {"nesterov", 1.0}, {"up", true}},
        {start()});
  });
  for (const char* part :
       {"[sgd]", "of type float for 'lr', got \"fast\"", "momentum of at least 0, got -1",
        "of type bool for 'nesterov'", "got 'speed', 'up'", "weight_decay", "make_optimizer_test.cc"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  message = error_of<InvalidArgument>([] { make_optimizer("sdg", {}, {start()}); });
  for (const std::string& name : optimizer_names()) EXPECT_TRUE(contains(message, name)) << message;
  EXPECT_TRUE(contains(message, "got 'sdg'")) << message;
}

TEST(MakeOptimizer, ProgramsAddTheirOwn) {
  register_optimizer("half_sgd",
                     [](const Parameters& parameters, const AttrMap& options,
                        std::source_location where) -> std::unique_ptr<Optimizer> {
                       AttrMap half = options;
                       half["lr"] = 0.5;
                       return make_optimizer("sgd", half, parameters, where);
                     });
  EXPECT_EQ(0.5, make_optimizer("half_sgd", {}, {start()})->learning_rate());
  EXPECT_EQ(
      (std::vector<std::string>{"adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "ftrl", "half_sgd",
                                "lamb", "lars", "nadam", "radam", "rmsprop", "rprop", "sgd", "signum"}),
      optimizer_names());
  error_of<InvalidArgument>([] { register_optimizer("sgd", [](auto&&...) { return nullptr; }); });
  error_of<InvalidArgument>([] { register_optimizer("nothing", nullptr); });
  error_of<InvalidArgument>([] { register_optimizer("", [](auto&&...) { return nullptr; }); });
}

}  // namespace
}  // namespace mx::optim
