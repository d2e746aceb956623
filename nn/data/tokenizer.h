// Tokenisers: text to numbers and back.
//
//   auto gpt2 = data::BytePairTokenizer::load("vocab.json", "merges.txt");
//   std::vector<int64_t> ids = gpt2.encode("Hello world");
//   data::ArrayDataset set = data::text_windows(array(ids), 128);
//
// Immutable: any thread may use a tokeniser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "nn/data/dataset.h"

namespace mx::data {

/// The byte-pair encoding of GPT-2, with its files: vocab.json maps tokens to numbers, merges.txt has a pair
/// of tokens per line, the most important pair first. Bytes are written in these files as characters that can
/// be printed.
///
/// Text is cut into words (letters, digits, other characters, each with a space before it; spaces; English
/// endings such as 's), and in each word the pair that is first in merges.txt is joined, until no pair is
/// left. decode(encode(text)) == text for any bytes, also for those that are not valid UTF-8, provided that
/// the vocabulary has the 256 bytes. Source: Radford et al., "Language models are unsupervised multitask
/// learners", 2019.
class BytePairTokenizer {
 public:
  /// Throws FileError, and FormatError, naming file and line, for a vocabulary that is not an object of
  /// different numbers from 0 on, and for pairs whose parts or result are not in the vocabulary.
  static BytePairTokenizer load(const std::string& vocabulary_path, const std::string& merges_path);
  /// The same with the contents of the files.
  BytePairTokenizer(const std::string& vocabulary, const std::string& merges,
                    const std::string& vocabulary_name = "vocabulary",
                    const std::string& merges_name = "merges");

  /// Returns the numbers of the tokens. Each of `special`, such as "<|endoftext|>", is one token wherever it
  /// occurs in the text; without it, its characters are text. Throws InvalidArgument for a special token that
  /// the vocabulary does not have, and for a byte that has no token.
  std::vector<int64_t> encode(std::string_view text, const std::vector<std::string>& special = {}) const;
  /// Throws InvalidArgument for a number that no token has.
  std::string decode(const std::vector<int64_t>& ids) const;

  /// The number of tokens.
  int64_t size() const;
  /// Returns the number of a token as it stands in the vocabulary; -1 if it is not there.
  int64_t id(const std::string& token) const;

  /// Returns the words into which encode() cuts a text.
  static std::vector<std::string_view> words(std::string_view text);

 private:
  struct Tables;
  std::shared_ptr<const Tables> tables_;
};

/// One token for each different character (Unicode code point) of a text, in ascending order.
class CharTokenizer {
 public:
  /// Throws InvalidArgument for a text without characters, or one that is not UTF-8.
  explicit CharTokenizer(std::string_view text, std::source_location where = std::source_location::current());

  /// Throws InvalidArgument for a character that the text of the constructor did not have, with its place.
  std::vector<int64_t> encode(std::string_view text) const;
  std::string decode(const std::vector<int64_t>& ids) const;
  int64_t size() const { return static_cast<int64_t>(characters_.size()); }

 private:
  std::vector<char32_t> characters_;
};

/// Returns the content of a text file, decompressed if it is in gzip format. Throws FileError and
/// FormatError.
std::string read_text_file(const std::string& path);

/// For language models: sample i is "input", tokens i * stride to i * stride + length - 1, and "target", the
/// same places one further. `tokens` is (n,), of any integer type; the windows are views of a copy. stride 0:
/// length. Throws InvalidArgument if there are not length + 1 tokens.
ArrayDataset text_windows(const NDArray& tokens, int64_t length, int64_t stride = 0);

}  // namespace mx::data
