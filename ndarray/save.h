// Arrays to files and back: safetensors, NumPy's .npy and .npz, and Apache MXNet's .params (read only).
//
//   save_safetensors("net.safetensors", {{"w", w}, {"b", b}});
//   NDArray w = load_safetensors("net.safetensors").at("w");
//
// Saving takes the values in the order of calls, as reading them does: it waits for the operations pushed
// before it, and returns when the file is on the disk. The error of an array comes out before anything is
// written. Writing is atomic (io/atomic_file.h): the name shows the old content or all of the new one. Views
// and arrays of devices are written as what they show.
//
// Names are checked before anything is waited for or written.
//
// Loading gives arrays of the CPU, in the order of the file. Everything a file claims is checked first.
// LoadMode says when the elements are read.
//
// All throw FileError when the system refuses, FormatError for damaged files, and InvalidArgument for paths
// with a byte of value 0 and for names that come twice, are not UTF-8, have a meaning in the format
// ("__metadata__" in safetensors) or cannot be stored in it (with a byte of value 0 in .npz). Any thread may
// call, but no operation: saving waits.
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

/// Arrays with names, in an order.
class NamedArrays : public std::vector<std::pair<std::string, NDArray>> {
 public:
  using Base = std::vector<std::pair<std::string, NDArray>>;
  NamedArrays() = default;
  NamedArrays(std::initializer_list<value_type> arrays) : Base(arrays) {}
  NamedArrays(Base arrays) : Base(std::move(arrays)) {}
  NamedArrays(const std::map<std::string, NDArray>& arrays) : Base(arrays.begin(), arrays.end()) {}

  using Base::at;
  using Base::operator[];

  /// The first with that name, or null.
  const NDArray* find(const std::string& name) const;
  /// The same; throws InvalidArgument, with the names that there are.
  const NDArray& at(const std::string& name) const;
  /// The same: `load_npz("data.npz")["x"]`. For reading; arrays are added with emplace_back(name, array).
  const NDArray& operator[](const std::string& name) const { return at(name); }
};

/// Texts that a safetensors file carries beside its arrays.
using FileMetadata = std::map<std::string, std::string>;

/// `ops`: the calls to the operating system, for tests.
void save_safetensors(const std::string& path, const NamedArrays& arrays, const FileMetadata& metadata = {},
                      io::FileOps& ops = io::FileOps::posix());

enum class LoadMode {
  /// Where the file's bytes can be an array as they are (same byte order, aligned, not compressed) they are
  /// mapped, privately: pages are read when they are first used, changing the array does not change the file,
  /// and the mapping goes with the last array. The file must not be truncated until then: the process would
  /// get SIGBUS. Saving over it is fine.
  map,
  /// All elements have been read when the load returns; nothing that happens to the file later matters. For
  /// loads whose result is copied, too.
  read,
};

/// `metadata`, if it is given, is set to the file's.
NamedArrays load_safetensors(const std::string& path, FileMetadata* metadata = nullptr,
                             LoadMode mode = LoadMode::map);

void save_npy(const std::string& path, const NDArray& array, io::FileOps& ops = io::FileOps::posix());
NDArray load_npy(const std::string& path, LoadMode mode = LoadMode::map);

void save_npz(const std::string& path, const NamedArrays& arrays, bool compressed = false,
              io::FileOps& ops = io::FileOps::posix());
/// Members that are no arrays are left out. All elements have been read on return.
NamedArrays load_npz(const std::string& path);

/// What mx.nd.save, save_parameters and save_checkpoint of Apache MXNet wrote. Names lose their "arg:" and
/// "aux:" unless `full_names`; arrays without names get "0", "1", ...
NamedArrays load_mxnet_params(const std::string& path, bool full_names = false,
                              LoadMode mode = LoadMode::map);

}  // namespace mx
