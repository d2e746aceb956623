// State that copies of a module share and clones do not; names; errors of registration.
#include "nn/module.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"
#include "nn/recurrent.h"
#include "optim/optimizers.h"
#include "tests/ndarray/io_temp.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::all_values;
using test::Block;
using test::contains;
using test::content_of;
using test::Deep;
using test::error_of;
using test::inputs;
using test::mlp;
using test::names;
using test::Scale;

TEST(Module, ProgramsNestThem) {
  const nn::Sequential net = mlp();
  const NDArray y = net(inputs({5, 3}));
  EXPECT_EQ(Shape({5, 2}), y.shape());
  EXPECT_TRUE(y.requires_grad());
  EXPECT_EQ((std::vector<std::string>{"0.weight", "0.bias", "2.fc1.weight", "2.fc1.bias", "2.fc2.weight",
                                      "2.fc2.bias", "3.weight"}),
            names(net.named_parameters()));
  EXPECT_EQ(4 * 3 + 4 + 2 * (4 * 4 + 4) + 2 * 4, net.num_parameters());
}

TEST(Module, ForwardIsWhatItsPartsCompute) {
  const Block block(4);
  const NDArray x = inputs({3, 4});
  const NDArray by_hand =
      x + linear(relu(linear(x, block.fc1.weight, block.fc1.bias)), block.fc2.weight, block.fc2.bias);
  EXPECT_EQ(content_of(by_hand), content_of(block(x)));
}

TEST(Module, CopiesShareParametersPartsAndModes) {
  manual_seed(1);  // with some weights, no ReLU lets anything pass before the change or after it
  Block a(4);
  Block b = a;
  Block c(4);
  c = a;
  const NDArray x = inputs({2, 4}), before = a(x);
  {
    const NoGrad pause;
    NDArray(b.fc1.weight).fill_(0.5);
  }
  EXPECT_NE(content_of(before), content_of(a(x)));
  EXPECT_EQ(content_of(b(x)), content_of(a(x)));
  EXPECT_EQ(content_of(b(x)), content_of(c(x)));
  b.eval();
  EXPECT_FALSE(a.training());
  EXPECT_FALSE(c.fc2.training());
  a.to(f64);
  EXPECT_EQ(f64, b.fc1.weight.dtype());
  EXPECT_EQ(f64, c(x.to(f64)).dtype());
  EXPECT_EQ(a.identity(), b.identity());
}

TEST(Module, AMemberAndTheContainerThatHoldsACopyAreOne) {
  const Block block(4);
  nn::Sequential net{nn::Linear{4, 4}, block};
  net.to(virt(0));
  EXPECT_EQ(virt(0), block.fc1.weight.context());
  EXPECT_EQ(virt(0), net.child("1.fc1").as<nn::Linear>()->weight.context());
  EXPECT_EQ(virt(0), net(inputs({2, 4}).to(virt(0))).context());
}

// A clone of a struct computes the same as the original and shares nothing with it, in whichever kind of
// member the struct keeps its parts.
TEST(Module, ClonesOfStructsComputeTheSameAndShareNothing) {
  const Deep a(4);
  const Deep b = a.clone();
  const NDArray x = inputs({3, 4});
  const NDArray before = a(x);
  EXPECT_EQ(content_of(before), content_of(b(x)));
  EXPECT_EQ(names(a.named_parameters()), names(b.named_parameters()));
  EXPECT_EQ(names(a.named_buffers()), names(b.named_buffers()));
  EXPECT_EQ(all_values(a.state_dict()), all_values(b.state_dict()));
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_FALSE(a.parameters()[i].shares_memory(b.parameters()[i]));
    EXPECT_TRUE(b.parameters()[i].requires_grad());
    EXPECT_FALSE(b.parameters()[i].grad().defined());
  }
  // Changing any single parameter of the clone changes the clone's result (so the clone uses it) and never
  // the original's.
  for (NDArray parameter : b.parameters()) {
    const NoGrad pause;
    const NDArray result = b(x), value = parameter.clone();
    parameter += 0.125;
    EXPECT_NE(content_of(result), content_of(b(x)));
    parameter.copy_from(value);
    EXPECT_EQ(content_of(result), content_of(b(x)));
  }
  {
    const NoGrad pause;
    for (NDArray parameter : b.parameters()) parameter.fill_(0);
  }
  EXPECT_EQ(content_of(before), content_of(a(x)));
}

