// The IDX format of the MNIST files, read, plain or compressed with gzip.
// Elements of i16 become i32.
// Source: http://yann.lecun.com/exdb/mnist/ ("THE IDX FILE FORMAT").
//
// Two zero bytes, a byte for the element type, one for the number of dimensions, the sizes as big-endian
// numbers of 32 bits, and the elements in row-major order, big-endian too. The types are u8, i8, i32, f32 and
// f64; i16 is refused by name, because mxrun has no such type.
//
// Nothing that a file announces is believed: sizes are checked against the bytes that are there (or, of a
// compressed file, can be there) before memory is allocated, and a file must end where its elements do.
// Errors are FormatError, with the file, what was expected and what came, and FileError.
//
// The functions keep no state and may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/io/byte_sink.h"
#include "ndarray/ndarray.h"

namespace mx::data {

struct IdxHeader {
  DType dtype = DType::u8;  ///< of the array
  bool widened = false;     ///< the file has i16, of which the array's i32 are made
  Shape shape;
  uint64_t offset = 0;  ///< of the first element, from the begin of the content
  uint64_t bytes = 0;   ///< of all elements in the file
};

struct IdxLimits {
  /// The most bytes of elements that a compressed file may have.
  uint64_t max_inflated_bytes = uint64_t{1} << 32;
};

/// As many bytes are enough for any header that is read.
inline constexpr uint64_t kMaxIdxHeaderBytes = 4 + 4 * kMaxRank;

/// Reads the header from the first bytes of a file's content. Does not look at the elements, nor whether they
/// are there. `path` is for messages.
IdxHeader parse_idx_header(io::Bytes begin, const std::string& path);

/// The array in a file whose bytes these are, on the CPU; values are there when it returns.
NDArray decode_idx(io::Bytes file, const std::string& path, const IdxLimits& limits = {});

/// The same from a file.
NDArray read_idx(const std::string& path, const IdxLimits& limits = {});

}  // namespace mx::data
