// .npy files: those of NumPy are read, in any order of bytes and dimensions; ours equal NumPy's byte for
// byte.
#include "ndarray/io/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "ndarray/io/atomic_file.h"
#include "ndarray/io/io_error.h"
#include "tests/ndarray/io_samples.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::io {
namespace {

using test::bytes_of;
using test::contains;
using test::error_of;
using test::TempFolder;

std::string raw(const std::string& dict, const std::string& data = "", int version = 1) {
  const auto length = static_cast<uint32_t>(dict.size());
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  return text.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4) + dict + data;
}

std::string dict(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

std::string refused_npy(const std::string& file) {
  const std::string message = error_of<FormatError>([&] { parse_npy(bytes_of(file), "a.npy"); });
  EXPECT_TRUE(contains(message, "[npy] 'a.npy'")) << message;
  return message;
}

std::string read(const std::string& file) {
  const NpyHeader header = parse_npy(bytes_of(file), "a.npy");
  std::string out(header.array_bytes(), '\0');
  convert_npy(header, bytes_of(file).subspan(header.offset), std::as_writable_bytes(std::span(out)), "a.npy");
  return out;
}

TEST(Npy, EveryTypeAndShapeComesBackInBothVersions) {
  const test::Samples samples;
  for (const TensorData& tensor : samples.tensors())
    for (NpyVersion version : {NpyVersion::v1, NpyVersion::v2}) {
      BufferSink sink;
      write_npy(sink, tensor, version);
      const NpyHeader header = parse_npy(bytes_of(sink.bytes()), "m");
      EXPECT_EQ(tensor.dtype, header.dtype);
      EXPECT_EQ(tensor.shape, header.shape);
      EXPECT_TRUE(header.direct());
      EXPECT_EQ(0u, header.offset % 64);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()),
                read(sink.bytes()));
    }
}

// Bytes that NumPy 2.4 with ml_dtypes 0.6 wrote.
TEST(Npy, FilesAreThoseOfNumPy) {
  const auto expect = [](DType dtype, const Shape& shape, const std::string& text) {
    const std::string data(static_cast<size_t>(shape.numel()) * size_of(dtype), 'x');
    BufferSink sink;
    write_npy(sink, {"", dtype, shape, bytes_of(data)});
    EXPECT_EQ(
        std::string("\x93NUMPY\x01\x00v\x00", 10) + text + std::string(117 - text.size(), ' ') + "\n" + data,
        sink.bytes());
  };
  expect(f32, {2, 3}, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  expect(bf16, {3}, "{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }");
  expect(f64, {}, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }");
  expect(bool_, {1, 0}, "{'descr': '|b1', 'fortran_order': False, 'shape': (1, 0), }");
}

TEST(Npy, FortranOrderAndBigEndianBecomeRowMajorAndNative) {
  // Element (i, j, k) of shape (2, 3, 4) holds 100 i + 10 j + k; Fortran order has i fastest.
  std::string file_data, expected;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) file_data += {0, static_cast<char>(100 * i + 10 * j + k)};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) expected += {static_cast<char>(100 * i + 10 * j + k), 0};
  EXPECT_EQ(expected, read(raw(dict("'>f2'", "True", "(2, 3, 4)"), file_data)));
  EXPECT_EQ(std::string("\1\2\3\4\5\6\7\10", 8),
            read(raw(dict("'>i8'", "False", "()"), std::string("\10\7\6\5\4\3\2\1", 8), 2)));
  EXPECT_EQ(std::string("\4\3\2\1\10\7\6\5", 8),
            read(raw(dict("'>i4'", "False", "(2,)"), std::string("\1\2\3\4\5\6\7\10", 8), 3)));
  EXPECT_EQ("acbd", read(raw(dict("'|u1'", "True", "(2, 2)"), "abcd")));
  EXPECT_EQ("", read(raw(dict("'>f8'", "True", "(0, 4611686018427387)"))));
}