TEST(Module, ClonesKeepWhatIsSharedInside) {
  const nn::Linear same(3, 3);
  const nn::Sequential net{same, nn::ReLU{}, same};
  const nn::Sequential copy = net.clone();
  EXPECT_EQ(2u, copy.parameters().size());
  EXPECT_EQ(4u, copy.state_dict().size());
  EXPECT_EQ(copy[0]->identity(), copy[2]->identity());
  EXPECT_NE(net[0]->identity(), copy[0]->identity());
  EXPECT_TRUE(copy.at<nn::Linear>(0).weight.same_as(copy.at<nn::Linear>(2).weight));
}

TEST(Module, ClonesAreMadeInSeveralWays) {
  const Block block(3);
  const NDArray x = inputs({2, 3});
  const Block by_member = block.clone(), by_function = clone(block);
  const nn::AnyModule by_holder = nn::AnyModule(block).clone();
  const nn::Linear linear = nn::Linear(3, 3).clone();
  for (const NDArray& y : {by_member(x), by_function(x), by_holder(x)})
    EXPECT_EQ(content_of(block(x)), content_of(y));
  EXPECT_NE(block.identity(), by_holder->identity());
  EXPECT_EQ(3, linear.in_features());
}

// A copy through a reference to a base class would lose the members of the derived struct. That is reported
// as an error.
TEST(Module, NothingIsSliced) {
  struct Larger : Block {
    using Block::Block;
    NDArray forward(const NDArray& x) { return x; }
  };
  const Larger larger(2);
  const Block& base = larger;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::AnyModule held(base); }),
                       "[AnyModule] expected a Block, got a Larger"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { clone(base); }), "[clone] expected a Block"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { Scale scale = larger.clone(); }), "got a Larger"));
  EXPECT_FALSE((std::is_copy_constructible_v<nn::Module>));
  EXPECT_FALSE((std::is_constructible_v<nn::AnyModule, const nn::Module&>));
}

TEST(Module, ModulesAreUsedThroughReferencesToTheBase) {
  const Deep deep(4);
  const NDArray x = inputs({2, 4});
  const nn::Module& module = deep;
  EXPECT_EQ(content_of(deep(x)), content_of(module(x)));
}

TEST(Module, ToMovesParametersBuffersAndGradients) {
  Scale scale(3);
  sum(scale(inputs({2, 3}))).backward();
  const std::vector<double> gradient = scale.factor.grad().to_vector<double>();
  scale.to(virt(1));
  EXPECT_EQ(virt(1), scale.factor.context());
  EXPECT_EQ(virt(1), scale.calls.context());
  EXPECT_EQ(virt(1), scale.scratch.context());
  EXPECT_EQ(virt(1), scale.factor.grad().context());
  EXPECT_EQ(gradient, scale.factor.grad().to_vector<double>());
  EXPECT_TRUE(scale.factor.array().requires_grad());
  EXPECT_FALSE(scale.calls.array().requires_grad());
  sum(scale(inputs({2, 3}).to(virt(1)))).backward();  // accumulates into the gradient that was moved
  std::vector<double> twice = gradient;
  for (double& value : twice) value *= 2;
  EXPECT_EQ(twice, scale.factor.grad().to_vector<double>());
}

