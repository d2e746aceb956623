// Replays the saved texts of the fuzzers in every build: complete, cut anywhere, and with any byte changed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/text_entries.h"

namespace mx::fuzz {
namespace {

/// Calls `visit(target, name, text)` for every file of every folder of the corpus.
template <class F>
void for_each_text(F&& visit) {
  for (const Target& target : kTextTargets)
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(MX_FUZZ_CORPUS "/") + target.name)) {
      std::ifstream file(entry.path(), std::ios::binary);
      visit(target, entry.path().filename().string(), std::string(std::istreambuf_iterator<char>(file), {}));
    }
}

bool run(const Target& target, const std::string& text) {
  return target.entry(std::as_bytes(std::span(text)));
}

TEST(TextReplay, TextsNamedValidAreReadAndOthersAreRefused) {
  int valid = 0, refused = 0;
  for_each_text([&](const Target& target, const std::string& name, const std::string& text) {
    const bool accepted = run(target, text);
    if (name.rfind("valid_", 0) == 0) {
      EXPECT_TRUE(accepted) << target.name << "/" << name;
      ++valid;
    } else if (name.rfind("bad_", 0) == 0) {
      EXPECT_FALSE(accepted) << target.name << "/" << name;
      ++refused;
    }
  });
  EXPECT_GT(valid, 5);
  EXPECT_GT(refused, 5);
}

TEST(TextReplay, EveryParserWithstandsEveryTextCutAndChanged) {
  for_each_text([&](const Target&, const std::string&, std::string text) {
    for (const Target& target : kTextTargets) {
      run(target, text);
      if (text.size() > 300) continue;
      for (size_t length = 0; length < text.size(); ++length) run(target, text.substr(0, length));
      for (char& c : text) {
        const char kept = c;
        for (char changed : {'\0', '\xff', '\n', ',', '[', '9', ':', '-'}) {
          c = changed;
          run(target, text);
        }
        c = kept;
      }
    }
  });
}

}  // namespace
}  // namespace mx::fuzz
