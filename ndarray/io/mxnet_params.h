// Apache MXNet's ".params": a list of arrays with names, as mx.nd.save, Block.save_parameters and
// Module.save_checkpoint write it. Read only.
// Source: NDArray::Save and NDArray::Load in src/ndarray/ndarray.cc of Apache MXNet 1.9.1.
//
//   list    u64 0x112, u64 reserved, u64 count, the arrays, u64 count of names (0 or as many), the names
//   name    u64 length, bytes
//   array   V2, V3: u32 magic, i32 storage type, [shape of the stored part,] shape, and unless it is none:
//           i32 device type, i32 device, i32 element type, [i32 type and shape of each index array,]
//           elements, [index arrays]; what stands in brackets only where the storage is sparse V1: u32 magic,
//           shape, device type, device, element type, elements older: as V1 without magic; the first u32 is
//           the rank, the sizes are u32
//   shape   i32 rank, i64 sizes. V3 has NumPy's meaning: rank 0 is a scalar and -1 is none; before, 0 is
//   none.
//
// Everything is little-endian. The device of an array (CPU, GPU) is read and ignored.
#pragma once

#include <string>
#include <vector>

#include "ndarray/io/tensor_record.h"

namespace mx::io {

struct MxnetParams {
  /// In the order of the file. Names are as they are there, "arg:fc1_weight" or "0.weight"; empty, all of
  /// them, when the file has none. The offsets are of any alignment.
  std::vector<TensorRecord> tensors;
  bool named = false;
};

/// Reads a whole file; `path` is for messages. The records point into `file`. Throws FormatError when the
/// file is damaged, holds what mxrun has no type for, or holds arrays that are sparse (row_sparse, csr) or
/// empty handles; the message has the name of the array.
MxnetParams parse_mxnet_params(Bytes file, const std::string& path);

/// Returns the name without the prefix ("arg:", "aux:") by which MXNet tells arguments from auxiliary states.
std::string strip_mxnet_prefix(const std::string& name);

}  // namespace mx::io
