// Calls of modules: hooks, several threads, modes of the thread, printing and the summary, empty batches.
#include <gtest/gtest.h>

#include <latch>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ndarray/grad_mode.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::Block;
using test::contains;
using test::Content;
using test::content_of;
using test::Deep;
using test::error_of;
using test::inputs;
using test::mlp;
using test::Scale;

TEST(ModuleHooks, SeeAndReplaceWhatGoesInAndComesOut) {
  nn::Linear layer(3, 3);
  const NDArray x = inputs({2, 3}), plain = layer(x), of_half = layer(x * 0.5f);
  std::vector<std::string> order;
  nn::HookHandle before =
      layer.register_forward_pre_hook([&](const nn::Module& module, std::vector<NDArray>& in) {
        order.push_back("before " + module.type_name());
        in[0] = in[0] * 0.5f;
      });
  nn::HookHandle after = layer.register_forward_hook(
      [&](const nn::Module&, std::span<const NDArray> in, std::vector<NDArray>& out) {
        order.push_back("after");
        EXPECT_EQ(content_of(x * 0.5f), content_of(in[0]));
        out[0] = out[0] + 1;
      });
  EXPECT_EQ(content_of(of_half + 1), content_of(layer(x)));
  EXPECT_EQ((std::vector<std::string>{"before Linear", "after"}), order);
  after.remove();
  EXPECT_EQ(content_of(of_half), content_of(layer(x)));
  before.remove();
  before.remove();
  EXPECT_EQ(content_of(plain), content_of(layer(x)));
}

TEST(ModuleHooks, RunInTheOrderOfRegistrationOnAllCopiesAndPartsOfContainers) {
  nn::Linear layer(2, 2);
  const nn::Sequential net{layer, nn::Tanh{}};
  const nn::Linear copy = layer;
  std::string seen;
  for (const char* name : {"a", "b", "c"})
    layer.register_forward_hook([&seen, name](const nn::Module&, auto, auto&) { seen += name; });
  net(ones({1, 2}));
  copy(ones({1, 2}));
  EXPECT_EQ("abcabc", seen);
}

TEST(ModuleHooks, OfACloneAreItsOwn) {
  nn::Linear layer(2, 2);
  int calls = 0;
  nn::HookHandle handle = layer.register_forward_hook([&](const nn::Module&, auto, auto&) { ++calls; });
  nn::Linear copy = layer.clone();
  copy(ones({1, 2}));
  EXPECT_EQ(1, calls);
  handle.remove();
  layer(ones({1, 2}));
  EXPECT_EQ(1, calls);
  copy(ones({1, 2}));
  EXPECT_EQ(2, calls);
}

TEST(ModuleHooks, MayRemoveThemselvesAndOutliveTheModule) {
  nn::HookHandle handle;
  {
    nn::Tanh layer;
    int calls = 0;
    handle = layer.register_forward_hook([&](const nn::Module&, auto, auto&) {
      ++calls;
      handle.remove();
    });
    layer(ones({1}));
    layer(ones({1}));
    EXPECT_EQ(1, calls);
    handle = layer.register_forward_hook([&](const nn::Module&, auto, auto&) {});
  }
  handle.remove();
}

TEST(ModuleHooks, ThatChangeHowManyArraysThereAreAreErrors) {
  nn::Tanh layer;
  nn::HookHandle hook =
      layer.register_forward_pre_hook([](const nn::Module&, std::vector<NDArray>& in) { in.clear(); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { layer(ones({1})); }),
                       "[Tanh] expected one input after the pre-hooks"));
  hook.remove();
  layer.register_forward_hook([](const nn::Module&, auto, std::vector<NDArray>& out) { out.clear(); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { layer(ones({1})); }),
                       "[Tanh] expected one output after the hooks"));
}

TEST(ModuleHooks, OfLossesSeeAllTheirArrays) {
  nn::MSELoss loss;
  size_t inputs_seen = 0;
  loss.register_forward_hook(
      [&](const nn::Module&, std::span<const NDArray> in, auto&) { inputs_seen = in.size(); });
  loss(ones({3}), zeros({3}));
  EXPECT_EQ(2u, inputs_seen);
}

