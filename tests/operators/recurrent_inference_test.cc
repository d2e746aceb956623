// Recurrent layers without recorded gradients: the bits of the operators that store everything, and memory
// that does not grow with the sequence.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/device/registry.h"
#include "operators/operators.h"
#include "operators/recurrent.h"
#include "tests/operators/values.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Values;

struct LayerCase {
  std::string name;  // rnn, lstm, gru
  int64_t steps, batch, inputs, hidden;
  DType type = f32;
  bool bias = true, reverse = false;
  std::vector<int64_t> sizes = {};  // of a packed sequence

  int64_t gates() const { return name == "rnn" ? 1 : name == "gru" ? 3 : 4; }
};

struct LayerOperands {
  NDArray x, h0, c0;
  RecurrentWeights w;
};

LayerOperands layer_operands(const LayerCase& c) {
  int64_t rows = 0;
  for (const int64_t size : c.sizes) rows += size;
  const Shape x = c.sizes.empty() ? Shape{c.steps, c.batch, c.inputs} : Shape{rows, c.inputs};
  const auto made = [&](const Shape& shape, int seed) {
    return (test::numbers(shape, f64, seed) / std::sqrt(static_cast<double>(c.hidden))).to(c.type);
  };
  const int64_t width = c.gates() * c.hidden;
  LayerOperands in{made(x, 1), made({c.batch, c.hidden}, 2), made({c.batch, c.hidden}, 3), {}};
  in.w = {made({width, c.inputs}, 4), made({width, c.hidden}, 5), {}, {}};
  if (c.bias) in.w.b_ih = made({width}, 6), in.w.b_hh = made({width}, 7);
  return in;
}

RecurrentResult inference_of(const LayerCase& c, const LayerOperands& in) {
  if (c.name == "rnn") return rnn(in.x, in.w, in.h0, {.reverse = c.reverse, .batch_sizes = c.sizes});
  const RecurrentOptions options{c.reverse, c.sizes};
  return c.name == "gru" ? gru(in.x, in.w, in.h0, options) : lstm(in.x, in.w, in.h0, in.c0, options);
}

/// The operators that store everything: y, and for lstm the cells of all steps.
std::vector<NDArray> stored_of(const LayerCase& c, const LayerOperands& in) {
  NDArray bias;
  if (c.bias) bias = c.name == "gru" ? in.w.b_ih : in.w.b_ih + in.w.b_hh;
  std::vector<NDArray> inputs{c.bias ? linear(in.x, in.w.w_ih, bias) : linear(in.x, in.w.w_ih), in.w.w_hh,
                              in.h0};
  if (c.name == "lstm") inputs.push_back(in.c0);
  if (c.name == "gru" && c.bias) inputs.push_back(in.w.b_hh);
  Attrs attrs = RecurrentAttrs{.reverse = c.reverse, .batch_sizes = c.sizes};
  if (c.name == "rnn") attrs = RnnAttrs{.reverse = c.reverse, .batch_sizes = c.sizes};
  return call(*find_operator(c.name), attrs, inputs);
}

/// The cells after each sample's last step.
Values last_cells(const LayerCase& c, const NDArray& cells) {
  Values result;
  for (int64_t b = 0; b < c.batch; ++b) {
    int64_t row = 0, last = 0;
    for (int64_t t = 0; t < c.steps; ++t) {
      const int64_t size = c.sizes.empty() ? c.batch : c.sizes[static_cast<size_t>(t)];
      if (b < size && (!c.reverse || t == 0)) last = row + b;
      row += size;
    }
    const Values one = test::values(cells.reshape({-1, c.hidden})[last]);
    result.insert(result.end(), one.begin(), one.end());
  }
  return result;
}

void expect_bits_of_stored(const LayerCase& c, const LayerOperands& in) {
  const std::string what = c.name + " of " + std::to_string(c.hidden) + ", batch " + std::to_string(c.batch) +
                           ", " + std::to_string(c.steps) + " steps" + (c.reverse ? ", reverse" : "");
  const RecurrentResult got = inference_of(c, in);
  const std::vector<NDArray> want = stored_of(c, in);
  EXPECT_EQ(test::values(want[0]), test::values(got.y)) << what;
  if (c.name != "lstm") return;
  EXPECT_EQ(got.c_n.dtype(), c.type);
  EXPECT_EQ(last_cells(c, want[1].to(c.type)), test::values(got.c_n)) << what;
}