// Without this, an optimizer would silently train arrays that the model no longer uses.
TEST(Module, AnOptimizerFollowsAModuleThatMoves) {
  const auto train = [](bool moves) {
    manual_seed(1);
    Block body(3), head(3);
    optim::SGD optimizer(body.parameters(), {.lr = 0.1, .momentum = 0.9});
    optimizer.add_group(head.parameters(), {.lr = 0.2});
    for (int step = 0; step < 3; ++step) {
      if (moves && step == 1) body.to(virt(0));  // not head: its arrays alone keep step() from failing
      optimizer.zero_grad();
      sum(head(body(inputs({2, 3}).to(body.fc1.weight.context())).to(cpu()))).backward();
      optimizer.step();
    }
    NamedArrays all = body.state_dict();
    for (const auto& entry : head.state_dict()) all.push_back(entry);
    return all_values(all);
  };
  EXPECT_EQ(train(false), train(true));
}

// The gradients would be stored where nobody finds them.
TEST(Module, ABackwardPassThroughAMovedModuleIsAnError) {
  for (const bool device : {false, true}) {
    nn::Linear layer(3, 2);
    const NDArray before = sum(layer(ones({1, 3})));
    const NDArray x = ones({1, 3}).requires_grad_();
    const NDArray other = sum(layer(x));
    if (device) {
      layer.to(virt(0));
    } else {
      layer.to(f64);
    }
    const std::string message = error_of<InvalidState>([&] { before.backward(); });
    EXPECT_TRUE(test::contains(message, "a parameter that to() has moved or converted since")) << message;
    EXPECT_EQ(Shape({1, 3}), gradients({other}, {x})[0].shape()) << "needs no gradient of the layer";
    sum(layer(ones({1, 3}, layer.weight.dtype(), layer.weight.context()))).backward();
    EXPECT_TRUE(layer.weight.grad().defined());
  }
}

TEST(Module, WhatWasTakenBeforeAMoveNoLongerTrains) {
  Block block(3);
  const NDArray taken = block.fc1.weight;
  optim::SGD of_arrays(std::vector<NDArray>(block.parameters()), {.lr = 0.1});
  block.to(virt(0));
  EXPECT_FALSE(taken.requires_grad());
  EXPECT_FALSE(taken.shares_memory(block.fc1.weight));
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { of_arrays.step(); }), "requires a gradient"));
}

TEST(Module, ParametersAreListedWithTheirNames) {
  Block block(2);
  std::vector<std::string> found;
  Parameters biases;
  for (const auto& [name, parameter] : block.named_parameters()) {
    found.push_back(name);
    if (name.ends_with("bias")) biases.push_back(parameter);
  }
  EXPECT_EQ((std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}), found);
  ASSERT_EQ(2u, biases.size());
  EXPECT_EQ("fc2.bias", biases[1].name);
  EXPECT_TRUE(biases[1].same_as(block.fc2.bias));
  EXPECT_TRUE(block.parameters().at("fc1.bias").same_as(block.fc1.bias));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { block.parameters().at("fc3"); }), "fc1.weight, fc1.bias"));
  int64_t elements = 0;
  for (const NDArray& array : block.parameters()) elements += array.numel();
  EXPECT_EQ(block.num_parameters(), elements);
}

// Otherwise a name that no file can hold would be noticed only at the first checkpoint.
TEST(Module, NamesThatCannotBeSavedAreRefused) {
  struct Open : nn::Module {
    using nn::Module::add;
    using nn::Module::add_buffer;
    using nn::Module::add_parameter;
  } module;
  for (const char* name : {"\xff", "a\xc0\x80", "__metadata__"}) {
    error_of<InvalidArgument>([&] { module.add_parameter(name, ones({1})); });
    error_of<InvalidArgument>([&] { module.add_buffer(name, ones({1})); });
    error_of<InvalidArgument>([&] { module.add(name, nn::Linear(1, 1)); });
  }
  module.add_parameter("gewicht \xc3\xa4 \"", ones({1}));
  const test::TempFolder folder;
  module.save(folder / "net.safetensors");
  EXPECT_EQ(1u, load_safetensors(folder / "net.safetensors").size());
}

