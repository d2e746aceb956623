#include "nn/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/io/io_error.h"
#include "nn/data/bad_records.h"
#include "nn/data/unicode_class.h"

namespace mx::data {

using detail::excerpt;

struct BytePairTokenizer::Tables {
  struct Merge {
    int64_t rank = 0, result = 0;
  };
  std::unordered_map<std::string, int64_t> ids;
  std::unordered_map<int64_t, std::string> bytes;  // what each token stands for
  std::array<int64_t, 256> byte_ids{};             // -1: the vocabulary does not have the byte
  // The key has the numbers of both parts, each of at most 32 bits.
  std::unordered_map<uint64_t, Merge> merges;

  static uint64_t key(int64_t a, int64_t b) {
    return static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b);
  }
  void encode_word(std::string_view word, std::vector<int64_t>& out) const;
};

namespace {

constexpr int64_t kMostTokenId = INT32_MAX;
/// Read at most so many bytes of a compressed file.
constexpr uint64_t kMostTextBytes = uint64_t{1} << 36;

// Bytes that can be printed in Latin-1 stand for themselves. The others get the characters from 256 on, in
// order.
std::array<char32_t, 256> characters_of_bytes() {
  std::array<char32_t, 256> characters{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters[byte] = plain ? byte : next++;
  }
  return characters;
}

// Returns what a token of the vocabulary stands for: the bytes of its characters, or itself if it has others.
std::string bytes_of_token(const std::string& token, const std::unordered_map<char32_t, char>& byte_of) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const CodePoint point = next_code_point(token, at);
    const auto found = byte_of.find(point.code);
    if (found == byte_of.end()) return token;
    bytes += found->second;
    at += point.bytes;
  }
  return bytes;
}

std::unordered_map<std::string, int64_t> parse_vocabulary(const std::string& text, const std::string& name) {
  const std::string where = detail::place("tokenizer", name);
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    // The library's own text may quote the whole file.
    throw FormatError(mx::detail::concat(where, ": expected a vocabulary in JSON, got an error at offset ",
                                         e.byte > 0 ? e.byte - 1 : 0));
  } catch (const nlohmann::json::exception&) {
    throw FormatError(
        mx::detail::concat(where, ": expected a vocabulary in JSON, got a number that is too large"));
  }
  MX_CHECK(parsed.is_object(), FormatError, where, ": expected a JSON object of tokens and numbers, got ",
           parsed.type_name());
  std::unordered_map<std::string, int64_t> ids;
  std::unordered_map<int64_t, const std::string*> tokens;
  for (const auto& [token, number] : parsed.items()) {
    const bool valid = number.is_number_unsigned() && number.get<uint64_t>() <= kMostTokenId;
    MX_CHECK(valid, FormatError, where, ": expected a number from 0 to ", kMostTokenId, " for the token '",
             excerpt(token), "', got ", number.is_number() ? number.dump() : number.type_name());
    const auto at = ids.emplace(token, number.get<int64_t>()).first;
    const auto [other, is_new] = tokens.emplace(at->second, &at->first);
    MX_CHECK(is_new, FormatError, where, ": expected different numbers, got ", at->second,
             " for the tokens '", excerpt(*other->second), "' and '", excerpt(token), "'");
  }
  for (int64_t id = 0; id < static_cast<int64_t>(tokens.size()); ++id)
    MX_CHECK(tokens.contains(id), FormatError, where, ": expected the numbers from 0 to ", tokens.size() - 1,
             " for ", tokens.size(), " tokens, got none with the number ", id);
  return ids;
}

size_t run_of(std::string_view text, size_t at, bool (*belongs)(char32_t)) {
  while (at < text.size()) {
    const CodePoint point = next_code_point(text, at);
    if (!belongs(point.code)) break;
    at += point.bytes;
  }
  return at;
}

bool is_other(char32_t c) { return !is_white_space(c) && !is_letter(c) && !is_number(c); }

// Returns the end of the English ending at `at`, or `at`.
size_t ending_at(std::string_view text, size_t at) {
  for (std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.substr(at, ending.size()) == ending) return at + ending.size();
  return at;
}

