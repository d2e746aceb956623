// Operators from user code: whatever the code does, the call gives results or errors of arrays.
#include "operators/custom.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/scratch.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

/// z = a * x + y, with an attribute of every kind.
struct Axpy : CustomOp {
  double a = 1;
  int64_t times = 1;
  bool negative = false;
  std::string label = "plain";
  template <class V>
  static void fields(V&& v) {
    v("a", &Axpy::a, "the factor of x");
    v("times", &Axpy::times, "how often x is added");
    v("negative", &Axpy::negative, "take x away instead");
    v("label", &Axpy::label, "for messages");
  }

  static Operator record() {
    return {.kernel = {"test_axpy"}, .doc = "a * x + y.", .inputs = {"x", "y"}, .in_place = bit_set(0, 1)};
  }
  void infer(InferContext& c) const {
    MX_CHECK(c.shape(0) == c.shape(1) && c.dtype(0) == f32 && c.dtype(1) == f32, InvalidArgument,
             "expected two arrays of f32 of the same shape");
    c.output(c.shape(0), f32);
  }
  void forward(const KernelArgs& args) const {
    const Tensor &x = args.in[0], &y = args.in[1], &z = args.out[0];
    MX_CHECK(label != "bad", NumericError, "a bad label");
    if (label == "int") throw 42;
    if (label == "std") throw std::out_of_range("far out");
    MX_CHECK(x.contiguous() && y.contiguous(), InvalidArgument, "expected contiguous tensors");
    const float factor = static_cast<float>(a * static_cast<double>(negative ? -times : times));
    for (int64_t i = 0; i < z.numel(); ++i) z.as<float>()[i] = factor * x.as<float>()[i] + y.as<float>()[i];
  }
  void gradient(GradientContext& g) const {
    g.set(0, g.head() * a);
    g.set(1, g.head());
  }
};

/// log(x + y), composed of other operators.
struct LogSum : CustomOp {
  int64_t fail = 0;
  template <class V>
  static void fields(V&& v) {
    v("fail", &LogSum::fail, "1: throw; 2: give a wrong shape; 3: give nothing; 4: fail inside");
  }
  static Operator record() {
    return {.kernel = {"test_log_sum"}, .doc = "log(a + b).", .inputs = {"a", "b"}};
  }
  void infer(InferContext& c) const {
    c.output(broadcast_shapes(c.shape(0), c.shape(1), c.name()), promote(c.dtype(0), c.dtype(1)));
  }
  std::vector<NDArray> compose(std::span<const NDArray> in) const {
    if (fail == 1) throw std::string("a string");
    if (fail == 2) return {in[0]};
    if (fail == 3) return {};
    if (fail == 4) return {in[0] + custom<Axpy>({in[1], in[1]}, {{"label", "std"}})};
    return {log(in[0] + in[1])};
  }
};

struct TwoOutputs : CustomOp {
  static Operator record() { return {.kernel = {"test_two"}, .inputs = {"x"}, .outputs = {"plus", "minus"}}; }
  void infer(InferContext& c) const {
    c.output(c.shape(0), c.dtype(0));
    c.output(c.shape(0), c.dtype(0));
  }
  std::vector<NDArray> compose(std::span<const NDArray> in) const { return {in[0] + 1.f, in[0] - 1.f}; }
};

TEST(Custom, RunsWithAttributesByName) {
  const NDArray x = array({1.f, 2.f}), y = array({10.f, 20.f});
  EXPECT_EQ((std::vector<float>{12, 24}), custom<Axpy>({x, y}, {{"a", 2.0}}).to_vector<float>());
  EXPECT_EQ((std::vector<float>{11, 22}), custom<Axpy>({x, y}).to_vector<float>());
  EXPECT_EQ((std::vector<float>{4, 8}),
            custom<Axpy>({x, y}, {{"a", 3}, {"times", 2}, {"negative", true}, {"label", "mine"}})
                .to_vector<float>());
  const NDArray large = ones({300, 300});
  EXPECT_EQ(3.f, custom<Axpy>({large, large}, {{"a", 2}})[7][9].item<float>());
}

TEST(Custom, WrongAttributesAndInputsThrowAtTheCall) {
  const NDArray x = array({1.f, 2.f});
  std::string message = error_of<InvalidArgument>([&] { custom<Axpy>({x, x}, {{"b", 2.0}}); });
  EXPECT_TRUE(contains(message, "test_axpy") && contains(message, "times")) << message;
  error_of<InvalidArgument>([&] { custom<Axpy>({x, x}, {{"a", "two"}}); });
  message = error_of<InvalidArgument>([&] { custom<Axpy>({x}); });
  EXPECT_TRUE(contains(message, "expected 2 inputs, got 1")) << message;
  message = error_of<InvalidArgument>([&] { custom<Axpy>({x, zeros({3})}); });
  EXPECT_TRUE(contains(message, "test_axpy") && contains(message, "f32 (3,)") &&
              contains(message, "custom_test.cc"))
      << message;
  error_of<InvalidArgument>([&] { custom<TwoOutputs>({x}); });
}

TEST(Custom, IsInTheRegistryWithTypedFields) {
  const Operator& op = register_custom<Axpy>();
  EXPECT_EQ(&op, find_operator("test_axpy"));
  EXPECT_EQ(&op, &register_custom<Axpy>());
  EXPECT_STREQ("custom", op.family);
  ASSERT_EQ(4u, op.attrs->fields().size());
  EXPECT_EQ("float", op.attrs->fields()[0].type);
  const NDArray x = array({1.f, 2.f});
  const std::vector<NDArray> inputs{x, x};
  const Attrs attrs = Attrs::from_map(op.attrs, {{"a", 4.0}}, op.name());
  EXPECT_EQ((std::vector<float>{5, 10}), call(op, attrs, inputs)[0].to_vector<float>());
  EXPECT_EQ(AttrValue(4.0), attrs.to_map().at("a"));
}

