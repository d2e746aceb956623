// safetensors: everything that is written can be read back, equal content gives equal bytes, and hostile
// files are refused.
#include "ndarray/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
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

std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string refused_safetensors(const std::string& file) {
  const std::string message = error_of<FormatError>([&] { parse_safetensors(bytes_of(file), "m.st"); });
  EXPECT_TRUE(contains(message, "[safetensors] 'm.st'")) << message;
  EXPECT_TRUE(contains(message, "expected")) << message;
  EXPECT_TRUE(contains(message, "got")) << message;
  return message;
}

TEST(Safetensors, EveryTypeAndShapeComesBack) {
  const test::Samples samples;
  const Metadata metadata = {{"format", "pt"}, {"quote\"\n", "\xe2\x82\xac"}};
  BufferSink sink;
  write_safetensors(sink, samples.tensors(), metadata);
  const Safetensors read = parse_safetensors(bytes_of(sink.bytes()), "memory");
  EXPECT_EQ(metadata, read.metadata);
  ASSERT_EQ(samples.tensors().size(), read.tensors.size());
  std::map<std::string, TensorRecord> by_name;
  for (const TensorRecord& record : read.tensors) by_name[record.name] = record;
  for (const TensorData& tensor : samples.tensors()) {
    const TensorRecord& record = by_name.at(tensor.name);
    EXPECT_EQ(tensor.dtype, record.dtype);
    EXPECT_EQ(tensor.shape, record.shape);
    ASSERT_EQ(tensor.data.size(), record.bytes);
    if (record.bytes == 0) continue;
    EXPECT_EQ(0, std::memcmp(tensor.data.data(), sink.bytes().data() + record.offset, record.bytes));
    EXPECT_EQ(0u, record.offset % size_of(record.dtype)) << "aligned, so that it can be mapped";
  }
}

// The bytes that the reference implementation (safetensors 0.8) wrote for the same tensors.
TEST(Safetensors, FilesAreThoseOfTheReferenceImplementation) {
  const std::string floats(16, '\0'), one("\1\0\0\0\0\0\0\0", 8);
  const TensorData tensors[] = {{"b", f32, {2, 2}, bytes_of(floats)},
                                {"a", i64, {}, bytes_of(one)},
                                {"\xc3\xa9\"\n\x7f\x01", bool_, {0, 3}, {}}};
  BufferSink sink;
  write_safetensors(sink, tensors, {{"k", "v"}});
  const std::string expected = file_of(
      "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},\"\xc3\xa9\\\"\\n\x7f\\u0001\":{"
      "\"dtype\":\"BOOL\",\"shape\":[0,3],\"data_offsets\":[24,24]}}    ",
      one + floats);
  EXPECT_EQ(expected, sink.bytes());
}

TEST(Safetensors, NothingAtAllIsAFile) {
  BufferSink sink;
  write_safetensors(sink, {});
  EXPECT_EQ(file_of("{}      "), sink.bytes());
  EXPECT_TRUE(parse_safetensors(bytes_of(sink.bytes()), "m").tensors.empty());
}

TEST(Safetensors, ThePlanOrdersBySizeOfTypeThenName) {
  const TensorData tensors[] = {
      {"b", u8, {1}, {}}, {"z", f64, {1}, {}}, {"a", u8, {1}, {}}, {"y", f64, {1}, {}}};
  const SafetensorsLayout layout = plan_safetensors(tensors);
  EXPECT_EQ((std::vector<size_t>{3, 1, 2, 0}), layout.order);
  EXPECT_EQ(0u, layout.header.size() % 8);
}

