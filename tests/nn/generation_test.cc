// GPT, its cache of keys and values, sampling and generation.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "ndarray/grad_mode.h"
#include "nn/nn.h"
#include "tests/ndarray/io_temp.h"
#include "tests/nn/golden.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;
using test::TempFolder;

using Tokens = std::vector<int64_t>;

// The files of tests/nn/golden; make_gpt2.py documents their contents.
const unsigned char kGpt2File[] = {
#include <golden_gpt2_safetensors.inc>
};
const char* const kGpt2Text =
#include <golden_gpt2.inc>
    ;

NamedArrays gpt2_arrays() {
  const TempFolder folder;
  test::spill(folder / "gpt2.safetensors", {reinterpret_cast<const char*>(kGpt2File), sizeof(kGpt2File)});
  return load_safetensors(folder / "gpt2.safetensors", nullptr, LoadMode::read);
}

nn::GPTOptions tiny_options() {
  return {
      .vocab_size = 13, .n_positions = 16, .n_embd = 8, .n_layer = 2, .n_head = 2, .initializer_range = 0.5};
}

NDArray golden_tokens() { return array<int64_t>({{3, 1, 4, 1, 5, 9}, {2, 6, 5, 3, 5, 8}}); }

TEST(Gpt, WeightsOfGpt2GiveTheLogitsOfPyTorch) {
  const NamedArrays arrays = gpt2_arrays();
  const nn::GPTOptions options = nn::gpt2_options(arrays, 2);
  EXPECT_EQ(11, options.vocab_size);
  EXPECT_EQ(8, options.n_positions);
  EXPECT_EQ(8, options.n_embd);
  EXPECT_EQ(2, options.n_layer);
  nn::GPT gpt(options);
  nn::load_gpt2(gpt, arrays);
  gpt.eval();
  const test::GoldenFile golden(kGpt2Text);
  test::GoldenFile single(kGpt2Text), exact(kGpt2Text);
  single.expect("logits", gpt(golden_tokens()), 1e-5);
  gpt.to(f64);
  exact.expect("logits", gpt(golden_tokens()), 1e-11);
}

TEST(Gpt, FilesTravelWithAndWithoutThePrefix) {
  const NamedArrays arrays = gpt2_arrays();
  nn::GPT gpt(nn::gpt2_options(arrays, 2)), other(nn::gpt2_options(arrays, 2));
  nn::load_gpt2(gpt, arrays);
  const TempFolder folder;
  gpt.save(folder / "full.safetensors");
  nn::load_gpt2(other, folder / "full.safetensors");
  EXPECT_EQ(test::all_values(gpt.state_dict()), test::all_values(other.state_dict()));
  NamedArrays wrong = arrays;
  wrong.erase("h.1.mlp.c_fc.weight");
  wrong.emplace_back("h.7.extra", ones({1}));
  const std::string message = error_of<InvalidArgument>([&] { nn::load_gpt2(other, wrong); });
  EXPECT_TRUE(contains(message, "transformer.h.1.mlp.c_fc.weight")) << message;
  EXPECT_TRUE(contains(message, "transformer.h.7.extra")) << message;
  EXPECT_THROW(nn::gpt2_options({}), InvalidArgument);
}

TEST(Gpt, OutputWeightsAreThoseOfTheEmbedding) {
  nn::GPT gpt(tiny_options());
  EXPECT_TRUE(gpt.parameter("lm_head.weight").array().shares_memory(gpt.parameter("transformer.wte.weight")));
  EXPECT_EQ(2 + 12 * 2 + 2, static_cast<int>(gpt.parameters().size()));
}

TEST(Gpt, Conv1dIsALinearOfTheTransposedWeight) {
  nn::Conv1D conv(3, 2), without(3, 2, {.bias = false});
  nn::Linear linear(3, 2), plain(3, 2, {.bias = false});
  const NDArray x = test::inputs({4, 3});
  {
    const NoGrad pause;
    linear.weight.copy_from(conv.weight->T());
    linear.bias.copy_from(conv.bias);
    plain.weight.copy_from(without.weight->T());
  }
  EXPECT_EQ(content_of(linear(x)), content_of(conv(x)));
  EXPECT_EQ(content_of(plain(x)), content_of(without(x)));
  sum(conv(x) * test::inputs({4, 2})).backward();
  sum(linear(x) * test::inputs({4, 2})).backward();
  EXPECT_EQ(content_of(linear.weight.grad().T()), content_of(conv.weight.grad()));
  EXPECT_THROW(nn::Conv1D(-1, 2), InvalidArgument);
}

