// Attention and Transformer layers: PyTorch's outputs and gradients, masks, names, errors.
#include "nn/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "ndarray/grad_mode.h"
#include "tests/nn/golden.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::golden_numbers;
using test::inputs;

const char* const kAttentionGolden =
#include <golden_attention.inc>
    ;

using Arrays = std::vector<NDArray>;

/// True behind the diagonal, as PyTorch's masks have it: the key takes no part.
NDArray masked_future(int64_t n) { return triu(ones({n, n}), 1) > 0; }
NDArray padding_of_first() {
  return array<bool>({{false, false, false, true}, {false, false, false, false}});
}

/// Compares a module with the results of PyTorch. `call` returns the results; the first gets the gradient.
void compare(test::GoldenFile& golden, const std::string& name, nn::Module& module,
             const std::vector<Shape>& shapes, const std::function<Arrays(const Arrays&)>& call,
             bool gradients = true) {
  module.to(f64);
  {
    const NoGrad pause;
    int64_t step = 3;
    for (const auto& [key, p] : module.parameters()) {
      NDArray target = p;
      target.copy_from(golden_numbers(p.shape(), step++) * (p.shape().rank() > 1 ? 0.5 : 0.25) +
                       (contains(key, "norm") ? 1 : 0));
    }
  }
  Arrays x;
  for (const Shape& shape : shapes)
    x.push_back(golden_numbers(shape, 1 + static_cast<int64_t>(x.size())).requires_grad_());
  const Arrays y = call(x);
  sum(y[0] * golden_numbers(y[0].shape(), 7)).backward();
  for (size_t i = 0; i < y.size(); ++i)
    if (y[i].defined()) golden.expect(name + "/y" + std::to_string(i), y[i]);
  for (size_t i = 0; i < x.size(); ++i) golden.expect(name + "/dx" + std::to_string(i), x[i].grad());
  if (!gradients) return;
  for (const auto& [key, p] : module.parameters()) golden.expect(name + "/d " + key, p.grad());
}

// The result is that of three arrays, of which the projections are computed one by one.
TEST(MultiheadAttention, OfOneArrayCutsMovesAndJoinsNothing) {
  Engine& engine = current_engine();
  for (const bool batch_first : {true, false}) {
    const nn::MultiheadAttention attend(64, 4, {.batch_first = batch_first});
    const NDArray x = randn({30, 30, 64}), copy = x.clone();
    const nn::AttendOptions options{.need_weights = false, .is_causal = true};
    const NDArray want = attend(x, copy, x, options).first;
    wait_all();
    engine.profiler_start();
    const NDArray y = attend(x, x, x, options).first;
    wait_all();
    engine.profiler_stop();
    const std::string file = ::testing::TempDir() + "attention_of_one_array.json";
    engine.write_trace(file);
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    const std::string trace = text.str();
    EXPECT_TRUE(contains(trace, "\"attention_packed\"")) << trace;
    for (const char* name : {"\"split\"", "\"copy\"", "\"concat\"", "\"attention\""})
      EXPECT_FALSE(contains(trace, name)) << trace;
    test::expect_values(test::values(want), y, "attention of one array");
  }
}

TEST(MultiheadAttention, MasksHaveTheTypeOfTheProjections) {
  const nn::MultiheadAttention attend(8, 2, {.batch_first = true});
  const NDArray x = randn({2, 3, 8}).to(f16), mask = randn({3, 3});
  for (const NDArray& key : {x, x.clone()})
    for (const bool need_weights : {false, true})
      EXPECT_EQ(f32, attend(x, key, x, {.need_weights = need_weights, .attn_mask = mask}).first.dtype());
}

