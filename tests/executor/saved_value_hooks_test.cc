// SavedValueHooks: what operations save is kept as the program chooses, and read when a gradient needs it.
#include "executor/autograd/saved_value_hooks.h"

#include <gtest/gtest.h>

#include <any>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/checkpoint.h"
#include "ndarray/grad_mode.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
#include "tests/support/live_memory.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::expect_error;

/// Keeps values under numbers in a table, as a program would keep them in files.
struct Shelf {
  std::map<int, std::vector<double>> kept;
  std::vector<Shape> shapes;
  int packed = 0, unpacked = 0;

  PackValue pack() {
    return [this](const NDArray& value) -> std::any {
      kept[packed] = value.to_vector<double>();
      shapes.push_back(value.shape());
      return packed++;
    };
  }
  UnpackValue unpack() {
    return [this](const std::any& number) {
      ++unpacked;
      const int i = std::any_cast<int>(number);
      return array(kept.at(i)).reshape(shapes.at(static_cast<size_t>(i)));
    };
  }
};

NDArray value_program(const NDArray& x, const NDArray& w) {
  return sum(exp(tanh(matmul(x, w))) * sin(x[0].sum()));
}

TEST(SavedValueHooks, GradientsOfAnyOrderHaveTheSameBits) {
  const NDArray x = test::some({3, 4}, 1).requires_grad_(), w = test::some({4, 2}, 2).requires_grad_();
  const auto both = [&] {
    const NDArray y = value_program(x, w);
    const NDArray g = gradients({y}, {w}, {.create_graph = true})[0];
    const NDArray second = gradients({sum(g * g)}, {x})[0];
    return std::vector<std::vector<double>>{y.to_vector<double>(), g.to_vector<double>(),
                                            second.to_vector<double>()};
  };
  const auto expected = both();
  for (const bool leaves : {false, true}) {
    Shelf shelf;
    const SavedValueHooks scope(shelf.pack(), shelf.unpack(), {.leaves = leaves});
    EXPECT_EQ(expected, both());
    EXPECT_GT(shelf.packed, 5);
    EXPECT_GT(shelf.unpacked, 5);
  }
}

TEST(SavedValueHooks, GetEachValueThatIsSavedOnceAndNoLeaves) {
  const NDArray x = test::some({3}, 1), w = test::some({3}, 2).requires_grad_();
  const auto count = [&](bool leaves) {
    Shelf shelf;
    NDArray loss;
    {
      const SavedValueHooks scope(shelf.pack(), shelf.unpack(), {.leaves = leaves});
      const NDArray h = w * x;   // saves x, a constant
      const NDArray e = exp(h);  // saves e
      loss = sum(e * w);         // saves e and w
    }
    loss.backward({}, {.retain_graph = true});
    EXPECT_EQ(shelf.packed, shelf.unpacked);
    loss.backward();
    EXPECT_EQ(2 * shelf.packed, shelf.unpacked);
    return shelf.packed;
  };
  EXPECT_EQ(3, count(false));
  EXPECT_EQ(4, count(true));
}

TEST(SavedValueHooks, MayKeepLessThanTheValues) {
  constexpr size_t kElements = 1 << 16;
  const NDArray x = full({kElements}, 1.001).to(f32), w = ones({kElements}).requires_grad_();
  const size_t before = test::settled_bytes();
  NDArray loss;
  {
    const SavedValueHooks scope([](const NDArray& value) -> std::any { return value.to(bf16); },
                                [](const std::any& kept) { return std::any_cast<NDArray>(kept).to(f32); });
    loss = sum(square(w * (x * 1)));
  }
  EXPECT_TRUE(test::comes_down_to(before + 2 * kElements * 2 + 4096))
      << "two values in bf16, got " << test::live_bytes() - before;
  loss.backward();
  EXPECT_EQ(2.f, w.grad()[0].item<float>()) << "bf16 rounds 1.001 to 1";
}

TEST(SavedValueHooks, RunWithoutRecordingAndTheInnermostScopeCounts) {
  const NDArray w = test::some({2}, 1).requires_grad_();
  Shelf outer, inner;
  const SavedValueHooks scope(outer.pack(), outer.unpack());
  const NDArray first = exp(w);
  EXPECT_EQ(1, outer.packed);
  {
    bool recorded = true;
    const SavedValueHooks nested(
        [&](const NDArray& value) -> std::any {
          recorded = value.requires_grad() || grad_enabled();
          return exp(value * value);  // would be packed, too, if hooks applied here
        },
        [](const std::any& kept) { return sqrt(log(std::any_cast<NDArray>(kept))); });
    const NDArray y = exp(w);
    EXPECT_FALSE(recorded);
    EXPECT_EQ(1, outer.packed);
    test::expect_close(exp(w).to_vector<double>(),
                       gradients({y}, {w}, {.heads = {ones({2}, f64)}})[0].to_vector<double>(), 1e-12,
                       "gradient");
  }
  const NDArray second = exp(w);
  EXPECT_EQ(2, outer.packed);
}

