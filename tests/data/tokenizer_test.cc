// Tokenisers: the words and pairs of GPT-2's encoding, with vocabularies that the tests train, and
// characters.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "ndarray/io/io_error.h"
#include "nn/data/loader.h"
#include "nn/data/sample_random.h"
#include "nn/data/tokenizer.h"
#include "nn/data/unicode_class.h"
#include "tests/data/idx_bytes.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;

/// How GPT-2's files write a byte.
std::string written(unsigned char byte) {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> made;
    char32_t next = 256;
    for (char32_t b = 0; b < 256; ++b)
      made[b] =
          utf8((b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff) ? b : next++);
    return made;
  }();
  return table[byte];
}

struct Files {
  std::string vocabulary, merges;
};

/// Trains a vocabulary: joins the most frequent pair of neighbours within words, again and again.
Files trained(const std::string& text, int merges) {
  std::vector<std::vector<std::string>> words;
  for (const std::string_view word : BytePairTokenizer::words(text)) {
    words.emplace_back();
    for (const char c : word) words.back().push_back(written(static_cast<unsigned char>(c)));
  }
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[written(static_cast<unsigned char>(byte))] = byte;
  Files files;
  files.merges = "#version: 0.2\n";
  for (int k = 0; k < merges; ++k) {
    std::map<std::pair<std::string, std::string>, int> count;
    for (const auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) ++count[{word[i], word[i + 1]}];
    if (count.empty()) break;
    auto best = count.begin();
    for (auto at = count.begin(); at != count.end(); ++at)
      if (at->second > best->second) best = at;
    const auto [left, right] = best->first;
    files.merges += left + ' ' + right + '\n';
    if (!vocabulary.contains(left + right)) vocabulary[left + right] = vocabulary.size();
    for (auto& word : words) {
      std::vector<std::string> joined;
      for (size_t i = 0; i < word.size(); ++i)
        if (i + 1 < word.size() && word[i] == left && word[i + 1] == right) {
          joined.push_back(left + right);
          ++i;
        } else {
          joined.push_back(word[i]);
        }
      word = joined;
    }
  }
  vocabulary["<|endoftext|>"] = vocabulary.size();
  files.vocabulary = vocabulary.dump();
  return files;
}

const std::string kText =
    "The cat sat on the mat; the cats' mats weren't the cat's.  They'll sit there, 1234 times\n\n"
    "in 2026 \xc3\xa9t\xc3\xa9 na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e "
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 "
    "\xf0\x9f\x98\x80!! \xc2\xa0 x\t y\r\n  end  ";

TEST(Tokenizer, CutsTextIntoTheWordsOfGpt2) {
  using Words = std::vector<std::string_view>;
  EXPECT_EQ((Words{"Hello", " world", "!"}), BytePairTokenizer::words("Hello world!"));
  EXPECT_EQ((Words{"I", "'ll", " don", "'t", " '", "S"}), BytePairTokenizer::words("I'll don't 'S"));
  EXPECT_EQ((Words{"a", "  ", " b", "\n\n", "\n", "c", " ", "\t", "d", "   "}),
            BytePairTokenizer::words("a   b\n\n\nc \td   "));
  EXPECT_EQ((Words{"x", "12", " 34", "a", "..", " ?"}), BytePairTokenizer::words("x12 34a.. ?"));
  EXPECT_EQ((Words{" '", "s", " '", "t"}), BytePairTokenizer::words(" 's 't")) << "a space comes first";
  EXPECT_EQ((Words{}), BytePairTokenizer::words(""));
  EXPECT_EQ((Words{"\xff\xfe", "a"}), BytePairTokenizer::words("\xff\xfe"
                                                               "a"))
      << "bytes that are not UTF-8";
}

TEST(Tokenizer, AnyBytesComeBack) {
  const Files files = trained(kText, 60);
  const BytePairTokenizer tokenizer(files.vocabulary, files.merges);
  EXPECT_EQ(kText, tokenizer.decode(tokenizer.encode(kText)));
  EXPECT_LT(tokenizer.encode(kText).size(), kText.size() * 3 / 4);
  SampleRandom random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const int64_t length = random.below(40);
    for (int64_t i = 0; i < length; ++i)
      text += random.below(2) == 0
                  ? kText[static_cast<size_t>(random.below(static_cast<int64_t>(kText.size())))]
                  : static_cast<char>(random.below(256));
    EXPECT_EQ(text, tokenizer.decode(tokenizer.encode(text)));
    std::string joined;
    for (const std::string_view word : BytePairTokenizer::words(text)) {
      EXPECT_FALSE(word.empty());
      joined += word;
    }
    EXPECT_EQ(text, joined);
  }
}

