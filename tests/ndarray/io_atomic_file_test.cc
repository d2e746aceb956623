// Whichever call fails, the file name refers to either the complete old or the complete new content.
#include "ndarray/io/atomic_file.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "tests/ndarray/io_faults.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"
#include "tests/support/forking.h"

namespace mx::io {
namespace {

using test::contains;
using test::error_of;
using test::Faults;
using test::slurp;
using test::spill;
using test::TempFolder;

const std::string kOld = "old content";
const std::string kNew(200'000, 'n');

void save(const std::string& path, FileOps& ops) {
  AtomicFile file(path, ops);
  file.write(kNew.substr(0, 10));
  file.write(kNew.substr(10, 150'000));
  file.write(kNew.substr(150'010));
  file.commit();
}

TEST(AtomicFile, WritesPiecesOfAnySizeInOrder) {
  const TempFolder folder;
  std::string expected;
  AtomicFile file(folder / "a");
  for (size_t size : {0u, 1u, 65535u, 65536u, 65537u, 7u, 131072u, 0u, 3u}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    file.write(piece);
    expected += piece;
  }
  EXPECT_EQ(expected.size(), file.bytes());
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  file.commit();
  EXPECT_EQ(expected, slurp(folder / "a"));
  EXPECT_EQ(1u, folder.count());
}

TEST(AtomicFile, EveryCallThatFailsLeavesTheOldContentAndNoDebris) {
  const TempFolder folder;
  const std::string path = folder / "a";
  spill(path, kOld);
  Faults none(-1, EIO, 50'000);
  save(path, none);
  ASSERT_TRUE(kNew == slurp(path));
  const std::vector<std::string> calls = none.calls;
  ASSERT_GT(calls.size(), 8u);
  for (size_t i = 0; i < calls.size(); ++i) {
    for (int code : {EIO, ENOSPC, EROFS, EDQUOT}) {
      spill(path, kOld);
      Faults faults(static_cast<int>(i), code, 50'000);
      // The calls after the rename flush the folder: open, fsync, close.
      const bool renamed = i + 3 >= calls.size();
      if (i + 1 == calls.size()) {
        // An error of this close is ignored, because the folder was only read.
        EXPECT_NO_THROW(save(path, faults));
      } else {
        const std::string message = error_of<FileError>([&] { save(path, faults); });
        EXPECT_TRUE(contains(message, path)) << message;
        EXPECT_TRUE(contains(message, "errno " + std::to_string(code))) << message;
        EXPECT_EQ(renamed, contains(message, "the new content")) << message;
      }
      EXPECT_TRUE((renamed ? kNew : kOld) == slurp(path)) << calls[i] << " " << i;
      EXPECT_EQ(1u, folder.count()) << calls[i] << " " << i;
    }
  }
}

TEST(AtomicFile, EveryCallThatFailsLeavesNothingWhereNothingWas) {
  const TempFolder folder;
  Faults none;
  save(folder / "counted", none);
  std::filesystem::remove(folder / "counted");
  for (size_t i = 0; i + 3 < none.calls.size(); ++i) {
    Faults faults(static_cast<int>(i));
    error_of<FileError>([&] { save(folder / "a", faults); });
    EXPECT_EQ(0u, folder.count()) << none.calls[i];
  }
}

TEST(AtomicFile, InterruptedCallsAreRepeated) {
  const TempFolder folder;
  spill(folder / "a", kOld);
  Faults none;
  save(folder / "a", none);
  for (size_t i = 0; i < none.calls.size(); ++i) {
    if (none.calls[i] == "rename" || none.calls[i] == "fchmod") continue;  // never interrupted
    spill(folder / "a", kOld);
    Faults faults(static_cast<int>(i), EINTR);
    EXPECT_NO_THROW(save(folder / "a", faults)) << none.calls[i];
    EXPECT_TRUE(kNew == slurp(folder / "a")) << none.calls[i];
    EXPECT_EQ(1u, folder.count());
  }
}

TEST(AtomicFile, TheErrorNamesCallPathReasonAndBytes) {
  const TempFolder folder;
  class Full : public FileOps {
   public:
    ssize_t write(int fd, const void* data, size_t bytes) override {
      if (room_ > 0) return room_ -= 1000, FileOps::write(fd, data, std::min<size_t>(bytes, 1000));
      errno = ENOSPC;
      return -1;
    }
    int room_ = 5000;
  } full;
  try {
    save(folder / "weights", full);
    FAIL();
  } catch (const FileError& e) {
    EXPECT_EQ("write", e.operation());
    EXPECT_EQ(ENOSPC, e.code());
    EXPECT_TRUE(contains(e.what(), "No space left on device")) << e.what();
    EXPECT_TRUE(contains(e.what(), "4010 of 150010 bytes")) << e.what();
    EXPECT_TRUE(contains(e.what(), folder / "weights")) << e.what();
  }
}

TEST(AtomicFile, ADeviceThatTakesNothingIsFull) {
  const TempFolder folder;
  Faults faults(-1, 0, 0);
  EXPECT_TRUE(contains(error_of<FileError>([&] { save(folder / "a", faults); }), "accepted no bytes"));
}

TEST(AtomicFile, WithoutCommitNothingHappens) {
  const TempFolder folder;
  spill(folder / "a", kOld);
  { AtomicFile(folder / "a").write(kNew); }
  EXPECT_EQ(kOld, slurp(folder / "a"));
  EXPECT_EQ(1u, folder.count());
}

TEST(AtomicFile, AfterCommitOrFailureItIsFinished) {
  const TempFolder folder;
  AtomicFile file(folder / "a");
  file.commit();
  EXPECT_EQ("", slurp(folder / "a"));
  error_of<InvalidState>([&] { file.write(kNew); });
  error_of<InvalidState>([&] { file.commit(); });
}

TEST(AtomicFile, PlacesWhereNothingCanBeWrittenAreNamed) {
  const TempFolder folder;
  const std::string missing = error_of<FileError>([&] { AtomicFile(folder / "no/such/file"); });
  EXPECT_TRUE(contains(missing, "No such file or directory") && contains(missing, "no/such/file")) << missing;
  EXPECT_TRUE(contains(error_of<FileError>([&] { AtomicFile{folder.path()}; }), "Is a directory"));
  EXPECT_TRUE(contains(error_of<FileError>([] { AtomicFile("/dev/null"); }), "expected a regular file"));
  error_of<InvalidArgument>([] { AtomicFile(""); });
  error_of<InvalidArgument>([] { AtomicFile("folder/"); });
  Faults read_only(0, EROFS);
  EXPECT_TRUE(
      contains(error_of<FileError>([&] { AtomicFile(folder / "a", read_only); }), "Read-only file system"));
}

TEST(AtomicFile, PermissionsStayAndLinksAreFollowed) {
  const TempFolder folder;
  spill(folder / "real", kOld);
  ASSERT_EQ(0, ::chmod((folder / "real").c_str(), 0640));
  ASSERT_EQ(0, ::symlink("real", (folder / "link").c_str()));
  save(folder / "link", FileOps::posix());
  EXPECT_TRUE(kNew == slurp(folder / "real"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  struct stat info;
  ASSERT_EQ(0, ::stat((folder / "real").c_str(), &info));
  EXPECT_EQ(0640u, info.st_mode & 07777u);
}

TEST(AtomicFile, ALinkToNothingKeepsItsPlaceAndItsTargetIsMade) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "sub");
  ASSERT_EQ(0, ::symlink("sub/real", (folder / "link").c_str()));
  ASSERT_EQ(0, ::symlink("link", (folder / "second").c_str()));
  ASSERT_EQ(0, ::symlink((folder / "absolute target").c_str(), (folder / "absolute").c_str()));
  save(folder / "second", FileOps::posix());
  save(folder / "absolute", FileOps::posix());
  for (const char* link : {"link", "second", "absolute"})
    EXPECT_TRUE(std::filesystem::is_symlink(folder / link)) << link;
  EXPECT_TRUE(kNew == slurp(folder / "sub/real"));
  EXPECT_TRUE(kNew == slurp(folder / "absolute target"));
}

TEST(AtomicFile, LinksThatLeadNowhereAreRefusedAndStay) {
  const TempFolder folder;
  ASSERT_EQ(0, ::symlink("self", (folder / "self").c_str()));
  ASSERT_EQ(0, ::symlink("b", (folder / "a").c_str()));
  ASSERT_EQ(0, ::symlink("a", (folder / "b").c_str()));
  ASSERT_EQ(0, ::symlink("no/such/folder/x", (folder / "far").c_str()));
  for (const char* name : {"self", "a"}) {
    const std::string text = error_of<FileError>([&] { save(folder / name, FileOps::posix()); });
    EXPECT_TRUE(contains(text, folder / name) && contains(text, "errno " + std::to_string(ELOOP))) << text;
  }
  error_of<FileError>([&] { save(folder / "far", FileOps::posix()); });
  for (const char* name : {"self", "a", "b", "far"})
    EXPECT_TRUE(std::filesystem::is_symlink(folder / name)) << name;
  EXPECT_EQ(4u, folder.count());
}

TEST(AtomicFile, PathsThatNoFileHasAreRefusedBeforeAnythingIsWritten) {
  const TempFolder folder;
  Faults ops;
  const std::string too_long = error_of<FileError>([&] { AtomicFile(folder / std::string(256, 'x'), ops); });
  EXPECT_TRUE(contains(too_long, "errno " + std::to_string(ENAMETOOLONG))) << too_long;
  const std::string cut = (folder / "a") + std::string("\0b", 2);
  const std::string text = error_of<InvalidArgument>([&] { AtomicFile(cut, ops); });
  EXPECT_TRUE(contains(text, "\\x00b")) << text;
  EXPECT_TRUE(ops.calls.empty());
  EXPECT_EQ(0u, folder.count());
}

TEST(AtomicFile, NamesAsLongAsTheFileSystemAllowsAndNamesThatAreTaken) {
  const TempFolder folder;
  save(folder / std::string(255, 'x'), FileOps::posix());
  EXPECT_TRUE(kNew == slurp(folder / std::string(255, 'x')));
  class Taken : public FileOps {
   public:
    int open(const char* path, int flags, mode_t mode) override {
      if (left_-- > 0) return errno = EEXIST, -1;
      return FileOps::open(path, flags, mode);
    }
    int left_ = 5;
  } taken;
  save(folder / "a", taken);
  EXPECT_TRUE(kNew == slurp(folder / "a"));
}

// Kills the process by SIGKILL right before or right after each call in turn.
class Killed : public FileOps {
 public:
  explicit Killed(int at) : at_(at) {}
  int open(const char* path, int flags, mode_t mode) override {
    return step(), FileOps::open(path, flags, mode);
  }
  ssize_t write(int fd, const void* data, size_t bytes) override {
    return step(), FileOps::write(fd, data, std::min<size_t>(bytes, 50'000));
  }
  int fsync(int fd) override { return step(), FileOps::fsync(fd); }
  int close(int fd) override { return step(), FileOps::close(fd); }
  int rename(const char* from, const char* to) override { return step(), FileOps::rename(from, to); }

 private:
  void step() {
    if (at_-- == 0) ::kill(::getpid(), SIGKILL);
  }
  int at_;
};

TEST(AtomicFile, AProcessKilledAtAnyCallLeavesTheOldContentOrAllOfTheNew) {
  const TempFolder folder;
  bool finished = false;
  int kept = 0, replaced = 0;
  for (int at = 0; !finished; ++at) {
    ASSERT_LT(at, 100);
    spill(folder / "a", kOld);
    const pid_t child = test::fork_at_rest();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Killed ops(at);
      save(folder / "a", ops);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(child, ::waitpid(child, &status, 0));
    finished = WIFEXITED(status);
    const std::string now = slurp(folder / "a");
    EXPECT_TRUE(now == kOld || now == kNew) << at;
    (now == kOld ? kept : replaced) += 1;
  }
  EXPECT_GT(kept, 5);
  EXPECT_GT(replaced, 2);
}

TEST(AtomicFile, TheLimitOfTheSystemItselfIsReported) {
  const TempFolder folder;
  spill(folder / "a", kOld);
  // By default, the system kills a process that exceeds the file size limit by a signal.
  for (const bool ignored : {false, true}) {
    const pid_t child = test::fork_at_rest();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::signal(SIGXFSZ, ignored ? SIG_IGN : SIG_DFL);
      const rlimit limit{100'000, 100'000};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(3);
      try {
        save(folder / "a", FileOps::posix());
      } catch (const FileError& e) {
        ::_exit(e.code() == EFBIG && contains(e.what(), "100000 of") ? 0 : 2);
      }
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(child, ::waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(0, WEXITSTATUS(status));
    EXPECT_EQ(kOld, slurp(folder / "a"));
    EXPECT_EQ(1u, folder.count());
  }
}

}  // namespace
}  // namespace mx::io
