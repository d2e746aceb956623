// Replays the saved inputs of the fuzzers in every build. Each file goes through each reader: complete,
// truncated anywhere, and with any byte changed. A broken promise ends the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "ndarray/io/mapped_file.h"
#include "tests/fuzz/entries.h"

namespace mx::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> corpus(const std::string& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(MX_FUZZ_CORPUS) / folder))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::byte> content(const fs::path& path) {
  const io::MappedFile file(path.string());
  return {file.bytes().begin(), file.bytes().end()};
}

TEST(FuzzReplay, FilesNamedValidAreReadAndOthersAreRefused) {
  for (const Target& target : kTargets) {
    int valid = 0, refused = 0;
    for (const fs::path& path : corpus(target.name)) {
      const std::string name = path.filename().string();
      const bool accepted = target.entry(content(path));
      if (name.rfind("valid_", 0) == 0) {
        EXPECT_TRUE(accepted) << path;
        ++valid;
      } else if (name.rfind("bad_", 0) == 0) {
        EXPECT_FALSE(accepted) << path;
        ++refused;
      }
    }
    EXPECT_GT(valid, 0) << target.name;
    EXPECT_GT(refused, 0) << target.name;
  }
}

TEST(FuzzReplay, EveryReaderWithstandsTheFilesOfEveryFormat) {
  for (const Target& folder : kTargets)
    for (const fs::path& path : corpus(folder.name)) {
      const std::vector<std::byte> file = content(path);
      for (const Target& target : kTargets) target.entry(file);
    }
}

TEST(FuzzReplay, NoValidFileCanBeCutAnywhere) {
  for (const Target& target : kTargets)
    for (const fs::path& path : corpus(target.name)) {
      const std::vector<std::byte> file = content(path);
      if (path.filename().string().rfind("valid_", 0) != 0 || file.size() > 4096) continue;
      for (size_t length = 0; length < file.size(); ++length) {
        // A separate vector, so that AddressSanitizer detects reads past its end.
        const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
        EXPECT_FALSE(target.entry(cut)) << path << " cut to " << length << " bytes";
      }
    }
}

TEST(FuzzReplay, AnyByteOfAFileMayBeAnything) {
  for (const Target& target : kTargets)
    for (const fs::path& path : corpus(target.name)) {
      std::vector<std::byte> file = content(path);
      if (file.size() > 700) continue;
      for (std::byte& byte : file) {
        const std::byte kept = byte;
        for (int changed : {0x00, 0xff, std::to_integer<int>(kept) ^ 1}) {
          byte = static_cast<std::byte>(changed);
          target.entry(file);
        }
        byte = kept;
      }
    }
}

}  // namespace
}  // namespace mx::fuzz
