// Recurrent layers: plain loops in float64, sizes beside the blocks of the kernel, packed sequences.
// Gradients: tests/executor/recurrent_gradient_test.cc.
#include "operators/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kNan;
using test::Values;

struct PlainCall {
  std::string cell;  // tanh, relu, lstm, gru
  bool reverse;
  std::vector<int64_t> batch_sizes;
};

struct PlainStates {
  Values y, cells, activations;
};

/// One sample after the other, one step after the other. `bias` is added to the products of gru.
PlainStates plain_layer(const PlainCall& call, const NDArray& x, const NDArray& w, const NDArray& h0,
                        const Values& c0, const Values& bias) {
  const int64_t hidden = w.shape()[1], gates = w.shape()[0] / hidden, batch = h0.shape()[0];
  std::vector<int64_t> sizes = call.batch_sizes;
  if (sizes.empty()) sizes.assign(static_cast<size_t>(x.shape()[0]), batch);
  std::vector<int64_t> first = {0};
  for (const int64_t size : sizes) first.push_back(first.back() + size);
  const Values inputs = test::values(x), weights = test::values(w), start = test::values(h0);
  const auto sigmoid_of = [](double v) { return 1 / (1 + std::exp(-v)); };
  const auto rows = static_cast<size_t>(first.back());
  PlainStates result{Values(rows * static_cast<size_t>(hidden)), Values(rows * static_cast<size_t>(hidden)),
                     Values(rows * static_cast<size_t>(4 * hidden))};
  for (int64_t b = 0; b < batch; ++b) {
    Values h(start.begin() + b * hidden, start.begin() + (b + 1) * hidden), c(static_cast<size_t>(hidden));
    if (!c0.empty()) c.assign(c0.begin() + b * hidden, c0.begin() + (b + 1) * hidden);
    for (size_t k = 0; k < sizes.size(); ++k) {
      const size_t t = call.reverse ? sizes.size() - 1 - k : k;
      if (b >= sizes[t]) continue;
      const int64_t row = first[t] + b;
      const Values before = h;
      for (int64_t j = 0; j < hidden; ++j) {
        const auto in = [&](int64_t g) {
          return inputs[static_cast<size_t>((row * gates + g) * hidden + j)];
        };
        const auto product = [&](int64_t g) {
          double total = bias.empty() ? 0 : bias[static_cast<size_t>(g * hidden + j)];
          for (int64_t i = 0; i < hidden; ++i)
            total +=
                weights[static_cast<size_t>((g * hidden + j) * hidden + i)] * before[static_cast<size_t>(i)];
          return total;
        };
        double& state = h[static_cast<size_t>(j)];
        const auto keep = [&](int64_t g, double v) {
          result.activations[static_cast<size_t>((row * 4 + g) * hidden + j)] = v;
        };
        if (call.cell == "lstm") {
          double& cell = c[static_cast<size_t>(j)];
          const double i = sigmoid_of(in(0) + product(0)), f = sigmoid_of(in(1) + product(1)),
                       g = std::tanh(in(2) + product(2)), o = sigmoid_of(in(3) + product(3));
          cell = f * cell + i * g;
          state = o * std::tanh(cell);
          result.cells[static_cast<size_t>(row * hidden + j)] = cell;
          keep(0, i), keep(1, f), keep(2, g), keep(3, o);
        } else if (call.cell == "gru") {
          const double r = sigmoid_of(in(0) + product(0)), z = sigmoid_of(in(1) + product(1)),
                       n = std::tanh(in(2) + r * product(2));
          state = (1 - z) * n + z * state;
          keep(0, r), keep(1, z), keep(2, n), keep(3, product(2));
        } else {
          const double v = in(0) + product(0);
          state = call.cell == "tanh" ? std::tanh(v) : std::max(v, 0.0);
        }
        result.y[static_cast<size_t>(row * hidden + j)] = state;
      }
    }
  }
  return result;
}

PlainStates plain_call(const std::string& name, const Attrs& attrs, const std::vector<NDArray>& in) {
  if (name == "rnn") {
    const auto& a = attrs.get<RnnAttrs>();
    return plain_layer({a.nonlinearity, a.reverse, a.batch_sizes}, in[0], in[1], in[2], {}, {});
  }
  const auto& a = attrs.get<RecurrentAttrs>();
  const Values last = in.size() > 3 ? test::values(in[3]) : Values{};
  const bool lstm = name == "lstm";
  return plain_layer({name, a.reverse, a.batch_sizes}, in[0], in[1], in[2], lstm ? last : Values{},
                     lstm ? Values{} : last);
}

void expect_plain(const std::string& name, const Attrs& attrs, const std::vector<NDArray>& in,
                  const std::string& what) {
  const PlainStates want = plain_call(name, attrs, in);
  const std::vector<NDArray> got = call(*find_operator(name), attrs, in);
  test::expect_values(want.y, got[0], what, 4);
  if (name == "lstm") test::expect_values(want.cells, got[1], what, 4);
  if (name != "rnn") test::expect_values(want.activations, got.back(), what, 4);
}

