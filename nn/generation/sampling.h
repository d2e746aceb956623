// Drawing tokens from logits.
//
//   std::vector<int64_t> next = nn::sample_tokens(logits, {.temperature = 0.8, .top_k = 40, .top_p = 0.95});
//
// Thread-safety: any thread may call; see Generator (operators/random.h).
#pragma once

#include <cstdint>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/random.h"

namespace mx::nn {

struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: take the most likely token
  int64_t top_k = 0;       ///< draw among the `top_k` most likely tokens; 0: among all
  /// Of these, draw among the most likely ones whose probabilities together reach `top_p`.
  double top_p = 1;
};

/// Returns one token for each row of logits (rows, vocabulary), floating point. Waits for the logits. Of
/// tokens with equal logits, the one with the lower number counts as more likely. Draws one number from
/// `generator` for each row; null: from the default generator of the CPU. Throws InvalidArgument for options
/// out of range (listed in the message), for another shape, and for a row with NaN or +infinity or without a
/// finite number.
std::vector<int64_t> sample_tokens(const Arg& logits, const SamplingOptions& options = {},
                                   Generator* generator = nullptr);

}  // namespace mx::nn
