// .npz files: archives of NumPy and our own are read, damage is detected, and small files cannot inflate
// without limit.
#include "ndarray/io/npz.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "ndarray/io/atomic_file.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "tests/ndarray/io_samples.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::io {
namespace {

using test::bytes_of;
using test::contains;
using test::error_of;
using test::TempFolder;

std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string content(const NpzReader& reader, size_t index) {
  std::string out(reader.arrays()[index].header.array_bytes(), '\xee');
  reader.read(index, std::as_writable_bytes(std::span(out)));
  return out;
}

/// Reads the whole archive, which must fail; returns the message.
std::string refused_npz(const std::string& file, const ZipLimits& limits = {}) {
  const std::string message = error_of<FormatError>([&] {
    const NpzReader reader(bytes_of(file), "a.npz", limits);
    for (size_t i = 0; i < reader.arrays().size(); ++i) content(reader, i);
  });
  EXPECT_TRUE(contains(message, "'a.npz")) << message;
  return message;
}

std::string zip_of(const std::string& name, const std::string& member, ZipMethod method = ZipMethod::stored,
                   bool zip64 = false) {
  BufferSink sink;
  ZipWriter zip(sink, method, zip64);
  const Bytes parts[] = {bytes_of(member)};
  zip.add(name, parts);
  zip.finish();
  return sink.take();
}

std::string npy_of(const std::string& data) {
  BufferSink sink;
  write_npy(sink, {"", u8, {static_cast<int64_t>(data.size())}, bytes_of(data)});
  return sink.take();
}

/// Returns the text with the bytes at `offset` after the start of the last `magic` replaced.
std::string patched(std::string text, const std::string& magic, size_t offset, const std::string& bytes) {
  const size_t at = text.rfind(magic);
  EXPECT_NE(std::string::npos, at);
  return text.replace(at + offset, bytes.size(), bytes);
}

const std::string kCentral = "PK\1\2", kLocal = "PK\3\4", kEnd = "PK\5\6";

TEST(Npz, EveryTypeAndShapeComesBackStoredAndDeflated) {
  const test::Samples samples;
  for (ZipMethod method : {ZipMethod::stored, ZipMethod::deflated}) {
    BufferSink sink;
    write_npz(sink, samples.tensors(), method);
    const NpzReader reader(bytes_of(sink.bytes()), "m");
    ASSERT_EQ(samples.tensors().size(), reader.arrays().size());
    for (size_t i = 0; i < reader.arrays().size(); ++i) {
      const TensorData& tensor = samples.tensors()[i];
      EXPECT_EQ(tensor.name, reader.arrays()[i].name);
      EXPECT_EQ(tensor.dtype, reader.arrays()[i].header.dtype);
      EXPECT_EQ(tensor.shape, reader.arrays()[i].header.shape);
      EXPECT_EQ(text_of(tensor.data), content(reader, i));
    }
  }
}

TEST(Npz, NothingAtAllIsAFile) {
  BufferSink sink;
  write_npz(sink, {});
  EXPECT_EQ(22u, sink.bytes().size());
  EXPECT_TRUE(NpzReader(bytes_of(sink.bytes()), "m").arrays().empty());
}

TEST(Npz, LargeContentsComeBackThroughManyReads) {
  std::string large;
  for (int i = 0; i < 300'000; ++i) large += std::to_string(i * 2654435761u);
  for (ZipMethod method : {ZipMethod::stored, ZipMethod::deflated})
    for (bool zip64 : {false, true}) {
      const std::string file = zip_of("x", large, method, zip64);
      EXPECT_EQ(method == ZipMethod::deflated, file.size() < large.size());
      const std::vector<ZipEntry> entries = read_zip_directory(bytes_of(file), "m");
      ASSERT_EQ(1u, entries.size());
      ZipStream stream(bytes_of(file), entries[0], "m");
      std::string out, piece(4097, '\0');
      while (const size_t got = stream.read(std::as_writable_bytes(std::span(piece))))
        out.append(piece, 0, got);
      stream.finish();
      EXPECT_TRUE(out == large);
    }
}

TEST(Npz, MoreMembersThanSixteenBitsCount) {
  BufferSink sink;
  ZipWriter zip(sink);
  char name[16];
  for (int i = 0; i < 70'000; ++i) {
    std::snprintf(name, sizeof(name), "%06d", i);
    zip.add(name, {});
  }
  zip.finish();
  const std::vector<ZipEntry> entries = read_zip_directory(bytes_of(sink.bytes()), "m");
  ASSERT_EQ(70'000u, entries.size());
  EXPECT_EQ("069999", entries.back().name);
}

/// Accepts gigabytes but keeps only the small writes.
class SkippingSink : public ByteSink {
 public:
  using ByteSink::write;
  void write(Bytes bytes) override {
    if (bytes.size() > 1 << 20)
      skipped += bytes.size();
    else
      kept.write(bytes);
  }
  BufferSink kept;
  uint64_t skipped = 0;
};

TEST(Npz, SizesBeyondFourGigabytesAreWrittenInTheLongForm) {
  // One part repeated many times gives as many bytes without the memory. The checksum takes seconds, so there
  // is only one member.
  const std::string mebibytes(size_t{1} << 26, '\0');
  const std::vector<Bytes> parts(65, bytes_of(mebibytes));
  const uint64_t total = 65 * mebibytes.size();
  SkippingSink sink;
  ZipWriter zip(sink);
  zip.add("large", parts);
  zip.add("behind", {});
  zip.finish();
  EXPECT_EQ(total, sink.skipped);
  const std::string& kept = sink.kept.bytes();
  const auto number = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, kept.data() + at, 8);
    return value;
  };
  EXPECT_EQ("\xff\xff\xff\xff\xff\xff\xff\xff", kept.substr(18, 8));  // sizes of the local header
  EXPECT_EQ(total, number(30 + 5 + 4));
  const size_t second = kept.rfind("behind");
  EXPECT_EQ("\xff\xff\xff\xff", kept.substr(second - 4, 4));  // the offset of the second member
  EXPECT_EQ(total + 30 + 5 + 20, number(second + 6 + 4 + 16));
}

TEST(Npz, MembersThatAreNoArraysAreListed) {
  const NpzReader reader(bytes_of(zip_of("readme.txt", "hello")), "m");
  EXPECT_TRUE(reader.arrays().empty());
  EXPECT_EQ(std::vector<std::string>{"readme.txt"}, reader.others());
}

TEST(Npz, DamageAnywhereInTheContentIsFound) {
  for (ZipMethod method : {ZipMethod::stored, ZipMethod::deflated}) {
    std::string file = zip_of("x.npy", npy_of("some data"), method);
    const size_t at = method == ZipMethod::stored ? file.find("some data") : 30 + 5 + 40;
    file[at] ^= 4;
    refused_npz(file);
  }
  std::string file = zip_of("x.npy", npy_of("some data"));
  file[file.find("some data")] ^= 4;
  EXPECT_TRUE(contains(refused_npz(file), "expected the checksum (CRC-32)"));
}

TEST(Npz, HostileArchivesAreRefusedWithTheReason) {
  const std::string good = zip_of("x.npy", npy_of("abcd"));
  const std::string deflated = zip_of("x.npy", npy_of(std::string(100'000, 'a')), ZipMethod::deflated);
  const auto u32 = [](uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), 4); };
  const uint32_t real = 100'000 + 128, packed = static_cast<uint32_t>(deflated.size() - 22 - 51 - 35);
  const struct {
    std::string file, expected;
  } cases[] = {
      {"", "expected a zip archive, which ends with a directory"},
      {"hello, this is no archive at all", "expected a zip archive, which ends with a directory"},
      {good + "x", "expected a zip archive, which ends with a directory"},
      {good.substr(1), "expected a directory that ends at offset"},
      {patched(good, kEnd, 4, "\1"), "expected a zip archive in one file"},
      {patched(good, kEnd, 8, std::string("\2\0\2\0", 4)),
       "expected a directory of at most 1 members, got 2"},
      {patched(good, kEnd, 8, std::string("\0\0\0\0", 4)),
       "expected a directory of 0 members, got 51 bytes more"},
      {patched(good, kCentral, 0, "XXXX"), "expected member 0 of 1 in the directory"},
      {patched(good, kCentral, 8, "\1"), "expected a member without encryption"},
      {patched(good, kCentral, 10, "\14"),
       "expected the compression method 0 (stored) or 8 (deflate), got method 12"},
      {patched(good, kCentral, 24, u32(5)), "expected a stored member of 5 bytes, got 132"},
      {patched(good, kCentral, 20, u32(1u << 30) + u32(1u << 30)), "bytes of content at offset"},
      {patched(good, kCentral, 42, u32(99'999)), "expected a member before the directory"},
      {patched(good, kCentral, 42, u32(1)), "expected the header of a member at offset 1"},
      {patched(good, kCentral, 46, "y"),
       "expected the same name in the member's header as in the directory, got 'x.npy'"},
      {patched(good, kCentral, 46, "\xff"), "expected a name in UTF-8"},
      {patched(deflated, kCentral, 24, u32(0xf0000000)), "expected content of at most 1032 times"},
      {patched(deflated, kCentral, 24, u32(real + 1)),
       "expected 100000 bytes after the header for shape (100000,) of u8, got 100001"},
      {patched(deflated, kCentral, 20, u32(packed - 4)), "member 'x.npy': expected"},
      {patched(deflated, kCentral, 16, u32(0)), "expected the checksum (CRC-32) 0"},
      {zip_of("x.npy", "no array"), "expected a file that begins with '\\x93NUMPY'"},
      {zip_of("x.npy", npy_of("abcd") + "x"), "'a.npz: x.npy': expected 4 bytes after the header"},
  };
  for (const auto& [file, expected] : cases) {
    const std::string message = refused_npz(file);
    EXPECT_TRUE(contains(message, expected)) << expected << "\n" << message;
  }
}

TEST(Npz, ContentThatInflatesToMoreOrLessThanItDeclaresIsRefused) {
  // The array's header is changed to match, so only the compressed stream can reveal the mismatch.
  const std::string honest = npy_of(std::string(1000, 'a'));
  for (const int64_t declared : {999, 1001}) {
    std::string member = honest;
    member.replace(member.find("(1000,)"), 7, declared == 999 ? "(999,) " : "(1001,)");
    std::string file = zip_of("x.npy", member, ZipMethod::deflated);
    const auto total = static_cast<uint32_t>(declared + 128);
    file = patched(file, kCentral, 24, std::string(reinterpret_cast<const char*>(&total), 4));
    EXPECT_TRUE(contains(refused_npz(file), declared == 999 ? "bytes of content, got more" : "expected"))
        << declared;
  }
}

TEST(Npz, LimitsHoldBeforeAnythingIsInflated) {
  BufferSink sink;
  const std::string zeros(1'000'000, '\0');
  const TensorData tensors[] = {{"a", u8, {1'000'000}, bytes_of(zeros)},
                                {"b", u8, {1'000'000}, bytes_of(zeros)}};
  write_npz(sink, tensors, ZipMethod::deflated);
  EXPECT_LT(sink.bytes().size(), 5'000u);
  EXPECT_EQ(zeros, content(NpzReader(bytes_of(sink.bytes()), "m"), 1));
  const std::string message = refused_npz(sink.bytes(), {.max_entries = 10, .max_inflated_bytes = 1'500'000});
  EXPECT_TRUE(contains(message, "member 'b.npy'") && contains(message, "max_inflated_bytes")) << message;
  EXPECT_TRUE(contains(refused_npz(sink.bytes(), {.max_entries = 1}), "expected at most 1 members"));
}

TEST(Npz, MembersThatShareBytesAreRefused) {
  const std::string one = zip_of("x.npy", npy_of("abcd"));
  const size_t directory = one.find(kCentral);
  const std::string entry = one.substr(directory, 51);
  std::string file = one.substr(0, directory) + entry + entry + one.substr(directory + 51);
  file = patched(file, kEnd, 8, std::string("\2\0\2\0\x66\0\0\0", 8));
  EXPECT_TRUE(contains(refused_npz(file), "expected every member once, got 'x.npy' twice"));
  // The content of the first member contains another local header, as in archives that contain archives.
  const std::string inner = zip_of("y.npy", npy_of("abcd"));
  std::string outer = zip_of("x.npy", inner.substr(0, inner.find(kCentral)));
  const size_t outer_directory = outer.find(kCentral);
  const char offset = 35;
  outer.insert(outer_directory + 51,
               patched(inner.substr(inner.find(kCentral), 51), kCentral, 42, {&offset, 1}));
  outer = patched(outer, kEnd, 8, std::string("\2\0\2\0\x66\0\0\0", 8));
  EXPECT_TRUE(contains(error_of<FormatError>([&] { read_zip_directory(bytes_of(outer), "m"); }),
                       "expected members that do not overlap, got 'x.npy' and 'y.npy'"));
}

TEST(Npz, NamesThatCannotBeWrittenAreRefused) {
  BufferSink sink;
  const TensorData a{"a", u8, {0}, {}};
  const TensorData twice[] = {a, a};
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { write_npz(sink, twice); }), "'a.npy' twice"));
  const TensorData broken[] = {{"\xc3", u8, {0}, {}}};
  error_of<InvalidArgument>([&] { write_npz(sink, broken); });
  // Python's zipfile would show both as "a.npy".
  const TensorData cut[] = {a, {std::string("a\0b", 3), u8, {0}, {}}};
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { write_npz(sink, cut); }), "zero bytes"));
}

