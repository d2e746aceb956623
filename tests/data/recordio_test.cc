// RecordIO files: what is written is read again, records that contain the mark of records, damage, and the
// headers of images.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/image_file.h"
#include "nn/data/loader.h"
#include "nn/data/recordio.h"
#include "tests/data/idx_bytes.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::as_bytes;
using test::contains;
using test::error_of;

const std::string kMark = "\x0a\x23\xd7\xce";

std::string word(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }

// Returns a record of one part as the format describes it, made by hand.
std::string part(uint32_t flag, const std::string& content) {
  std::string made = kMark + word(flag << 29 | static_cast<uint32_t>(content.size())) + content;
  made.resize((made.size() + 3) / 4 * 4);
  return made;
}

std::vector<std::string> awkward_records() {
  return {"",
          "a",
          "abcd",
          kMark,
          kMark + kMark,
          "1234" + kMark + "56",
          "12" + kMark,
          kMark + "x",
          "abcde",
          std::string(1000, 'z'),
          std::string("\0\0\0", 3)};
}

TEST(RecordIo, WhatIsWrittenIsReadAgainWithAndWithoutIndex) {
  const test::TempFolder folder;
  RecordWriter writer(folder / "a.rec", folder / "a.idx");
  const std::vector<std::string> records = awkward_records();
  for (size_t i = 0; i < records.size(); ++i) writer.write(7 * i, records[i]);
  writer.commit();
  const RecordFile scanned(folder / "a.rec"), indexed(folder / "a.rec", folder / "a.idx");
  ASSERT_EQ(static_cast<int64_t>(records.size()), scanned.size());
  ASSERT_EQ(scanned.size(), indexed.size());
  for (int64_t i = 0; i < scanned.size(); ++i) {
    EXPECT_EQ(records[static_cast<size_t>(i)], scanned.read(i)) << i;
    EXPECT_EQ(records[static_cast<size_t>(i)], indexed.read(i)) << i;
    EXPECT_EQ(scanned.offset(i), indexed.offset(i));
    EXPECT_EQ(static_cast<uint64_t>(7 * i), indexed.keys()[static_cast<size_t>(i)]);
  }
  error_of<InvalidArgument>([&] { scanned.read(scanned.size()); });
  error_of<InvalidArgument>([&] { scanned.read(-1); });
}

TEST(RecordIo, BytesAreThoseOfTheFormat) {
  const test::TempFolder folder;
  RecordWriter writer(folder / "a.rec", folder / "a.idx");
  writer.write("abcde");
  writer.write("12" + std::string("34") + kMark + "5");
  writer.write(kMark + "12" + kMark + "xy" + kMark);  // the second one is not at a multiple of 4
  writer.commit();
  EXPECT_EQ(part(0, "abcde") + part(1, "1234") + part(3, "5") + part(1, "") + part(2, "12" + kMark + "xy") +
                part(3, ""),
            test::slurp(folder / "a.rec"));
  EXPECT_EQ("0\t0\n1\t16\n2\t40\n", test::slurp(folder / "a.idx"));
}

