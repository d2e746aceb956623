#include "nn/transformer.h"

#include <limits>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

MultiheadAttention attention_of(IntArg d_model, IntArg nhead, const TransformerLayerOptions& o) {
  return MultiheadAttention(d_model, nhead,
                            {.dropout = o.dropout,
                             .bias = o.bias,
                             .batch_first = o.batch_first,
                             .context = o.context,
                             .dtype = o.dtype});
}

Linear feed_forward_part(const char* layer, int64_t in, int64_t out, const TransformerLayerOptions& o) {
  MX_CHECK(o.dim_feedforward > 0, InvalidArgument, "[", layer,
           "] expected a dim_feedforward of 1 or more, got ", o.dim_feedforward);
  return Linear(in, out, LinearOptions{.bias = o.bias, .context = o.context, .dtype = o.dtype});
}

LayerNorm norm_of(int64_t width, double eps, bool bias, Context context, DType dtype) {
  return LayerNorm(Shape{width}, {.eps = eps, .bias = bias, .context = context, .dtype = dtype});
}

LayerNorm norm_of(int64_t width, const TransformerLayerOptions& o) {
  return norm_of(width, o.layer_norm_eps, o.bias, o.context, o.dtype);
}

std::string known_activation(const char* layer, const std::string& name) {
  MX_CHECK(name == "relu" || name == "gelu" || name == "gelu_tanh", InvalidArgument, "[", layer,
           "] expected the activation \"relu\", \"gelu\" or \"gelu_tanh\", got \"", name, '"');
  return name;
}

NDArray activated(const std::string& name, const NDArray& x) {
  const Arg input = detail::at_call(x);
  return name == "relu" ? relu(input) : name == "gelu" ? gelu(input) : gelu_tanh(input);
}

/// dropout_behind(linear2(dropout_inside(activation(linear1(x)))))
template <class Layer>
NDArray feed_forward(const Layer& layer, const std::string& activation, const Dropout& last,
                     const NDArray& x) {
  const std::source_location where = detail::call_site();
  const NDArray hidden = activated(activation, layer.linear1(x, where));
  return last(layer.linear2(layer.dropout(hidden, where), where), where);
}

/// Self-attention of x, then a dropout.
template <class Layer>
NDArray self_attention(const Layer& layer, const NDArray& x, const NDArray& mask, const NDArray& padding,
                       bool causal) {
  const std::source_location where = detail::call_site();
  const AttendOptions options{
      .key_padding_mask = padding, .need_weights = false, .attn_mask = mask, .is_causal = causal};
  return layer.dropout1(layer.self_attn(Arg(x, where), x, x, options).first, where);
}

template <class Layer>
ModuleList clones_of(const char* stack, const Layer& layer, int64_t count) {
  MX_CHECK(count >= 0, InvalidArgument, "[", stack, "] expected 0 or more layers, got ", count);
  ModuleList list;
  for (int64_t i = 0; i < count; ++i) list.push_back(layer.clone());
  return list;
}

std::string layer_text(const std::string& activation, bool norm_first) {
  return mx::detail::concat("activation=", activation, norm_first ? ", norm_first=true" : "");
}

TransformerLayerOptions layer_options(const TransformerOptions& o) {
  return {.dim_feedforward = o.dim_feedforward,
          .dropout = o.dropout,
          .activation = o.activation,
          .layer_norm_eps = o.layer_norm_eps,
          .batch_first = o.batch_first,
          .norm_first = o.norm_first,
          .bias = o.bias,
          .context = o.context,
          .dtype = o.dtype};
}