// A buffer may be the result of recorded operations; in a copy it is a plain array.
TEST(Module, BuffersAreNeverParameters) {
  Scale scale(2);
  NDArray scratch = scale.scratch;
  scratch.copy_from(scale(ones({2})));
  EXPECT_TRUE(scratch.requires_grad());
  const Scale copy = scale.clone();
  EXPECT_FALSE(copy.scratch.array().requires_grad());
  EXPECT_TRUE(copy.factor.array().requires_grad());
  scale.to(f64);
  EXPECT_FALSE(scale.scratch.array().requires_grad());
  EXPECT_TRUE(scale.factor.array().requires_grad());
}

TEST(Module, ToATypeConvertsFloatingPointAlone) {
  Scale scale(3);
  scale.to(f64);
  EXPECT_EQ(f64, scale.factor.dtype());
  EXPECT_EQ(i64, scale.calls.dtype());
  EXPECT_EQ(f64, scale.scratch.dtype());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { scale.to(i32); }), "[to] expected a floating-point"));
  EXPECT_EQ(f64, scale.factor.dtype());
}

TEST(Module, ToADeviceThatDoesNotExistChangesNothing) {
  Block block(3);
  const NDArray x = inputs({2, 3}), before = block(x);
  EXPECT_THROW(block.to(virt(1000)), InvalidArgument);
  EXPECT_EQ(content_of(before), content_of(block(x)));
}

TEST(Module, ModesReachEveryPart) {
  nn::Sequential net{nn::Dropout{0.5}, nn::Sequential{nn::Dropout{0.25}}};
  EXPECT_TRUE(net.training());
  net.eval();
  for (const auto& [name, module] : net.named_modules()) EXPECT_FALSE(module->training()) << name;
  net.train();
  for (const auto& [name, module] : net.named_modules()) EXPECT_TRUE(module->training()) << name;
}

TEST(Module, ZeroGradAndFreezing) {
  Block block(3);
  block.fc1.requires_grad_(false);
  sum(block(inputs({2, 3}))).backward();
  EXPECT_FALSE(block.fc1.weight.grad().defined());
  EXPECT_TRUE(block.fc2.weight.grad().defined());
  block.zero_grad();
  EXPECT_FALSE(block.fc2.weight.grad().defined());
  block.requires_grad_();
  sum(block(inputs({2, 3}))).backward();
  EXPECT_TRUE(block.fc1.weight.grad().defined());
}

TEST(Module, ParametersOfTheirOwnStandWhereArraysDo) {
  const Scale scale(4);
  const NDArray x = inputs({2, 4});
  const NDArray product = x * scale.factor, same = scale.factor * x;
  EXPECT_EQ(content_of(product), content_of(same));
  EXPECT_EQ(content_of(sum(scale.factor.array())), content_of(sum(scale.factor)));
  EXPECT_EQ(content_of(x + scale.factor.array()), content_of(x + scale.factor));
  const nn::Parameter none;
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { none.array(); }), "[Parameter]"));
}

TEST(Module, TiedParametersAreOne) {
  nn::Linear encoder(4, 6, {.bias = false});
  nn::Linear decoder(4, 6, {.bias = false});
  const nn::Linear before = decoder;  // an earlier copy sees the change too
  nn::Sequential net{{"encoder", encoder}, {"decoder", decoder}};
  decoder.weight.tie(encoder.weight);
  EXPECT_TRUE(before.weight.array().shares_memory(encoder.weight));
  EXPECT_EQ(std::vector<std::string>{"encoder.weight"}, names(net.named_parameters()));
  EXPECT_EQ((std::vector<std::string>{"encoder.weight", "decoder.weight"}), names(net.state_dict()));
  net.to(f64);
  EXPECT_EQ(f64, before.weight.dtype());
  const nn::Sequential copy = net.clone();
  EXPECT_EQ(1u, copy.parameters().size());
  EXPECT_FALSE(copy.parameters()[0].shares_memory(net.parameters()[0]));
  nn::Linear other(4, 5);
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { other.weight.tie(encoder.weight); }),
               "[tie] expected another parameter of the same type and shape, f32 (5, 4), got f64 (6, 4)"));
  decoder.weight.tie(before.weight);  // the two are already tied
  EXPECT_EQ(1u, net.parameters().size());
}

