// Properties of the gradients of all operators, over the samples in their records.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "engine/engine.h"
#include "operators/operators.h"
#include "operators/samples/samples.h"
#include "tests/operators/gradient_support.h"
#include "tests/support/processors.h"

namespace mx {
namespace {

using test::any_floating;
using test::Arrays;
using test::content_of;
using test::floating_inputs;
using test::for_each_differentiable;
using test::for_each_sample;
using test::gradients_of;
using test::heads_for;
using test::values_of;
using test::with_floats;

TEST(Gradient, AgreesWithFiniteDifferences) {
  int samples = 0;
  for_each_differentiable([&](const Operator& op, const Sample& sample) {
    test::expect_gradients(op, sample);
    ++samples;
  });
  EXPECT_GT(samples, 300);
}

// Each operand in turn has size 1 in one dimension, or in all.
TEST(Gradient, OfBroadcastOperandsAgreesWithFiniteDifferences) {
  for_each_differentiable([](const Operator& op, const Sample& sample) {
    if (!op.elementwise || sample.inputs.size() < 2) return;
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      for (int d = 0; d <= sample.inputs[i].rank(); ++d) {
        Sample narrow = sample;
        NDArray& input = narrow.inputs[i];
        if (d == input.rank()) {
          while (input.rank() > 0) input = input.select(0, input.shape()[0] - 1);
        } else {
          input = input.slice(d, Slice{0, 1});
        }
        SCOPED_TRACE(test::label(op, narrow));
        // Broadcasting makes operands equal or puts them on a jump, where finite differences fail. So shift
        // them apart.
        const std::string name = op.name();
        if (name == "maximum" || name == "minimum" || name == "fmax" || name == "fmin" || name == "mod" ||
            name == "fmod" || name == "floor_div" || name == "clamp")
          narrow.inputs[i] = narrow.inputs[i] + 0.0625f * static_cast<float>(i + 1);
        test::expect_gradients(op, narrow);
      }
  });
}

// Returns values so unusual that a gradient that reads them gives a wrong result.
NDArray garbage(const NDArray& like) {
  if (is_floating(like.dtype())) return full(like.shape(), std::nan(""), like.dtype());
  if (like.dtype() == bool_) return logical_not(like);
  return full(like.shape(), 100, like.dtype());
}

// A gradient reads only the values that its record lists, because only those are kept: see OperatorNode.
TEST(Gradient, LooksAtNothingButWhatTheRecordSays) {
  for_each_differentiable([](const Operator& op, const Sample& sample) {
    const Arrays outputs = call(op, sample.attrs, sample.inputs), heads = heads_for(outputs);
    const std::vector<uint8_t> all = floating_inputs(sample.inputs);
    const Arrays expected = gradients_of(op, sample.attrs, sample.inputs, outputs, heads, all);
    const GradientUses uses = op.uses(sample.attrs);
    // Ask for all gradients, then for each one alone.
    for (size_t only = 0; only <= all.size(); ++only) {
      if (only > 0 && all[only - 1] == 0) continue;
      std::vector<uint8_t> wanted = all;
      if (only > 0) {
        std::fill(wanted.begin(), wanted.end(), uint8_t{0});
        wanted[only - 1] = 1;
      }
      Arrays inputs = sample.inputs, results = outputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!uses.reads_input(i, wanted.size(), [&](size_t k) { return wanted[k] != 0; }))
          inputs[i] = garbage(inputs[i]);
      }
      for (size_t i = 0; i < results.size(); ++i)
        if (!has_bit(uses.outputs, i)) results[i] = garbage(results[i]);
      const Arrays got = gradients_of(op, sample.attrs, inputs, results, heads, wanted);
      for (size_t i = 0; i < got.size(); ++i) {
        if (wanted[i] == 0) continue;
        ASSERT_EQ(expected[i].defined(), got[i].defined()) << "input " << i << ", asked for " << only;
        if (!got[i].defined()) continue;
        EXPECT_EQ(content_of(expected[i]), content_of(got[i])) << "input " << i << ", asked for " << only;
      }
    }
  });
}

TEST(Gradient, HasTheShapeAndTypeOfItsInputInEveryType) {
  for (DType dtype : {f32, f64, f16, bf16})
    for_each_differentiable([&](const Operator& op, const Sample& sample) {
      if (!test::takes(op, dtype)) return;
      const Sample typed = with_floats(sample, dtype);
      const Arrays gradients = gradients_of(op, typed);
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (!gradients[i].defined()) continue;
        EXPECT_EQ(typed.inputs[i].shape(), gradients[i].shape()) << dtype;
        EXPECT_EQ(typed.inputs[i].dtype(), gradients[i].dtype());
        gradients[i].wait();
      }
    });
}

