#include "nn/generation/generate.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "nn/detail/call_site.h"
#include "operators/operators.h"

namespace mx::nn {
namespace {

/// The texts so far, of equal length; an ended sequence gets its last token again and again.
class Texts {
 public:
  Texts(const NDArray& prompts, Context context)
      : rows_(prompts.shape()[0]), tokens_(prompts.to(i64).to_vector<int64_t>()), context_(context) {
    length_ = prompts.shape()[1];
  }

  int64_t length() const { return length_; }
  /// The tokens [first, length()) of each text: (sequences, ..).
  NDArray from(int64_t first) const {
    std::vector<int64_t> part;
    for (int64_t row = 0; row < rows_; ++row)
      part.insert(part.end(), tokens_.begin() + row * length_ + first, tokens_.begin() + (row + 1) * length_);
    return array(part).reshape({rows_, length_ - first}).to(context_);
  }
  void append(const std::vector<int64_t>& next) {
    std::vector<int64_t> all;
    for (int64_t row = 0; row < rows_; ++row) {
      all.insert(all.end(), tokens_.begin() + row * length_, tokens_.begin() + (row + 1) * length_);
      all.push_back(next[static_cast<size_t>(row)]);
    }
    tokens_ = std::move(all);
    ++length_;
  }
  /// Forgets all but the last `count` tokens.
  void keep_last(int64_t count) {
    std::vector<int64_t> all;
    for (int64_t row = 0; row < rows_; ++row)
      all.insert(all.end(), tokens_.begin() + (row + 1) * length_ - count,
                 tokens_.begin() + (row + 1) * length_);
    tokens_ = std::move(all);
    length_ = count;
  }

 private:
  int64_t rows_, length_;
  std::vector<int64_t> tokens_;
  Context context_;
};

}  // namespace

std::vector<std::vector<int64_t>> generate(const TokenModel& model, const NDArray& prompts,
                                           const GenerateOptions& o, std::source_location where) try {
  MX_CHECK(model.next_logits != nullptr, InvalidArgument,
           "[generate] expected a model with a function next_logits, got an empty one");
  MX_CHECK(prompts.rank() == 2 && is_integral(prompts.dtype()), InvalidArgument,
           "[generate] expected prompts of integers (sequences, length), got ", prompts.dtype(), ' ',
           prompts.shape());
  MX_CHECK(prompts.shape()[1] > 0 && prompts.shape()[1] <= model.positions, InvalidArgument,
           "[generate] expected prompts of 1 to ", model.positions, " tokens, got ", prompts.shape()[1]);
  MX_CHECK(o.max_new_tokens >= 0, InvalidArgument, "[generate] expected max_new_tokens of 0 or more, got ",
           o.max_new_tokens);
  const detail::CallSite site(where);
  const NoGrad pause;
  const PredictMode predict;
  const SamplingOptions sampling{.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p};
  Generator own(o.seed.value_or(0));
  Generator* const generator = o.seed ? &own : nullptr;
  const auto rows = static_cast<size_t>(prompts.shape()[0]);
  std::vector<std::vector<int64_t>> results(rows);
  std::vector<char> ended(rows, 0);
  Texts texts(prompts, model.context);
  KeyValueCache cache;
  int64_t seen = 0;  // tokens whose keys and values are in the cache
  for (int64_t step = 0;
       step < o.max_new_tokens && !std::all_of(ended.begin(), ended.end(), [](char e) { return e != 0; });
       ++step) {
    if (texts.length() > model.positions) {
      texts.keep_last(std::max<int64_t>(1, model.positions / 2));
      cache.clear();
      seen = 0;
    }
    const NDArray logits = model.next_logits(texts.from(seen), o.use_cache ? &cache : nullptr);
    MX_CHECK(logits.rank() >= 1 && logits.shape()[0] == static_cast<int64_t>(rows), InvalidArgument,
             "[generate] expected next_logits to return a row for each of ", rows, " prompts, got shape ",
             logits.shape());
    if (o.use_cache) seen = texts.length();
    const std::vector<int64_t> next = sample_tokens({logits, where}, sampling, generator);
    for (size_t row = 0; row < rows; ++row) {
      if (ended[row] != 0) continue;
      results[row].push_back(next[row]);
      const bool stop =
          std::find(o.stop_tokens.begin(), o.stop_tokens.end(), next[row]) != o.stop_tokens.end();
      const bool more = !o.on_token || o.on_token(static_cast<int64_t>(row), next[row]);
      if (stop || !more) ended[row] = 1;
    }
    texts.append(next);
  }
  return results;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

std::vector<std::vector<int64_t>> generate(const GPT& gpt, const NDArray& prompts,
                                           const GenerateOptions& options, std::source_location where) {
  const TokenModel model{.next_logits =
                             [&](const NDArray& tokens, const KeyValueCache* cache) {
                               const NDArray all = gpt.features(tokens, cache);
                               return gpt.logits(all.select(1, -1));
                             },
                         .positions = gpt.options().n_positions,
                         .context = gpt.parameter("transformer.wte.weight").context()};
  return generate(model, prompts, options, where);
}

std::vector<int64_t> generate(const GPT& gpt, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options, std::source_location where) {
  const NDArray row = array(prompt).reshape({1, static_cast<int64_t>(prompt.size())});
  return generate(gpt, row, options, where)[0];
}

}  // namespace mx::nn
