// Recurrent layers, cells and packed sequences: PyTorch's results and gradients, states, modes, errors.
#include "nn/recurrent.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"
#include "nn/packed_sequence.h"
#include "operators/elementwise_binary.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"
#include "tests/nn/golden.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::golden_numbers;
using test::Values;

const char* const kRecurrentGolden =
#include <golden_recurrent.inc>
    ;

constexpr double kGoldenTolerance = 1e-10;

struct Golden {
  test::GoldenFile file{kRecurrentGolden};

  /// Compares the outputs, and the gradients of all leaves and parameters after a backward pass from the
  /// outputs.
  void expect(const std::string& name, nn::Module& layer,
              const std::vector<std::pair<std::string, NDArray>>& outputs,
              const std::vector<std::pair<std::string, NDArray>>& leaves) {
    std::vector<NDArray> ends, heads;
    for (const auto& [key, output] : outputs) {
      file.expect(name + '/' + key, output, kGoldenTolerance);
      heads.push_back(golden_numbers(output.shape(), 20 + static_cast<int64_t>(ends.size())));
      ends.push_back(output);
    }
    backward(ends, heads);
    for (const auto& [key, leaf] : leaves) file.expect(name + "/d" + key, leaf.grad(), kGoldenTolerance);
    for (const auto& [key, p] : layer.parameters())
      file.expect(name + "/d" + key, p.grad(), kGoldenTolerance);
  }
};

void fill_parameters(nn::Module& layer) {
  layer.to(f64);
  int64_t step = 3;
  const NoGrad pause;
  for (NDArray p : layer.parameters()) p.copy_from(golden_numbers(p.shape(), step++) / 2);
}

NDArray leaf_of(const Shape& shape, int64_t step) {
  NDArray leaf = golden_numbers(shape, step);
  return leaf.requires_grad_();
}

struct Sequences {
  Shape x;
  std::optional<int64_t> batch = {};  // none: one sequence
  std::vector<int64_t> lengths = {};  // packed
  bool from_zeros = false, batch_first = false;
};

/// The layer's results for an array or a packed sequence, with an LSTM's state in one form.
template <class Layer, class X>
auto call_layer(const Layer& layer, const X& x, const NDArray& h0, const NDArray& c0) {
  if constexpr (std::is_same_v<Layer, nn::LSTM>) {
    if (!h0.defined()) return layer(x);
    return layer(x, nn::LSTMState{h0, c0});
  } else {
    const auto result = h0.defined() ? layer(x, h0) : layer(x);
    return std::pair(result.first, nn::LSTMState{result.second, {}});
  }
}

template <class Layer>
void run_layer(Golden& golden, const std::string& name, Layer layer, const Sequences& s) {
  fill_parameters(layer);
  const int64_t count = layer.num_layers() * layer.directions();
  Shape state{count};
  if (s.batch) state.push_back(*s.batch);
  state.push_back(layer.hidden_size());
  const NDArray x = leaf_of(s.x, 1);
  std::vector<std::pair<std::string, NDArray>> leaves = {{"x", x}};
  NDArray h0, c0;
  if (!s.from_zeros) {
    leaves.emplace_back("h0", h0 = leaf_of(state, 2));
    if (std::is_same_v<Layer, nn::LSTM>) leaves.emplace_back("c0", c0 = leaf_of(state, 5));
  }
  NDArray y;
  nn::LSTMState end;
  if (s.lengths.empty()) {
    std::tie(y, end) = call_layer(layer, x, h0, c0);
  } else {
    const auto packed =
        nn::pack_padded_sequence(x, s.lengths, {.batch_first = s.batch_first, .enforce_sorted = false});
    const auto [out, last] = call_layer(layer, packed, h0, c0);
    const auto [padded, lengths] =
        nn::pad_packed_sequence(out, {.batch_first = s.batch_first, .padding_value = 0.5});
    EXPECT_EQ(s.lengths, lengths);
    y = padded;
    end = last;
  }
  std::vector<std::pair<std::string, NDArray>> outputs = {{"y", y}, {"h", end.h}};
  if (end.c.defined()) outputs.emplace_back("c", end.c);
  golden.expect(name, layer, outputs, leaves);
}