TEST(RecurrentOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  for (const char* name : {"rnn", "lstm", "gru"})
    test::each_sample(name, [&](const Operator&, const Sample& sample) {
      expect_plain(name, sample.attrs, sample.inputs, sample.label);
    });
}

std::vector<NDArray> random_operands(const std::string& name, int64_t steps, int64_t batch, int64_t hidden,
                                     DType type) {
  const int64_t gates = name == "rnn" ? 1 : name == "gru" ? 3 : 4;
  std::vector<NDArray> in = {
      test::numbers({steps, batch, gates * hidden}, f64, 1).to(type),
      (test::numbers({gates * hidden, hidden}, f64, 2) / std::sqrt(static_cast<double>(hidden))).to(type),
      test::numbers({batch, hidden}, f64, 3).to(type)};
  if (name == "lstm") in.push_back(test::numbers({batch, hidden}, f64, 4).to(type));
  if (name == "gru") in.push_back(test::numbers({3 * hidden}, f64, 5).to(type));
  return in;
}

Attrs attrs_of(const std::string& name, bool reverse = false, const std::vector<int64_t>& sizes = {}) {
  if (name == "rnn") return RnnAttrs{.reverse = reverse, .batch_sizes = sizes};
  return RecurrentAttrs{.reverse = reverse, .batch_sizes = sizes};
}

// Sizes beside and beyond vectors, tiles, blocks of samples and parts of the weights.
TEST(RecurrentOp, AgreesWithAPlainLoopForAllSizes) {
  for (const char* name : {"rnn", "lstm", "gru"})
    for (const DType type : {f64, f32})
      for (const int64_t hidden : {1, 7, 16, 17, 40, 130})
        for (const int64_t batch : {1, 5, 33})
          expect_plain(name, attrs_of(name), random_operands(name, 3, batch, hidden, type),
                       name + std::to_string(hidden) + " of " + std::to_string(batch));
  for (const char* name : {"rnn", "lstm", "gru"})
    expect_plain(name, attrs_of(name, true), random_operands(name, 2, 3, 530, f32), name);
}

TEST(RecurrentOp, ASampleHasTheSameBitsInEveryBatch) {
  for (const std::string name : {"rnn", "lstm", "gru"}) {
    const std::vector<NDArray> all = random_operands(name, 5, 120, 24, f32);
    const Values y = test::values(call(*find_operator(name), attrs_of(name), all)[0]);
    for (const int64_t b : {0, 57, 119}) {
      std::vector<NDArray> one = all;
      one[0] = all[0].slice(1, {b, b + 1});
      one[2] = all[2].slice(0, {b, b + 1});
      if (name == "lstm") one[3] = all[3].slice(0, {b, b + 1});
      const Values alone = test::values(call(*find_operator(name), attrs_of(name), one)[0]);
      for (int64_t t = 0; t < 5; ++t)
        for (int64_t j = 0; j < 24; ++j)
          EXPECT_EQ(alone[static_cast<size_t>(t * 24 + j)], y[static_cast<size_t>((t * 120 + b) * 24 + j)])
              << name;
    }
  }
}

TEST(RecurrentOp, APackedSampleHasTheBitsOfASequenceOfItsLength) {
  const std::vector<int64_t> lengths = {6, 4, 4, 1}, sizes = {4, 3, 3, 3, 1, 1};
  for (const std::string name : {"rnn", "lstm", "gru"})
    for (const bool reverse : {false, true}) {
      const std::vector<NDArray> all = random_operands(name, 6, 4, 9, f32);
      std::vector<NDArray> rows, packed = all;
      for (int64_t t = 0; t < 6; ++t) rows.push_back(all[0][t].slice(0, {0, sizes[static_cast<size_t>(t)]}));
      packed[0] = concat(rows);
      const Values y = test::values(call(*find_operator(name), attrs_of(name, reverse, sizes), packed)[0]);
      for (int64_t b = 0; b < 4; ++b) {
        std::vector<NDArray> one = all;
        const int64_t length = lengths[static_cast<size_t>(b)];
        one[0] = all[0].slice(1, {b, b + 1}).slice(0, {0, length});
        one[2] = all[2].slice(0, {b, b + 1});
        if (name == "lstm") one[3] = all[3].slice(0, {b, b + 1});
        const Values alone = test::values(call(*find_operator(name), attrs_of(name, reverse), one)[0]);
        int64_t first = 0;
        for (int64_t t = 0; t < length; first += sizes[static_cast<size_t>(t)], ++t)
          for (int64_t j = 0; j < 9; ++j)
            EXPECT_EQ(alone[static_cast<size_t>(t * 9 + j)], y[static_cast<size_t>((first + b) * 9 + j)])
                << name << (reverse ? " reverse" : "");
      }
    }
}