TEST(RecordIo, AnotherProgramReadsAndWritesTheSameFiles) {
  const std::string python = test::python_with("struct");
  if (python.empty()) GTEST_SKIP() << "there is no Python";
  const test::TempFolder folder;
  RecordWriter writer(folder / "a.rec", folder / "a.idx");
  const std::vector<std::string> records = awkward_records();
  for (const std::string& record : records) writer.write(record);
  writer.write(pack_record({.label = {2.5f}, .id = 11, .id2 = 1}, "body"));
  writer.write(pack_record({.label = {1, 2, 3}, .id = 12}, "more"));
  writer.commit();
  // A reader and a writer by the description of the format.
  ASSERT_TRUE(test::run_python(python, folder, R"(
import struct
MAGIC = 0xced7230a
def read(f):
    parts = []
    while True:
        magic, word = struct.unpack('<II', f.read(8))
        assert magic == MAGIC
        flag, length = word >> 29, word & ((1 << 29) - 1)
        parts.append(f.read(length))
        f.read(-length % 4)
        if flag in (0, 3):
            return struct.pack('<I', MAGIC).join(parts)
def write(f, data):
    mark = struct.pack('<I', MAGIC)
    parts, begin = [], 0
    for at in range(0, len(data) - 3, 4):
        if data[at:at + 4] == mark:
            parts.append(data[begin:at])
            begin = at + 4
    parts.append(data[begin:])
    for i, part in enumerate(parts):
        flag = 0 if len(parts) == 1 else 1 if i == 0 else 3 if i == len(parts) - 1 else 2
        f.write(struct.pack('<II', MAGIC, flag << 29 | len(part)) + part + b'\0' * (-len(part) % 4))
f = open('a.rec', 'rb')
index = [line.split('\t') for line in open('a.idx').read().splitlines()]
records = []
for key, offset in index:
    assert int(offset) == f.tell()
    records.append(read(f))
assert f.read() == b''
assert struct.unpack('<IfQQ', records[-2][:24]) == (0, 2.5, 11, 1) and records[-2][24:] == b'body'
assert struct.unpack('<IfQQ', records[-1][:24]) == (3, 0, 12, 0)
assert struct.unpack('<3f', records[-1][24:36]) == (1, 2, 3) and records[-1][36:] == b'more'
with open('b.rec', 'wb') as g:
    for record in records:
        write(g, record)
)"));
  EXPECT_EQ(test::slurp(folder / "a.rec"), test::slurp(folder / "b.rec"));
}

TEST(RecordIo, DamageIsNamedByFileAndOffset) {
  const auto refused = [](const std::string& file, uint64_t offset = 0) {
    return error_of<FormatError>([&] { parse_record(as_bytes(file), offset, "a.rec"); });
  };
  EXPECT_TRUE(
      contains(refused("abc"), "[recordio] 'a.rec': expected the head of a record, 8 bytes, at offset 0"));
  EXPECT_TRUE(contains(refused("abcdefgh"), "expected the number 3470205706 at offset 0"));
  EXPECT_TRUE(contains(refused(part(0, "abcd").substr(0, 10)), "expected 4 bytes of the record at offset 0"));
  EXPECT_TRUE(contains(refused(part(2, "abcd")), "got a later part of one"));
  EXPECT_TRUE(contains(refused(kMark + word(7u << 29)), "flag from 0 to 3 at offset 4, got 7"));
  EXPECT_TRUE(contains(refused(part(1, "abcd")), "at offset 12"));
  EXPECT_TRUE(contains(refused(part(1, "abcd") + part(0, "x")),
                       "another part of the record of offset 0 at offset 12"));
  EXPECT_TRUE(contains(refused(kMark + word((1u << 29) - 1) + "abcd"), "expected 536870912 bytes"));
  refused(part(0, "abcd"), 1000);
  refused(part(0, "abcd"), UINT64_MAX);
}

TEST(RecordIo, DamagedRecordsArePassedOverByChoice) {
  const test::TempFolder folder;
  const std::string broken = kMark + word(5u << 29 | 4) + "beef";
  test::spill(folder / "a.rec",
              part(0, "one") + "garbage!" + part(0, "two") + broken + part(3, "x") + part(0, "three") + "ab");
  EXPECT_TRUE(contains(error_of<FormatError>([&] { RecordFile(folder / "a.rec"); }), "at offset 12"));
  std::vector<std::string> skipped;
  const RecordFile file(
      folder / "a.rec", "",
      {.bad = BadSamples::skip, .on_skip = [&](const std::string& error) { skipped.push_back(error); }});
  ASSERT_EQ(3, file.size());
  EXPECT_EQ("one", file.read(0));
  EXPECT_EQ("two", file.read(1));
  EXPECT_EQ("three", file.read(2));
  EXPECT_EQ(3u, skipped.size());
}

TEST(RecordIo, AnIndexThatDoesNotFitIsRefused) {
  const test::TempFolder folder;
  test::spill(folder / "a.rec", part(0, "one"));
  for (const std::string index : {"0\t12\n", "0 0\n", "x\t0\n", "0\t-1\n", "0\t99999999999999999999999\n"}) {
    test::spill(folder / "a.idx", index);
    const std::string message =
        error_of<FormatError>([&] { RecordFile(folder / "a.rec", folder / "a.idx"); });
    EXPECT_TRUE(contains(message, "a.idx', line 1 at offset 0: expected KEY<tab>OFFSET")) << message;
  }
  test::spill(folder / "a.idx", "0\t4\n");  // within the file, but no record begins there
  const RecordFile file(folder / "a.rec", folder / "a.idx");
  EXPECT_TRUE(contains(error_of<FormatError>([&] { file.read(0); }), "at offset 4"));
  error_of<FileError>([&] { RecordFile(folder / "none.rec"); });
}

TEST(RecordIo, HeadersOfRecordsRoundTrip) {
  for (const std::vector<float>& label : {std::vector<float>{3}, {1, 2, 3, 4.5f}}) {
    std::string record = pack_record({.label = label, .id = uint64_t{1} << 63, .id2 = 5}, "content");
    const RecordHeader header = unpack_record(record, "[x]");
    EXPECT_EQ(label, header.label);
    EXPECT_EQ(uint64_t{1} << 63, header.id);
    EXPECT_EQ(5u, header.id2);
    EXPECT_EQ("content", record);
  }
  std::string small = "short", many = word(0xffffffff) + std::string(30, 'x');
  EXPECT_TRUE(contains(error_of<FormatError>([&] { unpack_record(small, "[x] 'f'"); }),
                       "[x] 'f': expected a record"));
  EXPECT_TRUE(
      contains(error_of<FormatError>([&] { unpack_record(many, "[x] 'f'"); }), "expected 4294967295 labels"));
}

TEST(RecordIo, ImagesOfARecordFileAreASetOfSamples) {
  const test::TempFolder folder;
  RecordWriter writer(folder / "a.rec", folder / "a.idx");
  for (int i = 0; i < 5; ++i) {
    HostArray image({4 + i, 3, 3}, u8);
    std::fill_n(image.data<uint8_t>(), image.numel(), static_cast<uint8_t>(40 * i));
    const std::string png = encode_png(image);
    writer.write(
        pack_record({.label = {static_cast<float>(i)}}, i == 2 ? png.substr(0, png.size() / 2) : png));
  }
  writer.commit();
  const SourceHandle source = image_records(folder / "a.rec", folder / "a.idx");
  std::string error;
  SampleDataset set(source, {.collate = pad(), .bad = BadSamples::skip, .on_skip = [&](const std::string& e) {
                               error = e;
                             }});
  Loader loader(set, {.batch_size = 5});
  Batch batch = *loader.begin();
  EXPECT_EQ((Shape{4, 8, 3, 3}), batch["image"].shape());
  EXPECT_EQ((std::vector<float>{0, 1, 3, 4}), batch["label"].to_vector<float>());
  EXPECT_EQ((std::vector<int64_t>{0, 1, 3, 4}), batch.indices().to_vector<int64_t>());
  EXPECT_EQ(160, batch["image"].select(0, 3).to_vector<uint8_t>()[71]);
  EXPECT_TRUE(contains(error, "a.rec', record at offset ")) << error;
  EXPECT_TRUE(contains(error_of<FormatError>([&] { SampleDataset(source).gather(Indices({2})); }), "PNG"));
}

}  // namespace
}  // namespace mx::data