template <class Layer, class Options>
void run_layers(Golden& golden, const std::string& kind, Options options) {
  const auto with = [&](auto change) {
    Options changed = options;
    change(changed);
    return changed;
  };
  run_layer(golden, kind, Layer(4, 5, options), {{3, 2, 4}, 2});
  run_layer(golden, kind + " from zeros",
            Layer(4, 5, with([](Options& o) { o.bias = false, o.batch_first = true; })),
            {{2, 3, 4}, 2, {}, true, true});
  run_layer(golden, kind + " stacked",
            Layer(4, 3, with([](Options& o) { o.num_layers = 2, o.bidirectional = o.batch_first = true; })),
            {{2, 3, 4}, 2, {}, false, true});
  run_layer(golden, kind + " packed",
            Layer(4, 3, with([](Options& o) { o.num_layers = 2, o.bidirectional = true; })),
            {{4, 3, 4}, 3, {2, 4, 1}});
  run_layer(golden, kind + " of one sequence", Layer(4, 3, with([](Options& o) { o.bidirectional = true; })),
            {{3, 4}});
}

template <class Cell>
void run_cell(Golden& golden, const std::string& name, Cell cell, const Shape& batch = {3}) {
  fill_parameters(cell);
  const auto with = [&](int64_t width) {
    Shape shape = batch;
    shape.push_back(width);
    return shape;
  };
  const NDArray x = leaf_of(with(4), 1), h0 = leaf_of(with(5), 2);
  if constexpr (std::is_same_v<Cell, nn::LSTMCell>) {
    const NDArray c0 = leaf_of(with(5), 5);
    const nn::LSTMState next = cell(x, nn::LSTMState{h0, c0});
    golden.expect(name, cell, {{"h", next.h}, {"c", next.c}}, {{"x", x}, {"h0", h0}, {"c0", c0}});
  } else {
    golden.expect(name, cell, {{"h", cell(x, h0)}}, {{"x", x}, {"h0", h0}});
  }
}

TEST(RecurrentLayers, AgreeWithPyTorch) {
  Golden golden;
  run_layers<nn::RNN>(golden, "RNN", nn::RNNOptions{});
  run_layers<nn::RNN>(golden, "RNN relu", nn::RNNOptions{.nonlinearity = "relu"});
  run_layers<nn::GRU>(golden, "GRU", nn::GRUOptions{});
  run_layers<nn::LSTM>(golden, "LSTM", nn::LSTMOptions{});
  run_cell(golden, "RNNCell", nn::RNNCell(4, 5));
  run_cell(golden, "RNNCell relu", nn::RNNCell(4, 5, {.bias = false, .nonlinearity = "relu"}));
  run_cell(golden, "GRUCell", nn::GRUCell(4, 5));
  run_cell(golden, "GRUCell of one sample", nn::GRUCell(4, 5, {.bias = false}), {});
  run_cell(golden, "LSTMCell", nn::LSTMCell(4, 5));
  run_cell(golden, "LSTMCell of one sample", nn::LSTMCell(4, 5), {});
  EXPECT_EQ(0u, golden.file.unused());
}

