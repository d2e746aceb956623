// NumPy's .npz: a zip archive whose members are .npy files.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.savez.html
//
// The member "weight.npy" is the array "weight", as numpy.load names it. Members that are not .npy files are
// listed but not read.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ndarray/io/npy.h"
#include "ndarray/io/zip.h"

namespace mx::io {

struct NpzArray {
  std::string name;  ///< without ".npy"
  NpyHeader header;  ///< its offset is relative to the start of the member
  ZipEntry entry;
};

/// Reads the directory and the headers of all arrays on construction, and elements on demand. Const functions
/// may be called from several threads.
class NpzReader {
 public:
  /// `file` must outlive the reader; `path` is for messages. Throws FormatError, as zip.h and npy.h say.
  NpzReader(Bytes file, const std::string& path, const ZipLimits& limits = {});

  const std::vector<NpzArray>& arrays() const { return arrays_; }
  /// Names of the members that are not arrays.
  const std::vector<std::string>& others() const { return others_; }

  /// Reads the elements into `out`, which has arrays()[index].header.array_bytes() bytes: row-major, in this
  /// machine's byte order and in the array's type. Throws FormatError if they are damaged or do not match the
  /// checksum; the content of `out` is then undefined.
  void read(size_t index, std::span<std::byte> out) const;

 private:
  Bytes file_;
  std::string path_;
  std::vector<NpzArray> arrays_;
  std::vector<std::string> others_;
};

/// Throws InvalidArgument for names that are duplicates, too long or not UTF-8. Reads only the names.
void check_npz_names(std::span<const TensorData> tensors);

/// Writes a whole archive in the given order. Throws like check_npz_names, InvalidArgument if data and shape
/// disagree, and any exception of the sink.
void write_npz(ByteSink& sink, std::span<const TensorData> tensors, ZipMethod method = ZipMethod::stored);

}  // namespace mx::io