// With operands of different types, each gradient has the type of its own operand.
TEST(Gradient, OfMixedTypesHasTheTypeOfEachInput) {
  for_each_differentiable([](const Operator& op, const Sample& sample) {
    if (!op.elementwise || sample.inputs.size() < 2) return;
    Sample mixed = sample;
    mixed.inputs.back() = mixed.inputs.back().to(f64);
    const Arrays gradients = gradients_of(op, mixed), plain = gradients_of(op, with_floats(sample, f64));
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      EXPECT_EQ(mixed.inputs[i].dtype(), gradients[i].dtype());
      test::expect_near(plain[i].to_vector<double>(), gradients[i].to_vector<double>(), 1e-5, "mixed types");
    }
  });
}

TEST(Gradient, IsCloseInFloat32) {
  for_each_differentiable([](const Operator& op, const Sample& sample) {
    const Sample narrow = with_floats(sample, f32), wide = with_floats(narrow, f64);
    const Arrays expected = gradients_of(op, wide), got = gradients_of(op, narrow);
    for (size_t i = 0; i < got.size(); ++i)
      test::expect_near(values_of(expected[i], wide.inputs[i]), values_of(got[i], narrow.inputs[i]), 2e-5,
                        "input " + std::to_string(i));
  });
}

TEST(Gradient, OnAVirtualDeviceHasTheBitsOfTheCpu) {
  for_each_differentiable([](const Operator& op, const Sample& sample) {
    Sample there = sample;
    for (NDArray& input : there.inputs) input = input.to(virt(0));
    const Arrays expected = gradients_of(op, sample), got = gradients_of(op, there);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(expected[i].defined(), got[i].defined());
      if (!got[i].defined()) continue;
      EXPECT_EQ(virt(0), got[i].context());
      EXPECT_EQ(content_of(expected[i]), content_of(got[i])) << "input " << i;
    }
  });
}

TEST(Gradient, OfArraysWithoutElementsHasNone) {
  for_each_differentiable([](const Operator& op, const Sample& sample) {
    std::set<int64_t> sizes;
    for (const NDArray& input : sample.inputs) sizes.insert(input.shape().begin(), input.shape().end());
    for (int64_t size : sizes) {
      Sample empty_one = sample;
      for (NDArray& input : empty_one.inputs)
        for (int d = 0; d < input.rank(); ++d)
          if (input.shape()[d] == size) input = input.slice(d, Slice{0, 0});
      try {
        for (const NDArray& output : call(op, empty_one.attrs, empty_one.inputs)) output.wait();
      } catch (const InvalidArgument&) {
        continue;
      }
      const Arrays gradients = gradients_of(op, empty_one);
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (!gradients[i].defined()) continue;
        EXPECT_EQ(empty_one.inputs[i].shape(), gradients[i].shape()) << "size " << size;
        gradients[i].wait();
      }
    }
  });
}

