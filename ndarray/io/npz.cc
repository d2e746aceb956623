#include "ndarray/io/npz.h"

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::io {
namespace {

constexpr const char* kSuffix = ".npy";
constexpr size_t kSuffixBytes = 4;
constexpr size_t kFirstPrefixBytes = 1024;  // holds the header of nearly every file

bool is_array(const std::string& name) {
  return name.size() >= kSuffixBytes && name.compare(name.size() - kSuffixBytes, kSuffixBytes, kSuffix) == 0;
}

/// The first bytes of a member, as many as its header needs: the length stands in the first 12.
std::vector<std::byte> read_prefix(Bytes file, const ZipEntry& entry, const std::string& path) {
  ZipStream stream(file, entry, path);
  std::vector<std::byte> prefix(std::min<uint64_t>(entry.bytes, kFirstPrefixBytes));
  stream.read(prefix);
  if (prefix.size() < 12) return prefix;
  const auto byte = [&](size_t i) { return std::to_integer<uint64_t>(prefix[i]); };
  uint64_t needed = 10 + (byte(8) | byte(9) << 8);
  if (byte(6) > 1) needed = 12 + (byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24);
  const uint64_t have = prefix.size();
  needed = std::min({needed, kMaxNpyPrefixBytes, entry.bytes});
  if (needed <= have) return prefix;
  prefix.resize(needed);
  stream.read(std::span(prefix).subspan(have));
  return prefix;
}

}  // namespace

NpzReader::NpzReader(Bytes file, const std::string& path, const ZipLimits& limits)
    : file_(file), path_(path) {
  for (ZipEntry& entry : read_zip_directory(file, path, limits)) {
    if (!is_array(entry.name)) {
      others_.push_back(std::move(entry.name));
      continue;
    }
    const std::string place = path + ": " + entry.name;
    NpzArray array;
    array.name = entry.name.substr(0, entry.name.size() - kSuffixBytes);
    array.header = parse_npy_prefix(read_prefix(file, entry, path), place);
    const uint64_t got = entry.bytes - array.header.offset;
    MX_CHECK(got == array.header.bytes, FormatError, "[npy] ", in_quotes(place), ": expected ",
             array.header.bytes, " bytes after the header for shape ", array.header.shape, " of ",
             array.header.dtype, ", got ", got);
    array.entry = std::move(entry);
    arrays_.push_back(std::move(array));
  }
}

void NpzReader::read(size_t index, std::span<std::byte> out) const {
  MX_CHECK(index < arrays_.size(), InvalidArgument, "[npz] ", in_quotes(path_), ": expected an index below ",
           arrays_.size(), ", got ", index);
  const NpzArray& array = arrays_[index];
  const NpyHeader& header = array.header;
  const std::string place = path_ + ": " + array.entry.name;
  MX_CHECK(out.size() == header.array_bytes(), InvalidArgument, "[npz] ", in_quotes(place),
           ": expected room for ", header.array_bytes(), " bytes, got ", out.size());
  ZipStream stream(file_, array.entry, path_);
  std::vector<std::byte> prefix(header.offset);
  stream.read(prefix);
  if (header.direct()) {
    stream.read(out);
    stream.finish();
    if (header.dtype == DType::bool_) check_bools(out, "[npy] " + in_quotes(place));
    return;
  }
  // Not a vector, which would fill it with zeros first.
  const std::unique_ptr<std::byte[]> elements(new std::byte[header.bytes]);
  stream.read({elements.get(), header.bytes});
  stream.finish();
  convert_npy(header, {elements.get(), header.bytes}, out, place);
}

void check_npz_names(std::span<const TensorData> tensors) {
  std::unordered_set<std::string> names;
  for (const TensorData& tensor : tensors) {
    check_zip_name(tensor.name + kSuffix);
    MX_CHECK(names.insert(tensor.name).second, InvalidArgument, "[npz] expected every name once, got ",
             in_quotes(tensor.name), " twice");
  }
}

void write_npz(ByteSink& sink, std::span<const TensorData> tensors, ZipMethod method) {
  for (const TensorData& tensor : tensors) check_data(tensor, "npz");
  ZipWriter zip(sink, method);
  for (const TensorData& tensor : tensors) {
    const std::string header = npy_header(tensor.dtype, tensor.shape);
    const Bytes parts[] = {std::as_bytes(std::span(header)), tensor.data};
    zip.add(tensor.name + kSuffix, parts);
  }
  zip.finish();
}

}  // namespace mx::io
