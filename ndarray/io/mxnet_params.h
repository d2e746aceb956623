// Apache MXNet's ".params": a list of arrays with names, as mx.nd.save, Block.save_parameters and
// Module.save_checkpoint write it. Read only.
// Source: NDArray::Save and NDArray::Load in src/ndarray/ndarray.cc of Apache MXNet 1.9.1.
//
//   list    u64 0x112, u64 reserved, u64 count, the arrays, u64 count of names (0 or as many), the names
//   name    u64 length, bytes
//   array   V2, V3: u32 magic, i32 storage type, [shape of the stored part,] shape, and unless it is none:
//           i32 device type, i32 device, i32 element type, [i32 type and shape of each index array,]
//           elements, [index arrays]. The parts in brackets exist only if the storage is sparse.
//           V1: u32 magic, shape, device type, device, element type, elements.
//           Older: as V1 without magic; the first u32 is the rank, the sizes are u32.
//   shape   i32 rank, i64 sizes. In V3, as in NumPy, rank 0 is a scalar, and rank -1 is none (an empty
//           handle). In older versions rank 0 is none.
//
// Everything is little-endian. The device of an array (CPU, GPU) is read and ignored.
#pragma once

#include <string>
#include <vector>

#include "ndarray/io/tensor_record.h"

namespace mx::io {

struct MxnetParams {
  /// In the order of the file. Names are those of the file, "arg:fc1_weight" or "0.weight"; if it has none,
  /// all names are empty. Offsets may have any alignment.
  std::vector<TensorRecord> tensors;
  bool named = false;
};

/// Reads a whole file; `path` is for messages. The records point into `file`. Throws FormatError if the file
/// is damaged, or if an array has a type that mxrun does not have, is sparse (row_sparse, csr) or is an empty
/// handle; the message names the array.
MxnetParams parse_mxnet_params(Bytes file, const std::string& path);

/// Returns the name without the prefix ("arg:", "aux:") by which MXNet tells arguments from auxiliary states.
std::string strip_mxnet_prefix(const std::string& name);

}  // namespace mx::io
