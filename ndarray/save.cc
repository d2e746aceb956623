#include "ndarray/save.h"

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <span>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/io/atomic_file.h"
#include "ndarray/io/mapped_file.h"
#include "ndarray/io/mxnet_params.h"
#include "ndarray/io/npy.h"
#include "ndarray/io/npz.h"
#include "ndarray/io/safetensors.h"
#include "ndarray/launch.h"

namespace mx {

using detail::ArrayImpl;
using detail::Ref;
using io::MappedFile;
using io::TensorData;

namespace {

// Writing. An operation that reads the arrays writes the file. So the file is written in the order of
// operations, contains no part of a later change, and is not written if one of the arrays has failed.

struct WriteJob {
  std::vector<TensorData> tensors;  // without data until the operation runs
  std::function<void(io::ByteSink&, std::span<const TensorData>)> format;
  std::string path;
  io::FileOps* ops;
  std::exception_ptr error;  // as it was thrown; as the operation's error it would lose its type
};

struct WriteAttrs {
  std::shared_ptr<WriteJob> job;
  template <class V>
  static void fields(V&&) {}
};

void run_write(const KernelArgs& args) {
  WriteJob& job = *args.attr<WriteAttrs>().job;
  try {
    for (size_t i = 0; i < job.tensors.size(); ++i) {
      const Tensor& tensor = args.in[i];
      const size_t bytes = static_cast<size_t>(tensor.numel()) * size_of(tensor.dtype);
      job.tensors[i].data = {tensor.as<const std::byte>(), bytes};
    }
    io::AtomicFile file(job.path, *job.ops);
    job.format(file, job.tensors);
    file.commit();
  } catch (...) {
    job.error = std::current_exception();
  }
}
const Kernel kWrite = {"save", run_write, nullptr, 0, false};

/// A format's check of names, types and shapes. The tensors have no data.
using Check = std::function<void(std::span<const TensorData>)>;

void write(const char* op, const std::string& path, const NamedArrays& arrays, io::FileOps& ops,
           const Check& check, std::function<void(io::ByteSink&, std::span<const TensorData>)> format) {
  io::check_path(path, op);
  auto job = std::make_shared<WriteJob>();
  job->path = path;
  job->ops = &ops;
  job->format = std::move(format);
  for (const auto& [name, array] : arrays) {
    MX_CHECK(array.defined(), InvalidArgument, "[", op, "] expected an array named ", io::in_quotes(name),
             ", got an empty handle");
    job->tensors.push_back({name, array.dtype(), array.shape(), {}});
  }
  check(job->tensors);
  std::vector<NDArray> ready;
  for (const auto& entry : arrays) ready.push_back(entry.second.to(cpu()).to_contiguous());
  std::vector<ArrayImpl*> inputs;
  for (const NDArray& array : ready) inputs.push_back(&array.impl());
  const NDArray done = empty({0});
  ArrayImpl* const outputs[] = {&done.impl()};
  const Attrs attrs = WriteAttrs{job};
  launch({.kernel = &kWrite, .attrs = &attrs, .inputs = inputs, .outputs = outputs});
  done.wait();
  if (job->error) std::rethrow_exception(job->error);
}

// Reading.

/// Returns `bytes` of `file` as an array: over the file's memory if it is aligned, otherwise a copy.
NDArray array_of(const std::shared_ptr<MappedFile>& file, DType dtype, const Shape& shape, uint64_t offset,
                 uint64_t bytes) {
  if (bytes == 0) return empty(shape, dtype);
  const std::span<std::byte> data = file->writable(offset, bytes);
  if (reinterpret_cast<uintptr_t>(data.data()) % size_of(dtype) != 0)
    return detail::from_host(data.data(), dtype, shape, cpu());
  return from_external(data.data(), dtype, shape, contiguous_strides(shape), [file] {});
}

std::shared_ptr<MappedFile> open(const std::string& path, LoadMode mode) {
  return std::make_shared<MappedFile>(path, MappedFile::Access::copy_on_write,
                                      mode == LoadMode::map ? MappedFile::How::map : MappedFile::How::read);
}

/// Returns a new array and its memory, to which no other handle exists yet.
std::pair<NDArray, std::span<std::byte>> fresh(DType dtype, const Shape& shape, const char* op) {
  Ref<ArrayImpl> made = detail::new_array(shape, dtype, cpu(), op);
  auto* const memory = static_cast<std::byte*>(made->storage->ensure(nullptr));
  const std::span<std::byte> span(memory, made->storage->bytes());
  return {NDArray(std::move(made)), span};
}

}  // namespace

const NDArray* NamedArrays::find(const std::string& name) const {
  for (const auto& [key, array] : *this)
    if (key == name) return &array;
  return nullptr;
}

const NDArray& NamedArrays::at(const std::string& name) const {
  if (const NDArray* found = find(name)) return *found;
  std::string names;
  for (const auto& entry : *this) names += (names.empty() ? "" : ", ") + io::in_quotes(entry.first);
  throw InvalidArgument(detail::concat("[NamedArrays] expected one of the names ",
                                       names.empty() ? "(none)" : names, ", got ", io::in_quotes(name)));
}

void save_safetensors(const std::string& path, const NamedArrays& arrays, const FileMetadata& metadata,
                      io::FileOps& ops) {
  const auto check = [&](std::span<const TensorData> tensors) { io::plan_safetensors(tensors, metadata); };
  write("save_safetensors", path, arrays, ops, check,
        [metadata](io::ByteSink& sink, std::span<const TensorData> tensors) {
          io::write_safetensors(sink, tensors, metadata);
        });
}

NamedArrays load_safetensors(const std::string& path, FileMetadata* metadata, LoadMode mode) {
  const std::shared_ptr<MappedFile> file = open(path, mode);
  io::Safetensors content = io::parse_safetensors(file->bytes(), path);
  NamedArrays arrays;
  for (io::TensorRecord& record : content.tensors)
    arrays.emplace_back(std::move(record.name),
                        array_of(file, record.dtype, record.shape, record.offset, record.bytes));
  if (metadata != nullptr) *metadata = std::move(content.metadata);
  return arrays;
}

void save_npy(const std::string& path, const NDArray& array, io::FileOps& ops) {
  write(
      "save_npy", path, {{"array", array}}, ops, [](std::span<const TensorData>) {},
      [](io::ByteSink& sink, std::span<const TensorData> tensors) { io::write_npy(sink, tensors[0]); });
}

NDArray load_npy(const std::string& path, LoadMode mode) {
  const std::shared_ptr<MappedFile> file = open(path, mode);
  const io::NpyHeader header = io::parse_npy(file->bytes(), path);
  // Every byte of a bool array is checked, so mapping the file would save nothing.
  if (header.direct() && header.dtype != bool_)
    return array_of(file, header.dtype, header.shape, header.offset, header.bytes);
  auto [array, memory] = fresh(header.dtype, header.shape, "load_npy");
  io::convert_npy(header, file->bytes(header.offset, header.bytes), memory, path);
  return array;
}

void save_npz(const std::string& path, const NamedArrays& arrays, bool compressed, io::FileOps& ops) {
  const io::ZipMethod method = compressed ? io::ZipMethod::deflated : io::ZipMethod::stored;
  write("save_npz", path, arrays, ops, io::check_npz_names,
        [method](io::ByteSink& sink, std::span<const TensorData> tensors) {
          io::write_npz(sink, tensors, method);
        });
}

NamedArrays load_npz(const std::string& path) {
  const MappedFile file(path);
  const io::NpzReader reader(file.bytes(), path);
  NamedArrays arrays;
  for (size_t i = 0; i < reader.arrays().size(); ++i) {
    const io::NpzArray& entry = reader.arrays()[i];
    auto [array, memory] = fresh(entry.header.dtype, entry.header.shape, "load_npz");
    reader.read(i, memory);
    arrays.emplace_back(entry.name, std::move(array));
  }
  return arrays;
}

NamedArrays load_mxnet_params(const std::string& path, bool full_names, LoadMode mode) {
  const std::shared_ptr<MappedFile> file = open(path, mode);
  const io::MxnetParams content = io::parse_mxnet_params(file->bytes(), path);
  NamedArrays arrays;
  std::set<std::string> seen;
  for (const io::TensorRecord& record : content.tensors) {
    std::string name = full_names ? record.name : io::strip_mxnet_prefix(record.name);
    if (!content.named) name = std::to_string(arrays.size());
    MX_CHECK(full_names || seen.insert(name).second, InvalidArgument,
             "[load_mxnet_params] expected names that differ without \"arg:\" and \"aux:\", got ",
             io::in_quotes(name), " twice in '", path, "'; load it with full_names");
    arrays.emplace_back(std::move(name),
                        array_of(file, record.dtype, record.shape, record.offset, record.bytes));
  }
  return arrays;
}

}  // namespace mx