TEST(Module, WhatIsRegisteredIsFoundByPath) {
  Deep deep(3);
  EXPECT_EQ(deep.block.fc2.identity(), deep.child("block.fc2")->identity());
  EXPECT_TRUE(deep.parameter("tail.2.fc1.weight").same_as(deep.child("tail.2").as<Block>()->fc1.weight));
  EXPECT_TRUE(deep.parameter("maybe.calls").same_as(deep.maybe->calls));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { deep.child("tail.9"); }),
                       "the path \"tail.9\" to name one of the children 0, 1, 2, got \"9\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { deep.parameter("block.fc1"); }),
                       "block.fc1.weight, block.fc1.bias"));
  std::set<std::string> paths;
  for (const auto& [path, module] : deep.named_modules()) {
    EXPECT_TRUE(paths.insert(path).second) << path;
    EXPECT_EQ(module->identity(), (path.empty() ? deep.identity() : deep.child(path)->identity()));
  }
  EXPECT_EQ(1u, paths.count(""));
  EXPECT_EQ(1u, paths.count("tail.2.fc1"));
}

TEST(Module, ApplyVisitsEachOnceAndPartsFirst) {
  const nn::Linear same(2, 2);
  nn::Sequential net{same, nn::Sequential{same, nn::Tanh{}}};
  std::vector<std::string> types;
  net.apply([&](nn::Module& module) {
    types.push_back(module.type_name());
    if (auto* linear = dynamic_cast<nn::Linear*>(&module)) nn::init::eye_(linear->weight);
  });
  EXPECT_EQ((std::vector<std::string>{"Linear", "Tanh", "Sequential", "Sequential"}), types);
  EXPECT_EQ((std::vector<double>{1, 0, 0, 1}), same.weight.array().to_vector<double>());
}

TEST(Module, RegistrationErrors) {
  struct Open : nn::Module {
    using Module::add;
    using Module::add_buffer;
    using Module::add_parameter;
  };
  Open open;
  open.add("part", nn::Identity{});
  open.add_parameter("w", ones({2}));
  const auto text = [](auto f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(text([&] { open.add("", nn::Tanh{}); }), "[add] expected a name without dots"));
  EXPECT_TRUE(contains(text([&] { open.add("a.b", nn::Tanh{}); }), "got \"a.b\""));
  EXPECT_TRUE(contains(text([&] { open.add("w", nn::Tanh{}); }), "is not used in the module yet, got \"w\""));
  EXPECT_TRUE(contains(text([&] { open.add_parameter("part", ones({1})); }), "[add_parameter]"));
  EXPECT_TRUE(contains(text([&] { open.add_buffer("w", ones({1})); }), "[add_buffer]"));
  EXPECT_TRUE(contains(text([&] { open.add_buffer("none", NDArray()); }), "got an empty handle"));
  EXPECT_TRUE(contains(text([&] { open.add_parameter("whole", ones({2}, i64)); }), "a floating-point type"));
  EXPECT_TRUE(
      contains(text([&] { open.add("self", open); }), "does not contain the module to which it is added"));
  nn::Sequential net{nn::Tanh{}};
  nn::Sequential outer{nn::Tanh{}, net};
  EXPECT_TRUE(
      contains(text([&] { net.push_back(outer); }), "does not contain the module to which it is added"));
  EXPECT_EQ(1, net.size());
  EXPECT_EQ(1u, open.children().size());
  EXPECT_EQ(std::vector<std::string>{"w"}, names(open.state_dict()));
}

// A parameter is a leaf, no matter how the array was made.
struct Headed : nn::ModuleOf<Headed> {
  nn::Linear body, head;
  Headed() : body(3, 4), head(4, 5) {
    add("body", body);
    add("head", head);
  }
  NDArray forward(const NDArray& x) override { return head(body(x)); }
};