TEST(RecurrentLayers, ParametersHaveTheNamesOfPyTorch) {
  const nn::LSTM layer(4, 3, {.num_layers = 2, .bidirectional = true});
  std::vector<std::string> want;
  for (const char* suffix : {"_l0", "_l0_reverse", "_l1", "_l1_reverse"})
    for (const char* name : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"})
      want.push_back(std::string(name) + suffix);
  EXPECT_EQ(want, test::names(layer.state_dict()));
  EXPECT_EQ(layer.parameter("weight_ih_l1").shape(), (Shape{12, 6}));
  EXPECT_EQ((std::vector<std::string>{"weight_ih", "weight_hh", "bias_ih", "bias_hh"}),
            test::names(nn::GRUCell(4, 3).state_dict()));
}

TEST(RecurrentLayers, ASequenceInPartsGivesTheResultsOfTheWhole) {
  manual_seed(3);
  const nn::LSTM layer(5, 8, {.num_layers = 2, .dtype = f64});
  const NDArray x = golden_numbers({6, 3, 5}, 1);
  const auto [whole, end] = layer(x);
  auto [first, state] = layer(x.slice(0, {0, 2}));
  const auto [second, last] = layer(x.slice(0, {2, 6}), state.detach());
  test::expect_values(test::values(whole), concat({first, second}), "y");
  test::expect_values(test::values(end.h), last.h, "h");
  test::expect_values(test::values(end.c), last.c, "c");
}

TEST(RecurrentLayers, CellsComputeTheStepsOfLayers) {
  manual_seed(3);
  const nn::GRU layer(5, 4, {.dtype = f64});
  nn::GRUCell cell(5, 4, {.dtype = f64});
  NamedArrays state;
  for (const auto& [name, array] : layer.state_dict())
    state.push_back({name.substr(0, name.size() - 3), array});
  cell.load_state_dict(state);
  const NDArray x = golden_numbers({4, 2, 5}, 1);
  NDArray h;
  for (int64_t t = 0; t < 4; ++t) h = cell(x[t], h);
  test::expect_values(test::values(layer(x).second[0]), h, "h");
}

TEST(RecurrentLayers, AnInputOfAnotherTypeIsNamed) {
  const nn::GRU layer(5, 4, {.dtype = f64});
  const NDArray x = ones({4, 2, 5});
  const std::string expected = "[GRU] expected x of the type of the weights, f64, got f32";
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { layer(x); }), expected));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         layer(nn::pack_padded_sequence(x, {4, 2}));
                       }),
                       expected));
}

TEST(RecurrentLayers, PackedSequencesGiveWhatEachAloneGives) {
  manual_seed(3);
  const nn::LSTM layer(3, 4, {.num_layers = 2, .bidirectional = true, .dtype = f64});
  const std::vector<int64_t> lengths = {3, 5, 1, 5};
  std::vector<NDArray> list;
  for (const int64_t length : lengths) list.push_back(golden_numbers({length, 3}, length));
  const nn::PackedSequence packed = nn::pack_sequence(list, false);
  EXPECT_EQ((std::vector<int64_t>{4, 3, 3, 2, 2}), packed.batch_sizes);
  EXPECT_EQ((std::vector<int64_t>{1, 3, 0, 2}), packed.sorted_indices);
  const auto [out, state] = layer(packed);
  const auto [padded, found] = nn::pad_packed_sequence(out, {.batch_first = true, .total_length = 6});
  EXPECT_EQ(lengths, found);
  EXPECT_EQ(padded.shape(), (Shape{4, 6, 8}));
  for (int64_t b = 0; b < 4; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    const auto [y, end] = layer(list[static_cast<size_t>(b)]);
    EXPECT_EQ(test::values(y), test::values(padded[b].slice(0, {0, length})));
    EXPECT_EQ(test::values(end.h), test::values(state.h.select(1, b)));
    EXPECT_EQ(test::values(end.c), test::values(state.c.select(1, b)));
    EXPECT_EQ(0, sum(abs(padded[b].slice(0, {length, 6}))).item<double>());
  }
}

TEST(RecurrentLayers, DropoutIsBetweenLayersInTrainingOnly) {
  manual_seed(3);
  nn::GRU layer(3, 16, {.num_layers = 2, .dropout = 0.5});
  const NDArray x = golden_numbers({4, 2, 3}, 1).to(f32);
  EXPECT_NE(test::values(layer(x).first), test::values(layer(x).first));
  layer.eval();
  EXPECT_EQ(test::values(layer(x).first), test::values(layer(x).first));
  nn::GRU one(3, 16, {.dropout = 0.5});  // the last layer's results are not dropped
  EXPECT_EQ(test::values(one(x).first), test::values(one(x).first));
}

TEST(RecurrentLayers, HooksSeeStatesAndPackedSequences) {
  nn::LSTM layer(3, 4);
  size_t inputs = 0, outputs = 0;
  const HookHandle hook = layer.register_forward_hook(
      [&](const nn::Module&, std::span<const NDArray> in, std::vector<NDArray>& out) {
        inputs = in.size();
        outputs = out.size();
      });
  const auto [y, state] = layer(zeros({2, 1, 3}));
  EXPECT_EQ(1u, inputs);
  EXPECT_EQ(3u, outputs);
  layer(nn::pack_padded_sequence(zeros({2, 1, 3}), {2}), state);
  EXPECT_EQ(3u, inputs);
  EXPECT_EQ(3u, outputs);
}