TEST(Gpt, BlocksHaveGradientsOfTheirOwn) {
  nn::GPTBlock block(tiny_options());
  const nn::GPTBlock copy = block.clone();
  NDArray x = test::inputs({2, 5, 8}).requires_grad_();
  sum(block(x)).backward();
  for (const auto& [name, p] : block.parameters()) EXPECT_TRUE(p.grad().defined()) << name;
  for (const auto& [name, p] : copy.parameters()) EXPECT_FALSE(p.grad().defined()) << name;
  EXPECT_TRUE(bool(all(isfinite(x.grad()))));
}

TEST(Gpt, ALaterTokenLeavesEarlierLogitsAsTheyWere) {
  nn::GPT gpt(tiny_options());
  gpt.eval();
  NDArray tokens = golden_tokens().clone();
  const NDArray before = gpt(tokens);
  tokens.slice(1, {4, 6}).fill_(0);
  const NDArray after = gpt(tokens);
  EXPECT_EQ(content_of(before.slice(1, {0, 4})), content_of(after.slice(1, {0, 4})));
  EXPECT_NE(content_of(before.slice(1, {4, 6})), content_of(after.slice(1, {4, 6})));
}

TEST(Gpt, ACacheGivesTheLogitsOfTheFullPass) {
  nn::GPT gpt(tiny_options());
  gpt.to(f64);
  gpt.eval();
  const NoGrad pause;
  const NDArray tokens = golden_tokens(), all = gpt(tokens);
  for (const int64_t first : {1, 2, 5}) {
    const nn::KeyValueCache cache;
    std::vector<NDArray> parts{gpt(tokens.slice(1, {0, first}), cache)};
    for (int64_t i = first; i < 6; ++i) parts.push_back(gpt(tokens.slice(1, {i, i + 1}), cache));
    EXPECT_EQ(6, cache.length());
    EXPECT_LT(max(abs(concat(parts, 1) - all)).item<double>(), 1e-12);
  }
}

TEST(Gpt, CachesGrowAndRefuseWhatDoesNotFit) {
  nn::KeyValueCache cache;
  const NDArray k = test::inputs({1, 2, 50, 3}), v = test::inputs({1, 2, 50, 4});
  NDArray keys, values;
  for (int i = 0; i < 5; ++i) std::tie(keys, values) = cache.append(0, k, v);
  EXPECT_EQ(250, cache.length());
  EXPECT_EQ(content_of(concat({k, k, k, k, k}, 2)), content_of(keys));
  EXPECT_EQ(content_of(concat({v, v, v, v, v}, 2)), content_of(values));
  EXPECT_THROW(cache.append(0, k.to(f64), v), InvalidArgument);
  EXPECT_THROW(cache.append(0, k.slice(1, {0, 1}), v), InvalidArgument);
  EXPECT_THROW(cache.append(-1, k, v), InvalidArgument);
  EXPECT_THROW(cache.append(0, k.clone().requires_grad_(), v), InvalidState);
  cache.clear();
  EXPECT_EQ(0, cache.length());
  EXPECT_EQ(Shape({2, 1, 3, 3}), cache.append(0, ones({2, 1, 3, 3}), ones({2, 1, 3, 4})).first.shape());
}

// Some layers have the keys of the call that fails, and others have not.
TEST(Gpt, ACallThatFailsLeavesTheCacheAsItWas) {
  nn::GPT gpt(tiny_options());
  gpt.to(f64);
  gpt.eval();
  const NoGrad pause;
  const NDArray tokens = golden_tokens();
  for (const int64_t first : {0, 3}) {
    nn::KeyValueCache undisturbed;
    if (first > 0) gpt(tokens.slice(1, {0, first}), undisturbed);
    const auto expected = content_of(gpt(tokens.slice(1, {first, 6}), undisturbed));
    for (const std::string at :
         {"transformer.h.1.ln_1", "transformer.h.1.mlp", "transformer.ln_f", "lm_head"}) {
      nn::KeyValueCache cache;
      if (first > 0) gpt(tokens.slice(1, {0, first}), cache);
      for (const auto& [name, module] : gpt.named_modules()) {
        if (name != at) continue;
        nn::HookHandle hook = module->register_forward_pre_hook(
            [](const nn::Module&, std::vector<NDArray>&) { throw Error("no"); });
        error_of<Error>([&] { gpt(tokens.slice(1, {first, 6}), cache); });
        hook.remove();
      }
      EXPECT_EQ(first, cache.length()) << at;
      EXPECT_EQ(expected, content_of(gpt(tokens.slice(1, {first, 6}), cache))) << at;
    }
  }
}