TEST(Module, APartIsReplacedByAnother) {
  Headed net;
  const NDArray x = ones({2, 3});
  net.head = net.replace("head", nn::Linear(4, 7));
  EXPECT_EQ((Shape{2, 7}), net(x).shape());
  EXPECT_EQ((Shape{7, 4}), net.parameter("head.weight").array().shape());
  EXPECT_EQ(4u, net.state_dict().size());
  EXPECT_EQ("head", net.children()[1].name);
  const std::string unknown = error_of<InvalidArgument>([&] { net.replace("tail", nn::Linear(4, 7)); });
  EXPECT_NE(std::string::npos, unknown.find("children body, head, got \"tail\"")) << unknown;
  nn::Sequential outer{net};
  EXPECT_THROW(net.replace("head", outer), InvalidArgument);
}

TEST(Module, AForgottenPartIsNamedOnceInTheLog) {
  const auto log_of = [](const std::function<void()>& f) {
    testing::internal::CaptureStderr();
    f();
    return testing::internal::GetCapturedStderr();
  };
  const NDArray x = ones({2, 3});
  Headed net;
  EXPECT_EQ("", log_of([&] { net(x); }));
  net.head = nn::Linear(4, 7);
  EXPECT_EQ("", log_of([&] {
              const NoGrad off;
              net(x);
            }));
  const std::string text = log_of([&] { net(x); });
  EXPECT_NE(std::string::npos, text.find("a module calls Linear at ")) << text;
  EXPECT_NE(std::string::npos, text.find("not registered by add() or replace()")) << text;
  EXPECT_EQ("", log_of([&] { net(x); }));
  net.head = nn::Linear(4, 7);
  net.head.requires_grad_(false);  // such as the teacher of a distillation
  EXPECT_EQ("", log_of([&] { net(x); }));
  const auto hook = net.head.register_forward_hook([](auto&&...) {});
  net.head.requires_grad_();
  EXPECT_NE("", log_of([&] { net(x); }));
}

TEST(Module, ParametersAreLeaves) {
  struct Own : nn::Module {
    nn::Parameter w;
    explicit Own(const NDArray& value) : w(add_parameter("w", value)) {}
  };
  NDArray x = ones({2}).requires_grad_();
  const NDArray y = x * 3;
  const Own own(y);
  sum(own.w * own.w).backward();
  EXPECT_EQ((std::vector<double>{6, 6}), own.w.grad().to_vector<double>());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(own.w.array().shares_memory(y));
}

TEST(Module, ErrorsNameTheModulesTheyCameThrough) {
  const nn::Sequential net{nn::Linear{3, 4}, Block{5}};
  const std::string text = error_of<InvalidArgument>([&] { net(ones({2, 3})); });
  EXPECT_TRUE(contains(text, "[linear] expected")) << text;
  EXPECT_TRUE(contains(text, "\n  in fc1 (Linear), called at ")) << text;
  EXPECT_TRUE(contains(text, "\n  in 1 (Block)\n  in Sequential, called at ")) << text;
}

// Returns "FILE:LINE" of the caller, with `lines` added to the line.
std::string place(int lines = 0, std::source_location here = std::source_location::current()) {
  return std::string(here.file_name()) + ':' + std::to_string(static_cast<int>(here.line()) + lines);
}

// A layer's own source lines say nothing to the program that called it.
TEST(Module, ErrorsOfLayersNameTheLineOfTheProgram) {
  struct Outer : nn::Module {
    nn::Linear layer{3, 4};
    std::string* line = nullptr;
    NDArray forward(const NDArray& x) override {
      *line = place(1);
      return layer(x);
    }
  };
  const nn::Sequential deep{nn::Tanh{}, nn::Residual(nn::Linear{3, 3})};
  const std::string at = place(1);
  const std::string in_container = error_of<InvalidArgument>([&] { deep(ones({2, 4})); });
  EXPECT_TRUE(contains(in_container, "; called at " + at + ")\n  in body (Linear)\n  in 1 (Residual)\n"))
      << in_container;
  EXPECT_TRUE(in_container.ends_with("\n  in Sequential, called at " + at)) << in_container;

  Outer own;
  std::string inside;
  own.line = &inside;
  const nn::Sequential net{own};
  const std::string outside = place(1);
  const std::string text = error_of<InvalidArgument>([&] { net(ones({2, 4})); });
  EXPECT_TRUE(contains(text, "; called at " + inside + ")\n  in Linear, called at " + inside +
                                 "\n  in 0 (Outer)\n  in Sequential, called at " + outside))
      << text;
  EXPECT_FALSE(contains(in_container + text, "linear.cc") || contains(in_container + text, "containers.cc"))
      << in_container << text;
}