// Returns the end of the word that begins at `at`.
size_t word_end(std::string_view text, size_t at) {
  if (const size_t end = ending_at(text, at); end > at) return end;
  const size_t begin = text[at] == ' ' ? at + 1 : at;
  for (bool (*belongs)(char32_t) : {is_letter, is_number, is_other})
    if (const size_t end = run_of(text, begin, belongs); end > begin) return end;
  // White space. The last of it belongs to the word behind it, if it is not the only one.
  const size_t end = run_of(text, at, is_white_space);
  if (end == text.size()) return end;
  size_t last = at;
  for (size_t next = at; next < end; next += next_code_point(text, next).bytes) last = next;
  return last > at ? last : end;
}

}  // namespace

BytePairTokenizer BytePairTokenizer::load(const std::string& vocabulary_path,
                                          const std::string& merges_path) {
  return BytePairTokenizer(detail::read_text("tokenizer", vocabulary_path, kMostTextBytes),
                           detail::read_text("tokenizer", merges_path, kMostTextBytes), vocabulary_path,
                           merges_path);
}

BytePairTokenizer::BytePairTokenizer(const std::string& vocabulary, const std::string& merges,
                                     const std::string& vocabulary_name, const std::string& merges_name) {
  const auto tables = std::make_shared<Tables>();
  tables->ids = parse_vocabulary(vocabulary, vocabulary_name);
  const std::array<char32_t, 256> characters = characters_of_bytes();
  std::unordered_map<char32_t, char> byte_of;
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_of.emplace(characters[byte], static_cast<char>(byte));
    const auto found = tables->ids.find(utf8(characters[byte]));
    tables->byte_ids[byte] = found == tables->ids.end() ? -1 : found->second;
  }
  for (const auto& [token, id] : tables->ids) tables->bytes.emplace(id, bytes_of_token(token, byte_of));

  const std::string where = detail::place("tokenizer", merges_name);
  int64_t number = 0;
  for (size_t at = 0; at < merges.size();) {
    const size_t end = std::min(merges.find('\n', at), merges.size());
    std::string line = merges.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    ++number;
    if (!line.empty() && !(number == 1 && line.rfind("#version", 0) == 0)) {
      const size_t space = line.find(' ');
      MX_CHECK(space != std::string::npos && line.find(' ', space + 1) == std::string::npos, FormatError,
               where, ", line ", number, " at offset ", at,
               ": expected two tokens with a space between, got '", excerpt(line), "'");
      const auto id_of = [&](const std::string& token) {
        const auto found = tables->ids.find(token);
        MX_CHECK(found != tables->ids.end(), FormatError, where, ", line ", number, " at offset ", at,
                 ": expected tokens of the vocabulary, got '", excerpt(token), "'");
        return found->second;
      };
      const std::string left = line.substr(0, space), right = line.substr(space + 1);
      const auto rank = static_cast<int64_t>(tables->merges.size());
      const bool is_new =
          tables->merges
              .emplace(Tables::key(id_of(left), id_of(right)), Tables::Merge{rank, id_of(left + right)})
              .second;
      MX_CHECK(is_new, FormatError, where, ", line ", number, " at offset ", at,
               ": expected a new pair, got '", excerpt(line), "' again");
    }
    at = end + 1;
  }
  tables_ = tables;
}

void BytePairTokenizer::Tables::encode_word(std::string_view word, std::vector<int64_t>& out) const {
  std::vector<int64_t> parts;
  for (const char c : word) {
    const int64_t id = byte_ids[static_cast<unsigned char>(c)];
    MX_CHECK(id >= 0, InvalidArgument,
             "[tokenizer] expected a vocabulary with all bytes of the text, got none for ",
             static_cast<int>(static_cast<unsigned char>(c)), " in '", excerpt(word), "'");
    parts.push_back(id);
  }
  while (parts.size() > 1) {
    Merge best{INT64_MAX, 0};
    uint64_t best_key = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = merges.find(key(parts[i], parts[i + 1]));
      if (found == merges.end() || found->second.rank >= best.rank) continue;
      best = found->second;
      best_key = found->first;
    }
    if (best.rank == INT64_MAX) break;
    size_t made = 0;
    for (size_t i = 0; i < parts.size(); ++made) {
      const bool pair = i + 1 < parts.size() && key(parts[i], parts[i + 1]) == best_key;
      parts[made] = pair ? best.result : parts[i];
      i += pair ? 2 : 1;
    }
    parts.resize(made);
  }
  out.insert(out.end(), parts.begin(), parts.end());
}