TEST(RecurrentLayers, EveryEngineGivesTheSameBits) {
  const auto all = [] {
    manual_seed(5);
    const nn::LSTM layer(6, 20, {.num_layers = 2, .bidirectional = true});
    const NDArray x = golden_numbers({7, 9, 6}, 1).to(f32).clone().requires_grad_();
    const auto [y, state] = layer(nn::pack_padded_sequence(x, {7, 7, 6, 5, 5, 3, 2, 1, 1}));
    sum(y.data * y.data).backward();
    std::vector<test::Content> contents = {content_of(y.data), content_of(state.c), content_of(x.grad())};
    for (const NDArray& p : layer.parameters()) contents.push_back(content_of(p.grad()));
    return contents;
  };
  const std::vector<test::Content> expected = all();
  for (const test::EngineCase& c :
       {test::threaded_case(1), test::threaded_case(2), test::mode_case(EngineMode::naive, "naive"),
        test::mode_case(EngineMode::check, "check"), test::mode_case(EngineMode::fuzz, "fuzz", 7)}) {
    Engine engine(c.options);
    const EngineScope scope(engine);
    EXPECT_TRUE(expected == all()) << c.name;
  }
}

TEST(RecurrentLayers, TheExampleOfTheDocuments) {
  const NDArray x = randn({3, 9, 64}), next = x;
  nn::LSTM lstm(64, 256, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  auto [y, state] = lstm(x);
  auto [more, last] = lstm(next, state.detach());
  auto packed = nn::pack_padded_sequence(x, {5, 9, 2}, {.batch_first = true, .enforce_sorted = false});
  auto [out, end] = lstm(packed);
  auto [padded, lengths] = nn::pad_packed_sequence(out, {.batch_first = true});
  EXPECT_EQ(more.shape(), (Shape{3, 9, 512}));
  EXPECT_EQ(last.h.shape(), (Shape{4, 3, 256}));
  EXPECT_EQ(padded.shape(), y.shape());
  EXPECT_EQ(lengths, (std::vector<int64_t>{5, 9, 2}));
}

TEST(PackedSequences, PaddingAndLengths) {
  const NDArray a = array({1.f, 2.f, 3.f}), b = array({4.f});
  const std::vector<NDArray> list = {a, b};
  EXPECT_EQ((Values{1, 4, 2, -1, 3, -1}), test::values(nn::pad_sequence(list, {.padding_value = -1})));
  const NDArray rows = nn::pad_sequence(list, {.batch_first = true});
  EXPECT_EQ((Values{1, 2, 3, 4, 0, 0}), test::values(rows));
  const nn::PackedSequence packed =
      nn::pack_padded_sequence(rows, array({int64_t{3}, int64_t{1}}), {.batch_first = true});
  EXPECT_EQ((Values{1, 4, 2, 3}), test::values(packed.data));
  EXPECT_TRUE(packed.sorted_indices.empty());
}

TEST(PackedSequences, WrongLengthsAreNamed) {
  const NDArray x = ones({4, 3, 2});
  const auto refused = [&](const std::vector<int64_t>& lengths) {
    return error_of<InvalidArgument>([&] { nn::pack_padded_sequence(x, lengths); });
  };
  EXPECT_TRUE(contains(refused({2, 4, 1}), "expected lengths that do not grow, got 2 and then 4 at 1"));
  EXPECT_TRUE(contains(refused({4, 2, 0}), "expected lengths from 1 to 4, the number of steps, got 0 at 2"));
  EXPECT_TRUE(contains(refused({5, 2, 1}), "got 5 at 0"));
  EXPECT_TRUE(contains(refused({4, 2}), "got 2 lengths and 3 sequences"));
  const auto packed = nn::pack_padded_sequence(x, {4, 2, 1});
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { nn::pad_packed_sequence(packed, {.total_length = 3}); }),
               "expected a total_length of at least 4"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { nn::pad_sequence({}); }), "got none"));
  const std::vector<NDArray> different = {ones({2, 3}), ones({2, 4})};
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { nn::pad_sequence(different); }), "differ in length only"));
}

