// Modules whose forward() has any arguments and results, their hooks, and the containers that hold them.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "executor/autograd/autograd.h"
#include "nn/nn.h"
#include "operators/operators.h"
#include "tests/support/errors.h"

namespace mx::nn {
namespace {

using test::contains;
using test::error_of;
namespace nn = mx::nn;

struct AddScaled : ModuleOf<AddScaled> {
  Parameter weight = add_parameter("weight", full({3}, 2.0));
  std::pair<NDArray, NDArray> forward(const NDArray& x, const NDArray& y, double scale = 1.0) {
    return {x * weight + y * scale, y};
  }
};

struct WithState {
  NDArray h, c;
  template <class V>
  void arrays(V&& visit) {
    visit(h);
    visit(c);
  }
};

struct Recurrent : ModuleOf<Recurrent> {
  std::pair<NDArray, WithState> forward(const NDArray& x, const std::optional<WithState>& state = {}) {
    const NDArray h = state ? state->h + x : x;
    return {h * 2, {h, h + 1}};
  }
};

struct FromList : ModuleOf<FromList> {
  NDArray forward(const std::vector<NDArray>& list) {
    NDArray total = list.at(0);
    for (size_t i = 1; i < list.size(); ++i) total = total + list[i];
    return total;
  }
};

std::vector<float> values(const NDArray& x) { return x.to_vector<float>(); }

TEST(CallArguments, ForwardMayHaveAnyArgumentsAndResults) {
  const AddScaled add;
  const auto [sum, y] = add(ones({3}), full({3}, 5.0), 10);
  EXPECT_EQ(values(sum), (std::vector<float>{52, 52, 52}));
  EXPECT_EQ(values(y), (std::vector<float>{5, 5, 5}));
  EXPECT_EQ(values(add(ones({3}), ones({3})).first), (std::vector<float>{3, 3, 3}));
  const Recurrent step;
  const auto [first, state] = step(ones({2}));
  const auto [second, last] = step(ones({2}), state);
  EXPECT_EQ(values(second), (std::vector<float>{4, 4}));
  EXPECT_EQ(values(last.c), (std::vector<float>{3, 3}));
  EXPECT_EQ(values(FromList()(std::vector<NDArray>{ones({1}), ones({1}), ones({1})})),
            (std::vector<float>{3}));
}

TEST(CallArguments, ParametersAndViewsAreArguments) {
  AddScaled add;
  const NDArray rows = arange(6).to(f32).reshape({2, 3});
  EXPECT_EQ(values(add(add.weight, rows[1]).first), (std::vector<float>{7, 8, 9}));
  const HookHandle hook = add.register_forward_pre_hook(
      [](const Module&, std::vector<NDArray>& inputs) { EXPECT_EQ(inputs.size(), 2u); });
  EXPECT_EQ(values(add(add.weight, rows[1]).first), (std::vector<float>{7, 8, 9}));
}

TEST(CallArguments, HooksSeeAndReplaceTheArraysOfAllArguments) {
  Recurrent step;
  std::vector<size_t> seen;
  const HookHandle before = step.register_forward_pre_hook([&](const Module&, std::vector<NDArray>& inputs) {
    seen.push_back(inputs.size());
    inputs[0] = inputs[0] * 10;
  });
  const HookHandle after = step.register_forward_hook(
      [&](const Module&, std::span<const NDArray> inputs, std::vector<NDArray>& outputs) {
        seen.push_back(inputs.size() * 100 + outputs.size());
        outputs[2] = outputs[2] * 0;
      });
  const auto [y, state] = step(ones({2}));
  EXPECT_EQ(values(y), (std::vector<float>{20, 20}));
  EXPECT_EQ(values(state.h), (std::vector<float>{10, 10}));
  EXPECT_EQ(values(state.c), (std::vector<float>{0, 0}));
  step(ones({2}), state);
  EXPECT_EQ(seen, (std::vector<size_t>{1, 103, 3, 303}));
}

TEST(CallArguments, AHookThatChangesTheNumberOfArraysIsAnError) {
  AddScaled add;
  HookHandle hook =
      add.register_forward_pre_hook([](const Module&, std::vector<NDArray>& inputs) { inputs.pop_back(); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { add(ones({3}), ones({3})); }),
                       "[AddScaled] expected 2 inputs after the pre-hooks, got 1"));
  hook.remove();
  hook = add.register_forward_hook(
      [](const Module&, std::span<const NDArray>, std::vector<NDArray>& out) { out.push_back(out[0]); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { add(ones({3}), ones({3})); }),
                       "[AddScaled] expected 2 outputs after the hooks, got 3"));
}

