#include "ndarray/io/npy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/byte_reader.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/npy_dict.h"

namespace mx::io {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr size_t kAlignment = 64;     // of the data, since NumPy 1.14
constexpr size_t kGrowthDigits = 21;  // room to lengthen the outermost size in place, since NumPy 1.24

const char* descr_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "<f4";
    case DType::f64:
      return "<f8";
    case DType::f16:
      return "<f2";
    case DType::bf16:
      return "<V2";
    case DType::i8:
      return "|i1";
    case DType::u8:
      return "|u1";
    case DType::i32:
      return "<i4";
    case DType::i64:
      return "<i8";
    case DType::bool_:
      break;
  }
  return "|b1";
}

constexpr const char* kSupported = "f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8, b1 or V2 (bf16)";

/// Integers that are read into a wider type.
struct WidenedType {
  const char* kind;
  NpyStored stored;
  size_t bytes;
  DType dtype;
};
constexpr WidenedType kWidened[] = {{"i2", NpyStored::i16, 2, DType::i32},
                                    {"u2", NpyStored::u16, 2, DType::i32},
                                    {"u4", NpyStored::u32, 4, DType::i64},
                                    {"u8", NpyStored::u64, 8, DType::i64}};

size_t stored_size(const NpyHeader& header) {
  for (const WidenedType& type : kWidened)
    if (type.stored == header.stored) return type.bytes;
  return size_of(header.dtype);
}

/// Why a type is refused, for the kinds that people meet.
std::string refusal(const std::string& descr) {
  const char kind = descr.size() > 1 ? descr[1] : '?';
  switch (kind) {
    case 'O':
      return "Python objects, which are pickled and are never loaded";
    case 'c':
      return "complex numbers";
    case 'U':
    case 'S':
    case 'a':
      return "text";
    case 'M':
    case 'm':
      return "dates or times";
    case 'V':
      return "opaque bytes";
    case 'u':
    case 'i':
    case 'f':
      return "a width that mxrun does not have";
    default:
      return "an unknown type";
  }
}

void parse_type(const std::string& descr, NpyHeader& header, const std::string& where) {
  if (descr == "bfloat16") {
    header.dtype = DType::bf16;
    return;
  }
  const char order = descr.empty() ? '?' : descr[0];
  const std::string kind = descr.empty() ? "" : descr.substr(1);
  MX_CHECK(order == '<' || order == '>' || order == '|' || order == '=', FormatError, where,
           ": expected a type like '<f4' in 'descr', got ", in_quotes(descr));
  const bool one_byte = kind == "i1" || kind == "u1" || kind == "b1";
  for (DType dtype : kAllDTypes) {
    if (kind != descr_of(dtype) + 1) continue;
    // '|' says that there is no order, which only single bytes and opaque ones can say.
    const bool opaque = kind == "V2";
    const bool valid = opaque ? order != '>' : one_byte || order != '|';
    MX_CHECK(valid, FormatError, where, ": expected ", opaque ? "'<V2' or '|V2'" : "'<' or '>' as byte order",
             ", got ", in_quotes(descr));
    header.dtype = dtype;
    header.swapped = order == '>' && !one_byte;
    return;
  }
  for (const WidenedType& type : kWidened) {
    if (kind != type.kind) continue;
    MX_CHECK(order != '|', FormatError, where, ": expected '<' or '>' as byte order, got ", in_quotes(descr));
    header.dtype = type.dtype;
    header.stored = type.stored;
    header.swapped = order == '>';
    return;
  }
  throw FormatError(mx::detail::concat(where, ": expected elements of ", kSupported, ", got ",
                                       in_quotes(descr), ", ", refusal(descr)));
}

template <class T>
T swap_bytes(T value) {
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(static_cast<uint16_t>(value)));
  if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(value)));
  if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(static_cast<uint64_t>(value)));
  return value;
}

