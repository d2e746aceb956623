// Results of all operators: the same bits on every device, in every mode, for every layout and in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/operators/registry_support.h"
#include "tests/support/engine_cases.h"

namespace mx {
namespace {

using test::Content;
using test::content_of;
using test::for_each_sample;
using test::for_each_typed_sample;
using test::is_updated;
using test::outcome;

TEST(RegistryResults, WhatIsInferredIsWhatComesOut) {
  for_each_typed_sample([](const Operator& op, const Sample& sample) {
    // Arrays without values, because inference must not read any.
    std::vector<NDArray> shells;
    std::vector<detail::ArrayImpl*> arrays;
    for (const NDArray& input : sample.inputs) shells.push_back(empty_like(input));
    for (const NDArray& shell : shells) arrays.push_back(&shell.impl());
    InferContext infer(op, arrays, sample.attrs);
    op.infer(infer);
    const std::vector<NDArray> outputs = [&] {
      std::vector<NDArray> inputs = sample.inputs;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (is_updated(op, i)) inputs[i] = inputs[i].clone();
      return call(op, sample.attrs, inputs);
    }();
    ASSERT_EQ(infer.outputs(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(infer.output_shape(i), outputs[i].shape());
      EXPECT_EQ(infer.output_dtype(i), outputs[i].dtype());
      outputs[i].wait();
    }
  });
}

TEST(RegistryResults, TheSameInputsGiveTheSameBits) {
  for_each_typed_sample([](const Operator& op, const Sample& sample) {
    EXPECT_EQ(outcome(op, sample.attrs, sample.inputs), outcome(op, sample.attrs, sample.inputs));
  });
}

TEST(RegistryResults, InputsStayAsTheyAreUnlessTheyAreUpdated) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    std::vector<NDArray> inputs;
    for (const NDArray& input : sample.inputs) inputs.push_back(input.clone());
    for (const NDArray& output : call(op, sample.attrs, inputs)) output.wait();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!is_updated(op, i)) {
        EXPECT_EQ(content_of(sample.inputs[i]), content_of(inputs[i])) << "input " << i;
      } else if (op.random) {
        EXPECT_NE(content_of(sample.inputs[i]), content_of(inputs[i])) << "the state " << i;
      }
    }
  });
}

TEST(RegistryResults, AVirtualDeviceGivesTheBitsOfTheCpu) {
  for_each_typed_sample([](const Operator& op, const Sample& sample) {
    if (sample.inputs.empty()) return;
    std::vector<NDArray> inputs;
    for (const NDArray& input : sample.inputs) inputs.push_back(input.to(virt(0)));
    EXPECT_EQ(outcome(op, sample.attrs, sample.inputs), outcome(op, sample.attrs, inputs));
  });
}

TEST(RegistryResults, EveryEngineGivesTheSameBits) {
  const auto all = [] {
    std::vector<std::vector<Content>> contents;
    for_each_typed_sample([&](const Operator& op, const Sample& sample) {
      contents.push_back(outcome(op, sample.attrs, sample.inputs));
    });
    return contents;
  };
  const std::vector<std::vector<Content>> expected = all();
  for (const test::EngineCase& c :
       {test::threaded_case(1), test::threaded_case(2), test::mode_case(EngineMode::naive, "naive"),
        test::mode_case(EngineMode::check, "check"), test::mode_case(EngineMode::fuzz, "fuzz", 7)}) {
    Engine engine(c.options);
    const EngineScope scope(engine);
    EXPECT_TRUE(expected == all()) << c.name;
  }
}

// The order of additions in a reduction depends on shape and strides, so another layout may round
// differently.
void expect_close(const Operator& op, const Attrs& attrs, const std::vector<NDArray>& plain,
                  const std::vector<NDArray>& laid_out) {
  const NDArray expected = call(op, attrs, plain).at(0), got = call(op, attrs, laid_out).at(0);
  ASSERT_EQ(expected.shape(), got.shape());
  const double tolerance = size_of(expected.dtype()) == 2 ? 2e-2 : 1e-5;
  const auto x = expected.to(f64).to_vector<double>(), y = got.to(f64).to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(x[i] == y[i] || std::abs(x[i] - y[i]) <= tolerance * std::abs(x[i]))
        << x[i] << " and " << y[i];
}