TEST(CallArguments, ErrorsNameTheModuleAndTheLineOfTheCall) {
  const AddScaled add;
  const std::string text = error_of<InvalidArgument>([&] { add(ones({3}), ones({4})); });
  EXPECT_TRUE(contains(text, "\n  in AddScaled, called at ")) << text;
  EXPECT_TRUE(contains(text, "call_arguments_test.cc")) << text;
  // Also if the first argument is no array.
  const std::string list = error_of<InvalidArgument>([&] {
    FromList()(std::vector<NDArray>{ones({2}), ones({3})});
  });
  EXPECT_TRUE(contains(list, "\n  in FromList")) << list;
  EXPECT_TRUE(contains(list, "in FromList, called at ") && contains(list, "call_arguments_test.cc")) << list;
}

TEST(CallArguments, ModulesWithOneArrayAreCalledAsBefore) {
  struct Twice : ModuleOf<Twice> {
    NDArray forward(const NDArray& x) override { return x * 2; }
  };
  const Sequential net{Twice(), Twice()};
  EXPECT_EQ(values(net(ones({1}))), (std::vector<float>{4}));
  EXPECT_EQ(values(Twice()(ones({1}))), (std::vector<float>{2}));
}

TEST(BackwardHooks, SeeTheGradientsOfInputsAndOutputs) {
  AddScaled add;
  int calls = 0;
  const HookHandle hook = add.register_backward_hook(
      [&](const Module& module, std::vector<NDArray>& inputs, std::span<const NDArray> outputs) {
        ++calls;
        EXPECT_EQ(module.type_name(), "AddScaled");
        ASSERT_EQ(inputs.size(), 2u);
        ASSERT_EQ(outputs.size(), 2u);
        EXPECT_EQ(values(inputs[0]), (std::vector<float>{2, 2, 2}));  // the weight
        EXPECT_FALSE(inputs[1].defined());                            // needs no gradient
        EXPECT_EQ(values(outputs[0]), (std::vector<float>{1, 1, 1}));
        EXPECT_FALSE(outputs[1].defined());
      });
  NDArray x = ones({3}).requires_grad_();
  sum(add(x, ones({3})).first).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(values(x.grad()), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(values(add.weight.array().grad()), (std::vector<float>{1, 1, 1}));
}

TEST(BackwardHooks, ReplaceGradients) {
  AddScaled add;
  const HookHandle before = add.register_backward_pre_hook(
      [](const Module&, std::vector<NDArray>& gradients) { gradients[0] = gradients[0] * 3; });
  const HookHandle after = add.register_backward_hook(
      [](const Module&, std::vector<NDArray>& gradients, std::span<const NDArray> outputs) {
        EXPECT_EQ(values(outputs[0]), (std::vector<float>{3, 3, 3}));
        gradients[0] = gradients[0] * 100;
      });
  NDArray x = ones({3}).requires_grad_();
  sum(add(x, ones({3})).first).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<float>{600, 600, 600}));
  EXPECT_EQ(values(add.weight.array().grad()), (std::vector<float>{3, 3, 3}));
}

