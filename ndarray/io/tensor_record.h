// What files hold and what is written to them, the same for every format; and the checks they share.
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
  uint64_t offset = 0;  ///< of the first byte, from the begin of the file; of any alignment
  uint64_t bytes = 0;   ///< shape.numel() * size_of(dtype)
};

/// A tensor to be written: row-major, without gaps. Owns nothing.
struct TensorData {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Bytes data;
};

/// Bytes of the elements. Throws FormatError, its text beginning with `where`, for negative sizes and for
/// more bytes than an int64_t counts.
uint64_t checked_bytes(const Shape& shape, DType dtype, const std::string& where);

/// Throws InvalidArgument when the data is not as long as type and shape say.
void check_data(const TensorData& tensor, const char* op);

/// Every byte of an array of bool must be 0 or 1: others are undefined behaviour in C++. Throws FormatError.
void check_bools(Bytes data, const std::string& where);

/// Well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

/// The text between quotes for a message: control characters and broken UTF-8 escaped, long ones cut.
std::string in_quotes(std::string_view text);

}  // namespace mx::io