/// Elements of T in the file, of Out in the array. Writes in order, reads where the strides lead: one of the
/// two sides jumps in a transposition anyway. Throws FormatError for a number that Out does not hold.
template <class T, class Out = T>
void copy_elements(const NpyHeader& header, const std::byte* in, std::byte* out, const std::string& path) {
  const Shape& shape = header.shape;
  Strides strides = contiguous_strides(shape);
  if (header.fortran_order) {
    int64_t stride = 1;
    for (int i = 0; i < shape.rank(); ++i) {
      strides[i] = stride;
      stride *= shape[i];
    }
  }
  const int last = shape.rank() - 1;
  const int64_t inner = last < 0 ? 1 : shape[last], step = last < 0 ? 1 : strides[last];
  Shape index = Shape::filled(shape.rank(), 0);
  int64_t offset = 0;
  for (int64_t done = 0, total = shape.numel(); done < total; done += inner) {
    for (int64_t i = 0; i < inner; ++i) {
      T value;
      std::memcpy(&value, in + (offset + i * step) * static_cast<int64_t>(sizeof(T)), sizeof(T));
      if (header.swapped) value = swap_bytes(value);
      if constexpr (!std::is_same_v<T, Out>)
        MX_CHECK(std::in_range<Out>(value), FormatError, "[npy] ", in_quotes(path),
                 ": expected unsigned numbers below 2^63, got ", value, " at element ", done + i);
      const auto element = static_cast<Out>(value);
      std::memcpy(out, &element, sizeof(Out));
      out += sizeof(Out);
    }
    for (int axis = last - 1; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

NpyHeader parse_npy_prefix(Bytes begin, const std::string& path) {
  const std::string where = "[npy] " + in_quotes(path);
  ByteReader reader(begin, where);
  const std::string magic = reader.text(kMagicBytes, "magic");
  MX_CHECK(magic == kMagic, FormatError, where, ": expected a file that begins with '\\x93NUMPY', got ",
           in_quotes(magic));
  const int major = reader.number<uint8_t>("version"), minor = reader.number<uint8_t>("version");
  MX_CHECK(major >= 1 && major <= 3 && minor == 0, FormatError, where,
           ": expected version 1.0, 2.0 or 3.0, got ", major, ".", minor);
  const uint64_t length = major == 1 ? reader.number<uint16_t>("length of the header")
                                     : reader.number<uint32_t>("length of the header");
  MX_CHECK(length <= kMaxNpyHeaderBytes, FormatError, where, ": expected a header of at most ",
           kMaxNpyHeaderBytes, " bytes, got ", length);
  const detail::NpyDict dict = detail::parse_npy_dict(reader.text(length, "header"), where);
  MX_CHECK(!dict.structured, FormatError, where, ": expected elements of ", kSupported,
           ", got a structured type (a list in 'descr')");
  NpyHeader header;
  parse_type(dict.descr, header, where);
  header.shape = dict.shape;
  header.fortran_order = dict.fortran_order;
  header.offset = reader.position();
  checked_bytes(header.shape, header.dtype, where);
  header.bytes = static_cast<uint64_t>(header.shape.numel()) * stored_size(header);
  return header;
}

NpyHeader parse_npy(Bytes file, const std::string& path) {
  const NpyHeader header = parse_npy_prefix(file, path);
  const uint64_t got = file.size() - header.offset;
  MX_CHECK(got == header.bytes, FormatError, "[npy] ", in_quotes(path), ": expected ", header.bytes,
           " bytes after the header for shape ", header.shape, " of ", header.dtype, ", got ", got);
  if (header.dtype == DType::bool_) check_bools(file.subspan(header.offset), "[npy] " + in_quotes(path));
  return header;
}

void convert_npy(const NpyHeader& header, Bytes data, std::span<std::byte> out, const std::string& path) {
  MX_CHECK(data.size() == header.bytes && out.size() == header.array_bytes(), InvalidArgument, "[npy] ",
           in_quotes(path), ": expected ", header.bytes, " bytes to convert and room for ",
           header.array_bytes(), ", got ", data.size(), " and ", out.size());
  if (header.bytes == 0) return;
  if (header.dtype == DType::bool_) check_bools(data, "[npy] " + in_quotes(path));
  if (header.direct()) {
    std::memcpy(out.data(), data.data(), data.size());
    return;
  }
  switch (header.stored) {
    case NpyStored::i16:
      return copy_elements<int16_t, int32_t>(header, data.data(), out.data(), path);
    case NpyStored::u16:
      return copy_elements<uint16_t, int32_t>(header, data.data(), out.data(), path);
    case NpyStored::u32:
      return copy_elements<uint32_t, int64_t>(header, data.data(), out.data(), path);
    case NpyStored::u64:
      return copy_elements<uint64_t, int64_t>(header, data.data(), out.data(), path);
    case NpyStored::same:
      break;
  }
  switch (size_of(header.dtype)) {
    case 1:
      return copy_elements<uint8_t>(header, data.data(), out.data(), path);
    case 2:
      return copy_elements<uint16_t>(header, data.data(), out.data(), path);
    case 4:
      return copy_elements<uint32_t>(header, data.data(), out.data(), path);
    default:
      return copy_elements<uint64_t>(header, data.data(), out.data(), path);
  }
}

std::string npy_header(DType dtype, const Shape& shape, NpyVersion version) {
  std::string dict = std::string("{'descr': '") + descr_of(dtype) +
                     "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  if (!shape.empty()) dict.append(kGrowthDigits - std::to_string(shape[0]).size(), ' ');
  const size_t length_bytes = version == NpyVersion::v1 ? 2 : 4;
  const size_t before = kMagicBytes + 2 + length_bytes;
  // As NumPy pads: by 64 where nothing would do.
  dict.append(kAlignment - (before + dict.size() + 1) % kAlignment, ' ');
  dict += '\n';
  const auto length = static_cast<uint32_t>(dict.size());
  std::string text(kMagic, kMagicBytes);
  text += static_cast<char>(version == NpyVersion::v1 ? 1 : 2);
  text += '\0';
  text.append(reinterpret_cast<const char*>(&length), length_bytes);
  return text + dict;
}

void write_npy(ByteSink& sink, const TensorData& tensor, NpyVersion version) {
  check_data(tensor, "npy");
  sink.write(npy_header(tensor.dtype, tensor.shape, version));
  sink.write(tensor.data);
}

}  // namespace mx::io