TEST(BackwardHooks, MayChangeNeitherTheNumberNorTheShapesOfGradients) {
  using Arrays = std::vector<NDArray>;
  Sequential net{Linear(3, 3), Linear(3, 2)};
  const NDArray x = ones({2, 3});
  const auto expect = [&](const HookHandle& hook, const std::string& text) {
    const NDArray y = net(x);
    const int line = __LINE__ - 1;
    const std::string message = error_of<InvalidArgument>([&] { sum(y).backward(); });
    EXPECT_TRUE(contains(message, "[1 (Linear)] expected a " + text)) << message;
    EXPECT_TRUE(contains(message, "call_arguments_test.cc:" + std::to_string(line))) << message;
    HookHandle(hook).remove();
  };
  const auto after = [&](const std::function<void(Arrays&)>& change) {
    return net[1]->register_backward_hook(
        [=](const Module&, Arrays& inputs, std::span<const NDArray>) { change(inputs); });
  };
  const auto before = [&](const std::function<void(Arrays&)>& change) {
    return net[1]->register_backward_pre_hook([=](const Module&, Arrays& outputs) { change(outputs); });
  };
  expect(after([](Arrays& list) { list.clear(); }),
         "backward hook not to change the number of gradients, 1, got one that left 0");
  expect(after([](Arrays& list) { list.push_back(ones({1})); }), "backward hook not to change the number");
  expect(after([](Arrays& list) { list[0] = ones({3}); }),
         "backward hook to leave gradient 0 of shape (2, 3), got one that left shape (3,)");
  expect(before([](Arrays& list) { list.clear(); }), "backward pre-hook not to change the number");
  expect(before([](Arrays& list) { list.push_back(ones({1})); }), "backward pre-hook not to change");
  expect(before([](Arrays& list) { list[0] = ones({2}); }),
         "backward pre-hook to leave gradient 0 of shape (2, 2), got one that left shape (2,)");
}

TEST(BackwardHooks, AreCalledIfNoInputNeedsAGradient) {
  Linear layer(3, 2);
  int calls = 0;
  {
    const HookHandle hook = layer.register_backward_hook(
        [&](const Module&, std::vector<NDArray>& inputs, std::span<const NDArray> outputs) {
          ++calls;
          EXPECT_FALSE(inputs.at(0).defined());
          EXPECT_EQ(outputs[0].shape(), (Shape{1, 2}));
        });
    sum(layer(ones({1, 3}))).backward();
    {
      const NoGrad pause;
      layer(ones({1, 3}));
    }
  }
  EXPECT_EQ(calls, 1);
}

TEST(BackwardHooks, OutliveTheHandlesOfTheModule) {
  NDArray loss;
  std::string name;
  {
    AddScaled add;
    add.register_backward_hook([&](const Module& module, std::vector<NDArray>&, std::span<const NDArray>) {
      name = module.type_name();
    });
    loss = sum(add(ones({3}), ones({3})).first);
  }
  loss.backward();
  EXPECT_EQ(name, "AddScaled");
}

TEST(BackwardHooks, ARemovedOneIsNotCalled) {
  AddScaled add;
  int calls = 0;
  HookHandle after = add.register_backward_hook(
      [&](const Module&, std::vector<NDArray>&, std::span<const NDArray>) { ++calls; });
  HookHandle before =
      add.register_backward_pre_hook([&](const Module&, std::vector<NDArray>&) { calls += 100; });
  const NDArray x = ones({3}).requires_grad_();
  const NDArray loss = sum(add(x, ones({3})).first);
  after.remove();
  before.remove();
  loss.backward();
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(values(x.grad()), (std::vector<float>{2, 2, 2}));
}

