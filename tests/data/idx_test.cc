// IDX files: the valid ones that are read, and the invalid ones that are refused, with the reason.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/idx.h"
#include "tests/data/idx_bytes.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::as_bytes;
using test::contains;
using test::error_of;
using test::gzipped;
using test::idx_header;

std::string text(std::initializer_list<int> bytes) {
  std::string made;
  for (int byte : bytes) made += static_cast<char>(byte);
  return made;
}

// Checks the file both uncompressed and compressed.
template <class Check>
void both_ways(const std::string& file, const Check& check) {
  check(decode_idx(as_bytes(file), "plain"));
  check(decode_idx(as_bytes(gzipped(file)), "packed"));
}

// Expects the same error for the uncompressed and the compressed file; returns the message.
std::string refused(const std::string& file) {
  const std::string packed = error_of<FormatError>([&] { decode_idx(as_bytes(gzipped(file)), "a/b.gz"); });
  EXPECT_TRUE(contains(packed, "[idx] 'a/b.gz'")) << packed;
  const std::string plain = error_of<FormatError>([&] { decode_idx(as_bytes(file), "a/b"); });
  EXPECT_TRUE(contains(plain, "[idx] 'a/b'")) << plain;
  EXPECT_TRUE(contains(plain, "expected") && contains(plain, "got")) << plain;
  return plain;
}

TEST(Idx, ReadsTheBytesOfEveryType) {
  both_ways(text({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 253, 254, 255}), [](const NDArray& a) {
    EXPECT_EQ(u8, a.dtype());
    EXPECT_EQ((Shape{2, 3}), a.shape());
    EXPECT_EQ((std::vector<uint8_t>{1, 2, 3, 253, 254, 255}), a.to_vector<uint8_t>());
  });
  both_ways(text({0, 0, 9, 1, 0, 0, 0, 3, 1, 255, 128}), [](const NDArray& a) {
    EXPECT_EQ(i8, a.dtype());
    EXPECT_EQ((std::vector<int8_t>{1, -1, -128}), a.to_vector<int8_t>());
  });
  both_ways(text({0, 0, 11, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 255, 254, 128, 0, 127, 255}),
            [](const NDArray& a) {
              EXPECT_EQ(i32, a.dtype()) << "there is no i16";
              EXPECT_EQ((Shape{2, 2}), a.shape());
              EXPECT_EQ((std::vector<int32_t>{258, -2, -32768, 32767}), a.to_vector<int32_t>());
            });
  both_ways(idx_header(11, {0}), [](const NDArray& a) { EXPECT_EQ((Shape{0}), a.shape()); });
  both_ways(text({0, 0, 12, 1, 0, 0, 0, 2, 0, 1, 2, 3, 255, 255, 255, 254}), [](const NDArray& a) {
    EXPECT_EQ(i32, a.dtype());
    EXPECT_EQ((std::vector<int32_t>{66051, -2}), a.to_vector<int32_t>());
  });
  both_ways(text({0, 0, 13, 1, 0, 0, 0, 2, 0x3f, 0xc0, 0, 0, 0xc0, 0x48, 0, 0}), [](const NDArray& a) {
    EXPECT_EQ(f32, a.dtype());
    EXPECT_EQ((std::vector<float>{1.5f, -3.125f}), a.to_vector<float>());
  });
  both_ways(text({0, 0, 14, 1, 0, 0, 0, 1, 0xc0, 0x08, 0, 0, 0, 0, 0, 0}), [](const NDArray& a) {
    EXPECT_EQ(f64, a.dtype());
    EXPECT_EQ((std::vector<double>{-3.0}), a.to_vector<double>());
  });
}

TEST(Idx, ReadsAsManyDimensionsAsArraysHave) {
  const std::vector<uint32_t> ones(kMaxRank, 1);
  both_ways(idx_header(8, ones) + "x", [](const NDArray& a) {
    EXPECT_EQ(kMaxRank, a.rank());
    EXPECT_EQ('x', a.flatten().to_vector<uint8_t>()[0]);
  });
  EXPECT_TRUE(contains(refused(idx_header(8, std::vector<uint32_t>(kMaxRank + 1, 1)) + "x"), "got 13"));
  EXPECT_TRUE(contains(refused(idx_header(8, std::vector<uint32_t>(255, 1)) + "x"), "got 255"));
  EXPECT_TRUE(contains(refused(idx_header(8, {}) + "x"), "got 0"));
}

TEST(Idx, ASizeMayBeZero) {
  both_ways(idx_header(13, {0, 28, 28}), [](const NDArray& a) {
    EXPECT_EQ((Shape{0, 28, 28}), a.shape());
    EXPECT_EQ(0, a.numel());
  });
}