TEST(MultiheadAttention, AgreesWithPyTorch) {
  test::GoldenFile golden(kAttentionGolden);
  const auto run = [&](const std::string& name, nn::MultiheadAttention m, const std::vector<Shape>& shapes,
                       const nn::AttendOptions& options) {
    compare(golden, name, m, shapes, [&](const Arrays& x) {
      const auto [y, weights] = m(x[0], x.size() > 1 ? x[1] : x[0], x.size() > 1 ? x[2] : x[0], options);
      return Arrays{y, weights};
    });
  };
  using MHA = nn::MultiheadAttention;
  const nn::MultiheadAttentionOptions first{.batch_first = true};
  run("attention", MHA(4, 2), {{3, 2, 4}}, {});
  run("batch first", MHA(4, 2, first), {{2, 3, 4}, {2, 4, 4}, {2, 4, 4}}, {.average_attn_weights = false});
  run("fast", MHA(4, 2, first), {{2, 4, 4}}, {.need_weights = false});
  run("widths", MHA(4, 2, {.kdim = 3, .vdim = 5, .batch_first = true}), {{2, 3, 4}, {2, 4, 3}, {2, 4, 5}},
      {});
  run("no bias", MHA(4, 1, {.bias = false}), {{3, 2, 4}}, {});
  run("more keys", MHA(4, 2, {.add_bias_kv = true, .add_zero_attn = true, .batch_first = true}), {{2, 4, 4}},
      {.key_padding_mask = padding_of_first(), .attn_mask = masked_future(4)});
  run("padding", MHA(4, 2, first), {{2, 4, 4}}, {.key_padding_mask = padding_of_first()});
  run("causal", MHA(4, 2, first), {{2, 4, 4}}, {.need_weights = false, .is_causal = true});
  run("causal", MHA(4, 2, first), {{2, 4, 4}}, {.need_weights = false, .attn_mask = masked_future(4)});
  run("added", MHA(4, 2, first), {{2, 4, 4}}, {.attn_mask = golden_numbers({4, 4, 4}, 2)});
  run("one sequence", MHA(4, 2), {{3, 4}}, {});
}

TEST(Transformer, AgreesWithPyTorch) {
  test::GoldenFile golden(kAttentionGolden);
  using Options = nn::TransformerLayerOptions;
  const Options small{.dim_feedforward = 3, .dropout = 0};
  const Options first{
      .dim_feedforward = 3, .dropout = 0, .activation = "gelu", .batch_first = true, .norm_first = true};
  const auto encode = [&](const std::string& name, nn::TransformerEncoderLayer m, const Shape& shape,
                          const nn::EncoderMasks& masks) {
    compare(golden, name, m, {shape}, [&](const Arrays& x) { return Arrays{m(x[0], masks)}; });
  };
  const auto decode = [&](const std::string& name, nn::TransformerDecoderLayer m, const Shape& tgt,
                          const Shape& memory, const nn::DecoderMasks& masks) {
    compare(golden, name, m, {tgt, memory}, [&](const Arrays& x) { return Arrays{m(x[0], x[1], masks)}; });
  };
  encode("encoder layer", {4, 2, small}, {3, 2, 4}, {});
  encode("encoder layer first", {4, 2, first}, {2, 4, 4},
         {.mask = masked_future(4), .src_key_padding_mask = padding_of_first()});
  encode("encoder layer first", {4, 2, first}, {2, 4, 4},
         {.src_key_padding_mask = padding_of_first(), .is_causal = true});
  encode(
      "encoder layer no bias",
      {4, 2,
       Options{
           .dim_feedforward = 3, .dropout = 0, .layer_norm_eps = 1e-3, .batch_first = true, .bias = false}},
      {2, 4, 4}, {});
  decode("decoder layer", {4, 2, small}, {3, 2, 4}, {4, 2, 4},
         {.memory_key_padding_mask = padding_of_first(), .tgt_is_causal = true});
  decode("decoder layer first", {4, 2, first}, {2, 4, 4}, {2, 3, 4},
         {.memory_mask = eye(4, 3) > 0, .tgt_key_padding_mask = padding_of_first()});
  nn::TransformerEncoder encoder(nn::TransformerEncoderLayer(4, 2, small), 2, nn::LayerNorm(4));
  compare(
      golden, "encoder", encoder, {{3, 2, 4}}, [&](const Arrays& x) { return Arrays{encoder(x[0])}; }, false);
  nn::TransformerDecoder decoder(nn::TransformerDecoderLayer(4, 2, small), 2);
  compare(
      golden, "decoder", decoder, {{3, 2, 4}, {4, 2, 4}},
      [&](const Arrays& x) { return Arrays{decoder(x[0], x[1])}; }, false);
  nn::Transformer whole({.d_model = 4,
                         .nhead = 2,
                         .num_encoder_layers = 2,
                         .num_decoder_layers = 1,
                         .dim_feedforward = 3,
                         .dropout = 0,
                         .batch_first = true});
  const nn::TransformerMasks masks{.tgt_mask = nn::Transformer::generate_square_subsequent_mask(3),
                                   .src_key_padding_mask = padding_of_first(),
                                   .memory_key_padding_mask = padding_of_first()};
  compare(
      golden, "transformer", whole, {{2, 4, 4}, {2, 3, 4}},
      [&](const Arrays& x) { return Arrays{whole(x[0], x[1], masks)}; }, false);
}