TEST(Gpt, ACacheForgetsTheErrorsOfTheTokensThatItForgets) {
  nn::GPT gpt(tiny_options());
  gpt.eval();
  const NoGrad pause;
  const NDArray tokens = golden_tokens(), bad = full({tokens.shape()[0], 2}, 9999, i64);
  nn::KeyValueCache cache, undisturbed;
  gpt(tokens.slice(1, {0, 3}), undisturbed);
  const auto expected = content_of(gpt(tokens.slice(1, {3, 6}), undisturbed));
  for (const bool all : {false, true}) {
    if (!all) gpt(tokens.slice(1, {0, 3}), cache).wait();
    error_of<InvalidArgument>([&] { gpt(bad, cache).wait(); });
    EXPECT_EQ(5, cache.length());
    if (all) {
      cache.clear();
      EXPECT_EQ(0, cache.length());
      gpt(tokens.slice(1, {0, 3}), cache);
    } else {
      cache.truncate(3);
    }
    EXPECT_EQ(expected, content_of(gpt(tokens.slice(1, {3, 6}), cache)));
    cache.truncate(3);
  }
  error_of<InvalidArgument>([&] { cache.truncate(-1); });
  try {
    wait_all();
  } catch (const Error&) {
  }
}

TEST(Gpt, BadTokensAndOptionsAreNamed) {
  const auto refused = [](const auto& f) { return error_of<InvalidArgument>(f); };
  nn::GPT gpt(tiny_options());
  EXPECT_TRUE(contains(refused([&] { gpt(ones({2, 3})); }), "[GPT] expected integer tokens (batch, length)"));
  EXPECT_TRUE(contains(refused([&] {
                         gpt(zeros({1, 17}, i64));
                       }),
                       "at most n_positions = 16 tokens, got 17"));
  EXPECT_TRUE(contains(refused([] { nn::GPT({.n_embd = 10, .n_head = 4}); }), "n_embd = 10 and n_head = 4"));
  EXPECT_TRUE(contains(refused([] { nn::GPT({.vocab_size = 0}); }), "vocab_size"));
  EXPECT_TRUE(contains(refused([] { nn::GPT({.attn_pdrop = -1}); }), "attn_pdrop"));
}

TEST(Sampling, TemperatureZeroTakesTheFirstOfTheLargest) {
  const NDArray logits = array({{1.f, 3.f, 3.f, -INFINITY}, {0.f, -1.f, -2.f, 5.f}});
  EXPECT_EQ((Tokens{1, 3}), nn::sample_tokens(logits, {.temperature = 0}));
}

/// How often each token is drawn from rows of the same logits.
std::map<int64_t, int64_t> drawn(const NDArray& row, const nn::SamplingOptions& options) {
  Generator generator(5);
  std::map<int64_t, int64_t> counts;
  for (const int64_t token :
       nn::sample_tokens(row.broadcast_to({20000, row.shape()[0]}), options, &generator))
    ++counts[token];
  return counts;
}

// 20,000 draws: the standard deviation of a count is at most 71.
TEST(Sampling, TokensHaveTheirProbabilities) {
  const NDArray p = array({0.5f, 0.25f, 0.125f, 0.125f}), logits = log(p);
  auto counts = drawn(logits, {});
  EXPECT_NEAR(10000, static_cast<double>(counts[0]), 300);
  EXPECT_NEAR(5000, static_cast<double>(counts[1]), 300);
  EXPECT_NEAR(2500, static_cast<double>(counts[3]), 300);
  counts = drawn(logits, {.temperature = 0.5});  // squares of the probabilities
  EXPECT_NEAR(20000 * 0.25 / 0.34375, static_cast<double>(counts[0]), 300);
  counts = drawn(logits, {.top_k = 2});
  EXPECT_EQ(2u, counts.size());
  EXPECT_NEAR(20000 * 2. / 3, static_cast<double>(counts[0]), 300);
  counts = drawn(logits, {.top_k = 3});  // of two equal ones, the first
  EXPECT_EQ(0u, counts.count(3));
  EXPECT_EQ(3u, counts.size());
  counts = drawn(logits, {.top_p = 0.7});  // 0.5 is not enough, 0.75 is
  EXPECT_EQ(2u, counts.size());
  EXPECT_EQ(1u, drawn(logits, {.top_p = 0.01}).size());
  EXPECT_EQ(drawn(logits, {}), drawn(logits, {.top_k = 4}));
  EXPECT_EQ(drawn(logits, {}), drawn(logits, {.top_k = 100}));
  counts = drawn(array({0.f, -INFINITY, 0.f}), {});
  EXPECT_EQ(0u, counts.count(1));
}

