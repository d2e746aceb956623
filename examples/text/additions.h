// Additions as sequences of characters, for a model that reads "345+87=" and writes "432".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::examples {

struct Addition {
  int64_t a = 0, b = 0;

  std::string question() const { return std::to_string(a) + "+" + std::to_string(b) + "="; }
  std::string answer() const { return std::to_string(a + b); }
  bool operator==(const Addition&) const = default;
};

/// The characters of answers and questions are tokens: the digits are 0 to 9, then '+' and '='.
inline constexpr int64_t kAdditionEnd = 12;       ///< the token before and behind an answer
inline constexpr int64_t kAdditionTokens = 13;    ///< number of tokens
inline constexpr int64_t kAdditionIgnore = -100;  ///< the target of positions behind the end

/// Additions as numbers of tokens, i64 (steps, batch): one column for each.
struct AdditionBatch {
  NDArray question;              ///< zeros behind the end
  std::vector<int64_t> lengths;  ///< of the questions
  NDArray input;                 ///< what the decoder has read at each step: kAdditionEnd, then the answer
  NDArray target;                ///< what it should write then: the answer, kAdditionEnd, kAdditionIgnore ..
  int64_t tokens = 0;            ///< without what stands behind the ends
};
AdditionBatch batch_of(std::span<const Addition> additions);

/// The answer that begins at the first of `tokens` and ends before kAdditionEnd.
std::string answer_of(std::span<const int64_t> tokens);

/// Random additions. About a tenth of all pairs of numbers is for tests; training never has them, in either
/// order. The number of digits of each number is random. Immutable; thread-safe.
class Additions {
 public:
  /// Numbers of up to `digits` digits. Throws InvalidArgument unless that is from 2 to 9.
  Additions(int64_t digits, int64_t seed);

  /// Additions to train on. The same step gives the same ones.
  std::vector<Addition> training(int64_t step, int64_t count) const;
  /// Different additions to test with; fewer than `count` if there are not that many.
  std::vector<Addition> test(int64_t count) const;

  static bool is_test(const Addition& addition);

 private:
  int64_t digits_, seed_;
};

}  // namespace mx::examples