TEST(Tokenizer, JoinsThePairThatStandsFirst) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[written(static_cast<unsigned char>(byte))] = byte;
  for (const std::string token : {"ab", "bc", "abc", "aa", "aaa"}) vocabulary[token] = vocabulary.size();
  const BytePairTokenizer tokenizer(vocabulary.dump(), "#version: 0.2\nb c\na b\na bc\na a\naa a\n");
  const auto tokens = [&](const std::string& text) {
    std::vector<std::string> made;
    for (int64_t id : tokenizer.encode(text)) made.push_back(tokenizer.decode({id}));
    return made;
  };
  EXPECT_EQ((std::vector<std::string>{"abc"}), tokens("abc"));
  EXPECT_EQ((std::vector<std::string>{"ab", "abc"}), tokens("ababc"));
  EXPECT_EQ((std::vector<std::string>{"aaa"}), tokens("aaa"));
  EXPECT_EQ((std::vector<std::string>{"aa", "aa"}), tokens("aaaa"));
  EXPECT_EQ((std::vector<std::string>{"aa", "aaa"}), tokens("aaaaa"));
}

TEST(Tokenizer, ThePythonOfGpt2GivesTheSameNumbers) {
  const std::string python = test::python_with("regex");
  if (python.empty()) GTEST_SKIP() << "there is no Python with the package regex";
  const test::TempFolder folder;
  const Files files = trained(kText, 80);
  test::spill(folder / "vocab.json", files.vocabulary);
  test::spill(folder / "merges.txt", files.merges);
  const BytePairTokenizer tokenizer = BytePairTokenizer::load(folder / "vocab.json", folder / "merges.txt");
  // Random characters, among them white space, combining marks, digits and letters of many scripts.
  SampleRandom random(3);
  std::string text = kText;
  const char32_t some[] = {' ',     ' ',     '\n',   0x85,  0xa0,   0x2003, 0x3000, 0x1c,   0x301,
                           '\'',    's',     'l',    0x660, 0x2160, 0xbd,   0x4e00, 0xac00, 0x5d0,
                           0x1f600, 0x10400, 0x200b, '_',   0xaa,   0x2b0,  0xfeff, 0x1d7d8};
  for (int i = 0; i < 4000; ++i)
    text += utf8(random.below(2) == 0 ? some[random.below(std::size(some))]
                                      : static_cast<char32_t>(32 + random.below(0xd000)));
  test::spill(folder / "text", text);
  ASSERT_TRUE(test::run_python(python, folder, R"(
import json, regex
pattern = regex.compile(r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")
vocab = json.load(open('vocab.json', encoding='utf-8'))
lines = open('merges.txt', encoding='utf-8').read().split('\n')[1:]
ranks = {tuple(line.split(' ')): i for i, line in enumerate(lines) if line}
plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
table, n = {}, 0
for b in range(256):
    table[b] = chr(b) if b in plain else chr(256 + n)
    n += b not in plain
ids = []
for word in pattern.findall(open('text', encoding='utf-8', newline='').read()):
    parts = [table[b] for b in word.encode()]
    while len(parts) > 1:
        rank, i = min((ranks.get(p, 1e9), i) for i, p in enumerate(zip(parts, parts[1:])))
        if rank == 1e9:
            break
        pair, made, i = (parts[i], parts[i + 1]), [], 0
        while i < len(parts):
            if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
                made.append(parts[i] + parts[i + 1])
                i += 2
            else:
                made.append(parts[i])
                i += 1
        parts = made
    ids += [vocab[p] for p in parts]
open('ids', 'w').write(' '.join(map(str, ids)))
)"));
  std::string ids;
  for (int64_t id : tokenizer.encode(text)) ids += (ids.empty() ? "" : " ") + std::to_string(id);
  EXPECT_EQ(test::slurp(folder / "ids"), ids);
}

TEST(Tokenizer, SpecialTokensAreTextUnlessTheyAreNamed) {
  const Files files = trained(kText, 10);
  const BytePairTokenizer tokenizer(files.vocabulary, files.merges);
  const int64_t end = tokenizer.id("<|endoftext|>");
  EXPECT_EQ(tokenizer.size() - 1, end);
  const std::string text = "a<|endoftext|><|endoftext|> b";
  std::vector<int64_t> expected = tokenizer.encode("a");
  expected.insert(expected.end(), {end, end});
  for (int64_t id : tokenizer.encode(" b")) expected.push_back(id);
  EXPECT_EQ(expected, tokenizer.encode(text, {"<|endoftext|>"}));
  EXPECT_EQ(text, tokenizer.decode(expected));
  EXPECT_EQ(text, tokenizer.decode(tokenizer.encode(text)));
  EXPECT_GT(tokenizer.encode(text).size(), expected.size());
  EXPECT_EQ(-1, tokenizer.id("<|no|>"));
  error_of<InvalidArgument>([&] { tokenizer.encode("a", {"<|no|>"}); });
}

TEST(Tokenizer, DamagedFilesAreNamed) {
  const auto refused = [](const std::string& vocabulary, const std::string& merges) {
    return error_of<FormatError>([&] { BytePairTokenizer(vocabulary, merges, "v.json", "m.txt"); });
  };
  EXPECT_TRUE(contains(refused("{", ""), "[tokenizer] 'v.json': expected a vocabulary in JSON"));
  EXPECT_TRUE(contains(refused("[1]", ""), "expected a JSON object of tokens and numbers, got array"));
  EXPECT_TRUE(contains(refused(R"({"a": -1})", ""), "for the token 'a', got -1"));
  EXPECT_TRUE(contains(refused(R"({"a": 1.5})", ""), "got 1.5"));
  EXPECT_TRUE(contains(refused(R"({"a": 99999999999})", ""), "got 99999999999"));
  EXPECT_TRUE(contains(refused(R"({"a": 3, "b": 3})", ""), "got 3 for the tokens 'a' and 'b'"));
  EXPECT_TRUE(
      contains(refused(R"({"a": 0})", "#version\na\n"), "'m.txt', line 2 at offset 9: expected two tokens"));
  EXPECT_TRUE(contains(refused(R"({"a": 0})", "a a\n"), "expected tokens of the vocabulary, got 'aa'"));
  EXPECT_TRUE(
      contains(refused(R"({"a": 0, "aa": 1})", "a a\na a"), "line 2 at offset 4: expected a new pair"));
  EXPECT_TRUE(contains(refused(R"({"a": 1e999})", ""), "a number that is too large"));
  EXPECT_LT(refused(std::string(100000, '['), "").size(), 200u) << "the message does not quote the file";
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_TRUE(contains(refused("{\"a\":" + deep + "}", ""), "for the token 'a', got array"));
  const BytePairTokenizer small(R"({"a": 0})", "");
  EXPECT_EQ((std::vector<int64_t>{0, 0}), small.encode("aa"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { small.encode("ab"); }), "got none for 98 in 'ab'"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { small.decode({0, 7}); }), "got 7 at position 1"));
  error_of<FileError>([] { BytePairTokenizer::load("none.json", "none.txt"); });
}