// Names in the order in which PyTorch lists them.
TEST(Transformer, StateHasTheNamesOfPyTorch) {
  const nn::TransformerDecoderLayer layer(4, 2, {.dim_feedforward = 3});
  const std::vector<std::string> want = {"self_attn.in_proj_weight",
                                         "self_attn.in_proj_bias",
                                         "self_attn.out_proj.weight",
                                         "self_attn.out_proj.bias",
                                         "multihead_attn.in_proj_weight",
                                         "multihead_attn.in_proj_bias",
                                         "multihead_attn.out_proj.weight",
                                         "multihead_attn.out_proj.bias",
                                         "linear1.weight",
                                         "linear1.bias",
                                         "linear2.weight",
                                         "linear2.bias",
                                         "norm1.weight",
                                         "norm1.bias",
                                         "norm2.weight",
                                         "norm2.bias",
                                         "norm3.weight",
                                         "norm3.bias"};
  EXPECT_EQ(want, test::names(layer.state_dict()));
  const nn::Transformer whole({.d_model = 4, .nhead = 2, .num_encoder_layers = 2, .dim_feedforward = 3});
  EXPECT_TRUE(whole.state_dict().find("encoder.layers.1.self_attn.in_proj_weight") != nullptr);
  EXPECT_TRUE(whole.state_dict().find("decoder.norm.bias") != nullptr);
  const nn::MultiheadAttention more(4, 2, {.add_bias_kv = true, .kdim = 3});
  EXPECT_EQ((std::vector<std::string>{"q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias",
                                      "bias_k", "bias_v", "out_proj.weight", "out_proj.bias"}),
            test::names(more.state_dict()));
}

TEST(Transformer, LayersOfAStackAreClones) {
  const nn::TransformerEncoderLayer layer(4, 2, {.dim_feedforward = 3});
  const nn::TransformerEncoder stack(layer, 2);
  const nn::Parameter a = stack.parameter("layers.0.linear1.weight"),
                      b = stack.parameter("layers.1.linear1.weight");
  EXPECT_EQ(content_of(layer.linear1.weight), content_of(a));
  EXPECT_EQ(content_of(a), content_of(b));
  EXPECT_FALSE(a.array().shares_memory(b.array()));
}

TEST(Transformer, ALaterTokenLeavesEarlierOutputsAsTheyWere) {
  for (const bool first : {false, true}) {
    nn::TransformerEncoder stack(
        nn::TransformerEncoderLayer(
            16, 4, {.dim_feedforward = 24, .dropout = 0, .batch_first = true, .norm_first = first}),
        3);
    NDArray x = inputs({2, 150, 16});
    const nn::EncoderMasks causal{.is_causal = true};
    const NDArray before = stack(x, causal).clone();
    x.slice(1, {100, 150}).fill_(3.5);
    const NDArray after = stack(x, causal);
    EXPECT_EQ(content_of(before.slice(1, {0, 100})), content_of(after.slice(1, {0, 100})));
    EXPECT_NE(content_of(before.slice(1, {100, 150})), content_of(after.slice(1, {100, 150})));
  }
}

