// A checkpoint's file name refers to either the complete old or the complete new one, wherever the process
// that writes it is stopped.
#include "nn/training/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "tests/ndarray/io_faults.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Faults;
using test::slurp;
using test::TempFolder;
using training::Checkpoint;

/// Simulates a process that dies: from call number `at` on, nothing reaches the disk, not even cleanup. If
/// the last call is a write, half of its bytes reach the disk.
class Dies : public io::FileOps {
 public:
  explicit Dies(int at) : at_(at) {}

  int open(const char* path, int flags, mode_t mode) override {
    return alive("open") ? io::FileOps::open(path, flags, mode) : -1;
  }
  ssize_t write(int fd, const void* data, size_t bytes) override {
    if (alive("write")) return io::FileOps::write(fd, data, bytes);
    if (static_cast<int>(calls.size()) - 1 == at_) (void)io::FileOps::write(fd, data, bytes / 2);
    errno = EIO;
    return -1;
  }
  int fchmod(int fd, mode_t mode) override { return alive("fchmod") ? io::FileOps::fchmod(fd, mode) : -1; }
  int fsync(int fd) override { return alive("fsync") ? io::FileOps::fsync(fd) : -1; }
  int close(int fd) override {
    const bool was_alive = alive("close");
    // Changes nothing on the disk, and the test process must not leak the descriptor.
    const int result = io::FileOps::close(fd);
    return was_alive ? result : -1;
  }
  int rename(const char* from, const char* to) override {
    return alive("rename") ? io::FileOps::rename(from, to) : -1;
  }
  int unlink(const char* path) override { return alive("unlink") ? io::FileOps::unlink(path) : -1; }

  std::vector<std::string> calls;

 private:
  bool alive(const char* name) {
    calls.emplace_back(name);
    errno = EIO;
    return at_ < 0 || static_cast<int>(calls.size()) - 1 < at_;
  }
  int at_;
};

/// A disk that accepts a limited number of bytes in all.
class FullDisk : public io::FileOps {
 public:
  explicit FullDisk(size_t bytes) : room_(bytes) {}
  ssize_t write(int fd, const void* data, size_t bytes) override {
    if (room_ == 0) {
      errno = ENOSPC;
      return -1;
    }
    const ssize_t written = io::FileOps::write(fd, data, std::min(bytes, room_));
    if (written > 0) room_ -= static_cast<size_t>(written);
    return written;
  }

 private:
  size_t room_;
};

/// Arrays that all have one value, and a checkpoint of them.
struct Sample {
  // One array larger and one smaller than the buffer that a file collects before it writes.
  NDArray weight, bias, moment, count;
  Checkpoint checkpoint;

  /// `text`: of the options, which a checkpoint that is loaded must have too.
  Sample(double value, double text)
      : weight(full({200, 300}, value)),
        bias(full({7}, value)),
        moment(full({200, 300}, value + 1)),
        count(full({}, value, i64)) {
    checkpoint.add("weight", weight).add("bias", bias).add("moment", moment).add("count", count);
    checkpoint.set("options", "value=" + std::to_string(text));
  }
  void save(const std::string& path, io::FileOps& ops = io::FileOps::posix()) const {
    checkpoint.save(path, checkpoint.state(), ops);
  }
};

Sample sample(double value) { return {value, value}; }

/// Expects a complete checkpoint with the contents of `sample(value)`.
void expect_sample(double value, const std::string& path, const std::string& where) {
  Sample back(0, value);
  back.checkpoint.load(path);
  const auto number = static_cast<float>(value);
  EXPECT_EQ(std::vector<float>(60000, number), back.weight.to_vector<float>()) << where;
  EXPECT_EQ(std::vector<float>(7, number), back.bias.to_vector<float>()) << where;
  EXPECT_EQ(std::vector<float>(60000, number + 1), back.moment.to_vector<float>()) << where;
  EXPECT_EQ(static_cast<int64_t>(value), back.count.item<int64_t>()) << where;
}

TEST(Checkpoint, TextsThatDifferAreShownBoth) {
  const TempFolder folder;
  sample(1).save(folder / "a");
  expect_sample(1, folder / "a", "saved once");
  Sample other(0, 2);
  const std::string message = error_of<InvalidArgument>([&] { other.checkpoint.load(folder / "a"); });
  EXPECT_TRUE(contains(message, "value=1") && contains(message, "value=2")) << message;
}

TEST(Checkpoint, AProcessKilledAtAnyCallLeavesTheOldOneOrTheNewOne) {
  const TempFolder folder;
  const std::string path = folder / "a";
  sample(1).save(path);
  Dies none(-1);
  sample(2).save(path, none);
  const auto renamed = std::find(none.calls.begin(), none.calls.end(), "rename") - none.calls.begin();
  ASSERT_LT(renamed, static_cast<std::ptrdiff_t>(none.calls.size()));
  ASSERT_EQ(1, std::count(none.calls.begin(), none.calls.begin() + renamed, "fsync"));
  ASSERT_GE(std::count(none.calls.begin(), none.calls.end(), "write"), 3);
  for (size_t at = 0; at < none.calls.size(); ++at) {
    sample(1).save(path);
    const std::string old = slurp(path);
    Dies dies(static_cast<int>(at));
    // The last call closes the folder; its result is ignored.
    if (at + 1 < none.calls.size()) {
      EXPECT_THROW(sample(2).save(path, dies), FileError) << at;
    } else {
      sample(2).save(path, dies);
    }
    const bool replaced = static_cast<std::ptrdiff_t>(at) > renamed;
    expect_sample(replaced ? 2 : 1, path, "killed at " + none.calls[at] + ", call " + std::to_string(at));
    EXPECT_EQ(!replaced, old == slurp(path)) << at;
    // Leftover files must not hinder a later save.
    sample(3).save(path);
    expect_sample(3, path, "saved after that");
  }
}

TEST(Checkpoint, EveryFailingCallIsReportedAndLeavesNothingBehind) {
  const TempFolder folder;
  const std::string path = folder / "a";
  sample(1).save(path);
  Faults none;
  sample(2).save(path, none);
  for (size_t at = 0; at + 1 < none.calls.size(); ++at) {
    sample(1).save(path);
    Faults faults(static_cast<int>(at), EIO);
    const std::string message = error_of<FileError>([&] { sample(2).save(path, faults); });
    EXPECT_TRUE(contains(message, path)) << message;
    // Only the flush of the folder can fail after the rename.
    expect_sample(at + 3 >= none.calls.size() ? 2 : 1, path, none.calls[at]);
    EXPECT_EQ(1u, folder.count()) << none.calls[at];
  }
}

TEST(Checkpoint, AFullDiskKeepsTheOldOne) {
  const TempFolder folder;
  const std::string path = folder / "a";
  sample(1).save(path);
  const size_t bytes = slurp(path).size();
  for (const size_t room : {size_t{0}, size_t{1}, size_t{1000}, bytes / 2, bytes - 1}) {
    FullDisk disk(room);
    const std::string message = error_of<FileError>([&] { sample(2).save(path, disk); });
    EXPECT_TRUE(contains(message, "No space left")) << message;
    expect_sample(1, path, std::to_string(room));
    EXPECT_EQ(1u, folder.count()) << room;
  }
  FullDisk enough(bytes);
  sample(2).save(path, enough);
  expect_sample(2, path, "enough");
}

}  // namespace
}  // namespace mx
