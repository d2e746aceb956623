// .params files of Apache MXNet: every version of the format, and error messages that contain the name.
#include "ndarray/io/mxnet_params.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::io {
namespace {

using test::bytes_of;
using test::contains;
using test::error_of;

/// Returns the numbers in little-endian order, one after another.
template <class... T>
std::string pack(T... values) {
  std::string text;
  (text.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
  return text;
}

constexpr uint32_t kV1 = 0xf993fac8, kV2 = 0xf993fac9, kV3 = 0xf993faca;

std::string device_and_type(int32_t type) { return pack(int32_t{2}, int32_t{1}, type); }

std::string v2(int32_t type, int64_t size, const std::string& data) {
  return pack(kV2, int32_t{0}, int32_t{1}, size) + device_and_type(type) + data;
}

std::string list(const std::vector<std::string>& arrays, const std::vector<std::string>& names) {
  std::string text = pack(uint64_t{0x112}, uint64_t{0}, uint64_t{arrays.size()});
  for (const std::string& array : arrays) text += array;
  text += pack(uint64_t{names.size()});
  for (const std::string& name : names) text += pack(uint64_t{name.size()}) + name;
  return text;
}

std::string data_of(const std::string& file, const TensorRecord& record) {
  return file.substr(record.offset, record.bytes);
}

std::string refused_mxnet_params(const std::string& file) {
  const std::string message =
      error_of<FormatError>([&] { parse_mxnet_params(bytes_of(file), "net.params"); });
  EXPECT_TRUE(contains(message, "[mxnet_params] 'net.params'")) << message;
  return message;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Apache MXNet 1.9.1: mx.nd.save of {'arg:fc1_weight': [[1, 2, 3], [4, 5, 6]], 'aux:m': float16 [1, 2]}.
TEST(MxnetParams, AFileOfVersionTwoIsRead) {
  const std::string file = from_hex(
      "120100000000000000000000000000000200000000000000c9fa93f90000000002000000020000000000000003000000000000"
      "000100"
      "000000000000000000000000803f0000004000004040000080400000a0400000c040c9fa93f900000000010000000200000000"
      "000000"
      "010000000000000002000000003c004002000000000000000e000000000000006172673a6663315f7765696768740500000000"
      "000000"
      "6175783a6d");
  const MxnetParams read = parse_mxnet_params(bytes_of(file), "m");
  EXPECT_TRUE(read.named);
  ASSERT_EQ(2u, read.tensors.size());
  EXPECT_EQ("arg:fc1_weight", read.tensors[0].name);
  EXPECT_EQ(f32, read.tensors[0].dtype);
  EXPECT_EQ((Shape{2, 3}), read.tensors[0].shape);
  EXPECT_EQ(pack(1.f, 2.f, 3.f, 4.f, 5.f, 6.f), data_of(file, read.tensors[0]));
  EXPECT_EQ("aux:m", read.tensors[1].name);
  EXPECT_EQ(f16, read.tensors[1].dtype);
  EXPECT_EQ(pack(uint16_t{0x3c00}, uint16_t{0x4000}), data_of(file, read.tensors[1]));
}

// The same program: mx.npx.save of {'s': 3.5, 'z': zeros((0, 3)), 'b': [True, False]}.
TEST(MxnetParams, AFileOfVersionThreeHasScalarsAndEmptyArrays) {
  const std::string file = from_hex(
      "120100000000000000000000000000000300000000000000cafa93f90000000000000000010000000000000000000000000060"
      "40cafa"
      "93f9000000000200000000000000000000000300000000000000010000000000000000000000cafa93f9000000000100000002"
      "000000"
      "000000000100000000000000070000000100030000000000000001000000000000007301000000000000007a01000000000000"
      "006"
      "2");
  const MxnetParams read = parse_mxnet_params(bytes_of(file), "m");
  ASSERT_EQ(3u, read.tensors.size());
  EXPECT_EQ(Shape{}, read.tensors[0].shape);
  EXPECT_EQ(pack(3.5f), data_of(file, read.tensors[0]));
  EXPECT_EQ((Shape{0, 3}), read.tensors[1].shape);
  EXPECT_EQ(0u, read.tensors[1].bytes);
  EXPECT_EQ(bool_, read.tensors[2].dtype);
  EXPECT_EQ(std::string("\1\0", 2), data_of(file, read.tensors[2]));
}

TEST(MxnetParams, FilesBeforeVersionTwoAreRead) {
  const std::string floats = pack(1.f, 2.f, 3.f, 4.f, 5.f, 6.f);
  const std::string oldest = pack(uint32_t{2}, uint32_t{2}, uint32_t{3}) + device_and_type(0) + floats;
  const std::string v1 = pack(kV1, int32_t{2}, int64_t{3}, int64_t{2}) + device_and_type(0) + floats;
  const std::string file = list({oldest, v1}, {"old", "less old"});
  const MxnetParams read = parse_mxnet_params(bytes_of(file), "m");
  ASSERT_EQ(2u, read.tensors.size());
  EXPECT_EQ((Shape{2, 3}), read.tensors[0].shape);
  EXPECT_EQ((Shape{3, 2}), read.tensors[1].shape);
  for (const TensorRecord& record : read.tensors) EXPECT_EQ(floats, data_of(file, record));
}

TEST(MxnetParams, EveryTypeThatWeHaveIsRead) {
  const std::pair<int32_t, DType> types[] = {{0, f32}, {1, f64}, {2, f16},   {3, u8},   {4, i32},
                                             {5, i8},  {6, i64}, {7, bool_}, {12, bf16}};
  for (const auto& [flag, dtype] : types) {
    const std::string file = list({v2(flag, 3, std::string(3 * size_of(dtype), '\1'))}, {});
    const MxnetParams read = parse_mxnet_params(bytes_of(file), "m");
    EXPECT_FALSE(read.named);
    EXPECT_EQ(dtype, read.tensors.at(0).dtype);
    EXPECT_EQ("", read.tensors[0].name);
  }
}

TEST(MxnetParams, WhatWeCannotHoldIsRefusedByTheNameOfTheArray) {
  const std::string good = v2(3, 1, "a");
  const std::pair<int32_t, const char*> types[] = {
      {8, "int16"}, {9, "uint16"}, {10, "uint32"}, {11, "uint64"}};
  for (const auto& [flag, name] : types) {
    const std::string message = refused_mxnet_params(list({good, v2(flag, 1,
                                                                    std::string(flag < 10   ? 2
                                                                                : flag < 11 ? 4
                                                                                            : 8,
                                                                                'x'))},
                                                          {"fine", "odd"}));
    EXPECT_TRUE(contains(message, "array 'odd': expected a type that mxrun has, got " + std::string(name)))
        << message;
  }
  const std::string row_sparse =
      pack(kV2, int32_t{1}, int32_t{2}, int64_t{1}, int64_t{2}, int32_t{2}, int64_t{4}, int64_t{2}) +
      device_and_type(0) + pack(int32_t{6}, int32_t{1}, int64_t{1}) + pack(1.f, 2.f) + pack(int64_t{1});
  EXPECT_TRUE(contains(refused_mxnet_params(list({good, row_sparse}, {"dense", "embedding"})),
                       "array 'embedding': expected dense storage, got row_sparse"));
  const std::string csr = pack(kV2, int32_t{2}, int32_t{1}, int64_t{1}, int32_t{2}, int64_t{1}, int64_t{2}) +
                          device_and_type(0) +
                          pack(int32_t{6}, int32_t{1}, int64_t{2}, int32_t{6}, int32_t{1}, int64_t{1}) +
                          pack(1.f) + pack(int64_t{0}, int64_t{1}) + pack(int64_t{1});
  EXPECT_TRUE(contains(refused_mxnet_params(list({csr, good}, {"table", "dense"})),
                       "array 'table': expected dense storage, got csr"));
  for (const std::string& none :
       {pack(uint32_t{0}), pack(kV1, int32_t{0}), pack(kV2, int32_t{-1}, int32_t{0}),
        pack(kV3, int32_t{0}, int32_t{-1}), pack(kV3, int32_t{0}, int32_t{1}, int64_t{-1})})
    EXPECT_TRUE(contains(refused_mxnet_params(list({none}, {"gone"})),
                         "array 'gone': expected an array, got an empty handle"));
  std::string deep = pack(kV2, int32_t{0}, int32_t{13});
  for (int i = 0; i < 13; ++i) deep += pack(int64_t{1});
  EXPECT_TRUE(contains(refused_mxnet_params(list({deep + device_and_type(3) + "a"}, {"deep"})),
                       "array 'deep': expected at most 12 dimensions, got 13"));
  EXPECT_TRUE(contains(refused_mxnet_params(list({v2(7, 2, "\1\2")}, {"mask"})),
                       "array 'mask': expected booleans of 0 or 1"));
}

TEST(MxnetParams, HostileFilesAreRefusedWithTheReason) {
  const std::string good = v2(3, 1, "a");
  const auto shape = [](auto... sizes) {
    return pack(kV2, int32_t{0}, static_cast<int32_t>(sizeof...(sizes)), int64_t{sizes}...) +
           device_and_type(0);
  };
  const struct {
    std::string file, expected;
  } cases[] = {
      {"", "expected 8 bytes of magic at offset 0, got the end of the file"},
      {pack(uint64_t{0x113}), "expected a file that begins with 0x112"},
      {pack(uint64_t{0x112}, uint64_t{0}, UINT64_MAX),
       "arrays in a file of this size, got 18446744073709551615"},
      {list({pack(uint32_t{0xdeadbeef})}, {}), "array 0 of 1: expected an array, which begins with a rank"},
      {list({pack(kV2, int32_t{3})}, {}), "expected the storage type 0 (dense)"},
      {list({pack(kV2, int32_t{0}, int32_t{-1})}, {}), "expected a rank of 0 to 32, got -1"},
      {list({pack(kV2, int32_t{0}, int32_t{33})}, {}), "expected a rank of 0 to 32, got 33"},
      {list({shape(-1)}, {}), "expected sizes that are not negative, got -1"},
      {list({shape(int64_t{1} << 62, 8)}, {}), "expected fewer than 2^64 bytes"},
      {list({shape(0, int64_t{1} << 62, 8)}, {}), "expected fewer than 2^63 bytes"},
      {list({shape(int64_t{1} << 40)}, {}), "bytes of elements at offset"},
      {list({v2(13, 1, "a")}, {}), "expected an element type of 0 to 12, got 13"},
      {list({v2(-1, 1, "a")}, {}), "expected an element type of 0 to 12, got -1"},
      {list({good}, {"a", "b"}), "expected no names or 1, one for each array, got 2"},
      {list({good, good}, {"a", "a"}), "expected every name once, got 'a' twice"},
      {list({good}, {"\xff"}), "expected names in UTF-8"},
      {list({good}, {"a"}) + "x", "expected the end of the file after the names, got 1 bytes more"},
      {list({good}, {}).substr(0, 60), "got the end of the file"},
  };
  for (const auto& [file, expected] : cases) {
    const std::string message = refused_mxnet_params(file);
    EXPECT_TRUE(contains(message, expected)) << expected << "\n" << message;
  }
}

TEST(MxnetParams, ThePrefixesOfModuleCheckpointsComeOff) {
  EXPECT_EQ("fc1_weight", strip_mxnet_prefix("arg:fc1_weight"));
  EXPECT_EQ("bn_mean", strip_mxnet_prefix("aux:bn_mean"));
  EXPECT_EQ("0.weight", strip_mxnet_prefix("0.weight"));
  EXPECT_EQ("argument:x", strip_mxnet_prefix("argument:x"));
}

}  // namespace
}  // namespace mx::io
