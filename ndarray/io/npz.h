// NumPy's .npz: a zip archive whose members are .npy files.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.savez.html
//
// The member "weight.npy" is the array "weight", as numpy.load names it. Members that are no .npy files are
// listed and left alone.
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
  NpyHeader header;  ///< the offset counts within the member
  ZipEntry entry;
};

/// Reads the directory and the headers of all arrays at once, their elements on demand. Const functions may
/// be called from several threads.
class NpzReader {
 public:
  /// `file` must outlive the reader; `path` is for messages. Throws FormatError, as zip.h and npy.h say.
  NpzReader(Bytes file, const std::string& path, const ZipLimits& limits = {});

  const std::vector<NpzArray>& arrays() const { return arrays_; }
  /// Names of the members that are no arrays.
  const std::vector<std::string>& others() const { return others_; }

  /// The elements, row-major, in the byte order of this machine and of the array's type, into `out` of
  /// arrays()[index].header.array_bytes() bytes. Throws FormatError when they are damaged, also where the
  /// checksum says so; `out` is then undefined.
  void read(size_t index, std::span<std::byte> out) const;

 private:
  Bytes file_;
  std::string path_;
  std::vector<NpzArray> arrays_;
  std::vector<std::string> others_;
};

/// Throws InvalidArgument for names that come twice, are too long, are not UTF-8 or have a byte of value 0.
/// Only names are looked at.
void check_npz_names(std::span<const TensorData> tensors);

/// Writes a whole archive, in the order given. Throws as check_npz_names, InvalidArgument where data and
/// shape disagree, and what the sink throws.
void write_npz(ByteSink& sink, std::span<const TensorData> tensors, ZipMethod method = ZipMethod::stored);

}  // namespace mx::io