TEST(Idx, RefusesWhatIsNoIdxFileAndSaysWhatCame) {
  EXPECT_TRUE(
      contains(refused(""), "expected 4 bytes of magic at offset 0, got the end of the file after 0"));
  EXPECT_TRUE(contains(refused(text({0, 0, 8})), "after 3"));
  EXPECT_TRUE(contains(refused(text({1, 0, 8, 1, 0, 0, 0, 0})), "got 1 and 0"));
  EXPECT_TRUE(contains(refused("PNG file"), "two bytes of 0, got 80 and 78"));
  EXPECT_TRUE(contains(refused(idx_header(10, {1}) + "ab"), "an unknown type (10)"));
}

TEST(Idx, RefusesFilesThatAreShorterOrLongerThanTheySay) {
  const std::string file = idx_header(12, {2, 3}) + std::string(24, 'e');
  EXPECT_EQ(6, decode_idx(as_bytes(file), "whole").numel());
  for (size_t length = 0; length < file.size(); ++length) refused(file.substr(0, length));
  EXPECT_TRUE(
      contains(refused(file.substr(0, file.size() - 1)), "expected 24 bytes of elements for shape (2, 3)"));
  const std::string halves = idx_header(11, {2, 3}) + std::string(12, 'e');
  EXPECT_TRUE(
      contains(refused(halves.substr(0, 20)), "expected 12 bytes of elements for shape (2, 3) of i16"));
  refused(halves + "x");
  refused(file + "x");
  refused(file + file);
}

TEST(Idx, RefusesSizesThatNoMemoryHolds) {
  const uint32_t most = 0xffffffff;
  EXPECT_TRUE(contains(refused(idx_header(14, {most, most})), "fewer than 2^63 bytes"));
  EXPECT_TRUE(contains(refused(idx_header(8, {most, most, most, most})), "fewer than 2^63 bytes"));
  // The other sizes count even if one size is zero.
  EXPECT_TRUE(contains(refused(idx_header(8, {0, most, most, most})), "fewer than 2^63 bytes"));
  // The product of these sizes fits into an integer. The missing bytes must be detected before anything of
  // that size is allocated.
  refused(idx_header(8, {most, most / 2}) + "x");
  refused(idx_header(8, {most}) + "x");
}

TEST(Idx, ACompressedFileMayNotAnnounceMoreThanItCanHoldNorMoreThanTheLimit) {
  const std::string much = gzipped(idx_header(8, {100'000'000}) + "x");
  EXPECT_TRUE(contains(error_of<FormatError>([&] { decode_idx(as_bytes(much), "a"); }), "1032"));
  const std::string zeros = gzipped(idx_header(8, {1 << 20}) + std::string(1 << 20, '\0'));
  EXPECT_EQ(1 << 20, decode_idx(as_bytes(zeros), "a").numel());
  const IdxLimits limits{.max_inflated_bytes = (1 << 20) - 1};
  EXPECT_TRUE(contains(error_of<FormatError>([&] { decode_idx(as_bytes(zeros), "a", limits); }),
                       "expected at most 1048575 bytes of elements (IdxLimits::max_inflated_bytes)"));
}

TEST(Idx, DamageOfACompressedFileIsFound) {
  std::string file = gzipped(idx_header(8, {300}) + std::string(300, 'q'));
  EXPECT_EQ(300, decode_idx(as_bytes(file), "a").numel());
  for (size_t length = 0; length < file.size(); ++length) {
    const std::string cut = file.substr(0, length);
    const std::string message = error_of<FormatError>([&] { decode_idx(as_bytes(cut), "a"); });
    EXPECT_TRUE(contains(message, "expected") && contains(message, "got")) << message;
  }
  error_of<FormatError>([&] { decode_idx(as_bytes(file + "behind"), "a"); });
  error_of<FormatError>([&] { decode_idx(as_bytes(file + std::string(1, '\0')), "a"); });
  file[file.size() - 6] ^= 1;  // flips a bit of the checksum
  EXPECT_TRUE(contains(error_of<FormatError>([&] { decode_idx(as_bytes(file), "a"); }), "damage"));
}

TEST(Idx, MembersOneBehindTheOtherAreOneFile) {
  const std::string content = idx_header(12, {4}) + std::string(16, '\1');
  for (size_t cut : {0, 1, 4, 7, 8, 20, 24}) {
    const std::string file = gzipped(content.substr(0, cut)) + gzipped(content.substr(cut));
    EXPECT_EQ(std::vector<int32_t>(4, 0x01010101), decode_idx(as_bytes(file), "a").to_vector<int32_t>());
  }
}

TEST(Idx, FilesAreNamedInErrors) {
  const test::TempFolder folder;
  EXPECT_TRUE(contains(error_of<FileError>([&] { read_idx(folder / "none.gz"); }), folder / "none.gz"));
  test::spill(folder / "short", "ab");
  EXPECT_TRUE(contains(error_of<FormatError>([&] { read_idx(folder / "short"); }), folder / "short"));
  test::spill(folder / "good", idx_header(8, {2}) + "ab");
  EXPECT_EQ((std::vector<uint8_t>{'a', 'b'}), read_idx(folder / "good").to_vector<uint8_t>());
}

}  // namespace
}  // namespace mx::data
