#include "ndarray/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <unordered_set>

#include "engine/base/check.h"
#include "ndarray/io/byte_reader.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/safetensors_header.h"

namespace mx::io {
namespace {

constexpr const char* kMetadataKey = "__metadata__";
constexpr uint64_t kLengthBytes = 8;

/// The name of a type in the format, and its rank: its position in the reference implementation's list of
/// types (BOOL first, U64 last). Data of types with a higher rank are written first.
struct Spelling {
  const char* name;
  int rank;
};
Spelling spelling(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {"F32", 6};
    case DType::f64:
      return {"F64", 7};
    case DType::f16:
      return {"F16", 3};
    case DType::bf16:
      return {"BF16", 4};
    case DType::i8:
      return {"I8", 2};
    case DType::u8:
      return {"U8", 1};
    case DType::i32:
      return {"I32", 5};
    case DType::i64:
      return {"I64", 8};
    case DType::bool_:
      break;
  }
  return {"BOOL", 0};
}

template <class Numbers>
std::string numbers(const Numbers& values) {
  std::string text = "[";
  for (const auto value : values) {
    if (text.size() > 1) text += ',';
    text += std::to_string(value);
  }
  return text + ']';
}

std::string numbers(uint64_t begin, uint64_t end) {
  return numbers(std::initializer_list<uint64_t>{begin, end});
}

void check_text(const std::string& text, const char* what) {
  MX_CHECK(is_utf8(text), InvalidArgument, "[safetensors] expected UTF-8 in the ", what, ", got ",
           in_quotes(text));
}

std::string metadata_json(const Metadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    check_text(key, "keys of the metadata");
    check_text(value, "metadata");
    if (!text.empty()) text += ',';
    text += detail::json_string(key) + ':' + detail::json_string(value);
  }
  return detail::json_string(kMetadataKey) + ":{" + text + "}";
}

/// Sorts the tensors by offset and checks that each begins where the previous one ends.
void check_offsets(std::vector<detail::HeaderTensor>& tensors, uint64_t data_bytes,
                   const std::string& where) {
  // An empty tensor has the same offset as the next one. A stable sort keeps the order of equal ones.
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t end = 0;
  for (const detail::HeaderTensor& tensor : tensors) {
    const std::string place = where + ": tensor " + in_quotes(tensor.name);
    const auto offsets = [&] { return numbers(tensor.begin, tensor.end); };
    MX_CHECK(tensor.begin <= tensor.end, FormatError, place, ": expected ascending data_offsets, got ",
             offsets());
    MX_CHECK(tensor.end <= data_bytes, FormatError, place, ": expected data_offsets within the ", data_bytes,
             " bytes after the header, got ", offsets());
    MX_CHECK(tensor.begin == end, FormatError, place, ": expected data that begin at ", end,
             ", without gap or overlap, got data_offsets ", offsets());
    const uint64_t expected = checked_bytes(tensor.shape, tensor.dtype, place);
    MX_CHECK(tensor.end - tensor.begin == expected, FormatError, place, ": expected ", expected,
             " bytes for shape ", tensor.shape, " of ", tensor.dtype, ", got ", tensor.end - tensor.begin);
    end = tensor.end;
  }
  MX_CHECK(end == data_bytes, FormatError, where, ": expected ", end, " bytes of data after the header, got ",
           data_bytes);
}

/// Their first bytes would be taken for the length of a header.
void refuse_other_formats(Bytes file, const std::string& where) {
  const std::string_view begin(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 8));
  MX_CHECK(!begin.starts_with("PK\3\4"), FormatError, where,
           ": expected a safetensors file, got a zip archive, such as a .pt file of PyTorch or an .npz file. "
           "For a "
           ".pt file, call in Python `from safetensors.torch import save_file; save_file(model.state_dict(), "
           "\"m.safetensors\")`; load_npz() reads an .npz file");
  MX_CHECK(!begin.starts_with("\x93NUMPY"), FormatError, where,
           ": expected a safetensors file, got a .npy file of NumPy, which load_npy() reads");
}

}  // namespace

