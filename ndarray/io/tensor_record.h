// Tensors as every file format reads and writes them, and the checks that the formats share.
//
// Files are little-endian, as are the machines that this runs on.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "ndarray/dtype.h"
#include "ndarray/io/byte_sink.h"
#include "ndarray/shape.h"

namespace mx::io {

static_assert(std::endian::native == std::endian::little);

/// A tensor within a file: row-major, without gaps, in the byte order of this machine.
struct TensorRecord {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  uint64_t offset = 0;  ///< of the first byte, from the start of the file; any alignment
  uint64_t bytes = 0;   ///< shape.numel() * size_of(dtype)
};

/// A tensor to be written: row-major, without gaps. Owns nothing.
struct TensorData {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Bytes data;
};

/// Returns the bytes of the elements. Throws FormatError for negative sizes and if the bytes exceed an
/// int64_t; the message begins with `where`.
uint64_t checked_bytes(const Shape& shape, DType dtype, const std::string& where);

/// Throws InvalidArgument if the length of the data does not match dtype and shape.
void check_data(const TensorData& tensor, const char* op);

/// Throws FormatError if a byte of a bool array is neither 0 nor 1. Reading such a bool is undefined
/// behaviour in C++.
void check_bools(Bytes data, const std::string& where);

/// Returns true for well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

/// Returns the text in quotes for a message, with control characters and invalid UTF-8 escaped and long text
/// cut.
std::string in_quotes(std::string_view text);

}  // namespace mx::io
