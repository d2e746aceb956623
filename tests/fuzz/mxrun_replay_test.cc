// Replays the saved messages, entries and files of mxrun in every build: complete, cut anywhere, and with any
// byte changed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/mxrun_entries.h"

namespace mx::fuzz {
namespace {

/// Calls `visit(name, text)` for every file of the reader's folder of the corpus.
template <class F>
void for_each_saved(const Target& target, F&& visit) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MX_FUZZ_CORPUS "/") + target.name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    visit(entry.path().filename().string(), std::string(std::istreambuf_iterator<char>(file), {}));
  }
}

bool run_on(const Target& target, const std::string& text) {
  return target.entry(std::as_bytes(std::span(text)));
}

TEST(MxrunReplay, TextsNamedValidAreReadAndOthersAreRefused) {
  for (const Target& target : kMxrunTargets) {
    int valid = 0, refused = 0;
    for_each_saved(target, [&](const std::string& name, const std::string& text) {
      const bool accepted = run_on(target, text);
      if (name.starts_with("valid_")) {
        EXPECT_TRUE(accepted) << target.name << "/" << name;
        ++valid;
      } else if (name.starts_with("bad_")) {
        EXPECT_FALSE(accepted) << target.name << "/" << name;
        ++refused;
      }
    });
    EXPECT_GT(valid, 0) << target.name;
    EXPECT_GT(refused, 0) << target.name;
  }
}

TEST(MxrunReplay, EveryReaderWithstandsTheTextsOfAllOthers) {
  for (const Target& folder : kMxrunTargets)
    for_each_saved(folder, [&](const std::string&, const std::string& text) {
      for (const Target& target : kMxrunTargets) run_on(target, text);
    });
}

TEST(MxrunReplay, NothingBreaksWhenATextIsCutOrAnyByteIsChanged) {
  for (const Target& target : kMxrunTargets)
    for_each_saved(target, [&](const std::string&, std::string text) {
      if (text.size() > 1200) return;
      for (size_t length = 0; length < text.size(); ++length) run_on(target, text.substr(0, length));
      for (char& c : text) {
        const char kept = c;
        for (const char changed : {'\0', '\xff', '\n', '"', '[', '9', '-', ' '}) {
          c = changed;
          run_on(target, text);
        }
        c = kept;
      }
    });
}

}  // namespace
}  // namespace mx::fuzz
