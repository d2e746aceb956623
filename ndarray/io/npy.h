// NumPy's .npy format, versions 1.0, 2.0 and 3.0, read; 1.0 and 2.0 written, byte for byte as NumPy does.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// bf16: NumPy has no such type; with the package ml_dtypes it writes '<V2' (two opaque bytes) and reads that
// back as `array.view(ml_dtypes.bfloat16)`. That is what is written here, and read ('|V2' and 'bfloat16'
// too). Integers of types that mxrun does not have are read into the next wider one that it has: i2 and u2
// into i32, u4 and u8 into i64, the last if they fit. Refused by name: objects (pickles, which could run
// code), structured types, complex, dates, text, and numbers of 16 bytes (f16).
//
// The functions keep no state and may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ndarray/io/tensor_record.h"

namespace mx::io {

/// The longest header text that is read. NumPy's own default is 10,000.
inline constexpr uint64_t kMaxNpyHeaderBytes = 1 << 20;
/// As many bytes of a file are enough to hold any header that is read, magic and length included.
inline constexpr uint64_t kMaxNpyPrefixBytes = kMaxNpyHeaderBytes + 12;

/// What the elements in a file are, if not those of the array.
enum class NpyStored : uint8_t { same, i16, u16, u32, u64 };

struct NpyHeader {
  DType dtype = DType::f32;  ///< of the array
  NpyStored stored = NpyStored::same;
  Shape shape;
  bool fortran_order = false;  ///< the first index varies fastest
  bool swapped = false;        ///< big-endian
  uint64_t offset = 0;         ///< of the first element, from the begin of the file
  uint64_t bytes = 0;          ///< of all elements in the file

  /// Of all elements in the array.
  uint64_t array_bytes() const { return static_cast<uint64_t>(shape.numel()) * size_of(dtype); }
  /// The elements lie in the file as they lie in an array.
  bool direct() const {
    return stored == NpyStored::same && !swapped && (!fortran_order || shape.rank() < 2);
  }
};

/// Reads the header from the first bytes of a file, kMaxNpyPrefixBytes or all. Does not look at the elements,
/// nor whether they are there. Throws FormatError.
NpyHeader parse_npy_prefix(Bytes begin, const std::string& path);

/// The same for a whole file, whose elements must be there, and nothing behind them.
NpyHeader parse_npy(Bytes file, const std::string& path);

/// Copies the elements, `header.bytes` at `data`, to row-major order, the byte order of this machine and the
/// array's type. `out` has room for header.array_bytes() and does not overlap. Throws FormatError for
/// booleans other than 0 and 1, and for a u8 of 2^63 or more.
void convert_npy(const NpyHeader& header, Bytes data, std::span<std::byte> out, const std::string& path);

enum class NpyVersion { v1, v2 };

/// The header alone, for callers who have the data later.
std::string npy_header(DType dtype, const Shape& shape, NpyVersion version = NpyVersion::v1);

/// A whole file, row-major, little-endian; the name is not used. Throws InvalidArgument where data and shape
/// disagree, and what the sink throws.
void write_npy(ByteSink& sink, const TensorData& tensor, NpyVersion version = NpyVersion::v1);

}  // namespace mx::io