TEST(Custom, GradientIsDeclared) {
  const Operator& op = register_custom<Axpy>();
  ASSERT_NE(nullptr, op.gradient);
  const NDArray head[] = {array({1.f, 3.f})};
  const Attrs attrs = Attrs::from_map(op.attrs, {{"a", 2.0}}, op.name());
  EXPECT_EQ(kUsesAll, op.gradient_uses) << "what says nothing sees everything";
  const std::vector<NDArray> g = test::call_gradient(op, attrs, {head[0], head[0]}, {head[0]}, head);
  EXPECT_EQ((std::vector<float>{2, 6}), g[0].to_vector<float>());
  EXPECT_EQ(nullptr, register_custom<LogSum>().gradient);
}

TEST(Custom, ExceptionsOfAnyTypeBecomeErrorsOfTheArrays) {
  const NDArray x = array({1.f, 2.f});
  for (const char* label : {"bad", "int", "std"}) {
    const NDArray z = custom<Axpy>({x, x}, {{"label", label}});  // does not throw
    const NDArray after = z + 1.f;
    const std::string message = error_of<Error>([&] { z.wait(); });
    EXPECT_TRUE(contains(message, "test_axpy")) << message;
    if (label == std::string("std")) {
      EXPECT_TRUE(contains(message, "far out")) << message;
    }
    error_of<Error>([&] { after.to_vector<float>(); });
  }
  error_of<NumericError>([&] { custom<Axpy>({x, x}, {{"label", "bad"}}).wait(); });
  EXPECT_EQ(2.f, custom<Axpy>({x, x})[0].item<float>()) << "the inputs are as they were";
}

/// Its infer() forgets the output, which forward() would write.
struct Forgetful : CustomOp {
  static Operator record() { return {.kernel = {"test_forgetful"}, .doc = "No output.", .inputs = {"x"}}; }
  void infer(InferContext&) const {}
  void forward(const KernelArgs& args) const { args.out[0].as<float>()[0] = 1; }
};

TEST(Custom, AnOperatorThatDeclaresNoOutputIsRefusedBeforeItRuns) {
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { custom_all<Forgetful>({ones({2})}); }),
                       "[test_forgetful] expected an infer function that adds an output"));
}

TEST(Custom, CompositionsRunOnEveryDevice) {
  const NDArray a = array({1.f, 2.f}), b = array({{0.f}, {1.f}});
  const NDArray y = custom<LogSum>({a, b});
  EXPECT_EQ((Shape{2, 2}), y.shape());
  EXPECT_EQ(log(a + b).to_vector<float>(), y.to_vector<float>());
  const NDArray there = custom<LogSum>({a.to(virt(0)), b.to(virt(0))});
  EXPECT_EQ(virt(0), there.context());
  EXPECT_EQ(y.to_vector<float>(), there.to(cpu()).to_vector<float>());
  const std::vector<NDArray> two = custom_all<TwoOutputs>({a});
  EXPECT_EQ((std::vector<float>{0, 1}), two[1].to_vector<float>());
}

TEST(Custom, WhatGoesWrongInACompositionBelongsToItsOutputs) {
  const NDArray a = array({1.f, 2.f}), b = array({{0.f}, {1.f}});
  const char* const words[] = {"a string", "as infer() declares, got f32 (2,)", "got 0", "far out"};
  for (int64_t fail = 1; fail <= 4; ++fail) {
    if (fail == 4) continue;
    const NDArray y = custom<LogSum>({a, b}, {{"fail", fail}});
    EXPECT_EQ((Shape{2, 2}), y.shape());
    const std::string message = error_of<Error>([&] { y.wait(); });
    EXPECT_TRUE(contains(message, words[fail - 1])) << message;
    EXPECT_TRUE(contains(message, "test_log_sum")) << message;
  }
  const NDArray inner = custom<LogSum>({a, a}, {{"fail", 4}});
  EXPECT_TRUE(contains(error_of<Error>([&] { inner.wait(); }), "far out"));
  error_of<InvalidArgument>([&] { custom<LogSum>({a, zeros({3})}); });
}

TEST(Custom, WritesIntoExistingArrays) {
  NDArray x = array({1.f, 2.f});
  const NDArray y = array({1.f, 1.f});
  const NDArray inputs[] = {x, y};
  call_into(x, register_custom<Axpy>(), Attrs(Axpy()), inputs);
  EXPECT_EQ((std::vector<float>{2, 3}), x.to_vector<float>());
  call_into(x, register_custom<LogSum>(), Attrs(LogSum()), inputs);
  EXPECT_EQ(log(array({3.f, 4.f})).to_vector<float>(), x.to_vector<float>());
}

struct Taken : Axpy {
  static Operator record() { return {.kernel = {"add"}, .inputs = {"x", "y"}}; }
  template <class V>
  static void fields(V&&) {}
};

TEST(Custom, NamesThatAreTakenAreRefused) {
  for (int i = 0; i < 2; ++i) {
    const std::string message = error_of<InvalidArgument>([] { register_custom<Taken>(); });
    EXPECT_TRUE(contains(message, "'add'")) << message;
  }
}

}  // namespace
}  // namespace mx