TEST(Npy, HeadersOfOtherWritersAreUnderstood) {
  for (const std::string& header :
       {std::string("{\"shape\":(3L,1L),'fortran_order':False,'descr':'<u1'}"),
        std::string("{ 'descr' : '|u1' , 'fortran_order' : True , 'shape' : ( 3 , 1 ) } \n"),
        std::string("{'descr': '>u1', 'fortran_order': False, 'shape': (3, 1,), }")})
    EXPECT_EQ("abc", read(raw(header, "abc"))) << header;
  EXPECT_EQ(bf16, parse_npy(bytes_of(raw(dict("'bfloat16'", "False", "(0,)"))), "m").dtype);
  EXPECT_EQ(bf16, parse_npy(bytes_of(raw(dict("'|V2'", "False", "(0,)"))), "m").dtype);
  EXPECT_EQ(f32, parse_npy(bytes_of(raw(dict("'=f4'", "False", "(0,)"))), "m").dtype);
}

template <class T>
std::string in_memory(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

TEST(Npy, IntegersThatArraysDoNotHaveAreWidened) {
  const std::string two = std::string("\xff\xff\x01\x80", 4);
  EXPECT_EQ(in_memory<int32_t>({65535, 32769}), read(raw(dict("'<u2'", "False", "(2,)"), two)));
  EXPECT_EQ(in_memory<int32_t>({-1, -32767}), read(raw(dict("'<i2'", "False", "(2,)"), two)));
  EXPECT_EQ(in_memory<int32_t>({-1, 384}), read(raw(dict("'>i2'", "False", "(2,)"), two)));
  EXPECT_EQ(in_memory<int64_t>({2147614719}), read(raw(dict("'<u4'", "False", "()"), two)));
  EXPECT_EQ(in_memory<int64_t>({4294902144}), read(raw(dict("'>u4'", "False", "()"), two)));
  EXPECT_EQ(in_memory<int64_t>({INT64_MAX}),
            read(raw(dict("'<u8'", "False", "()"), in_memory<uint64_t>({INT64_MAX}))));
  // Order of the elements in the file: (0, 0), (1, 0), (0, 1), (1, 1).
  EXPECT_EQ(in_memory<int32_t>({0, 2, 1, 3}),
            read(raw(dict("'<u2'", "True", "(2, 2)"), in_memory<uint16_t>({0, 1, 2, 3}))));
  const NpyHeader header = parse_npy(bytes_of(raw(dict("'<u2'", "False", "(2,)"), two)), "m");
  EXPECT_EQ(i32, header.dtype);
  EXPECT_EQ(4u, header.bytes);
  EXPECT_EQ(8u, header.array_bytes());
  EXPECT_FALSE(header.direct());
  const std::string message = error_of<FormatError>([] {
    read(raw(dict("'<u8'", "False", "(2,)"), in_memory<uint64_t>({1, uint64_t{1} << 63})));
  });
  EXPECT_TRUE(contains(message, "below 2^63, got 9223372036854775808 at element 1")) << message;
}

TEST(Npy, HostileFilesAreRefusedWithTheReason) {
  const auto shape = [](const std::string& text) { return raw(dict("'<f4'", "False", text)); };
  const auto type = [](const std::string& text) { return raw(dict(text, "False", "(1,)")); };
  const struct {
    std::string file, expected;
  } cases[] = {
      {type("'|O'"), "got '|O', Python objects, which are pickled and are never loaded"},
      {type("[('a', '<f4'), ('b', '<i4')]"), "got a structured type"},
      {type("'<c8'"), "complex numbers"},
      {type("'<U5'"), "text"},
      {type("'|S5'"), "text"},
      {type("'<M8[ns]'"), "dates or times"},
      {type("'<m8'"), "dates or times"},
      {type("'|V4'"), "opaque bytes"},
      {type("'<u16'"), "a width that mxrun does not have"},
      {type("'|u2'"), "expected '<' or '>' as byte order"},
      {type("'<u2'"), "expected 2 bytes after the header"},
      {raw(dict("'<u4'", "False", "(2305843009213693952,)")), "expected fewer than 2^63 bytes"},
      {type("'<f16'"), "a width that mxrun does not have"},
      {type("'>V2'"), "expected '<V2' or '|V2'"},
      {type("'|f4'"), "expected '<' or '>' as byte order"},
      {type("'f4'"), "expected a type like '<f4'"},
      {type("''"), "expected a type like '<f4'"},
      {type("None"), "expected a string"},
      {shape("(2)"), "expected ',' after the only element of a tuple"},
      {shape("[2]"), "expected '('"},
      {shape("(-2,)"), "expected a size of 0 or more"},
      {shape("(9223372036854775808,)"), "expected a size below 2^63"},
      {shape("(4611686018427387904, 4)"), "expected fewer than 2^63 bytes"},
      {shape("(0, 4611686018427387904, 4)"), "expected fewer than 2^63 bytes"},
      {shape("(1,1,1,1,1,1,1,1,1,1,1,1,1)"), "expected at most 12 dimensions"},
      {shape("(2,)"), "expected 8 bytes after the header for shape (2,) of f32, got 0"},
      {shape("(0,)") + "x", "expected 0 bytes after the header"},
      {raw("{'descr': '<f4', 'descr': '<f4'}"), "expected every key once"},
      {raw("{'descr': '<f4', 'shape': (1,)}"), "no 'fortran_order'"},
      {raw("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}"), "expected True or False"},
      {raw("{'name': 'a'}"), "got 'name'"},
      {raw("{'de\\x73cr': 'a'}"), "expected a string without escapes"},
      {raw("{'descr"), "expected a closing quote"},
      {raw(""), "expected '{'"},
      {raw(dict("'<f4'", "False", "()") + "; import os"), "expected nothing after the dictionary"},
      {raw("{}", "", 4), "expected version 1.0, 2.0 or 3.0, got 4.0"},
      {std::string("\x93NUMPY\2\0\xff\xff\xff\x7f", 12), "expected a header of at most 1048576 bytes"},
      {std::string("PK\3\4 and so on"), "expected a file that begins with '\\x93NUMPY'"},
      {std::string(), "got the end of the file"},
      {raw(dict("'|b1'", "False", "(2,)"), "\1\2"), "expected booleans of 0 or 1, got 2 at element 1"},
  };
  for (const auto& [file, expected] : cases) {
    const std::string message = refused_npy(file);
    EXPECT_TRUE(contains(message, expected)) << expected << "\n" << message;
  }
}

TEST(Npy, WhatDoesNotFitIsRefusedBeforeTheFirstByte) {
  BufferSink sink;
  error_of<InvalidArgument>([&] { write_npy(sink, {"a", f32, {2}, bytes_of("1234")}); });
  EXPECT_EQ("", sink.bytes());
  const std::string file = raw(dict("'|u1'", "False", "(2,)"), "ab");
  const NpyHeader header = parse_npy(bytes_of(file), "m");
  std::byte one;
  error_of<InvalidArgument>([&] { convert_npy(header, bytes_of(file).last(2), {&one, 1}, "m"); });
}

TEST(Npy, NumPyReadsWhatWeWriteAndWritesTheSameBytes) {
  const std::string python = test::python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "needs a Python with numpy (set MX_TEST_PYTHON)";
  const TempFolder folder;
  const test::Samples samples;
  int number = 0;
  for (const TensorData& tensor : samples.tensors()) {
    AtomicFile file(folder / (std::to_string(number++) + ".npy"));
    write_npy(file, tensor);
    file.commit();
  }
  ASSERT_TRUE(test::run_python(python, folder, "count = " + std::to_string(number) + R"(
import numpy as np
for i in range(count):
    a = np.load(f'{i}.npy', allow_pickle=False)
    if a.dtype.kind != 'V':  # NumPy spells bf16 '|V2' where ml_dtypes is not there
        np.save(f'again{i}.npy', a)
        assert open(f'{i}.npy', 'rb').read() == open(f'again{i}.npy', 'rb').read(), (i, a.dtype, a.shape)
    if a.ndim > 1:
        b = a if a.dtype.kind == 'V' else a.astype(a.dtype.newbyteorder('>'))
        np.save(f'{i}.npy', np.asfortranarray(b))
    with open(f'{i}.raw', 'wb') as f: f.write(a.tobytes())
)"));
  for (int i = 0; i < number; ++i)
    EXPECT_EQ(test::slurp(folder / (std::to_string(i) + ".raw")),
              read(test::slurp(folder / (std::to_string(i) + ".npy"))))
        << samples.tensors()[static_cast<size_t>(i)].shape;
}

}  // namespace
}  // namespace mx::io