TEST(RecurrentInference, HasTheBitsOfTheOperatorsThatStoreEverything) {
  for (const char* name : {"rnn", "lstm", "gru"})
    for (const DType type : {f32, f64, f16, bf16})
      for (const bool reverse : {false, true}) {
        for (const LayerCase& c :
             {LayerCase{name, 5, 3, 2, 7}, LayerCase{name, 1, 1, 1, 1}, LayerCase{name, 3, 17, 33, 40},
              LayerCase{name, 2, 2, 600, 9}, LayerCase{name, 4, 1, 64, 16}}) {
          LayerCase one = c;
          one.type = type;
          one.reverse = reverse;
          expect_bits_of_stored(one, layer_operands(one));
          one.bias = false;
          expect_bits_of_stored(one, layer_operands(one));
        }
      }
}

// Sequences of several groups of steps, the last of which is shorter.
TEST(RecurrentInference, HasTheSameBitsForLongSequences) {
  for (const char* name : {"rnn", "lstm", "gru"})
    for (const DType type : {f32, bf16})
      for (const bool reverse : {false, true}) {
        expect_bits_of_stored({name, 67, 30, 5, 96, type, true, reverse},
                              layer_operands({name, 67, 30, 5, 96, type, true, reverse}));
        // Steps that alone have more rows than a group.
        const LayerCase wide{name, 3, 700, 3, 200, type, true, reverse};
        expect_bits_of_stored(wide, layer_operands(wide));
      }
}

TEST(RecurrentInference, HasTheSameBitsForPackedSequences) {
  std::vector<int64_t> sizes;
  for (int64_t t = 0; t < 60; ++t) sizes.push_back(60 - t);
  for (const char* name : {"rnn", "lstm", "gru"})
    for (const bool reverse : {false, true})
      for (const int64_t hidden : {5, 130}) {
        const LayerCase c{name, 60, 60, 6, hidden, f32, true, reverse, sizes};
        expect_bits_of_stored(c, layer_operands(c));
      }
}

TEST(RecurrentInference, TakesTurnedInputsAndWeights) {
  for (const char* name : {"rnn", "lstm", "gru"}) {
    const LayerCase c{name, 80, 40, 8, 70};
    LayerOperands in = layer_operands(c);
    for (NDArray* turned : {&in.w.w_ih, &in.w.w_hh, &in.h0, &in.c0})
      *turned = turned->swap_axes(0, 1).clone().swap_axes(0, 1);
    in.x = in.x.swap_axes(0, 1).clone().swap_axes(0, 1);
    expect_bits_of_stored(c, in);
  }
}

TEST(RecurrentInference, HasTheSameBitsAtAnyNumberOfThreads) {
  for (const char* name : {"rnn", "lstm", "gru"}) {
    const LayerCase c{name, 40, 65, 50, 80};
    const LayerOperands in = layer_operands(c);
    Values one, four;
    test::with_threads(1, [&] { one = test::values(inference_of(c, in).y); });
    test::with_threads(4, [&] { four = test::values(inference_of(c, in).y); });
    EXPECT_EQ(one, four) << name;
  }
}

/// The bytes that a pass needs beside its result y.
int64_t bytes_beside_result(const LayerCase& c) {
  const LayerOperands in = layer_operands(c);
  for (const NDArray& array : {in.x, in.h0, in.c0, in.w.w_ih, in.w.w_hh, in.w.b_ih, in.w.b_hh}) array.wait();
  Device& device = get_device(cpu());
  device.reset_peak_memory();
  const size_t before = device.memory_stats().in_use_bytes;
  const NDArray y = inference_of(c, in).y;
  y.wait();
  const auto grown = static_cast<int64_t>(device.memory_stats().peak_in_use_bytes - before);
  return grown - y.numel() * static_cast<int64_t>(size_of(c.type));
}

TEST(RecurrentInference, MemoryDoesNotGrowWithTheSteps) {
  for (const char* name : {"rnn", "lstm", "gru"})
    for (const DType type : {f32, bf16}) {
      const int64_t few = bytes_beside_result({name, 512, 8, 4, 64, type}),
                    many = bytes_beside_result({name, 4096, 8, 4, 64, type});
      // The activations of 4096 steps would be 33 MB, of f32 for either type.
      EXPECT_LT(many, int64_t{4} << 20) << name;
      EXPECT_LT(many, few + (int64_t{1} << 20)) << name;
    }
}

}  // namespace
}  // namespace mx