TEST(RegistryResults, LayoutsDoNotMatter) {
  for_each_typed_sample([](const Operator& op, const Sample& sample) {
    const size_t n = sample.inputs.size();
    for (const test::Layout layout : test::kAllLayouts) {
      // A broadcast layout changes the values.
      if ((op.sized_by_values || op.partial) && layout == test::Layout::broadcast) continue;
      // Change the layout of all inputs, then of each one alone.
      for (size_t only = 0; only <= (n > 1 ? n : 0); ++only) {
        std::vector<NDArray> inputs = sample.inputs, plain = sample.inputs;
        for (size_t i = 0; i < n; ++i) {
          if (is_updated(op, i) || (only > 0 && only != i + 1)) continue;
          inputs[i] = test::laid_out(sample.inputs[i], layout);
          plain[i] = inputs[i].clone();
        }
        if (std::string(op.family) == "reduction") {
          expect_close(op, sample.attrs, plain, inputs);
          continue;
        }
        EXPECT_EQ(outcome(op, sample.attrs, plain), outcome(op, sample.attrs, inputs))
            << "layout " << static_cast<int>(layout) << " of "
            << (only == 0 ? "all inputs" : "input " + std::to_string(only - 1));
      }
    }
  });
}

TEST(RegistryResults, DimensionsOfSizeZeroGiveAResultOrAnError) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    std::set<int64_t> sizes;
    for (const NDArray& input : sample.inputs) sizes.insert(input.shape().begin(), input.shape().end());
    for (int64_t size : sizes) {
      std::vector<NDArray> inputs = sample.inputs;
      for (size_t i = 0; i < inputs.size(); ++i)
        for (int d = 0; d < inputs[i].rank() && !is_updated(op, i); ++d)
          if (inputs[i].shape()[d] == size) inputs[i] = inputs[i].slice(d, Slice{0, 0});
      try {
        outcome(op, sample.attrs, inputs);
      } catch (const InvalidArgument& e) {
        EXPECT_TRUE(test::contains(e.what(), op.name())) << e.what();
      }
    }
  });
}

TEST(RegistryResults, InPlaceGivesTheBitsOfOutOfPlace) {
  for_each_typed_sample([](const Operator& op, const Sample& sample) {
    const std::vector<Content> expected = outcome(op, sample.attrs, sample.inputs);
    const size_t updated = static_cast<size_t>(__builtin_popcountll(op.updates));
    if (expected.size() != 1 + updated) return;  // skips operators with several outputs
    for (size_t i = 0; i < sample.inputs.size() && i < 64; ++i) {
      if (!has_bit(op.in_place, i)) continue;
      if (sample.inputs[i].shape() != expected[0].shape || sample.inputs[i].dtype() != expected[0].dtype)
        continue;
      for (const test::Layout layout : {test::Layout::reversed, test::Layout::stepped}) {
        for (const Context context : {cpu(), virt(1)}) {
          std::vector<NDArray> inputs;
          for (size_t k = 0; k < sample.inputs.size(); ++k) {
            const NDArray moved = sample.inputs[k].to(context);
            inputs.push_back(is_updated(op, k) ? moved.clone() : moved);
          }
          NDArray target = test::laid_out(inputs[i], layout);
          inputs[i] = target;
          call_into(target, op, sample.attrs, inputs);
          EXPECT_EQ(expected[0], content_of(target)) << "into input " << i;
        }
      }
    }
  });
}

TEST(RegistryResults, IntoAnArrayThatOverlapsAnInputIsAsIfCopiedFirst) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    const std::vector<Content> expected = outcome(op, sample.attrs, sample.inputs);
    const size_t updated = static_cast<size_t>(__builtin_popcountll(op.updates));
    if (expected.size() != 1 + updated) return;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      const NDArray& input = sample.inputs[i];
      if (is_updated(op, i) || input.rank() == 0 || input.dtype() != expected[0].dtype) continue;
      // Both in one memory: the input begins at the first element, the result one element later.
      const int64_t size = std::max(input.numel(), expected[0].shape.numel()) + 1;
      const NDArray memory = zeros({size}, input.dtype());
      const auto part = [&](const Shape& shape, int64_t from) {
        return memory[{Slice{from, from + shape.numel()}}].reshape(shape);
      };
      std::vector<NDArray> inputs = sample.inputs;
      for (size_t k = 0; k < inputs.size(); ++k)
        if (is_updated(op, k)) inputs[k] = inputs[k].clone();
      inputs[i] = part(input.shape(), 0);
      inputs[i].copy_from(input);
      NDArray target = part(expected[0].shape, 1);
      call_into(target, op, sample.attrs, inputs);
      EXPECT_EQ(expected[0], content_of(target)) << "input " << i;
    }
  });
}

TEST(RegistryResults, ElementwiseOperatorsKeepTheBroadcastShape) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    if (!op.elementwise) return;
    Shape together;
    for (const NDArray& input : sample.inputs)
      together = broadcast_shapes(together, input.shape(), op.name());
    EXPECT_EQ(together, outcome(op, sample.attrs, sample.inputs)[0].shape);
  });
}

}  // namespace
}  // namespace mx
