#include "nn/data/idx.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/base/check.h"
#include "ndarray/io/byte_reader.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "ndarray/io/tensor_record.h"
#include "nn/data/gzip.h"

namespace mx::data {
namespace {

using io::Bytes;

std::string place(const std::string& path) { return "[idx] " + io::in_quotes(path); }

DType element_type(int code, const std::string& where) {
  switch (code) {
    case 0x08:
      return u8;
    case 0x09:
      return i8;
    case 0x0B:  // i16, which is widened: mxrun has no such type
    case 0x0C:
      return i32;
    case 0x0D:
      return f32;
    case 0x0E:
      return f64;
    default:
      break;
  }
  throw FormatError(mx::detail::concat(where, ": expected elements of u8 (8), i8 (9), i16 (11), i32 (12), ",
                                       "f32 (13) or f64 (14), got an unknown type (", code, ")"));
}

std::string type_in_file(const IdxHeader& header) {
  return header.widened ? "i16" : mx::detail::concat(header.dtype);
}

template <class Word>
void from_big_endian(std::byte* data, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data + i, sizeof(Word));
    if constexpr (sizeof(Word) == 4) word = __builtin_bswap32(word);
    if constexpr (sizeof(Word) == 8) word = __builtin_bswap64(word);
    std::memcpy(data + i, &word, sizeof(Word));
  }
}

// Converts big-endian i16, in the upper half of the memory, to i32, which fill all of it. Each i32 is written
// at or below the i16 that it comes from, so no element is overwritten before it has been read.
void widen_big_endian(std::byte* data, uint64_t bytes) {
  const std::byte* const from = data + bytes;
  for (uint64_t i = 0; i < bytes / sizeof(int16_t); ++i) {
    uint16_t half;
    std::memcpy(&half, from + i * sizeof(half), sizeof(half));
    const int32_t whole = static_cast<int16_t>(__builtin_bswap16(half));
    std::memcpy(data + i * sizeof(whole), &whole, sizeof(whole));
  }
}

// Returns a new array. fill(memory) writes the elements in the format of the file; they are converted in
// place.
template <class Fill>
NDArray make_array(const IdxHeader& header, const Fill& fill) {
  NDArray made = empty(header.shape, header.dtype);
  auto* const data = visit(header.dtype, [&](auto tag) {
    return reinterpret_cast<std::byte*>(made.mutable_data<typename decltype(tag)::type>());
  });
  if (header.widened) {
    fill(std::span<std::byte>(data + header.bytes, header.bytes));
    widen_big_endian(data, header.bytes);
    return made;
  }
  fill(std::span<std::byte>(data, header.bytes));
  if (size_of(header.dtype) == 4) from_big_endian<uint32_t>(data, header.bytes);
  if (size_of(header.dtype) == 8) from_big_endian<uint64_t>(data, header.bytes);
  return made;
}

NDArray decode_compressed(Bytes file, const std::string& path, const IdxLimits& limits) {
  const std::string where = place(path);
  GzipReader reader(file, where);
  std::byte begin[kMaxIdxHeaderBytes];
  size_t got = reader.read({begin, 4});
  if (got == 4) {
    const int rank = std::min(std::to_integer<int>(begin[3]), kMaxRank);
    got += reader.read({begin + 4, 4 * static_cast<size_t>(rank)});
  }
  const IdxHeader header = parse_idx_header({begin, got}, path);
  MX_CHECK(header.bytes <= limits.max_inflated_bytes, FormatError, where, ": expected at most ",
           limits.max_inflated_bytes, " bytes of elements (IdxLimits::max_inflated_bytes), got shape ",
           header.shape, " of ", type_in_file(header));
  MX_CHECK(header.bytes / kMostInflation <= file.size(), FormatError, where, ": expected at most ",
           kMostInflation, " bytes of elements from each of ", file.size(), " compressed bytes, got shape ",
           header.shape, " of ", type_in_file(header));
  return make_array(header, [&](std::span<std::byte> elements) {
    const size_t made = reader.read(elements);
    MX_CHECK(made == header.bytes, FormatError, where, ": expected ", header.bytes,
             " bytes of elements for shape ", header.shape, " of ", type_in_file(header), ", got ", made);
    reader.finish();
  });
}

}  // namespace

IdxHeader parse_idx_header(Bytes begin, const std::string& path) {
  const std::string where = place(path);
  io::ByteReader reader(begin, where);
  const Bytes magic = reader.take(4, "magic");
  const auto byte = [&](size_t i) { return std::to_integer<int>(magic[i]); };
  MX_CHECK(byte(0) == 0 && byte(1) == 0, FormatError, where,
           ": expected an IDX file, which begins with two bytes of 0, got ", byte(0), " and ", byte(1));
  IdxHeader header;
  header.dtype = element_type(byte(2), where);
  header.widened = byte(2) == 0x0B;
  const int rank = byte(3);
  MX_CHECK(rank >= 1 && rank <= kMaxRank, FormatError, where, ": expected 1 to ", kMaxRank,
           " dimensions, got ", rank);
  for (int i = 0; i < rank; ++i) {
    uint32_t size;
    std::memcpy(&size, reader.take(4, "size of a dimension").data(), 4);
    header.shape.push_back(__builtin_bswap32(size));
  }
  header.offset = reader.position();
  header.bytes = io::checked_bytes(header.shape, header.dtype, where) / (header.widened ? 2 : 1);
  return header;
}

NDArray decode_idx(Bytes file, const std::string& path, const IdxLimits& limits) {
  if (is_gzip(file)) return decode_compressed(file, path, limits);
  const IdxHeader header = parse_idx_header(file, path);
  const uint64_t got = file.size() - header.offset;
  MX_CHECK(got == header.bytes, FormatError, place(path), ": expected ", header.bytes,
           " bytes of elements for shape ", header.shape, " of ", type_in_file(header), ", got ", got);
  return make_array(header, [&](std::span<std::byte> elements) {
    if (!elements.empty()) std::memcpy(elements.data(), file.data() + header.offset, elements.size());
  });
}

NDArray read_idx(const std::string& path, const IdxLimits& limits) {
  const io::MappedFile file(path);
  return decode_idx(file.bytes(), path, limits);
}

}  // namespace mx::data