Safetensors parse_safetensors(Bytes file, const std::string& path) {
  const std::string where = "[safetensors] " + in_quotes(path);
  refuse_other_formats(file, where);
  ByteReader reader(file, where);
  const auto header_bytes = reader.number<uint64_t>("the length of the header");
  MX_CHECK(header_bytes <= kMaxSafetensorsHeaderBytes, FormatError, where, ": expected a header of at most ",
           kMaxSafetensorsHeaderBytes, " bytes, got ", header_bytes);
  const Bytes json = reader.take(header_bytes, "header");
  MX_CHECK(!json.empty() && json.front() == std::byte{'{'}, FormatError, where,
           ": expected a header that begins with '{', got ",
           json.empty() ? "an empty one" : "byte " + std::to_string(std::to_integer<int>(json.front())));
  detail::Header header =
      detail::parse_header({reinterpret_cast<const char*>(json.data()), json.size()}, where);
  check_offsets(header.tensors, reader.remaining(), where);

  Safetensors result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(header.tensors.size());
  for (detail::HeaderTensor& tensor : header.tensors) {
    const uint64_t offset = reader.position() + tensor.begin, bytes = tensor.end - tensor.begin;
    if (tensor.dtype == DType::bool_)
      check_bools(file.subspan(offset, bytes), where + ": tensor " + in_quotes(tensor.name));
    result.tensors.push_back({std::move(tensor.name), tensor.dtype, tensor.shape, offset, bytes});
  }
  return result;
}

SafetensorsLayout plan_safetensors(std::span<const TensorData> tensors, const Metadata& metadata) {
  std::unordered_set<std::string> names;
  for (const TensorData& tensor : tensors) {
    check_text(tensor.name, "name of a tensor");
    MX_CHECK(tensor.name != kMetadataKey, InvalidArgument,
             "[safetensors] expected tensor names other than the reserved name '", kMetadataKey,
             "', got a tensor of that name");
    MX_CHECK(names.insert(tensor.name).second, InvalidArgument,
             "[safetensors] expected every name once, got ", in_quotes(tensor.name), " twice");
  }
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    const int x = spelling(tensors[a].dtype).rank, y = spelling(tensors[b].dtype).rank;
    return x != y ? x > y : tensors[a].name < tensors[b].name;
  });

  std::string json = "{";
  if (!metadata.empty()) json += metadata_json(metadata);
  uint64_t offset = 0;
  for (size_t index : layout.order) {
    const TensorData& tensor = tensors[index];
    const int64_t elements = checked_numel(tensor.shape, size_of(tensor.dtype), "safetensors");
    const uint64_t end = offset + static_cast<uint64_t>(elements) * size_of(tensor.dtype);
    if (json.size() > 1) json += ',';
    json += detail::json_string(tensor.name) + ":{\"dtype\":\"" + spelling(tensor.dtype).name +
            "\",\"shape\":" + numbers(tensor.shape) + ",\"data_offsets\":" + numbers(offset, end) + "}";
    offset = end;
  }
  json += '}';
  json.append((kLengthBytes - json.size() % kLengthBytes) % kLengthBytes, ' ');
  MX_CHECK(json.size() <= kMaxSafetensorsHeaderBytes, InvalidArgument,
           "[safetensors] expected a header of at most ", kMaxSafetensorsHeaderBytes, " bytes, got ",
           json.size());
  const uint64_t length = json.size();
  layout.header.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  layout.header += json;
  return layout;
}

void write_safetensors(ByteSink& sink, std::span<const TensorData> tensors, const Metadata& metadata) {
  for (const TensorData& tensor : tensors) check_data(tensor, "safetensors");
  const SafetensorsLayout layout = plan_safetensors(tensors, metadata);
  sink.write(layout.header);
  for (size_t index : layout.order) sink.write(tensors[index].data);
}

}  // namespace mx::io