TEST(Sampling, BadLogitsAndOptionsAreNamed) {
  const auto refused = [](const NDArray& logits, const nn::SamplingOptions& options = {}) {
    return error_of<InvalidArgument>([&] { nn::sample_tokens(logits, options); });
  };
  EXPECT_TRUE(
      contains(refused(ones({3})), "[sample_tokens] expected floating-point logits (rows, vocabulary)"));
  EXPECT_TRUE(contains(refused(array({{0.f, NAN}})), "got nan in row 0"));
  EXPECT_TRUE(contains(refused(array({{0.f, INFINITY}})), "got inf in row 0"));
  EXPECT_TRUE(contains(refused(full({1, 2}, -INFINITY)), "got none in row 0"));
  EXPECT_TRUE(contains(refused(ones({1, 2}), {.temperature = -1}), "temperature = -1"));
  EXPECT_TRUE(contains(refused(ones({1, 2}), {.top_k = -1}), "top_k = -1"));
  EXPECT_TRUE(contains(refused(ones({1, 2}), {.top_p = 0}), "top_p = 0"));
  EXPECT_TRUE(nn::sample_tokens(ones({0, 3})).empty());
}

class Generate : public ::testing::Test {
 protected:
  Generate() : gpt_(seeded()) {}
  static nn::GPT seeded() {
    manual_seed(3);
    return nn::GPT(tiny_options());
  }
  nn::GPT gpt_;
  const Tokens prompt_{1, 2, 3};
};

// 40 tokens are more than the model takes at once, so that the text is cut twice.
TEST_F(Generate, GivesTheSameTokensWithAndWithoutACache) {
  for (const uint64_t seed : {1u, 2u}) {
    const nn::GenerateOptions options{.max_new_tokens = 40, .seed = seed};
    nn::GenerateOptions plain = options;
    plain.use_cache = false;
    const Tokens tokens = nn::generate(gpt_, prompt_, options);
    EXPECT_EQ(40u, tokens.size());
    EXPECT_EQ(tokens, nn::generate(gpt_, prompt_, options)) << "the seed decides";
    EXPECT_EQ(tokens, nn::generate(gpt_, prompt_, plain));
    EXPECT_NE(tokens, nn::generate(gpt_, prompt_, {.max_new_tokens = 40, .seed = seed + 7}));
  }
}

TEST_F(Generate, TakesTheMostLikelyTokens) {
  Tokens text = prompt_;
  gpt_.eval();
  for (int i = 0; i < 8; ++i) {
    const NDArray logits = gpt_(array(text).reshape({1, static_cast<int64_t>(text.size())}));
    text.push_back(argmax(logits[0][-1]).item<int64_t>());
  }
  gpt_.train();  // its dropout has no effect on generation
  EXPECT_EQ(Tokens(text.begin() + 3, text.end()),
            nn::generate(gpt_, prompt_, {.max_new_tokens = 8, .temperature = 0}));
  EXPECT_TRUE(gpt_.training());
}

TEST_F(Generate, EndsAtStopTokensAndWhenTheProgramSaysSo) {
  const nn::GenerateOptions options{.max_new_tokens = 30, .seed = 4};
  const Tokens all = nn::generate(gpt_, prompt_, options);
  nn::GenerateOptions stop = options;
  stop.stop_tokens = {all[5]};
  const size_t end = static_cast<size_t>(std::find(all.begin(), all.end(), all[5]) - all.begin()) + 1;
  EXPECT_EQ(Tokens(all.begin(), all.begin() + static_cast<int64_t>(end)), nn::generate(gpt_, prompt_, stop));
  nn::GenerateOptions stream = options;
  Tokens seen;
  stream.on_token = [&](int64_t sequence, int64_t token) {
    EXPECT_EQ(0, sequence);
    seen.push_back(token);
    return seen.size() < 7;
  };
  EXPECT_EQ(Tokens(all.begin(), all.begin() + 7), nn::generate(gpt_, prompt_, stream));
  EXPECT_EQ(Tokens(all.begin(), all.begin() + 7), seen);
  EXPECT_TRUE(nn::generate(gpt_, prompt_, {.max_new_tokens = 0}).empty());
}

