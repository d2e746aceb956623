// GPT: a decoder-only Transformer of GPT-2's form, with the names and layouts of its published checkpoints.
//
//   nn::GPT gpt({.vocab_size = 50257, .n_positions = 1024, .n_embd = 768, .n_layer = 12, .n_head = 12});
//   nn::load_gpt2(gpt, "model.safetensors");
//   NDArray logits = gpt(tokens);                         // (batch, length) to (batch, length, vocab_size)
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019. Layers normalise
// first, positions are learned, and the output weights are those of the token embedding. Thread-safety: that
// of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "nn/containers.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/generation/key_value_cache.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/norm.h"

namespace mx::nn {

/// The names are those of a checkpoint's config.json.
struct GPTOptions {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;  ///< the longest text
  int64_t n_embd = 768;        ///< width; a multiple of n_head
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 0;  ///< width inside the feed-forward part; 0: 4 * n_embd
  double resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1;  ///< dropouts in training mode
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;  ///< standard deviation of the initial weights
  Context context = cpu();
  DType dtype = f32;
};

/// x weight + bias: a Linear whose weight is (in, out). GPT-2's checkpoints call it so.
class Conv1D : public ModuleOf<Conv1D> {
 public:
  /// Throws InvalidArgument for a negative size and for a type that is not floating point.
  Conv1D(IntArg in, IntArg out, const LinearOptions& options = {},
         std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

  Parameter weight, bias;
};

/// One layer: parts ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj.
class GPTBlock : public ModuleOf<GPTBlock> {
 public:
  explicit GPTBlock(const GPTOptions& options, std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override { return run(x, nullptr, 0); }
  /// The same for tokens behind those of the cache. `layer` is the number of this layer.
  NDArray forward(const NDArray& x, const KeyValueCache& cache, int64_t layer) {
    return run(x, &cache, layer);
  }

 private:
  friend class GPT;
  struct Attention : ModuleOf<Attention> {
    explicit Attention(const GPTOptions& options);
    Conv1D c_attn, c_proj;
    int64_t heads;
    double dropout;
    NDArray run(const NDArray& x, const KeyValueCache* cache, int64_t layer) const;
  };
  struct FeedForward : ModuleOf<FeedForward> {
    explicit FeedForward(const GPTOptions& options);
    NDArray forward(const NDArray& x) override;
    Conv1D c_fc, c_proj;
  };
  NDArray run(const NDArray& x, const KeyValueCache* cache, int64_t layer) const;

  LayerNorm ln_1;
  Attention attn;
  LayerNorm ln_2;
  FeedForward mlp;
  Dropout drop_;
};

/// Parameters: transformer.wte.weight (vocab_size, n_embd), transformer.wpe.weight (n_positions, n_embd),
/// transformer.h.<layer>.*, transformer.ln_f.*, and lm_head.weight, which is transformer.wte.weight. Weights
/// start normal with the standard deviation initializer_range, those of attn.c_proj and mlp.c_proj divided by
/// sqrt(2 n_layer); biases start as zeros.
class GPT : public ModuleOf<GPT> {
 public:
  /// Throws InvalidArgument, naming the option, for sizes of 0 or less, a width that is no multiple of the
  /// heads, a dropout outside of [0, 1], and a type that is not floating point.
  explicit GPT(const GPTOptions& options = {}, std::source_location where = std::source_location::current());
  /// Maps tokens (batch, length) to logits (batch, length, vocab_size). Throws InvalidArgument for tokens of
  /// another rank or type, and for more than n_positions of them.
  NDArray forward(const NDArray& tokens) override { return logits(features(tokens, nullptr)); }
  /// The same for tokens that come behind those of the cache, to which it adds them. In a NoGrad scope only.
  /// If it throws, it adds none.
  NDArray forward(const NDArray& tokens, const KeyValueCache& cache);
  /// Returns what the last norm gives: (batch, length, n_embd). `cache` may be null. If it throws, it adds no
  /// token to the cache.
  NDArray features(const NDArray& tokens, const KeyValueCache* cache = nullptr) const;
  /// Maps features (.., n_embd) to logits (.., vocab_size).
  NDArray logits(const NDArray& features) const;
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;
  const GPTOptions& options() const { return options_; }

 private:
  struct Body : ModuleOf<Body> {
    explicit Body(const GPTOptions& options);
    Embedding wte, wpe;
    Dropout drop;
    ModuleList h;
    LayerNorm ln_f;
  };

  GPTOptions options_;
  Body transformer_;
  Linear lm_head_;
};

/// Loads a checkpoint of GPT-2's form. Names may lack the prefix "transformer."; lm_head.weight may be
/// missing; the masks that old files have among the weights (h.0.attn.bias, h.0.attn.masked_bias) are
/// skipped. Throws InvalidArgument, listing all mismatches, before anything is changed.
void load_gpt2(GPT& gpt, const NamedArrays& arrays);
/// The same from a safetensors file. Also throws what load_safetensors() throws.
void load_gpt2(GPT& gpt, const std::string& path);
/// Returns the sizes that the arrays of such a checkpoint have. The number of heads is none of them: it is
/// n_embd / 64, as in all published sizes, or `n_head` if it is not 0. Throws InvalidArgument if an array
/// that tells a size is missing.
GPTOptions gpt2_options(const NamedArrays& arrays, int64_t n_head = 0);

}  // namespace mx::nn