TEST(Positions, SinusoidsAreThoseOfTheirFormula) {
  for (const int64_t width : {4, 5}) {
    nn::SinusoidalPositions layer(width, {.max_length = 9, .dtype = f64});
    EXPECT_TRUE(layer.state_dict().empty()) << "the table is not saved";
    const NDArray y = layer(zeros({7, 2, width}, f64), 2);
    for (int64_t p = 0; p < 7; ++p)
      for (int64_t i = 0; i < width; ++i) {
        const double angle = static_cast<double>(p + 2) /
                             std::pow(10000., static_cast<double>(i / 2 * 2) / static_cast<double>(width));
        const double found = y[{p, 1, i}].item<double>();
        EXPECT_NEAR(i % 2 == 0 ? std::sin(angle) : std::cos(angle), found, 1e-12);
      }
  }
}

TEST(Positions, RowsGoWithTheLength) {
  const nn::LearnedPositions layer(4, {.max_length = 3, .batch_first = true}), turned(4, {.max_length = 3});
  const NDArray x = inputs({2, 3, 4});
  EXPECT_EQ(content_of(x + layer.weight), content_of(layer(x)));
  EXPECT_EQ(content_of(x[0] + layer.weight), content_of(layer(x[0])));
  EXPECT_EQ(content_of(x + turned.weight.array().slice(0, {1, 3}).expand_dims(1)), content_of(turned(x, 1)));
  const auto refused = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(refused([&] {
                         layer(ones({2, 4, 4}));
                       }),
                       "[LearnedPositions] expected positions from 0 to 2, got 4 from 0 on"));
  EXPECT_TRUE(contains(refused([&] { layer(x, -1); }), "got 3 from -1 on"));
  EXPECT_TRUE(contains(refused([&] { layer(ones({2, 3, 5})); }), "whose rows have 4 numbers"));
  EXPECT_THROW(nn::LearnedPositions(0), InvalidArgument);
  EXPECT_THROW(nn::SinusoidalPositions(4, {.max_length = 0}), InvalidArgument);
}

TEST(Positions, RotationsGoOnBehindACache) {
  const nn::RotaryEmbedding layer({.theta = 500});
  const NDArray x = inputs({1, 2, 6, 4});
  EXPECT_EQ(content_of(layer(x).slice(2, {4, 6})), content_of(layer(x.slice(2, {4, 6}), 4)));
}

TEST(MultiheadAttention, WeightsAreThoseThatTheFastWayUses) {
  nn::MultiheadAttention attend(8, 2, {.batch_first = true});
  const NDArray x = inputs({2, 5, 8});
  NDArray padding = full({2, 5}, false, bool_);
  padding[1].fill_(true);  // no key is left for the second sequence
  for (const bool causal : {false, true}) {
    const auto [y, weights] = attend(x, x, x, {.key_padding_mask = padding, .is_causal = causal});
    const auto [z, none] =
        attend(x, x, x, {.key_padding_mask = padding, .need_weights = false, .is_causal = causal});
    EXPECT_FALSE(none.defined());
    EXPECT_LT(max(abs(y - z)).item<float>(), 1e-6f);
    EXPECT_LT(max(abs(sum(weights[0], -1) - 1)).item<float>(), 1e-6f);
    EXPECT_EQ(0, max(abs(weights[1])).item<float>());
    EXPECT_LT(max(abs(y[1] - attend.out_proj.bias)).item<float>(), 1e-6f);
    if (causal) {
      EXPECT_EQ(0, max(abs(triu(weights[0], 1))).item<float>());
    }
  }
}