TEST(RecurrentLayers, WrongArgumentsAreNamed) {
  const nn::LSTM layer(3, 4, {.batch_first = true});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         layer(ones({2, 5, 4}));
                       }),
                       "[LSTM] expected x (batch, steps, 3) or (steps, 3), got (2, 5, 4)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         layer(ones({2, 5, 3}), nn::LSTMState{ones({1, 5, 4}), ones({1, 2, 4})});
                       }),
                       "[LSTM] expected h0 of shape (1, 2, 4), got (1, 5, 4)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         layer(nn::PackedSequence{ones({2, 5}), {2}});
                       }),
                       "[LSTM] expected a packed sequence (rows, 3)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { nn::GRU(3, 0); }), "a hidden size of 1 or more"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { nn::RNN(3, 2, {.num_layers = 0}); }), "1 layer or more"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { nn::GRU(3, 2, {.dropout = 2}); }), "a dropout from 0 to 1"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { nn::RNNCell(3, 2, {.nonlinearity = "gelu"}); }), "\"gelu\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         nn::LSTMCell(3, 2)(ones({5, 4}));
                       }),
                       "[LSTMCell] expected x (batch, 3) or (3), got (5, 4)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         nn::GRUCell(3, 2)(ones({5, 3}), ones({4, 2}));
                       }),
                       "[GRUCell] expected a state of shape (5, 2), got (4, 2)"));
}

// Also of calls whose first argument is no array.
TEST(RecurrentLayers, ErrorsNameTheLineOfTheCall) {
  const nn::LSTM lstm(3, 4);
  const nn::GRU gru(3, 4);
  const nn::PackedSequence packed =
      nn::pack_padded_sequence(ones({2, 2, 3}, f64), std::vector<int64_t>{2, 1});
  const auto here = [](int line, const auto& f) {
    const std::string message = error_of<InvalidArgument>(f);
    EXPECT_TRUE(contains(message, mx::detail::concat("called at ", __FILE__, ":", line))) << message;
    EXPECT_FALSE(contains(message, "recurrent.cc")) << message;
  };
  here(__LINE__, [&] { lstm(packed); });
  here(__LINE__, [&] { gru(packed, ones({1, 2, 4})); });
  here(__LINE__, [&] { lstm(packed, nn::LSTMState{ones({1, 2, 4}), ones({1, 2, 4})}); });
}

TEST(PackedSequenceParts, PartsThatDoNotBelongTogetherAreRefused) {
  const NDArray data = zeros({4, 2});
  const auto refuse = [&](const char* text, std::vector<int64_t> sizes, std::vector<int64_t> order) {
    nn::PackedSequence packed;
    packed.data = data;
    packed.batch_sizes = std::move(sizes);
    packed.sorted_indices = std::move(order);
    test::expect_error<InvalidArgument>(text, [&] { nn::pad_packed_sequence(packed); });
  };
  refuse("each number from 0 to 1 once, got 1000000000", {2, 2}, {1'000'000'000, 0});
  refuse("once, got -5", {2, 2}, {-5, 0});
  refuse("once, got 1 at 1", {2, 2}, {1, 1});
  refuse("expected 3 rows of data", {2, 1}, {});
  refuse("that do not grow", {1, 3}, {});
  refuse("at most 4, the number of rows of data, got 9223372036854775807", {INT64_MAX, INT64_MAX}, {});
  const nn::PackedSequence good{data, {2, 2}};
  test::expect_error<OutOfMemory>("[pad_packed_sequence] expected free memory",
                                  [&] { nn::pad_packed_sequence(good, {.total_length = int64_t{1} << 56}); });
  error_of<InvalidArgument>([&] { nn::pad_packed_sequence(good, {.total_length = INT64_MAX}); });
  const nn::GRU layer(2, 3);
  test::expect_error<InvalidArgument>(
      "[GRU] expected one of the sorted_indices for each of 2 sequences, got 3", [&] {
        layer(nn::PackedSequence{data, {2, 2}, {2, 1, 0}});
      });
  test::expect_error<InvalidArgument>("once, got 7 at 1", [&] {
    layer(nn::PackedSequence{data, {2, 2}, {0, 7}}, ones({1, 2, 3}));
  });
}

}  // namespace
}  // namespace mx
