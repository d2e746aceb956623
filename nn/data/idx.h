// Reads files in the IDX format of the MNIST data, plain or compressed with gzip.
// Source: http://yann.lecun.com/exdb/mnist/ ("THE IDX FILE FORMAT").
//
// A file has two zero bytes, one byte for the element type, one for the number of dimensions, the sizes as
// big-endian numbers of 32 bits, and the elements in row-major order, also big-endian. The types are u8, i8,
// i16, i32, f32 and f64. Elements of i16 become i32, because mxrun has no type i16.
//
// Headers are not trusted. Before memory is allocated, sizes are checked against the bytes that the file has,
// or, for a compressed file, can decompress to. A file must end with its last element. Errors are
// FormatError, with the file, the expected and the actual value, and FileError.
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
  bool widened = false;     ///< the elements are i16 in the file and become i32 in the array
  Shape shape;
  uint64_t offset = 0;  ///< of the first element, from the start of the content
  uint64_t bytes = 0;   ///< of all elements in the file
};

struct IdxLimits {
  /// The largest number of bytes of elements that a compressed file may decompress to.
  uint64_t max_inflated_bytes = uint64_t{1} << 32;
};

/// The size of the largest header.
inline constexpr uint64_t kMaxIdxHeaderBytes = 4 + 4 * kMaxRank;

/// Reads the header from the first bytes of a file's content. Does not check the elements, or that they
/// exist. `path` is for messages.
IdxHeader parse_idx_header(io::Bytes begin, const std::string& path);

/// Returns the array of a file with these bytes, on the CPU. Blocks until its values are set.
NDArray decode_idx(io::Bytes file, const std::string& path, const IdxLimits& limits = {});

/// Opens a file and decodes it.
NDArray read_idx(const std::string& path, const IdxLimits& limits = {});

}  // namespace mx::data