// The number of operations on large arrays that each gradient needs, for the operators that dominate
// training. Small operations run in the calling thread and are not counted.
TEST(Gradient, OfWhatIsFrequentIsFewOperations) {
  if (!test::larger_operations_are_pushed()) GTEST_SKIP() << "one processor";
  Engine engine(test::options_for_counting());
  const EngineScope scope(engine);
  const Shape shape{300, 400};
  const NDArray x = full(shape, 0.5), row = full({400}, 0.25), w = full({300, 400}, 0.01),
                bias = full({300}, 1), key = array<int64_t>({7, 3}), labels = zeros({300}, i64),
                words = zeros({70, 80}, i64);
  const auto attrs = [](const char* name, const AttrMap& map) {
    return Attrs::from_map(find_operator(name)->attrs, map, name);
  };
  struct Case {
    const char* name;
    Arrays inputs;
    Attrs attrs;
    uint64_t operations;
  };
  const std::vector<Case> cases = {
      {"add", {x, x}, {}, 0},
      {"add", {x, row}, {}, 1},
      {"sub", {x, x}, {}, 1},
      {"sub", {x, row}, {}, 2},
      {"mul", {x, x}, {}, 2},
      {"mul", {x, row}, {}, 3},
      {"div", {x, x}, {}, 3},
      {"exp", {x}, {}, 1},
      {"log", {x}, {}, 1},
      {"square", {x}, {}, 2},
      {"relu", {x}, {}, 1},
      {"tanh", {x}, {}, 1},
      {"sigmoid", {x}, {}, 1},
      {"silu", {x}, {}, 1},
      {"gelu", {x}, {}, 1},
      {"gelu_tanh", {x}, {}, 1},
      {"sum", {x}, TotalAttrs{}, 0},
      {"sum", {x}, TotalAttrs{{0}}, 0},
      {"mean", {x}, TotalAttrs{}, 0},
      {"softmax", {x}, SoftmaxAttrs{}, 1},
      {"log_softmax", {x}, SoftmaxAttrs{}, 1},
      {"matmul", {x, w.transpose()}, {}, 2},
      {"linear", {x, w, bias}, {}, 3},
      {"linear", {x.reshape({3, 100, 400}), w, bias}, {}, 3},
      {"cross_entropy", {x, labels}, CrossEntropyAttrs{}, 1},
      {"nll_loss", {x, labels}, NllAttrs{}, 1},
      {"where", {x > 0, x, x}, {}, 2},
      {"embedding", {x, words}, attrs("embedding", {}), 1},
      {"dropout", {x, key}, attrs("dropout", {{"p", 0.5}}), 2},
      {"concat", {x, x}, attrs("concat", {}), 0},
      {"split", {x}, attrs("split", {{"sizes", std::vector<int64_t>{100, 200}}}), 1},
      {"pad", {x}, attrs("pad", {{"widths", std::vector<int64_t>{1, 1, 2, 2}}}), 0},
  };
  for (const Case& c : cases) {
    const Operator& op = *find_operator(c.name);
    const Arrays outputs = call(op, c.attrs, c.inputs), heads = heads_for(outputs);
    // A push deletes an array after its last operation and may come while the test counts, so it takes the
    // minimum.
    uint64_t fewest = UINT64_MAX;
    for (int i = 0; i < 20 && fewest > c.operations; ++i) {
      engine.wait_all();
      const uint64_t before = engine.stats().pushed;
      const Arrays gradients = gradients_of(op, c.attrs, c.inputs, outputs, heads, floating_inputs(c.inputs));
      fewest = std::min(fewest, engine.stats().pushed - before);
    }
    EXPECT_EQ(c.operations, fewest) << c.name << " of " << c.inputs[0].shape();
    engine.wait_all();
  }
}

// If a record has no gradient, this must be a deliberate decision.
TEST(Gradient, IsThereForAllOperatorsWithFloatingResultsBut) {
  const std::map<std::string, std::string> reasons = {
      {"nextafter", "a step in the numbers of a type is no function of real numbers"},
      {"nextafter_scalar", "a step in the numbers of a type is no function of real numbers"},
      {"attention_backward", "gradients of gradients are computed by other operators"},
      {"attention_dropout_backward", "gradients of gradients are computed by other operators"},
      {"attention_packed_backward", "gradients of gradients are computed by other operators"},
      {"distance_backward", "gradients of gradients are computed by other operators"},
      {"rnn_backward", "gradients of gradients are computed by other operators"},
      {"lstm_backward", "gradients of gradients are computed by other operators"},
      {"gru_backward", "gradients of gradients are computed by other operators"},
      {"rnn_inference", "runs only if no gradient is wanted"},
      {"lstm_inference", "runs only if no gradient is wanted"},
      {"gru_inference", "runs only if no gradient is wanted"},
      {"unique", "how many results there are depends on the values"},
      {"one_hot", "of indices"},
      {"ctc_loss_backward", "second derivatives of the sum over alignments are rarely needed"},
      {"uniform", "of a key"},
      {"normal", "of a key"},
      {"bernoulli", "of a key"},
      {"exponential", "of a key"},
      {"gamma", "of a key"},
  };
  std::set<std::string> without;
  for (const Operator* op : all_operators()) {
    if (!has_samples(*op) || op->gradient != nullptr || op->compose != nullptr) continue;
    if (op->updates != 0) continue;
    for (const Sample& sample : samples_of(*op))
      if (any_floating(call(*op, sample.attrs, sample.inputs))) without.insert(op->name());
  }
  for (const std::string& name : without) EXPECT_TRUE(reasons.contains(name)) << name << " has no gradient";
  for (const auto& [name, reason] : reasons)
    EXPECT_TRUE(without.contains(name)) << name << " has a gradient, or no results of floating point";
}

TEST(Gradient, OfEveryOperatorHasASampleWithADerivative) {
  for (const Operator* op : all_operators()) {
    if (op->gradient == nullptr || op->random) continue;
    const std::vector<Sample> samples = samples_of(*op);
    const bool some =
        std::any_of(samples.begin(), samples.end(), [](const Sample& s) { return s.differentiable; });
    EXPECT_TRUE(some || std::string(op->name()) == "bernoulli_of") << op->name();
  }
}

}  // namespace
}  // namespace mx