// Several threads use one model, each with its own inputs. The results have the bits of a single thread, also
// on a device, and while hooks are added and removed.
TEST(ModuleThreads, InferenceGivesTheBitsOfOneThread) {
  constexpr int kThreads = 8, kCalls = 25;
  for (const Context context : {cpu(), virt(0)}) {
    Deep net(8);
    net.to(context);
    net.eval();
    std::vector<NDArray> x;
    std::vector<Content> expected;
    for (int i = 0; i < kThreads; ++i) {
      x.push_back((inputs({4 + 60 * i, 8}) + i).to(context));
      expected.push_back(content_of(net(x.back())));
    }
    std::latch start(kThreads);
    std::vector<int> wrong(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        const auto at = static_cast<size_t>(t);
        for (int i = 0; i < kCalls; ++i) {
          nn::HookHandle hook =
              net.register_forward_hook([](const nn::Module&, auto, std::vector<NDArray>&) {});
          const NoGrad pause;
          wrong[at] += !(expected[at] == content_of(net(x[at])));
          hook.remove();
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::vector<int>(kThreads), wrong);
  }
}

TEST(ModuleModes, OfTheThreadGoBeforeThoseOfTheModule) {
  nn::Dropout layer(0.5);
  const NDArray x = ones({1000});
  const auto drops = [&] { return layer(x).to_vector<float>() != x.to_vector<float>(); };
  EXPECT_TRUE(drops());
  {
    const PredictMode predict;
    EXPECT_FALSE(drops());
    EXPECT_TRUE(layer.training());
    {
      const TrainMode train;
      EXPECT_TRUE(drops());
    }
    bool elsewhere = false;
    std::thread([&] { elsewhere = drops(); }).join();
    EXPECT_TRUE(elsewhere);
  }
  layer.eval();
  EXPECT_FALSE(drops());
  const TrainMode train;
  EXPECT_TRUE(drops());
}

TEST(ModuleText, PrintsTheTree) {
  const nn::Sequential net = mlp();
  std::ostringstream out;
  out << net;
  EXPECT_EQ(
      "Sequential(\n"
      "  (0): Linear(in=3, out=4)\n"
      "  (1): ReLU()\n"
      "  (2): Block(\n"
      "    (fc1): Linear(in=4, out=4)\n"
      "    (fc2): Linear(in=4, out=4)\n"
      "  )\n"
      "  (3): Linear(in=4, out=2, bias=false)\n"
      ")",
      out.str());
}

TEST(ModuleText, TheSummaryShowsShapesAndCounts) {
  const nn::Sequential net{nn::Linear{3, 4}, nn::ReLU{}, Block{4}, Scale{4}};
  net.child("2.fc1")->requires_grad_(false);
  EXPECT_EQ(
      "module  type        output  parameters  bytes  output bytes\n"
      ".       Sequential  (5, 4)           0      0            80\n"
      "0       Linear      (5, 4)          16     64            80\n"
      "1       ReLU        (5, 4)           0      0            80\n"
      "2       Block       (5, 4)           0      0            80\n"
      "2.fc1   Linear      (5, 4)          20     80            80\n"
      "2.fc2   Linear      (5, 4)          20     80            80\n"
      "3       Scale       (5, 4)           4     32            80\n"
      "60 parameters, 40 of them trained; 256 bytes with the buffers; 400 bytes of outputs of modules "
      "without "
      "parts\n",
      net.summary(Shape{5, 3}));
  EXPECT_EQ(net.summary(Shape{5, 3}), net.summary(ones({5, 3})));
  const std::string still = net.summary();
  EXPECT_TRUE(contains(still, "module  type        parameters  bytes\n")) << still;
}

TEST(ModuleText, TheSummaryDisturbsNothing) {
  nn::Linear layer(2, 2);
  nn::Sequential net{layer, nn::Dropout{0.5}, layer};
  net.to(virt(0));
  const std::vector<int64_t> state = default_generator(virt(0)).state().to_vector<int64_t>();
  const std::string text = net.summary(Shape{1, 2});
  EXPECT_TRUE(contains(text, "shared")) << text;
  EXPECT_TRUE(contains(text, "6 parameters, 6 of them trained; 24 bytes")) << text;
  EXPECT_EQ(state, default_generator(virt(0)).state().to_vector<int64_t>());
  EXPECT_TRUE(net.training());
  EXPECT_TRUE(net(ones({1, 2}, f32, virt(0))).requires_grad());
}

TEST(ModuleCalls, AnEmptyBatchHasAResultOfItsShape) {
  const nn::Sequential net = mlp();
  EXPECT_EQ(Shape({0, 2}), net(ones({0, 3})).shape());
  const NDArray loss = nn::cross_entropy(net(ones({0, 3})), zeros({0}, i64), {.reduction = "sum"});
  loss.backward();
  EXPECT_EQ(std::vector<float>(8, 0.f), net.parameters().back().grad().to_vector<float>());
}

TEST(Sequentials, HoldAnyModules) {
  nn::Sequential net{{"hidden", nn::Linear{2, 3}}, {"act", nn::ReLU{}}};
  net.push_back(Block(3)).push_back("head", nn::Linear{3, 1});
  EXPECT_EQ(4, net.size());
  EXPECT_EQ("Block", net[-2]->type_name());
  EXPECT_EQ(3, net.at<nn::Linear>(0).out_features());
  EXPECT_EQ("2", net.children()[2].name);
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { net.at<Block>(0); }), "module 0 to be a Block, got a Linear"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { net[4]; }), "an index below the number of modules, 4, got 4"));
  EXPECT_THROW(net.push_back("act", nn::Tanh{}), InvalidArgument);
  const NDArray x = inputs({2, 2});
  const nn::Sequential front = net.slice(0, 2), back = net.slice(2, 4);
  EXPECT_EQ(content_of(net(x)), content_of(back(front(x))));
  EXPECT_THROW(net.slice(3, 2), InvalidArgument);
  EXPECT_EQ(content_of(x), content_of(nn::Sequential{}(x)));
  const nn::Sequential listed(std::vector<nn::AnyModule>{nn::Tanh{}, nn::Sequential{nn::Tanh{}}});
  EXPECT_EQ(content_of(tanh(tanh(x))), content_of(listed(x)));
}