TEST(Tokenizer, CharactersAreNumberedInOrder) {
  const CharTokenizer tokenizer(
      "b\xc3\xa9"
      "ab\n");
  EXPECT_EQ(4, tokenizer.size());
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3}), tokenizer.encode("\nab\xc3\xa9"));
  EXPECT_EQ(
      "\xc3\xa9"
      "ba",
      tokenizer.decode({3, 2, 1}));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { tokenizer.encode("ax"); }), "got 'x' at offset 1"));
  error_of<InvalidArgument>([&] { tokenizer.decode({4}); });
  error_of<InvalidArgument>([] { CharTokenizer(""); });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { CharTokenizer("a\xff"); }), "offset 1"));
}

TEST(Tokenizer, WindowsOfTextPredictTheNextToken) {
  const ArrayDataset set = text_windows(arange(10), 3);
  EXPECT_EQ(3, set.size());
  Loader loader(set, {.batch_size = 3});
  const Batch batch = *loader.begin();
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}), batch["input"].to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}), batch["target"].to_vector<int64_t>());
  const ArrayDataset dense = text_windows(arange(20).slice(0, {10, {}}), 4, 1);  // a part of a larger array
  EXPECT_EQ(6, dense.size());
  EXPECT_EQ((std::vector<int64_t>{15, 16, 17, 18}), dense.gather(Indices({5}))[0].to_vector<int64_t>());
  EXPECT_EQ(1, text_windows(arange(4), 3).size());
  error_of<InvalidArgument>([] { text_windows(arange(3), 3); });
  error_of<InvalidArgument>([] { text_windows(arange(3), 0); });
  error_of<InvalidArgument>([] { text_windows(arange(4).reshape({2, 2}), 1); });
}

TEST(Tokenizer, TextFilesMayBeCompressed) {
  const test::TempFolder folder;
  test::spill(folder / "a.txt", kText);
  test::spill(folder / "a.txt.gz", test::gzipped(kText));
  EXPECT_EQ(kText, read_text_file(folder / "a.txt"));
  EXPECT_EQ(kText, read_text_file(folder / "a.txt.gz"));
}

TEST(TextWindowsTest, TokensAreIntegers) {
  test::expect_error<InvalidArgument>("tokens of an integer type",
                                      [] { data::text_windows(zeros({9}), 2, 1); });
}

}  // namespace
}  // namespace mx::data