TEST(RecurrentOp, NanStaysInItsSample) {
  for (const std::string name : {"rnn", "lstm", "gru"}) {
    std::vector<NDArray> in = random_operands(name, 4, 3, 5, f32);
    in[0].select(1, 1).select(0, 2).fill_(kNan);
    const Values y = test::values(call(*find_operator(name), attrs_of(name), in)[0]);
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y[i]), i / 5 % 3 == 1 && i / 15 >= 2) << name << ' ' << i;
  }
}

RecurrentWeights weights_of(int64_t gates, int64_t inputs, int64_t hidden) {
  return {test::numbers({gates * hidden, inputs}, f64, 11), test::numbers({gates * hidden, hidden}, f64, 12),
          test::numbers({gates * hidden}, f64, 13), test::numbers({gates * hidden}, f64, 14)};
}

// The last state of a packed sequence is that of each sample's own last step.
TEST(RecurrentOp, TheLastStatesAreThoseOfEachSample) {
  const NDArray x = test::numbers({4, 3, 2}, f64, 1), h0 = test::numbers({3, 5}, f64, 2),
                c0 = test::numbers({3, 5}, f64, 3);
  const RecurrentWeights w = weights_of(4, 2, 5);
  const std::vector<int64_t> lengths = {4, 2, 2};
  const NDArray packed = concat({x[0], x[1], x[2].slice(0, {0, 1}), x[3].slice(0, {0, 1})});
  for (const bool reverse : {false, true}) {
    const RecurrentResult got = lstm(packed, w, h0, c0, {.reverse = reverse, .batch_sizes = {3, 3, 1, 1}});
    for (int64_t b = 0; b < 3; ++b) {
      const NDArray one = x.slice(1, {b, b + 1}).slice(0, {0, lengths[static_cast<size_t>(b)]});
      const RecurrentResult want =
          lstm(one, w, h0.slice(0, {b, b + 1}), c0.slice(0, {b, b + 1}), {.reverse = reverse});
      EXPECT_EQ(test::values(want.h_n), test::values(got.h_n.slice(0, {b, b + 1})));
      EXPECT_EQ(test::values(want.c_n), test::values(got.c_n.slice(0, {b, b + 1})));
    }
  }
}

TEST(RecurrentOp, ABatchOfNoSamplesGivesNone) {
  const RecurrentWeights w = weights_of(3, 2, 5);
  const RecurrentResult r = gru(zeros({4, 0, 2}, f64), w, zeros({0, 5}, f64));
  EXPECT_EQ(r.y.shape(), (Shape{4, 0, 5}));
  EXPECT_EQ(r.h_n.shape(), (Shape{0, 5}));
}

TEST(RecurrentOp, WrongOperandsAreNamed) {
  const NDArray x = ones({4, 3, 2}, f64), h0 = ones({3, 5}, f64);
  const RecurrentWeights w = weights_of(4, 2, 5);
  const auto refused = [&](const NDArray& sequence, const RecurrentWeights& weights, const NDArray& h,
                           const NDArray& c, const RecurrentOptions& options = {}) {
    return error_of<InvalidArgument>([&] { lstm(sequence, weights, h, c, options); });
  };
  EXPECT_TRUE(contains(refused(ones({4, 3, 7}, f64), w, h0, h0), "[lstm] expected x (.., inputs)"));
  EXPECT_TRUE(contains(refused(x, w, ones({2, 5}, f64), h0), "expected h0 of shape (3, 5)"));
  EXPECT_TRUE(contains(refused(x, w, h0, ones({3, 4}, f64)), "expected c0 of shape (3, 5)"));
  EXPECT_TRUE(contains(refused(x, weights_of(3, 2, 5), h0, h0), "expected w_hh (4 * hidden, hidden)"));
  EXPECT_TRUE(contains(refused(x.slice(0, {0, 0}), w, h0, h0), "expected 1 step or more"));
  EXPECT_TRUE(contains(refused(x, {w.w_ih, w.w_hh, w.b_ih, {}}, h0, h0), "expected both b_ih and b_hh"));
  const NDArray rows = ones({7, 2}, f64);
  EXPECT_TRUE(
      contains(refused(rows, w, h0, h0, {.batch_sizes = {3, 4}}), "that do not grow, got 4 in step 1"));
  EXPECT_TRUE(
      contains(refused(rows, w, h0, h0, {.batch_sizes = {3, 3}}), "the sum of the batch sizes, 6, got 7"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { rnn(x, weights_of(1, 2, 5), h0, {.nonlinearity = "gelu"}); }),
               "expected the nonlinearity \"tanh\" or \"relu\", got \"gelu\""));
}

}  // namespace
}  // namespace mx