TEST(Sequentials, APoolingBehindAReluGivesTheSameNumbersAndGradients) {
  const nn::ReLU relu;
  const nn::MaxPool2d pool{3, {.stride = 2, .padding = 1}};
  const nn::Sequential net{relu, pool};
  const NDArray x =
      round(inputs({2, 3, 9, 8}) * 2.f);  // many equal elements, and windows without positive ones
  const auto run = [&](const auto& f) {
    const NDArray leaf = x.clone().requires_grad_();
    const NDArray y = f(leaf);
    sum(y * y).backward();
    return std::pair{content_of(y), content_of(leaf.grad())};
  };
  const auto expected = run([&](const NDArray& v) { return pool(relu(v)); });
  EXPECT_EQ(expected, run(net));
  // A hook sees what the modules compute in their order.
  NDArray seen;
  nn::HookHandle hook = net[0]->register_forward_hook(
      [&](const nn::Module&, std::span<const NDArray>, std::vector<NDArray>& out) { seen = out[0]; });
  EXPECT_EQ(expected, run(net));
  EXPECT_EQ(x.shape(), seen.shape());
}

TEST(Sequentials, OfOneAreACopyAndPushBackNests) {
  const nn::Sequential inner{nn::Tanh{}};
  const nn::Sequential copy{inner};
  EXPECT_EQ(inner.identity(), copy.identity());
  nn::Sequential outer;
  outer.push_back(inner);
  EXPECT_NE(inner.identity(), outer.identity());
  EXPECT_EQ(inner.identity(), outer[0]->identity());
}

TEST(Residuals, AddWhatComesIn) {
  const nn::Linear body(3, 2), shortcut(3, 2);
  const nn::Linear square(3, 3);
  const NDArray x = inputs({4, 3});
  EXPECT_EQ(content_of(x + square(x)), content_of(nn::Residual(square)(x)));
  const nn::Residual both(body, shortcut);
  EXPECT_EQ(content_of(shortcut(x) + body(x)), content_of(both(x)));
  EXPECT_EQ((std::vector<std::string>{"body.weight", "body.bias", "shortcut.weight", "shortcut.bias"}),
            test::names(both.state_dict()));
  const nn::Residual copy = both.clone();
  {
    const NoGrad pause;
    NDArray(copy.parameter("body.weight")).fill_(0);
    NDArray(copy.parameter("body.bias")).fill_(0);
  }
  EXPECT_EQ(content_of(shortcut(x) + zeros({4, 2})), content_of(copy(x)));
}

TEST(Call, AnEmptyHookIsRefusedWhenItIsGiven) {
  nn::Linear layer(2, 2);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { layer.register_forward_hook(nullptr); }),
                       "[register_forward_hook] expected a function"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { layer.register_forward_pre_hook({}); }),
                       "[register_forward_pre_hook] expected a function"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { layer.apply({}); }), "[apply] expected a function"));
  error_of<InvalidArgument>([&] { nn::init::mixed(layer, {{"", {}}}); });
  layer(ones({1, 2}));
}

}  // namespace
}  // namespace mx
