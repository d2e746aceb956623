// NumPy's .npy format, versions 1.0, 2.0 and 3.0, read; 1.0 and 2.0 written, byte for byte as NumPy does.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// bf16: NumPy has no such type; with the package ml_dtypes it writes '<V2' (two opaque bytes) and reads that
// with `array.view(ml_dtypes.bfloat16)`. '<V2' is also written here, and '<V2', '|V2' and 'bfloat16' are
// read. Integers of types that mxrun does not have are read into the next wider one that it has: i2 and u2
// into i32, u4 and u8 into i64 (u8 only if the numbers fit). Rejected, with the type's name in the message:
// objects (pickles, which could run code), structured types, complex, dates, text, and numbers of 16 bytes
// (f16).
//
// The functions have no state and may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ndarray/io/tensor_record.h"

namespace mx::io {

/// The longest header text that is read. NumPy's own default is 10,000.
inline constexpr uint64_t kMaxNpyHeaderBytes = 1 << 20;
/// The largest number of bytes that a header takes in the file, including magic and length.
inline constexpr uint64_t kMaxNpyPrefixBytes = kMaxNpyHeaderBytes + 12;

/// The type of the elements in the file, if it is not the array's type.
enum class NpyStored : uint8_t { same, i16, u16, u32, u64 };

struct NpyHeader {
  DType dtype = DType::f32;  ///< of the array
  NpyStored stored = NpyStored::same;
  Shape shape;
  bool fortran_order = false;  ///< the first index varies fastest
  bool swapped = false;        ///< big-endian
  uint64_t offset = 0;         ///< of the first element, from the start of the file
  uint64_t bytes = 0;          ///< of all elements in the file

  /// Returns the bytes of all elements in the array.
  uint64_t array_bytes() const { return static_cast<uint64_t>(shape.numel()) * size_of(dtype); }
  /// Returns true if the elements in the file have the same bytes as the row-major array.
  bool direct() const {
    return stored == NpyStored::same && !swapped && (!fortran_order || shape.rank() < 2);
  }
};

/// Reads the header from the first kMaxNpyPrefixBytes bytes of a file, or from all if there are fewer. Does
/// not check whether the elements are there. Throws FormatError.
NpyHeader parse_npy_prefix(Bytes begin, const std::string& path);

/// The same for a whole file. Throws FormatError also if elements are missing or bytes follow them.
NpyHeader parse_npy(Bytes file, const std::string& path);

/// Copies the elements, `header.bytes` at `data`, to row-major order, the byte order of this machine and the
/// array's type. `out` has room for header.array_bytes() and does not overlap. Throws FormatError for
/// booleans other than 0 and 1, and for a u8 of 2^63 or more.
void convert_npy(const NpyHeader& header, Bytes data, std::span<std::byte> out, const std::string& path);

enum class NpyVersion { v1, v2 };

/// Returns the header alone, for callers that write the data later.
std::string npy_header(DType dtype, const Shape& shape, NpyVersion version = NpyVersion::v1);

/// Writes a whole file, row-major, little-endian; the tensor's name is not used. Throws InvalidArgument if
/// data and shape disagree, and any exception of the sink.
void write_npy(ByteSink& sink, const TensorData& tensor, NpyVersion version = NpyVersion::v1);

}  // namespace mx::io