TEST(MultiheadAttention, DropoutIsForTrainingAndRepeatable) {
  nn::MultiheadAttention attend(8, 2, {.dropout = 0.5, .batch_first = true});
  const NDArray x = inputs({2, 5, 8});
  const auto run = [&](uint64_t seed) {
    manual_seed(seed);
    return content_of(attend(x, x, x, nn::AttendOptions{.need_weights = false}).first);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
  attend.eval();
  EXPECT_EQ(run(1), run(2));
  nn::MultiheadAttention all(8, 2, {.dropout = 1, .batch_first = true});
  EXPECT_LT(max(abs(all(x, x, x).first - all.out_proj.bias)).item<float>(), 1e-6f) << "all weights dropped";
}

// The fast way does not store the weights that the other drops.
TEST(MultiheadAttention, DropoutMakesTheSameChoicesWithAndWithoutWeights) {
  nn::MultiheadAttention attend(8, 2, {.dropout = 0.4, .batch_first = true});
  const NDArray x = golden_numbers({2, 9, 8}, 3).to(f32);
  const NDArray mask = masked_future(9);
  for (const bool causal : {false, true}) {
    const auto run = [&](bool need_weights) {
      manual_seed(21);
      const nn::AttendOptions options{
          .need_weights = need_weights, .attn_mask = causal ? NDArray() : mask, .is_causal = causal};
      return attend(x, x, x, options).first;
    };
    const std::vector<float> stored = run(true).to_vector<float>(), fast = run(false).to_vector<float>();
    ASSERT_EQ(stored.size(), fast.size());
    for (size_t i = 0; i < stored.size(); ++i) EXPECT_NEAR(stored[i], fast[i], 1e-5);
  }
}

TEST(MultiheadAttention, TakesEmptyBatchesAndQueries) {
  nn::MultiheadAttention attend(4, 2, {.batch_first = true});
  for (const bool need : {false, true}) {
    const NDArray x = ones({0, 3, 4}), q = ones({2, 0, 4}), k = ones({2, 3, 4});
    EXPECT_EQ(Shape({0, 3, 4}), attend(x, x, x, nn::AttendOptions{.need_weights = need}).first.shape());
    EXPECT_EQ(Shape({2, 0, 4}), attend(q, k, k, nn::AttendOptions{.need_weights = need}).first.shape());
    EXPECT_EQ(Shape({2, 3, 4}), attend(k, q, q, nn::AttendOptions{.need_weights = need}).first.shape());
  }
}

TEST(MultiheadAttention, ErrorsNameTheArgument) {
  const auto refused = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(refused([] { nn::MultiheadAttention(6, 4); }), "width = 6 and heads = 4"));
  EXPECT_TRUE(
      contains(refused([] { nn::MultiheadAttention(4, 2, {.dropout = 1.5}); }), "a dropout from 0 to 1"));
  nn::MultiheadAttention attend(4, 2, {.batch_first = true});
  const NDArray x = ones({2, 3, 4});
  const auto with = [&](const nn::AttendOptions& options) {
    return refused([&] { attend(x, x, x, options); });
  };
  EXPECT_TRUE(contains(with({.attn_mask = ones({3, 4})}),
                       "[MultiheadAttention] expected attn_mask of shape (3, 3) or (4, 3, 3), got (3, 4)"));
  EXPECT_TRUE(contains(with({.key_padding_mask = ones({3, 2})}),
                       "[MultiheadAttention] expected key_padding_mask of shape (2, 3), got (3, 2)"));
  EXPECT_TRUE(
      contains(with({.attn_mask = ones({3, 3}, i32)}), "expected attn_mask of bool or of a floating"));
  EXPECT_TRUE(contains(refused([&] { attend(x, ones({2, 3, 5}), x); }), "expected widths 4, 4 and 4"));
  EXPECT_TRUE(contains(refused([&] { attend(x, ones({3, 3, 4}), ones({3, 3, 4})); }), "one batch size"));
  EXPECT_TRUE(contains(refused([&] { attend(x, x[0], x[0]); }), "all of rank 3, or of rank 2"));
  EXPECT_TRUE(
      contains(refused([] { nn::TransformerEncoderLayer(4, 2, {.activation = "tanh"}); }), "got \"tanh\""));
  EXPECT_THROW(nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 0}), InvalidArgument);
  EXPECT_THROW(nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2), -1), InvalidArgument);
  EXPECT_THROW(nn::TransformerDecoder(nn::TransformerDecoderLayer(4, 2), -1), InvalidArgument);
}

}  // namespace
}  // namespace mx
