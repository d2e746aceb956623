// Replays the saved files of the fuzzers of mx::data in every build: complete, cut anywhere, and with any
// byte changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "ndarray/io/mapped_file.h"
#include "tests/fuzz/data_entries.h"

namespace mx::fuzz {
namespace {

using File = std::vector<std::byte>;

/// Calls `visit(target, name, file)` for every file of every folder of the corpus.
template <class F>
void for_each_file(F&& visit) {
  for (const Target& target : kDataTargets)
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(MX_FUZZ_CORPUS "/") + target.name)) {
      const io::MappedFile file(entry.path().string());
      visit(target, entry.path().filename().string(), File(file.bytes().begin(), file.bytes().end()));
    }
}

TEST(DataReplay, FilesNamedValidAreReadAndOthersAreRefused) {
  int valid = 0, refused = 0;
  for_each_file([&](const Target& target, const std::string& name, const File& file) {
    const bool accepted = target.entry(file);
    if (name.rfind("valid_", 0) == 0) {
      EXPECT_TRUE(accepted) << target.name << "/" << name;
      ++valid;
    } else if (name.rfind("bad_", 0) == 0) {
      EXPECT_FALSE(accepted) << target.name << "/" << name;
      ++refused;
    }
  });
  EXPECT_GT(valid, 14);
  EXPECT_GT(refused, 14);
}

TEST(DataReplay, EveryReaderWithstandsTheFilesOfEveryFormat) {
  for_each_file([](const Target&, const std::string&, const File& file) {
    for (const Target& target : kDataTargets) target.entry(file);
  });
}

TEST(DataReplay, FilesMayBeCutAnywhereAndAnyByteMayBeAnything) {
  for_each_file([](const Target& target, const std::string&, File file) {
    if (file.size() > 1500) return;
    for (size_t length = 0; length < file.size(); ++length)
      target.entry(File(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length)));
    for (std::byte& byte : file) {
      const std::byte kept = byte;
      for (int changed : {0x00, 0xff, std::to_integer<int>(kept) ^ 1, 0x39}) {
        byte = static_cast<std::byte>(changed);
        target.entry(file);
      }
      byte = kept;
    }
  });
}

}  // namespace
}  // namespace mx::fuzz