std::vector<std::string_view> BytePairTokenizer::words(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = word_end(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::vector<int64_t> BytePairTokenizer::encode(std::string_view text,
                                               const std::vector<std::string>& special) const {
  for (const std::string& token : special)
    MX_CHECK(!token.empty() && id(token) >= 0, InvalidArgument,
             "[tokenizer] expected special tokens of the vocabulary, got '", token, "'");
  std::vector<int64_t> ids;
  std::unordered_map<std::string_view, std::pair<size_t, size_t>>
      seen;  // the places of a word's tokens in `ids`
  const auto encode_text = [&](std::string_view part) {
    for (const std::string_view word : words(part)) {
      const auto [at, is_new] = seen.try_emplace(word);
      if (is_new) {
        at->second.first = ids.size();
        tables_->encode_word(word, ids);
        at->second.second = ids.size();
      } else {
        for (size_t i = at->second.first; i < at->second.second; ++i) ids.push_back(ids[i]);
      }
    }
  };
  for (;;) {
    size_t first = std::string_view::npos;
    const std::string* found = nullptr;
    for (const std::string& token : special) {
      const size_t at = text.find(token);
      if (at < first || (at == first && found != nullptr && token.size() > found->size())) {
        first = at;
        found = &token;
      }
    }
    encode_text(text.substr(0, first));
    if (found == nullptr) return ids;
    ids.push_back(id(*found));
    text.remove_prefix(first + found->size());
  }
}

std::string BytePairTokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto found = tables_->bytes.find(ids[i]);
    MX_CHECK(found != tables_->bytes.end(), InvalidArgument, "[tokenizer] expected numbers of tokens, got ",
             ids[i], " at position ", i);
    text += found->second;
  }
  return text;
}

int64_t BytePairTokenizer::size() const { return static_cast<int64_t>(tables_->ids.size()); }

int64_t BytePairTokenizer::id(const std::string& token) const {
  const auto found = tables_->ids.find(token);
  return found == tables_->ids.end() ? -1 : found->second;
}

CharTokenizer::CharTokenizer(std::string_view text, std::source_location where) try {
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = next_code_point(text, at);
    MX_CHECK(point.code != kInvalidByte, InvalidArgument,
             "[CharTokenizer] expected text in UTF-8, got another byte at offset ", at);
    seen[point.code] = true;
    at += point.bytes;
  }
  for (char32_t c = 0; c < seen.size(); ++c)
    if (seen[c]) characters_.push_back(c);
  MX_CHECK(!characters_.empty(), InvalidArgument,
           "[CharTokenizer] expected a text with characters, got none");
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

std::vector<int64_t> CharTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = next_code_point(text, at);
    const auto found = std::lower_bound(characters_.begin(), characters_.end(), point.code);
    MX_CHECK(found != characters_.end() && *found == point.code, InvalidArgument,
             "[CharTokenizer] expected characters of the vocabulary, got '",
             excerpt(text.substr(at, point.bytes)), "' at offset ", at);
    ids.push_back(found - characters_.begin());
    at += point.bytes;
  }
  return ids;
}

std::string CharTokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    MX_CHECK(ids[i] >= 0 && ids[i] < size(), InvalidArgument, "[CharTokenizer] expected numbers from 0 to ",
             size() - 1, ", got ", ids[i], " at position ", i);
    text += utf8(characters_[static_cast<size_t>(ids[i])]);
  }
  return text;
}

std::string read_text_file(const std::string& path) {
  return detail::read_text("text", path, kMostTextBytes);
}

ArrayDataset text_windows(const NDArray& tokens, int64_t length, int64_t stride) {
  if (stride == 0) stride = length;
  MX_CHECK(tokens.rank() == 1, InvalidArgument, "[text_windows] expected tokens (n,), got shape ",
           tokens.shape());
  MX_CHECK(is_integral(tokens.dtype()), InvalidArgument,
           "[text_windows] expected tokens of an integer type, got ", tokens.dtype());
  MX_CHECK(
      length > 0 && stride > 0 && tokens.size(0) > length, InvalidArgument,
      "[text_windows] expected a length and a stride above 0, and at least length + 1 tokens, got length ",
      length, ", stride ", stride, " and ", tokens.size(0), " tokens");
  // A copy: the offset of as_strided() counts from the start of the storage, of which tokens may be a part.
  const NDArray own = tokens.clone();
  const int64_t count = (own.size(0) - length - 1) / stride + 1;
  const auto windows = [&](int64_t first) { return own.as_strided({count, length}, {stride, 1}, first); };
  return ArrayDataset({windows(0), windows(1)}, {"input", "target"});
}

}  // namespace mx::data
