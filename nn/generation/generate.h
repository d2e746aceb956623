// Generating text with a model of tokens.
//
//   std::vector<int64_t> text = nn::generate(gpt, prompt,
//                                            {.max_new_tokens = 200,
//                                             .temperature = 0.8,
//                                             .top_k = 40,
//                                             .seed = 7,
//                                             .on_token = [](int64_t, int64_t token) {
//                                               std::cout << letter(token) << std::flush;
//                                               return true;
//                                             }});
//
// The functions record nothing and run the model in predict mode. Thread-safety: as calls of the model; two
// calls that share a generator take turns at its numbers in any order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <vector>

#include "ndarray/ndarray.h"
#include "nn/generation/gpt.h"
#include "nn/generation/sampling.h"

namespace mx::nn {

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  double temperature = 1;  ///< these three: SamplingOptions
  int64_t top_k = 0;
  double top_p = 1;
  std::optional<uint64_t> seed{};  ///< the same seed gives the same tokens; none: the CPU's default generator
  std::vector<int64_t> stop_tokens{};  ///< a sequence ends behind one of these, which belongs to the result
  bool use_cache = true;               ///< false: every token runs the whole text again, for comparisons
  /// Called with the number of the sequence and each new token, as soon as it is drawn. Returns false to end
  /// the sequence.
  std::function<bool(int64_t sequence, int64_t token)> on_token{};
};

/// A model whose text generate() continues.
struct TokenModel {
  /// Returns the logits (batch, vocabulary) behind the last of `tokens` (batch, length), which come behind
  /// those of the cache and are added to it. The cache is null if there is none.
  std::function<NDArray(const NDArray& tokens, const KeyValueCache* cache)> next_logits;
  int64_t positions = 0;  ///< the longest text that the model takes
  Context context = cpu();
};

/// Returns the new tokens of each of the prompts (sequences, length), integers; without the prompts. A text
/// that has reached the model's longest is cut to its last half, and goes on from there. Throws
/// InvalidArgument for an empty function, for an empty prompt or one that is longer than the model takes, for
/// another rank or type, a negative number of tokens, and what sample_tokens() refuses.
std::vector<std::vector<int64_t>> generate(const TokenModel& model, const NDArray& prompts,
                                           const GenerateOptions& options = {},
                                           std::source_location where = std::source_location::current());
std::vector<std::vector<int64_t>> generate(const GPT& gpt, const NDArray& prompts,
                                           const GenerateOptions& options = {},
                                           std::source_location where = std::source_location::current());
/// The same for one prompt.
std::vector<int64_t> generate(const GPT& gpt, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options = {},
                              std::source_location where = std::source_location::current());

}  // namespace mx::nn