// The pass reaches an array inside of the module, and not what the module returned.
TEST(BackwardHooks, SeeOneGradientForEachOutputWhereverThePassComesFrom) {
  struct Keeps : ModuleOf<Keeps> {
    std::vector<NDArray>* kept;
    explicit Keeps(std::vector<NDArray>* list) : kept(list) {}
    NDArray forward(const NDArray& x) override {
      const NDArray inner = x * 2;
      kept->push_back(inner);
      return inner * 3;
    }
  };
  std::vector<NDArray> kept;
  Keeps keeps(&kept);
  int calls = 0;
  const HookHandle hook = keeps.register_backward_hook(
      [&](const Module&, std::vector<NDArray>& inputs, std::span<const NDArray> outputs) {
        ++calls;
        ASSERT_EQ(outputs.size(), 1u);
        EXPECT_FALSE(outputs[0].defined());
        EXPECT_EQ(values(inputs.at(0)), (std::vector<float>{2}));
      });
  const NDArray x = ones({1}).requires_grad_();
  const NDArray y = keeps(x);
  sum(kept[0]).backward();
  EXPECT_EQ(calls, 1);
}

TEST(BackwardHooks, GradientsOfGradientsPassThrough) {
  struct Cube : ModuleOf<Cube> {
    NDArray forward(const NDArray& x) override { return x * x * x; }
  };
  Cube cube;
  int calls = 0;
  const HookHandle hook = cube.register_backward_hook(
      [&](const Module&, std::vector<NDArray>&, std::span<const NDArray>) { ++calls; });
  const NDArray x = full({2}, 2.0).requires_grad_();
  const NDArray first = gradients({sum(cube(x))}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(values(first), (std::vector<float>{12, 12}));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(values(gradients({sum(first)}, {x})[0]), (std::vector<float>{12, 12}));
}

struct Stack : ModuleOf<Stack> {
  nn::ModuleList layers;
  nn::ModuleDict heads{{"a", Linear{4, 2}}, {"b", Linear{4, 3}}};
  explicit Stack(int n) {
    for (int i = 0; i < n; ++i) layers.push_back(Linear{4, 4});
    add("layers", layers);
    add("heads", heads);
  }
  NDArray forward(const NDArray& x, const std::string& head) {
    NDArray y = x;
    for (const auto& [name, layer] : layers) y = layer(y);
    return heads[head](y);
  }
};

TEST(ModuleContainers, ListsAndDictionariesHoldPartsForTheirModule) {
  const Stack net(3);
  EXPECT_EQ(net(ones({1, 4}), std::string("b")).shape(), (Shape{1, 3}));
  EXPECT_EQ(net.layers.size(), 3);
  EXPECT_EQ(net.heads.keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(net.heads.contains("a"));
  EXPECT_FALSE(net.heads.contains("c"));
  EXPECT_EQ(net.layers.at<Linear>(-1).in_features(), 4);
  EXPECT_EQ(net.heads.at<Linear>("b").out_features(), 3);
  EXPECT_EQ(net.parameters().size(), 10u);
  EXPECT_EQ(net.state_dict().front().first, "layers.0.weight");
  const Stack copy = clone(net);
  EXPECT_EQ(values(copy(ones({1, 4}), std::string("a"))), values(net(ones({1, 4}), std::string("a"))));
  EXPECT_NE(copy.layers.identity(), net.layers.identity());
}

TEST(ModuleContainers, SayWhatIsMissing) {
  const Stack net(1);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { net.layers[1]; }),
                       "[ModuleList] expected an index below the number of modules, 1, got 1"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { net.heads["c"]; }), "a, b"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { net.heads.at<ReLU>("b"); }),
                       "[ModuleDict] expected module b to be a ReLU, got a Linear"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { Lambda({}); }), "[Lambda]"));
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { net.layers(ones({1, 4})); }), "[ModuleList]"));
}

TEST(ModuleContainers, AFunctionIsAModule) {
  const Sequential net{Linear{2, 2}, nn::Lambda([](const NDArray& x) { return x * 0 + 3; })};
  EXPECT_EQ(values(net(ones({1, 2}))), (std::vector<float>{3, 3}));
  EXPECT_EQ(values(net.clone()(ones({1, 2}))), (std::vector<float>{3, 3}));
}

}  // namespace
}  // namespace mx::nn