TEST(Safetensors, HostileHeadersAreRefusedWithTheReason) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"x\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  const struct {
    std::string header, data, expected;
  } cases[] = {
      {one("\"U8\"", "[2]", "[0,3]"), "abc", "tensor 'x': expected 2 bytes for shape (2,) of u8, got 3"},
      {one("\"U8\"", "[2]", "[2,0]"), "ab", "expected ascending data_offsets, got [2,0]"},
      {one("\"U8\"", "[2]", "[1,3]"), "abc", "expected data that begin at 0, without gap or overlap"},
      {one("\"U8\"", "[9]", "[0,9]"), "ab", "expected data_offsets within the 2 bytes after the header"},
      {one("\"U8\"", "[2]", "[0,2]"), "abc", "expected 2 bytes of data after the header, got 3"},
      {one("\"F64\"", "[4611686018427387904,4]", "[0,0]"), "", "expected fewer than 2^63 bytes"},
      {one("\"F64\"", "[0,4611686018427387904,4]", "[0,0]"), "", "expected fewer than 2^63 bytes"},
      {one("\"U8\"", "[9223372036854775808]", "[0,0]"), "", "expected a size below 2^63"},
      {one("\"U8\"", "[99999999999999999999]", "[0,0]"), "", "expected sizes that are whole numbers"},
      {one("\"U8\"", "[-1]", "[0,0]"), "", "expected sizes that are whole numbers below 2^63, got -1"},
      {one("\"U8\"", "[1.5]", "[0,0]"), "", "got 1.5"},
      {one("\"U8\"", "[1]", "[0,-1]"), "", "expected offsets that are whole numbers"},
      {one("\"U8\"", "[1]", "[0,1,1]"), "", "expected two data_offsets, got more"},
      {one("\"U8\"", "[1]", "[0]"), "", "expected two data_offsets, got 1"},
      {one("\"U8\"", "1", "[0,1]"), "a", "expected an array for shape"},
      {one("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), "a", "expected at most 12 dimensions"},
      {one("\"F31\"", "[1]", "[0,1]"), "a", "expected one of the types F32"},
      {one("3", "[1]", "[0,1]"), "a", "expected the name of a type, got 3"},
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1]}}", "a", "got no data_offsets"},
      {"{\"x\":{\"shape\":[1],\"shape\":[1]}}", "a", "expected every field once, got 'shape' twice"},
      {"{\"x\":{\"size\":1}}", "", "expected no field but dtype, shape and data_offsets, got 'size'"},
      {"{\"x\":[]}", "", "tensor 'x': expected a JSON object, got an array"},
      {"{\"x\":null}", "", "got null"},
      {"{\"__metadata__\":{\"k\":1}}", "", "__metadata__: expected a string, got 1"},
      {"{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}}", "", "got 'k' twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "", "expected every name once"},
      {"{\"x\":{}", "", "got no dtype"},
      {"{", "", "expected a header of UTF-8 JSON"},
      {"{}x", "", "expected a header of UTF-8 JSON"},
      {"{} {}", "", "expected a header of UTF-8 JSON"},
      {std::string("{}\0", 3), "", "expected a header of UTF-8 JSON"},
      {std::string("{}\0{", 4), "", "expected a header of UTF-8 JSON"},
      {"{\"\xff\":1}", "", "expected a header of UTF-8 JSON"},
      {"{\"\xed\xa0\x80\":1}", "", "expected a header of UTF-8 JSON"},
      {"[1]", "", "expected a header that begins with '{'"},
      {"", "", "expected a header that begins with '{', got an empty one"},
      {"{\"x\":" + std::string(100'000, '['), "", "expected a JSON object, got an array"},
  };
  for (const auto& [header, data, expected] : cases) {
    const std::string message = refused_safetensors(file_of(header, data));
    EXPECT_TRUE(contains(message, expected)) << header.substr(0, 100) << "\n" << message;
  }
}

TEST(Safetensors, NamesThatComeTwiceAreRefused) {
  const std::string x = "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
  EXPECT_TRUE(contains(refused_safetensors(file_of("{" + x + "," + x + "}", "a")),
                       "expected every name once, got 'x' twice"));
}

TEST(Safetensors, TypesOfTheFormatThatWeDoNotHaveAreNamed) {
  for (const char* type :
       {"I16", "U16", "U32", "U64", "C64", "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    const std::string message = refused_safetensors(
        file_of("{\"w\":{\"dtype\":\"" + std::string(type) + "\",\"shape\":[0],\"data_offsets\":[0,0]}}"));
    EXPECT_TRUE(contains(message, std::string(type) + ", which mxrun does not have")) << message;
    EXPECT_TRUE(contains(message, "tensor 'w'")) << message;
  }
}

TEST(Safetensors, LengthsBeyondTheFileOrTheLimitAreRefusedBeforeAnythingIsAllocated) {
  uint64_t length = kMaxSafetensorsHeaderBytes + 1;
  EXPECT_TRUE(contains(refused_safetensors(std::string(reinterpret_cast<char*>(&length), 8) + "{}"),
                       "at most 100000000 bytes"));
  length = kMaxSafetensorsHeaderBytes;
  EXPECT_TRUE(contains(refused_safetensors(std::string(reinterpret_cast<char*>(&length), 8) + "{}"),
                       "got the end of the file"));
  for (size_t size = 0; size < 8; ++size) refused_safetensors(std::string(size, 'x'));
}

// The first bytes of such files, as a length, are beyond every limit, which says nothing to the reader.
TEST(Safetensors, FilesOfOtherFormatsAreNamed) {
  const std::string archive = refused_safetensors(std::string("PK\3\4", 4) + std::string(100, '\0'));
  EXPECT_TRUE(contains(archive, "got a zip archive, such as a .pt file of PyTorch")) << archive;
  EXPECT_TRUE(contains(archive, "save_file(model.state_dict(), \"m.safetensors\")")) << archive;
  const std::string array = refused_safetensors("\x93NUMPY" + std::string(100, '\1'));
  EXPECT_TRUE(contains(array, ".npy file of NumPy, which load_npy() reads")) << array;
}

TEST(Safetensors, BooleansOtherThanZeroAndOneAreRefused) {
  const std::string header = "{\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}";
  EXPECT_TRUE(contains(refused_safetensors(file_of(header, std::string("\0\1\2", 3))),
                       "'mask': expected booleans of 0 or 1, got 2 at element 2"));
}

TEST(Safetensors, WhatCannotBeWrittenIsRefusedBeforeTheFirstByte) {
  const std::string four(4, 'x');
  BufferSink sink;
  const auto write = [&](std::vector<TensorData> tensors, const Metadata& metadata = {}) {
    return error_of<InvalidArgument>([&] { write_safetensors(sink, tensors, metadata); });
  };
  const TensorData good{"a", u8, {4}, bytes_of(four)};
  EXPECT_TRUE(contains(write({good, good}), "'a' twice"));
  EXPECT_TRUE(contains(write({{"a", f32, {4}, bytes_of(four)}}), "expected 16 bytes for 'a' of f32"));
  EXPECT_TRUE(contains(write({{"a\xff", u8, {4}, bytes_of(four)}}), "expected UTF-8"));
  EXPECT_TRUE(contains(write({{"__metadata__", u8, {4}, bytes_of(four)}}), "__metadata__"));
  EXPECT_TRUE(contains(write({good}, {{"k", "\x80"}}), "expected UTF-8 in the metadata"));
  EXPECT_TRUE(contains(write({{"a", u8, {-4}, bytes_of(four)}}), "not negative"));
  EXPECT_EQ("", sink.bytes());
}

TEST(Safetensors, PythonReadsWhatWeWriteAndWritesTheSameBytes) {
  const std::string python = test::python_with("numpy, safetensors.numpy");
  if (python.empty()) GTEST_SKIP() << "needs a Python with numpy and safetensors (set MX_TEST_PYTHON)";
  const TempFolder folder;
  const test::Samples samples;
  std::vector<TensorData> tensors;
  for (const TensorData& tensor : samples.tensors())
    if (tensor.dtype != bf16) tensors.push_back(tensor);  // NumPy has no bf16
  AtomicFile file(folder / "ours");
  write_safetensors(file, tensors, {{"format", "np"}});
  file.commit();
  ASSERT_TRUE(test::run_python(python, folder,
                               R"(
from safetensors.numpy import load_file, save_file
from safetensors import safe_open
tensors = load_file('ours')
assert len(tensors) == )" + std::to_string(tensors.size()) +
                                   R"(
save_file(tensors, 'theirs', metadata=safe_open('ours', 'np').metadata())
)"));
  EXPECT_EQ(test::slurp(folder / "ours"), test::slurp(folder / "theirs"));
  const MappedFile theirs(folder / "theirs");
  EXPECT_EQ(tensors.size(), parse_safetensors(theirs.bytes(), theirs.path()).tensors.size());
}

}  // namespace
}  // namespace mx::io