TEST_F(Generate, SequencesOfABatchEndByThemselves) {
  const NDArray prompts = array<int64_t>({{1, 2, 3}, {4, 5, 6}});
  nn::GenerateOptions options{.max_new_tokens = 6, .temperature = 0};
  const auto both = nn::generate(gpt_, prompts, options);
  EXPECT_EQ(nn::generate(gpt_, Tokens{1, 2, 3}, options), both[0]);
  EXPECT_EQ(nn::generate(gpt_, Tokens{4, 5, 6}, options), both[1]);
  options.on_token = [](int64_t sequence, int64_t) { return sequence != 0; };
  const auto cut = nn::generate(gpt_, prompts, options);
  EXPECT_EQ(1u, cut[0].size());
  EXPECT_EQ(both[1], cut[1]);
}

TEST(Generation, TheExampleOfTheDocuments) {
  nn::GPT gpt({.vocab_size = 65, .n_positions = 128, .n_embd = 64, .n_layer = 2, .n_head = 4});
  std::vector<int64_t> text =
      nn::generate(gpt, std::vector<int64_t>{1, 2, 3}, {.max_new_tokens = 20, .top_k = 10, .seed = 7});
  EXPECT_EQ(20u, text.size());
  nn::TransformerEncoderLayer layer(64, 8, {.dim_feedforward = 256, .batch_first = true, .norm_first = true});
  nn::TransformerEncoder encoder(layer, 2, nn::LayerNorm(64));
  nn::SinusoidalPositions positions(64, {.batch_first = true});
  NDArray y = encoder(positions(randn({4, 10, 64})), {.is_causal = true});
  EXPECT_EQ(Shape({4, 10, 64}), y.shape());
}

TEST_F(Generate, BadPromptsAreNamed) {
  const auto refused = [&](const NDArray& prompts, const nn::GenerateOptions& options = {}) {
    return error_of<InvalidArgument>([&] { nn::generate(gpt_, prompts, options); });
  };
  EXPECT_TRUE(contains(refused(zeros({1, 0}, i64)), "prompts of 1 to 16 tokens, got 0"));
  EXPECT_TRUE(contains(refused(zeros({1, 17}, i64)), "prompts of 1 to 16 tokens, got 17"));
  EXPECT_TRUE(contains(refused(ones({1, 2})), "prompts of integers"));
  EXPECT_TRUE(contains(refused(zeros({1, 2}, i64), {.max_new_tokens = -1}), "max_new_tokens"));
}

TEST(GenerationOfModels, RowsThatAreMissingAreRefused) {
  nn::TokenModel model;
  model.context = cpu();
  model.positions = 8;
  model.next_logits = [](const NDArray&, const nn::KeyValueCache*) { return zeros({1, 4}); };
  test::expect_error<InvalidArgument>("a row for each of 3 prompts", [&] {
    nn::generate(model, zeros({3, 2}, i64), {.max_new_tokens = 2});
  });
}

TEST(GenerationOfModels, ErrorsNameTheLineOfTheCall) {
  nn::GPT gpt({.vocab_size = 5, .n_positions = 8, .n_embd = 8, .n_layer = 1, .n_head = 2});
  const int line = __LINE__ + 1;
  const auto run = [&] { nn::generate(gpt, std::vector<int64_t>{1, 7}, {.max_new_tokens = 1}); };
  const std::string message = error_of<InvalidArgument>(run);
  EXPECT_TRUE(contains(message, "got 7 at position (0, 1)")) << message;
  EXPECT_TRUE(contains(message, mx::detail::concat(__FILE__, ":", line))) << message;
  nn::TokenModel empty;
  empty.positions = 4;
  test::expect_error<InvalidArgument>("a model with a function next_logits, got an empty one", [&] {
    nn::generate(empty, ones({1, 2}, i64));
  });
}

TEST(KeyValueCacheLayers, AFailedAppendChangesNothing) {
  const NoGrad pause;
  nn::KeyValueCache cache;
  const NDArray keys = zeros({1, 2, 3, 4});
  cache.append(0, keys, keys);
  test::expect_error<InvalidArgument>("(batch, heads, tokens, width)", [&] {
    cache.append(1, keys, zeros({2, 2, 3, 4}));
  });
  test::expect_error<InvalidArgument>("a layer from 0 to 1",
                                      [&] { cache.append(int64_t{1} << 40, keys, keys); });
  EXPECT_EQ(cache.length(), 3);
}

}  // namespace
}  // namespace mx
