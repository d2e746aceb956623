// Layers and stacks of a Transformer, with the names, layouts, options and defaults of torch.nn.
//
//   nn::TransformerEncoderLayer layer(64, 8, {.dim_feedforward = 256, .batch_first = true, .norm_first =
//   true}); nn::TransformerEncoder encoder(layer, 6, nn::LayerNorm(64)); NDArray y = encoder(x, {.is_causal =
//   true});
//
// Masks are those of PyTorch (nn/attention.h): in a mask of bool, true means that the key is masked.
//
// Source: Vaswani et al., "Attention Is All You Need", 2017; with `norm_first`, Xiong et al., "On Layer
// Normalization in the Transformer Architecture", 2020. Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "nn/attention.h"
#include "nn/containers.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/norm.h"

namespace mx::nn {

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;             ///< of attention weights and of the three results, in training mode
  std::string activation = "relu";  ///< "relu", "gelu", or "gelu_tanh" for its tanh approximation
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  ///< arrays are (batch, length, width), not (length, batch, width)
  bool norm_first = false;   ///< normalise what enters attention and feed-forward, not their sums
  bool bias = true;          ///< of all parts
  Context context = cpu();
  DType dtype = f32;
};

/// Masks of one call of an encoder.
struct EncoderMasks {
  NDArray mask{};                  ///< AttendOptions::attn_mask
  NDArray src_key_padding_mask{};  ///< AttendOptions::key_padding_mask
  bool is_causal = false;          ///< AttendOptions::is_causal

  template <class V>
  void arrays(V&& visit) {
    visit(mask);
    visit(src_key_padding_mask);
  }
};

/// Masks of one call of a decoder.
struct DecoderMasks {
  NDArray tgt_mask{}, memory_mask{};
  NDArray tgt_key_padding_mask{}, memory_key_padding_mask{};
  bool tgt_is_causal = false, memory_is_causal = false;

  template <class V>
  void arrays(V&& visit) {
    visit(tgt_mask);
    visit(memory_mask);
    visit(tgt_key_padding_mask);
    visit(memory_key_padding_mask);
  }
};

/// Self-attention and two linear layers, each with a residual connection and a LayerNorm. Parts: self_attn,
/// linear1, dropout, linear2, norm1, norm2, dropout1, dropout2.
class TransformerEncoderLayer : public ModuleOf<TransformerEncoderLayer> {
 public:
  /// Throws InvalidArgument for what MultiheadAttention refuses, a dim_feedforward below 1, and an activation
  /// that it does not know.
  TransformerEncoderLayer(IntArg d_model, IntArg nhead, const TransformerLayerOptions& options = {},
                          std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& src) override { return forward(src, EncoderMasks{}); }
  NDArray forward(const NDArray& src, const EncoderMasks& masks);
  // Masks in braces: layer(x, {.is_causal = true}).
  using ModuleOf::operator();
  NDArray operator()(const Arg& src, const EncoderMasks& masks) const {
    return ModuleOf::operator()<const EncoderMasks&>(src, masks);
  }
  std::string extra() const override;

  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;

 private:
  std::string activation_;
  bool norm_first_;
};

/// The same with attention to `memory`, the output of an encoder, in between. Parts: self_attn,
/// multihead_attn, linear1, dropout, linear2, norm1 to norm3, dropout1 to dropout3.
class TransformerDecoderLayer : public ModuleOf<TransformerDecoderLayer> {
 public:
  TransformerDecoderLayer(IntArg d_model, IntArg nhead, const TransformerLayerOptions& options = {},
                          std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& tgt, const NDArray& memory, const DecoderMasks& masks = {});
  // Masks in braces: layer(x, memory, {.tgt_is_causal = true}).
  using ModuleOf::operator();
  NDArray operator()(const Arg& tgt, const NDArray& memory, const DecoderMasks& masks = {}) const {
    return ModuleOf::operator()<const NDArray&, const DecoderMasks&>(tgt, memory, masks);
  }
  std::string extra() const override;

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;

 private:
  std::string activation_;
  bool norm_first_;
};

/// `num_layers` clones of a layer, and a norm behind them if there is one. As in PyTorch, all clones start
/// with the same numbers. Parts: layers, norm.
class TransformerEncoder : public ModuleOf<TransformerEncoder> {
 public:
  /// Throws InvalidArgument for a negative number of layers.
  TransformerEncoder(const TransformerEncoderLayer& layer, IntArg num_layers,
                     const std::optional<LayerNorm>& norm = {},
                     std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& src) override { return forward(src, EncoderMasks{}); }
  NDArray forward(const NDArray& src, const EncoderMasks& masks);
  // Masks in braces: layer(x, {.is_causal = true}).
  using ModuleOf::operator();
  NDArray operator()(const Arg& src, const EncoderMasks& masks) const {
    return ModuleOf::operator()<const EncoderMasks&>(src, masks);
  }

  ModuleList layers;
  std::optional<LayerNorm> norm;
};

/// The same for decoder layers.
class TransformerDecoder : public ModuleOf<TransformerDecoder> {
 public:
  TransformerDecoder(const TransformerDecoderLayer& layer, IntArg num_layers,
                     const std::optional<LayerNorm>& norm = {},
                     std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& tgt, const NDArray& memory, const DecoderMasks& masks = {});
  // Masks in braces: layer(x, memory, {.tgt_is_causal = true}).
  using ModuleOf::operator();
  NDArray operator()(const Arg& tgt, const NDArray& memory, const DecoderMasks& masks = {}) const {
    return ModuleOf::operator()<const NDArray&, const DecoderMasks&>(tgt, memory, masks);
  }

  ModuleList layers;
  std::optional<LayerNorm> norm;
};

struct TransformerOptions {
  int64_t d_model = 512;
  int64_t nhead = 8;
  int64_t num_encoder_layers = 6;
  int64_t num_decoder_layers = 6;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
  Context context = cpu();
  DType dtype = f32;
};

/// Masks of one call of a Transformer.
struct TransformerMasks {
  NDArray src_mask{}, tgt_mask{}, memory_mask{};
  NDArray src_key_padding_mask{}, tgt_key_padding_mask{}, memory_key_padding_mask{};
  bool src_is_causal = false, tgt_is_causal = false, memory_is_causal = false;

  template <class V>
  void arrays(V&& visit) {
    for (NDArray* mask : {&src_mask, &tgt_mask, &memory_mask, &src_key_padding_mask, &tgt_key_padding_mask,
                          &memory_key_padding_mask})
      visit(*mask);
  }
};

/// An encoder and a decoder, both with a norm at the end. Parameters of two or more dimensions start as
/// init::xavier_uniform_ says. Parts: encoder, decoder.
class Transformer : public ModuleOf<Transformer> {
 public:
  explicit Transformer(const TransformerOptions& options = {},
                       std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& src, const NDArray& tgt, const TransformerMasks& masks = {});
  // Masks in braces: net(src, tgt, {.tgt_is_causal = true}).
  using ModuleOf::operator();
  NDArray operator()(const Arg& src, const NDArray& tgt, const TransformerMasks& masks = {}) const {
    return ModuleOf::operator()<const NDArray&, const TransformerMasks&>(src, tgt, masks);
  }
  void reset_parameters(Generator* generator = nullptr);
  /// Returns a mask (size, size) that is added to scores: -infinity for keys behind the query, otherwise 0.
  /// `is_causal` does the same and is faster.
  static NDArray generate_square_subsequent_mask(IntArg size, Context context = cpu(), DType dtype = f32);

  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

}  // namespace mx::nn