LayerNorm last_norm(const TransformerOptions& o) {
  return norm_of(o.d_model, o.layer_norm_eps, o.bias, o.context, o.dtype);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(IntArg d_model, IntArg nhead,
                                                 const TransformerLayerOptions& o,
                                                 std::source_location where) try
    : self_attn(add("self_attn", attention_of(d_model, nhead, o))),
      linear1(add("linear1", feed_forward_part("TransformerEncoderLayer", d_model, o.dim_feedforward, o))),
      dropout(add("dropout", Dropout(o.dropout))),
      linear2(add("linear2", feed_forward_part("TransformerEncoderLayer", o.dim_feedforward, d_model, o))),
      norm1(add("norm1", norm_of(d_model, o))),
      norm2(add("norm2", norm_of(d_model, o))),
      dropout1(add("dropout1", Dropout(o.dropout))),
      dropout2(add("dropout2", Dropout(o.dropout))),
      activation_(known_activation("TransformerEncoderLayer", o.activation)),
      norm_first_(o.norm_first) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray TransformerEncoderLayer::forward(const NDArray& src, const EncoderMasks& masks) {
  const std::source_location where = detail::call_site();
  const auto attend = [&](const NDArray& x) {
    return self_attention(*this, x, masks.mask, masks.src_key_padding_mask, masks.is_causal);
  };
  const auto feed = [&](const NDArray& x) { return feed_forward(*this, activation_, dropout2, x); };
  if (norm_first_) {
    const NDArray x = src + attend(norm1(src, where));
    return x + feed(norm2(x, where));
  }
  const NDArray x = norm1(src + attend(src), where);
  return norm2(x + feed(x), where);
}

std::string TransformerEncoderLayer::extra() const { return layer_text(activation_, norm_first_); }

TransformerDecoderLayer::TransformerDecoderLayer(IntArg d_model, IntArg nhead,
                                                 const TransformerLayerOptions& o,
                                                 std::source_location where) try
    : self_attn(add("self_attn", attention_of(d_model, nhead, o))),
      multihead_attn(add("multihead_attn", attention_of(d_model, nhead, o))),
      linear1(add("linear1", feed_forward_part("TransformerDecoderLayer", d_model, o.dim_feedforward, o))),
      dropout(add("dropout", Dropout(o.dropout))),
      linear2(add("linear2", feed_forward_part("TransformerDecoderLayer", o.dim_feedforward, d_model, o))),
      norm1(add("norm1", norm_of(d_model, o))),
      norm2(add("norm2", norm_of(d_model, o))),
      norm3(add("norm3", norm_of(d_model, o))),
      dropout1(add("dropout1", Dropout(o.dropout))),
      dropout2(add("dropout2", Dropout(o.dropout))),
      dropout3(add("dropout3", Dropout(o.dropout))),
      activation_(known_activation("TransformerDecoderLayer", o.activation)),
      norm_first_(o.norm_first) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray TransformerDecoderLayer::forward(const NDArray& tgt, const NDArray& memory,
                                         const DecoderMasks& masks) {
  const std::source_location where = detail::call_site();
  const auto attend = [&](const NDArray& x) {
    return self_attention(*this, x, masks.tgt_mask, masks.tgt_key_padding_mask, masks.tgt_is_causal);
  };
  const auto remember = [&](const NDArray& x) {
    const AttendOptions options{.key_padding_mask = masks.memory_key_padding_mask,
                                .need_weights = false,
                                .attn_mask = masks.memory_mask,
                                .is_causal = masks.memory_is_causal};
    return dropout2(multihead_attn(Arg(x, where), memory, memory, options).first, where);
  };
  const auto feed = [&](const NDArray& x) { return feed_forward(*this, activation_, dropout3, x); };
  if (norm_first_) {
    NDArray x = tgt + attend(norm1(tgt, where));
    x = x + remember(norm2(x, where));
    return x + feed(norm3(x, where));
  }
  NDArray x = norm1(tgt + attend(tgt), where);
  x = norm2(x + remember(x), where);
  return norm3(x + feed(x), where);
}

std::string TransformerDecoderLayer::extra() const { return layer_text(activation_, norm_first_); }

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, IntArg num_layers,
                                       const std::optional<LayerNorm>& last, std::source_location where) try
    : layers(add("layers", clones_of("TransformerEncoder", layer, num_layers))), norm(last) {
  if (norm) add("norm", *norm);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray TransformerEncoder::forward(const NDArray& src, const EncoderMasks& masks) {
  const std::source_location where = detail::call_site();
  NDArray x = src;
  for (int64_t i = 0; i < layers.size(); ++i) x = layers.at<TransformerEncoderLayer>(i)(Arg(x, where), masks);
  return norm ? (*norm)(x, where) : x;
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, IntArg num_layers,
                                       const std::optional<LayerNorm>& last, std::source_location where) try
    : layers(add("layers", clones_of("TransformerDecoder", layer, num_layers))), norm(last) {
  if (norm) add("norm", *norm);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray TransformerDecoder::forward(const NDArray& tgt, const NDArray& memory, const DecoderMasks& masks) {
  const std::source_location where = detail::call_site();
  NDArray x = tgt;
  for (int64_t i = 0; i < layers.size(); ++i)
    x = layers.at<TransformerDecoderLayer>(i)(Arg(x, where), memory, masks);
  return norm ? (*norm)(x, where) : x;
}

Transformer::Transformer(const TransformerOptions& o, std::source_location where) try
    : encoder(add("encoder", TransformerEncoder(TransformerEncoderLayer(o.d_model, o.nhead, layer_options(o)),
                                                o.num_encoder_layers, last_norm(o)))),
      decoder(add("decoder", TransformerDecoder(TransformerDecoderLayer(o.d_model, o.nhead, layer_options(o)),
                                                o.num_decoder_layers, last_norm(o)))) {
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void Transformer::reset_parameters(Generator* generator) {
  for (const NDArray& parameter : parameters())
    if (parameter.rank() > 1) init::xavier_uniform_(parameter, 1, generator);
}

NDArray Transformer::forward(const NDArray& src, const NDArray& tgt, const TransformerMasks& masks) {
  const std::source_location where = detail::call_site();
  const NDArray memory =
      encoder(Arg(src, where), EncoderMasks{.mask = masks.src_mask,
                                            .src_key_padding_mask = masks.src_key_padding_mask,
                                            .is_causal = masks.src_is_causal});
  return decoder(Arg(tgt, where), memory,
                 DecoderMasks{.tgt_mask = masks.tgt_mask,
                              .memory_mask = masks.memory_mask,
                              .tgt_key_padding_mask = masks.tgt_key_padding_mask,
                              .memory_key_padding_mask = masks.memory_key_padding_mask,
                              .tgt_is_causal = masks.tgt_is_causal,
                              .memory_is_causal = masks.memory_is_causal});
}

NDArray Transformer::generate_square_subsequent_mask(IntArg size, Context context, DType dtype) {
  MX_CHECK(size >= 0, InvalidArgument, "[Transformer] expected a size of 0 or more, got ", int64_t{size});
  return triu(full({size, size}, -std::numeric_limits<double>::infinity(), dtype, context), 1);
}

}  // namespace mx::nn
