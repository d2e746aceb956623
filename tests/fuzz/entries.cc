#include "tests/fuzz/entries.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/io/mxnet_params.h"
#include "ndarray/io/npz.h"
#include "ndarray/io/safetensors.h"
#include "nn/data/gzip.h"
#include "nn/data/idx.h"
#include "tests/data/idx_bytes.h"

namespace mx::fuzz {
namespace {

using io::Bytes;
using io::TensorData;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Returns the elements, copied to memory of exactly their size, so that AddressSanitizer detects an access
/// one byte too far.
std::vector<std::byte> elements(Bytes file, uint64_t offset, uint64_t bytes) {
  require(offset <= file.size() && bytes <= file.size() - offset, "a tensor lies within its file");
  const Bytes part = file.subspan(offset, bytes);
  return {part.begin(), part.end()};
}

void require_fits(DType dtype, const Shape& shape, uint64_t bytes) {
  const int64_t count = checked_numel(shape, size_of(dtype), "fuzz");
  require(static_cast<uint64_t>(count) * size_of(dtype) == bytes, "bytes are those of shape and type");
}

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

bool same(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

Bytes content(const NDArray& array) {
  return visit(array.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return std::as_bytes(std::span(array.data<T>(), static_cast<size_t>(array.numel())));
  });
}

template <class F>
bool accepted(F&& read) {
  try {
    read();
    return true;
  } catch (const Error& e) {
    require(std::strlen(e.what()) > 0 && e.what()[0] == '[', "a message begins with its reader");
    return false;
  }
}

void require_npz_round_trip(std::span<const TensorData> tensors, io::ZipMethod method) {
  io::BufferSink sink;
  io::write_npz(sink, tensors, method);
  const io::NpzReader again(bytes_of(sink.bytes()), "again");
  require(again.arrays().size() == tensors.size(), "every array is written");
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::byte> data(again.arrays()[i].header.array_bytes());
    again.read(i, data);
    require(same(data, tensors[i].data), "elements come back");
    require(again.arrays()[i].name == tensors[i].name, "names come back");
  }
}

}  // namespace

bool safetensors(Bytes file) {
  return accepted([&] {
    const io::Safetensors parsed = io::parse_safetensors(file, "fuzz");
    std::vector<std::vector<std::byte>> data;
    std::vector<TensorData> tensors;
    for (const io::TensorRecord& record : parsed.tensors) {
      require_fits(record.dtype, record.shape, record.bytes);
      data.push_back(elements(file, record.offset, record.bytes));
      tensors.push_back({record.name, record.dtype, record.shape, data.back()});
    }
    io::BufferSink sink;
    io::write_safetensors(sink, tensors, parsed.metadata);
    const io::Safetensors again = io::parse_safetensors(bytes_of(sink.bytes()), "again");
    require(again.metadata == parsed.metadata, "metadata come back");
    require(again.tensors.size() == tensors.size(), "every tensor is written");
    io::BufferSink twice;
    std::vector<TensorData> sorted;
    for (const io::TensorRecord& record : again.tensors)
      sorted.push_back({record.name, record.dtype, record.shape,
                        bytes_of(sink.bytes()).subspan(record.offset, record.bytes)});
    io::write_safetensors(twice, sorted, again.metadata);
    require(twice.bytes() == sink.bytes(), "equal content is equal bytes");
  });
}

bool npy(Bytes file) {
  return accepted([&] {
    const io::NpyHeader header = io::parse_npy(file, "fuzz");
    require_fits(header.dtype, header.shape, header.array_bytes());
    const std::vector<std::byte> data = elements(file, header.offset, header.bytes);
    std::vector<std::byte> out(header.array_bytes());
    io::convert_npy(header, data, out, "fuzz");
    for (io::NpyVersion version : {io::NpyVersion::v1, io::NpyVersion::v2}) {
      io::BufferSink sink;
      io::write_npy(sink, {"", header.dtype, header.shape, out}, version);
      const io::NpyHeader again = io::parse_npy(bytes_of(sink.bytes()), "again");
      require(again.dtype == header.dtype && again.shape == header.shape && again.direct(),
              "header comes back");
      require(same(bytes_of(sink.bytes()).subspan(again.offset), out), "elements come back");
    }
  });
}

bool npz(Bytes file) {
  return accepted([&] {
    const io::NpzReader reader(file, "fuzz", {.max_entries = 100, .max_inflated_bytes = 1 << 22});
    std::vector<std::vector<std::byte>> data;
    std::vector<TensorData> tensors;
    for (size_t i = 0; i < reader.arrays().size(); ++i) {
      const io::NpzArray& array = reader.arrays()[i];
      require_fits(array.header.dtype, array.header.shape, array.header.array_bytes());
      data.emplace_back(array.header.array_bytes());
      reader.read(i, data.back());
      tensors.push_back({array.name, array.header.dtype, array.header.shape, data.back()});
    }
    require_npz_round_trip(tensors, io::ZipMethod::stored);
    require_npz_round_trip(tensors, io::ZipMethod::deflated);
  });
}

bool mxnet_params(Bytes file) {
  return accepted([&] {
    const io::MxnetParams parsed = io::parse_mxnet_params(file, "fuzz");
    for (const io::TensorRecord& record : parsed.tensors) {
      require_fits(record.dtype, record.shape, record.bytes);
      elements(file, record.offset, record.bytes);
      require(parsed.named || record.name.empty(), "names are there or not");
    }
  });
}

bool idx(Bytes file) {
  return accepted([&] {
    const data::IdxLimits limits{.max_inflated_bytes = 1 << 22};
    const NDArray array = data::decode_idx(file, "fuzz", limits);
    require_fits(array.dtype(), array.shape(), array.bytes());
    if (data::is_gzip(file) || array.bytes() > limits.max_inflated_bytes) return;
    const data::IdxHeader header = data::parse_idx_header(file, "fuzz");
    require(header.dtype == array.dtype() && header.shape == array.shape(), "the header is the array's");
    elements(file, header.offset, header.bytes);
    const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
    const std::string packed = test::gzipped(text);
    const NDArray again = data::decode_idx(bytes_of(packed), "again", limits);
    require(again.shape() == array.shape() && same(content(again), content(array)),
            "a compressed file has the same content");
  });
}

}  // namespace mx::fuzz
