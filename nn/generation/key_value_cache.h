// KeyValueCache: keys and values of the tokens that a Transformer has seen, so that a next token costs one
// row of every layer and not the whole text.
//
//   nn::KeyValueCache cache;
//   NDArray logits = gpt(prompt, cache);            // (batch, length, vocabulary)
//   logits = gpt(next_tokens, cache);               // (batch, 1): only the new ones
//
// If a call of GPT throws, the cache holds what it held before the call. A model of the program's own sees to
// that by truncate(). An error that appears later, when the operations run (a token that is not in the
// vocabulary), leaves the tokens in the cache, with the error: truncate() or clear() it.
//
// A handle: copies share the arrays. Thread-safety: one thread at a time may use a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <utility>

#include "ndarray/ndarray.h"

namespace mx::nn {

class KeyValueCache {
 public:
  KeyValueCache();

  /// Returns the number of tokens whose keys and values all layers have.
  int64_t length() const;
  /// Forgets all tokens, and with them an error that has poisoned their keys and values.
  void clear();
  /// Forgets all tokens but the first `length`, in all layers. If later tokens had an error (a bad index),
  /// the first ones are usable again unless an accelerator has lost them; then waits throw the error. Throws
  /// InvalidArgument for a negative length.
  void truncate(int64_t length, std::source_location where = std::source_location::current()) const;

  /// For layers. Appends keys and values (batch, heads, new tokens, width) of layer number `layer`, and
  /// returns those of all tokens, as views. Throws InvalidArgument for shapes, types and devices that differ
  /// from those before, and InvalidState if gradients would be recorded: values in a cache have none.
  std::pair<NDArray, NDArray> append(int64_t layer, const NDArray& keys, const NDArray& values) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mx::nn
