#include "nn/generation/gpt.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/attend.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/attention.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

GPTOptions checked(const GPTOptions& o) {
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", o.vocab_size},
                                                   {"n_positions", o.n_positions},
                                                   {"n_embd", o.n_embd},
                                                   {"n_head", o.n_head}};
  for (const auto& [name, size] : sizes)
    MX_CHECK(size > 0, InvalidArgument, "[GPT] expected ", name, " of 1 or more, got ", size);
  MX_CHECK(o.n_layer >= 0, InvalidArgument, "[GPT] expected n_layer of 0 or more, got ", o.n_layer);
  MX_CHECK(o.n_inner >= 0, InvalidArgument, "[GPT] expected n_inner of 0 or more, got ", o.n_inner);
  MX_CHECK(o.n_embd % o.n_head == 0, InvalidArgument,
           "[GPT] expected n_embd to be a multiple of n_head, got n_embd = ", o.n_embd,
           " and n_head = ", o.n_head);
  const std::pair<const char*, double> dropouts[] = {
      {"resid_pdrop", o.resid_pdrop}, {"embd_pdrop", o.embd_pdrop}, {"attn_pdrop", o.attn_pdrop}};
  for (const auto& [name, p] : dropouts)
    MX_CHECK(p >= 0 && p <= 1, InvalidArgument, "[GPT] expected ", name, " from 0 to 1, got ", p);
  MX_CHECK(is_floating(o.dtype), InvalidArgument, "[GPT] expected a floating-point type, got ", o.dtype);
  return o;
}

int64_t inner_width(const GPTOptions& o) { return o.n_inner > 0 ? o.n_inner : 4 * o.n_embd; }

Conv1D projection(int64_t in, int64_t out, const GPTOptions& o) {
  return Conv1D(in, out, LinearOptions{.context = o.context, .dtype = o.dtype});
}

LayerNorm norm_before(const GPTOptions& o) {
  return LayerNorm(Shape{o.n_embd}, {.eps = o.layer_norm_epsilon, .context = o.context, .dtype = o.dtype});
}

Embedding table(int64_t rows, const GPTOptions& o) {
  return Embedding(rows, o.n_embd, EmbeddingOptions{.context = o.context, .dtype = o.dtype});
}

}  // namespace

