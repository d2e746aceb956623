// DLPack: arrays shared with other libraries of the process, without a copy.
// Source: https://dmlc.github.io/dlpack/latest/ (the structs: io/dlpack_abi.h)
//
// The engine does not see how the other library uses shared memory, so the caller must order the uses of both
// sides. to_dlpack() waits, so the consumer may start at once.
#pragma once

#include "ndarray/io/dlpack_abi.h"
#include "ndarray/ndarray.h"

namespace mx {

/// How the consumer of an export may use the memory.
enum class DLPackAccess {
  read_write,  ///< counts as a change in place: a backward pass that needs the old values throws
  read_only,   ///< the consumer must not write; the export has the read-only flag and counts as a read
};

/// Returns the array, with its strides, as a DLPack 1.0 tensor. The caller owns the result and must call its
/// deleter once; the memory is valid until then. Waits for earlier operations that set the array, and with
/// read_write also for those that read it. Throws the error of the array if it failed, and InvalidArgument
/// for an array that is neither on the CPU nor on a GPU, because other libraries cannot access its memory. A
/// view that repeats elements (broadcast_to) is always read-only.
dlpack::DLManagedTensorVersioned* to_dlpack(const NDArray& array,
                                            DLPackAccess access = DLPackAccess::read_write);
/// The same in the form from before DLPack 1.0. It has no read-only flag, so the export always counts as a
/// change in place. Throws InvalidArgument for a view that repeats elements.
dlpack::DLManagedTensor* to_dlpack_legacy(const NDArray& array);

/// Returns an array over host memory of another library. On success the array owns `tensor`, and calls its
/// deleter once, from any thread, after the last use. For a tensor that to_dlpack() made, returns the
/// original array. Read-only memory is copied. Throws InvalidArgument, and leaves the ownership to the
/// caller, for null, other major versions, memory that is not the host's, types that mxrun does not have,
/// more than kMaxRank dimensions, shapes and strides that reach beyond the address space, elements that are
/// not aligned, and booleans other than 0 and 1.
NDArray from_dlpack(dlpack::DLManagedTensorVersioned* tensor);
NDArray from_dlpack(dlpack::DLManagedTensor* tensor);

}  // namespace mx
