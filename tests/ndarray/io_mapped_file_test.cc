// The bytes of a file, mapped or read. No access goes beyond its end.
#include "ndarray/io/mapped_file.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <utility>

#include "ndarray/io/io_error.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::io {
namespace {

using test::contains;
using test::error_of;
using test::slurp;
using test::spill;
using test::TempFolder;

std::string text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

TEST(MappedFile, MappedAndReadAreTheSameBytes) {
  const TempFolder folder;
  for (size_t size : {0u, 1u, 4095u, 4096u, 4097u, 1'000'000u}) {
    std::string content;
    for (size_t i = 0; i < size; ++i) content += static_cast<char>(i * 7 % 251);
    spill(folder / "a", content);
    for (MappedFile::How how : {MappedFile::How::map, MappedFile::How::read}) {
      const MappedFile file(folder / "a", MappedFile::Access::read_only, how);
      EXPECT_EQ(content, text(file.bytes()));
      EXPECT_EQ(how == MappedFile::How::map && size > 0, file.mapped());
      EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(file.bytes().data()) % 4096);
      EXPECT_EQ(0u, file.bytes(size, 0).size());
    }
  }
}

TEST(MappedFile, WhatIsWrittenStaysInTheProcess) {
  const TempFolder folder;
  spill(folder / "a", "hello");
  for (MappedFile::How how : {MappedFile::How::map, MappedFile::How::read}) {
    MappedFile file(folder / "a", MappedFile::Access::copy_on_write, how);
    file.writable(1, 1)[0] = std::byte{'a'};
    EXPECT_EQ("hallo", text(file.bytes()));
    EXPECT_EQ("hello", slurp(folder / "a"));
  }
  MappedFile read_only(folder / "a");
  error_of<InvalidState>([&] { read_only.writable(0, 1); });
}

TEST(MappedFile, PartsBeyondTheEndAreRefused) {
  const TempFolder folder;
  spill(folder / "a", "12345");
  const MappedFile file(folder / "a");
  EXPECT_EQ("345", text(file.bytes(2, 3)));
  for (auto [offset, bytes] : {std::pair{uint64_t{3}, uint64_t{3}}, {6, 0}, {1, UINT64_MAX}, {UINT64_MAX, 1}})
    EXPECT_TRUE(contains(error_of<FormatError>([&] { file.bytes(offset, bytes); }), "got a file of 5"));
}

TEST(MappedFile, MovingLeavesAnEmptyOne) {
  const TempFolder folder;
  spill(folder / "a", "aa");
  spill(folder / "b", "bb");
  MappedFile a(folder / "a"), b(folder / "b", MappedFile::Access::read_only, MappedFile::How::read);
  a = std::move(b);
  EXPECT_EQ("bb", text(a.bytes()));
  const MappedFile c(std::move(a));
  EXPECT_EQ("bb", text(c.bytes()));
  EXPECT_EQ(0u, b.size());
}

TEST(MappedFile, WhatIsNoFileIsRefusedByItsKind) {
  const TempFolder folder;
  EXPECT_TRUE(contains(error_of<FileError>([&] { MappedFile(folder / "none"); }), "No such file"));
  EXPECT_TRUE(contains(error_of<FileError>([&] { MappedFile{folder.path()}; }), "got a folder"));
  EXPECT_TRUE(contains(error_of<FileError>([] { MappedFile("/dev/null"); }), "got a device"));
  ASSERT_EQ(0, ::mkfifo((folder / "pipe").c_str(), 0600));
  EXPECT_TRUE(contains(error_of<FileError>([&] { MappedFile(folder / "pipe"); }), "got a pipe"));
}

TEST(MappedFile, AFileThatSaysItIsEmptyIsReadToItsEnd) {
  const MappedFile file("/proc/self/status");
  EXPECT_FALSE(file.mapped());
  EXPECT_TRUE(contains(text(file.bytes()), "Name:"));
}

}  // namespace
}  // namespace mx::io