Conv1D::Conv1D(IntArg in, IntArg out, const LinearOptions& options, std::source_location where) try {
  MX_CHECK(in >= 0 && out >= 0, InvalidArgument,
           "[Conv1D] expected sizes of 0 or more, got in = ", int64_t{in}, " and out = ", int64_t{out});
  MX_CHECK(is_floating(options.dtype), InvalidArgument, "[Conv1D] expected a floating-point type, got ",
           options.dtype);
  weight = add_parameter("weight", empty({in, out}, options.dtype, options.context));
  init::normal_(weight, 0, 0.02);
  if (options.bias) bias = add_parameter("bias", zeros({out}, options.dtype, options.context));
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray Conv1D::forward(const NDArray& x) {
  const Arg input = detail::at_call(x);
  return bias.defined() ? linear(input, weight->T(), bias) : linear(input, weight->T());
}

std::string Conv1D::extra() const {
  return mx::detail::concat("in=", weight.shape()[0], ", out=", weight.shape()[1],
                            bias.defined() ? "" : ", bias=false");
}

GPTBlock::Attention::Attention(const GPTOptions& o)
    : c_attn(add("c_attn", projection(o.n_embd, 3 * o.n_embd, o))),
      c_proj(add("c_proj", projection(o.n_embd, o.n_embd, o))),
      heads(o.n_head),
      dropout(o.attn_pdrop) {}

NDArray GPTBlock::Attention::run(const NDArray& x, const KeyValueCache* cache, int64_t layer) const {
  const std::source_location where = detail::call_site();
  const NDArray projected = c_attn(x, where);
  const double dropped = train_mode() ? dropout : 0;
  if (cache == nullptr && dropped == 0)
    return c_proj(attention_packed({projected, where}, {.heads = heads, .causal = true}), where);
  const std::vector<NDArray> parts = split({projected, where}, int64_t{3}, -1);
  const NDArray q = detail::in_heads(parts[0], heads);
  NDArray k = detail::in_heads(parts[1], heads), v = detail::in_heads(parts[2], heads);
  int64_t before = 0;
  if (cache != nullptr) {
    std::tie(k, v) = cache->append(layer, k, v);
    before = k.shape()[2] - q.shape()[2];
  }
  const NDArray y =
      detail::attend(q, k, v, {.causal = true, .causal_offset = before, .dropout = dropped}).first;
  return c_proj(detail::joined_heads(y), where);
}

GPTBlock::FeedForward::FeedForward(const GPTOptions& o)
    : c_fc(add("c_fc", projection(o.n_embd, inner_width(o), o))),
      c_proj(add("c_proj", projection(inner_width(o), o.n_embd, o))) {}

NDArray GPTBlock::FeedForward::forward(const NDArray& x) {
  const std::source_location where = detail::call_site();
  return c_proj(gelu_tanh({c_fc(x, where), where}), where);
}

GPTBlock::GPTBlock(const GPTOptions& o, std::source_location where) try
    : ln_1(add("ln_1", norm_before(o))),
      attn(add("attn", Attention(checked(o)))),
      ln_2(add("ln_2", norm_before(o))),
      mlp(add("mlp", FeedForward(o))),
      drop_(add("drop", Dropout(o.resid_pdrop))) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray GPTBlock::run(const NDArray& x, const KeyValueCache* cache, int64_t layer) const {
  const std::source_location where = detail::call_site();
  const NDArray y = mx::add({x, where}, drop_(attn.run(ln_1(x, where), cache, layer), where));
  return mx::add({y, where}, drop_(mlp(ln_2(y, where), where), where));
}

GPT::Body::Body(const GPTOptions& o)
    : wte(add("wte", table(o.vocab_size, o))),
      wpe(add("wpe", table(o.n_positions, o))),
      drop(add("drop", Dropout(o.embd_pdrop))),
      ln_f(norm_before(o)) {
  for (int64_t i = 0; i < o.n_layer; ++i) h.push_back(GPTBlock(o));
  add("h", h);
  add("ln_f", ln_f);
}

GPT::GPT(const GPTOptions& options, std::source_location where) try
    : options_(checked(options)),
      transformer_(add("transformer", Body(options_))),
      lm_head_(
          add("lm_head",
              Linear(options_.n_embd, options_.vocab_size,
                     LinearOptions{.bias = false, .context = options_.context, .dtype = options_.dtype}))) {
  lm_head_.weight.tie(transformer_.wte.weight);
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void GPT::reset_parameters(Generator* generator) {
  const double range = options_.initializer_range;
  const double last = range / std::sqrt(2.0 * static_cast<double>(options_.n_layer));
  for (const auto& [name, parameter] : parameters()) {
    if (name.ends_with("bias"))
      init::zeros_(parameter);
    else if (parameter.rank() > 1)
      init::normal_(parameter, 0, name.ends_with("c_proj.weight") ? last : range, generator);
    else
      init::ones_(parameter);  // of the norms
  }
}

NDArray GPT::forward(const NDArray& tokens, const KeyValueCache& cache) {
  const int64_t before = cache.length();
  try {
    return logits(features(tokens, &cache));
  } catch (...) {
    cache.truncate(before);
    throw;
  }
}

NDArray GPT::features(const NDArray& tokens, const KeyValueCache* cache) const {
  const std::source_location where = detail::call_site();
  MX_CHECK(tokens.rank() == 2 && is_integral(tokens.dtype()), InvalidArgument,
           "[GPT] expected integer tokens (batch, length), got ", tokens.dtype(), ' ', tokens.shape());
  const int64_t before = cache != nullptr ? cache->length() : 0, end = before + tokens.shape()[1];
  MX_CHECK(end <= options_.n_positions, InvalidArgument,
           "[GPT] expected at most n_positions = ", options_.n_positions, " tokens, got ", end,
           before > 0 ? " with those of the cache" : "");
  const NDArray positions = transformer_.wpe.weight.array().slice(0, {before, end});
  NDArray x = transformer_.drop(mx::add({transformer_.wte(tokens, where), where}, positions), where);
  try {
    for (int64_t i = 0; i < options_.n_layer; ++i) {
      const auto& block = transformer_.h.at<GPTBlock>(i);
      x = cache != nullptr ? block(Arg(x, where), *cache, i) : block(x, where);
    }
    return transformer_.ln_f(x, where);
  } catch (...) {
    // Some layers may have got the keys of these tokens. With different lengths, the next call would attend
    // to the wrong positions.
    if (cache != nullptr) cache->truncate(before);
    throw;
  }
}

NDArray GPT::logits(const NDArray& features) const { return lm_head_(features, detail::call_site()); }

std::string GPT::extra() const {
  return mx::detail::concat("n_positions=", options_.n_positions, ", n_head=", options_.n_head);
}

namespace {

/// The names that GPT has, without the masks of old files.
NamedArrays with_full_names(const NamedArrays& arrays) {
  NamedArrays list;
  for (const auto& [name, array] : arrays) {
    if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;
    const bool full = name.starts_with("transformer.") || name.starts_with("lm_head.");
    list.emplace_back(full ? name : "transformer." + name, array);
  }
  return list;
}

int64_t size_in(const NamedArrays& arrays, const std::string& name, int axis) {
  const NDArray* const array = arrays.find(name);
  MX_CHECK(array != nullptr && array->rank() == 2, InvalidArgument, "[gpt2_options] expected a matrix ", name,
           ", got ", array == nullptr ? "none" : "another rank");
  return array->shape()[axis];
}

}  // namespace

void load_gpt2(GPT& gpt, const NamedArrays& arrays) { gpt.load_state_dict(with_full_names(arrays)); }

void load_gpt2(GPT& gpt, const std::string& path) {
  load_gpt2(gpt, load_safetensors(path, nullptr, LoadMode::map));
}

GPTOptions gpt2_options(const NamedArrays& given, int64_t n_head) {
  const NamedArrays arrays = with_full_names(given);
  GPTOptions o;
  o.vocab_size = size_in(arrays, "transformer.wte.weight", 0);
  o.n_embd = size_in(arrays, "transformer.wte.weight", 1);
  o.n_positions = size_in(arrays, "transformer.wpe.weight", 0);
  o.n_layer = 0;
  const auto layer = [&] { return "transformer.h." + std::to_string(o.n_layer) + ".mlp.c_fc.weight"; };
  while (arrays.find(layer()) != nullptr) {
    o.n_inner = size_in(arrays, layer(), 1);
    ++o.n_layer;
  }
  o.n_head = n_head > 0 ? n_head : std::max<int64_t>(1, o.n_embd / 64);
  return o;
}

}  // namespace mx::nn