TEST(Npz, NumPyReadsWhatWeWriteAndWeReadWhatItWrites) {
  const std::string python = test::python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "needs a Python with numpy (set MX_TEST_PYTHON)";
  const test::Samples samples;
  for (ZipMethod method : {ZipMethod::stored, ZipMethod::deflated}) {
    const TempFolder folder;
    AtomicFile file(folder / "ours.npz");
    write_npz(file, samples.tensors(), method);
    file.commit();
    ASSERT_TRUE(test::run_python(python, folder, R"(
import numpy as np, zipfile
assert zipfile.ZipFile('ours.npz').testzip() is None
with np.load('ours.npz', allow_pickle=False) as z:
    arrays = {name: z[name] for name in z.files}
np.savez('theirs.npz', **arrays)
np.savez_compressed('packed.npz', **{n: np.asfortranarray(a) for n, a in arrays.items()})
)"));
    for (const char* name : {"theirs.npz", "packed.npz"}) {
      const MappedFile theirs(folder / name);
      const NpzReader reader(theirs.bytes(), name);
      ASSERT_EQ(samples.tensors().size(), reader.arrays().size());
      for (size_t i = 0; i < reader.arrays().size(); ++i) {
        EXPECT_EQ(samples.tensors()[i].name, reader.arrays()[i].name);
        EXPECT_EQ(samples.tensors()[i].dtype, reader.arrays()[i].header.dtype);
        EXPECT_EQ(text_of(samples.tensors()[i].data), content(reader, i));
      }
    }
  }
}

}  // namespace
}  // namespace mx::io
