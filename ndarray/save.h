// Arrays to files and back: safetensors, NumPy's .npy and .npz, and Apache MXNet's .params (read only).
//
//   save_safetensors("net.safetensors", {{"w", w}, {"b", b}});
//   NDArray w = load_safetensors("net.safetensors").at("w");
//
// A save writes the values that result from the operations called before it. It waits for them, and returns
// when the file is on the disk. If one of the arrays has failed, it throws that error before anything is
// written. Writing is atomic (io/atomic_file.h): the path refers to the whole old content or the whole new
// one. Arrays may be views, and may be on devices; their elements are written.
//
// Names are checked before the save waits or writes.
//
// Loading returns arrays on the CPU, in the order of the file. All claims of a file are checked before they
// are used. LoadMode determines when the elements are read.
//
// All functions throw FileError if a system call fails, FormatError for damaged files, and InvalidArgument
// for paths that contain a zero byte and for names that are duplicates, are not UTF-8 or are reserved by the
// format ("__metadata__" in safetensors). Any thread may call them, but an operation may not: saving waits.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/io/file_ops.h"
#include "ndarray/io/io_error.h"
#include "ndarray/ndarray.h"

namespace mx {

/// An ordered list of arrays with names.
class NamedArrays : public std::vector<std::pair<std::string, NDArray>> {
 public:
  using Base = std::vector<std::pair<std::string, NDArray>>;
  NamedArrays() = default;
  NamedArrays(std::initializer_list<value_type> arrays) : Base(arrays) {}
  NamedArrays(Base arrays) : Base(std::move(arrays)) {}
  NamedArrays(const std::map<std::string, NDArray>& arrays) : Base(arrays.begin(), arrays.end()) {}

  using Base::at;
  using Base::operator[];

  /// Returns the first array with that name, or null.
  const NDArray* find(const std::string& name) const;
  /// Returns the first array with that name. Throws InvalidArgument, listing the names, if there is none.
  const NDArray& at(const std::string& name) const;
  /// The same as at(): `load_npz("data.npz")["x"]`. It adds nothing; use emplace_back(name, array) to add.
  const NDArray& operator[](const std::string& name) const { return at(name); }
};

/// Texts by name that a safetensors file has besides its arrays.
using FileMetadata = std::map<std::string, std::string>;

/// `ops` are the system calls; tests replace them.
void save_safetensors(const std::string& path, const NamedArrays& arrays, const FileMetadata& metadata = {},
                      io::FileOps& ops = io::FileOps::posix());

enum class LoadMode {
  /// Bytes that can be used as an array without conversion (same byte order, aligned, not compressed) are
  /// mapped privately: a page is read at its first use, and changing the array does not change the file. The
  /// mapping lives as long as an array that uses it. Until then the file must not be truncated, because the
  /// process would get SIGBUS. Saving to the same path is allowed.
  map,
  /// All elements have been read when the load returns, so later changes of the file have no effect. Also for
  /// loads whose result is copied anyway.
  read,
};

/// `metadata`, if it is not null, is set to the metadata of the file.
NamedArrays load_safetensors(const std::string& path, FileMetadata* metadata = nullptr,
                             LoadMode mode = LoadMode::map);

void save_npy(const std::string& path, const NDArray& array, io::FileOps& ops = io::FileOps::posix());
NDArray load_npy(const std::string& path, LoadMode mode = LoadMode::map);

void save_npz(const std::string& path, const NamedArrays& arrays, bool compressed = false,
              io::FileOps& ops = io::FileOps::posix());
/// Skips members that are not arrays. All elements have been read on return.
NamedArrays load_npz(const std::string& path);

/// Loads a file that mx.nd.save, save_parameters or save_checkpoint of Apache MXNet wrote. Removes the
/// prefixes "arg:" and "aux:" of names unless `full_names` is set; arrays without names get "0", "1", ...
NamedArrays load_mxnet_params(const std::string& path, bool full_names = false,
                              LoadMode mode = LoadMode::map);

}  // namespace mx
