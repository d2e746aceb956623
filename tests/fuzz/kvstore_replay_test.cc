// Replays the saved messages of parameter servers in every build: complete, cut anywhere, and with any byte
// changed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/kvstore_entries.h"

namespace mx::fuzz {
namespace {

template <class F>
void for_each_stream(F&& visit) {
  for (const Target& target : kKvstoreTargets)
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(MX_FUZZ_CORPUS "/") + target.name)) {
      std::ifstream file(entry.path(), std::ios::binary);
      visit(target, entry.path().filename().string(), std::string(std::istreambuf_iterator<char>(file), {}));
    }
}

bool runs(const Target& target, const std::string& bytes) {
  return target.entry(std::as_bytes(std::span(bytes)));
}

TEST(KvstoreReplay, StreamsNamedValidAreAcceptedAndOthersAreRefused) {
  int valid = 0, refused = 0;
  for_each_stream([&](const Target& target, const std::string& name, const std::string& bytes) {
    const bool accepted = runs(target, bytes);
    if (name.rfind("valid_", 0) == 0) {
      EXPECT_TRUE(accepted) << target.name << "/" << name;
      ++valid;
    } else {
      EXPECT_FALSE(accepted) << target.name << "/" << name;
      ++refused;
    }
  });
  EXPECT_GT(valid, 5);
  EXPECT_GT(refused, 2);
}

TEST(KvstoreReplay, NothingBreaksWhenAStreamIsCutOrAnyByteIsChanged) {
  for_each_stream([&](const Target& target, const std::string& name, std::string bytes) {
    for (size_t length = 0; length < bytes.size(); ++length) {
      const bool accepted = runs(target, bytes.substr(0, length));
      // A cut stream of several messages may end behind a whole one.
      EXPECT_TRUE(!accepted || std::string(target.name) == "kvstore_machine") << name << " cut to " << length;
    }
    for (char& byte : bytes) {
      const char kept = byte;
      for (int changed : {0xff, kept ^ 1}) {
        byte = static_cast<char>(changed);
        runs(target, bytes);
      }
      byte = kept;
    }
  });
}

}  // namespace
}  // namespace mx::fuzz