TEST(Module, LaterErrorsOfLayersNameTheLineOfTheProgramToo) {
  const nn::CrossEntropyLoss loss;
  const NDArray logits = ones({2, 3});
  const std::string at = place(1);
  const NDArray of_bad_label = loss(logits, array<int64_t>({0, 7}));
  const std::string when_run = error_of<InvalidArgument>([&] { of_bad_label.wait(); });
  EXPECT_TRUE(contains(when_run, at)) << when_run;

  const nn::Sequential net{nn::Tanh{}};
  NDArray x = ones({2}).requires_grad_();
  const std::string call = place(1);
  NDArray y = net(x);
  {
    const NoGrad pause;
    y += 1;
  }
  const std::string backward = error_of<InvalidState>([&] { sum(y).backward(); });
  EXPECT_TRUE(contains(backward, call)) << backward;
}

// Other errors than those of arguments are named too, and keep their type. Those of the program are not
// touched.
TEST(Module, ErrorsOfAllTypesOfTheLibraryNameTheModule) {
  struct Throws : nn::Module {
    std::function<void()> f;
    explicit Throws(std::function<void()> g) : f(std::move(g)) {}
    NDArray forward(const NDArray& x) override {
      f();
      return x;
    }
  };
  struct OwnError : InvalidArgument {
    using InvalidArgument::InvalidArgument;
  };
  const NDArray x = ones({1});
  const auto call = [&](std::function<void()> f) { nn::Sequential{Throws(std::move(f))}(x); };
  for (const std::string& text : {error_of<InvalidState>([&] { call([] { throw InvalidState("one"); }); }),
                                  error_of<OutOfMemory>([&] { call([] { throw OutOfMemory("two"); }); }),
                                  error_of<NumericError>([&] { call([] { throw NumericError("three"); }); })})
    EXPECT_TRUE(contains(text, "\n  in 0 (Throws)\n  in Sequential, called at ")) << text;
  EXPECT_EQ("four", error_of<OwnError>([&] { call([] { throw OwnError("four"); }); }));
  EXPECT_EQ("five", error_of<std::runtime_error>([&] { call([] { throw std::runtime_error("five"); }); }));
}

// A call in one module does not leave its line behind.
TEST(Module, AFunctionCalledAfterAModuleDoesNotNameItsLine) {
  const nn::Linear layer(3, 3);
  error_of<InvalidArgument>([&] { layer(ones({2, 4})); });
  const std::string at = place(1);
  const std::string text = error_of<InvalidArgument>([&] { nn::Linear(layer).forward(ones({2, 4})); });
  EXPECT_FALSE(contains(text, at)) << "forward() is not told its caller: " << text;
  EXPECT_FALSE(contains(text, "called at")) << "a line of the library says nothing to the program: " << text;
}

TEST(Module, AModuleOfSeveralArraysInASequentialIsNamed) {
  const nn::Sequential net{nn::Linear{3, 5}, nn::GRU{5, 4}};
  const std::string text = error_of<InvalidState>([&] { net(ones({2, 1, 3})); });
  EXPECT_TRUE(contains(text, "[GRU]") && contains(text, "Sequential")) << text;
}

TEST(Module, ATypeWithoutForwardSaysSo) {
  struct Silent : nn::Module {};
  const std::string text = error_of<InvalidState>([&] { Silent{}(ones({1})); });
  EXPECT_TRUE(contains(text, "[Silent] expected the module type to override forward(const NDArray&)"))
      << text;
}

}  // namespace
}  // namespace mx
