#include "nn/generation/key_value_cache.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "engine/engine.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/recover.h"
#include "operators/elementwise_binary.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

constexpr int64_t kLeastCapacity = 64;  // tokens

/// The first `length` tokens of `buffer` are in use. Appends `more`; `buffer` grows if it is full.
NDArray append_to(NDArray& buffer, int64_t length, const NDArray& more) {
  const int64_t total = length + more.shape()[2];
  if (!buffer.defined() || buffer.shape()[2] < total) {
    Shape shape = more.shape();
    shape[2] = std::max(kLeastCapacity, 2 * total);
    const NDArray larger = empty(shape, more.dtype(), more.context());
    if (length > 0) larger.slice(2, {0, length}).copy_from(buffer.slice(2, {0, length}));
    buffer = larger;
  }
  buffer.slice(2, {length, total}).copy_from(more);
  return buffer.slice(2, {0, total});
}

}  // namespace

struct KeyValueCache::State {
  struct Layer {
    NDArray keys, values;
    int64_t length = 0;
  };
  std::vector<Layer> layers;
};

KeyValueCache::KeyValueCache() : state_(std::make_shared<State>()) {}

int64_t KeyValueCache::length() const {
  int64_t least = state_->layers.empty() ? 0 : state_->layers[0].length;
  for (const State::Layer& layer : state_->layers) least = std::min(least, layer.length);
  return least;
}

void KeyValueCache::clear() { state_->layers.clear(); }

void KeyValueCache::truncate(int64_t length, std::source_location where) const {
  MX_CHECK(length >= 0, InvalidArgument, "[KeyValueCache] expected a length of 0 or more, got ", length,
           mx::detail::called_at(where));
  if (length == 0) return state_->layers.clear();
  NamedArrays buffers;
  for (State::Layer& layer : state_->layers) {
    layer.length = std::min(layer.length, length);
    buffers.emplace_back("keys", layer.keys);
    buffers.emplace_back("values", layer.values);
  }
  if (!current_engine().recording()) mx::detail::undo_skipped_updates(buffers, where);
}

std::pair<NDArray, NDArray> KeyValueCache::append(int64_t number, const NDArray& keys,
                                                  const NDArray& values) const {
  MX_CHECK(number >= 0, InvalidArgument, "[KeyValueCache] expected a layer of 0 or more, got ", number);
  MX_CHECK(!grad_enabled() || !(keys.requires_grad() || values.requires_grad()), InvalidState,
           "[KeyValueCache] expected a NoGrad scope, got keys and values whose gradients are recorded");
  MX_CHECK(keys.rank() == 4 && values.rank() == 4 && keys.shape()[0] == values.shape()[0] &&
               keys.shape()[1] == values.shape()[1] && keys.shape()[2] == values.shape()[2],
           InvalidArgument,
           "[KeyValueCache] expected keys and values (batch, heads, tokens, width), got shapes ",
           keys.shape(), " and ", values.shape());
  const auto index = static_cast<size_t>(number);
  MX_CHECK(index <= state_->layers.size(), InvalidArgument, "[KeyValueCache] expected a layer from 0 to ",
           state_->layers.size(), ", because layers are filled in their order, got ", number);
  if (state_->layers.size() == index) state_->layers.emplace_back();
  State::Layer& layer = state_->layers[index];
  const auto fits = [](const NDArray& buffer, const NDArray& more) {
    const Shape &a = buffer.shape(), &b = more.shape();
    return a[0] == b[0] && a[1] == b[1] && a[3] == b[3] && buffer.dtype() == more.dtype() &&
           buffer.context() == more.context();
  };
  if (layer.length == 0) {
    // An empty cache takes any shape.
    if (layer.keys.defined() && !(fits(layer.keys, keys) && fits(layer.values, values))) layer = {};
  } else {
    MX_CHECK(fits(layer.keys, keys) && fits(layer.values, values), InvalidArgument,
             "[KeyValueCache] expected the batch, heads, width, type and device of the tokens before, ",
             layer.keys.shape(), ' ', layer.keys.dtype(), ", got ", keys.shape(), ' ', keys.dtype());
  }
  std::pair<NDArray, NDArray> all{append_to(layer.keys, layer.length, keys),
                                  append_to(layer.values, layer.length, values)};
  layer.length += keys.shape()[2];
  return all;
}

}  // namespace mx::nn
