// KeyValueCache: keys and values of the tokens that a Transformer has seen, so that a next token costs one
// row of every layer and not the whole text.
//
//   nn::KeyValueCache cache;
//   NDArray logits = gpt(prompt, cache);            // (batch, length, vocabulary)
//   logits = gpt(next_tokens, cache);               // (batch, 1): only the new ones
//
// A handle: copies share the arrays. Thread-safety: one thread at a time may use a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "ndarray/ndarray.h"

namespace mx::nn {

class KeyValueCache {
 public:
  KeyValueCache();

  /// Returns the number of tokens whose keys and values all layers have.
  int64_t length() const;
  /// Forgets all tokens. The memory is kept for the next ones.
  void clear();

  /// For layers. Appends keys and values (batch, heads, new tokens, width) of layer number `layer`, and
  /// returns those of all tokens, as views. Throws InvalidArgument for shapes, types and devices that differ
  /// from those before, and InvalidState if gradients would be recorded: values in a cache have none.
  std::pair<NDArray, NDArray> append(int64_t layer, const NDArray& keys, const NDArray& values) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mx::nn