TEST(SavedValueHooks, ErrorsNameTheCallAndLeaveTheGraphUsable) {
  const NDArray w = test::some({2}, 1).requires_grad_();
  bool fails = false;
  NDArray before = w * 2, loss;
  const auto pack = [&](const NDArray& value) -> std::any {
    if (fails) throw std::runtime_error("disk full");
    return value;
  };
  const auto unpack = [&](const std::any& kept) {
    if (fails) throw InvalidState("no such file");
    return std::any_cast<NDArray>(kept);
  };
  {
    const SavedValueHooks scope(pack, unpack);
    loss = sum(exp(before));
    fails = true;
    std::string message;
    try {
      exp(before);
    } catch (const std::exception& e) {
      message = e.what();
    }
    EXPECT_TRUE(contains(message, "disk full")) << message;
    EXPECT_TRUE(contains(message, "output 0 of [exp]")) << message;
    EXPECT_TRUE(contains(message, "saved_value_hooks_test.cc")) << message;
  }
  const std::string message = error_of<InvalidState>([&] { loss.backward({}, {.retain_graph = true}); });
  EXPECT_TRUE(
      contains(message, "no such file (in unpack() of SavedValueHooks, for output 0 of [exp], called at"))
      << message;
  EXPECT_FALSE(w.grad().defined());
  expect_error<InvalidState>("no such file", [&] { loss.backward(); });
  fails = false;
  loss.backward();  // the node of exp has its value again
  EXPECT_EQ((exp(before) * 2).to_vector<double>(), w.grad().to_vector<double>());
}

TEST(SavedValueHooks, RefuseAnotherShapeOrTypeThanTheValues) {
  const NDArray w = test::some({2}, 1).requires_grad_();
  for (const NDArray& wrong : {ones({3}, f64), ones({2}, f32), NDArray()}) {
    const SavedValueHooks scope([](const NDArray&) -> std::any { return 0; },
                                [&](const std::any&) { return wrong; });
    expect_error<InvalidArgument>("[SavedValueHooks] expected an array of", [&] { sum(exp(w)).backward(); });
  }
  expect_error<InvalidArgument>("saved_value_hooks_test.cc", [] { SavedValueHooks scope({}, {}); });
  EXPECT_EQ(nullptr, detail::saved_value_functions);
}

TEST(SavedValueHooks, ServeFunctionsAndCheckpointsAndOtherThreads) {
  struct Product : Function {
    std::vector<NDArray> forward(std::span<const NDArray> in) override {
      save({in[0], in[1], in[0][0]});
      return {in[0] * in[1]};
    }
    std::vector<NDArray> backward(std::span<const NDArray> heads) override {
      return {heads[0] * saved(1), heads[0] * saved(0)};
    }
  };
  const NDArray a = test::some({3}, 1).requires_grad_(), b = test::some({3}, 2).requires_grad_();
  Shelf shelf;
  NDArray y, c;
  {
    const SavedValueHooks scope(shelf.pack(), shelf.unpack());
    y = apply<Product>({a * 2, b * 3})[0];
    EXPECT_EQ(2, shelf.packed) << "the view is kept as it is";
    c = checkpoint([&](const NDArray& x) { return exp(sin(x)); }, a);
    EXPECT_EQ(2, shelf.packed) << "what a checkpoint drops need not be packed";
  }
  std::thread([&] {
    const NDArray g = gradients({y}, {a}, {.heads = {ones({3}, f64)}, .create_graph = true})[0];
    EXPECT_EQ((b * 6).to_vector<double>(), g.to_vector<double>());
    const NDArray mixed = gradients({sum(g)}, {b})[0];
    EXPECT_EQ(std::vector<double>(3, 6), mixed.to_vector<double>());
    EXPECT_EQ(nullptr, detail::saved_value_functions);
  }).join();
  sum(c).backward();
  EXPECT_EQ((exp(sin(a)) * cos(a)).to_vector<double>(), a.grad().to_vector<double>());
}

}  // namespace
}  // namespace mx
