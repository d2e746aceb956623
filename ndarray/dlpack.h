// DLPack: arrays shared with other libraries of the process, without a copy.
// Source: https://dmlc.github.io/dlpack/latest/ (the structs: io/dlpack_abi.h)
//
// What is shared has two names that do not know of each other: the caller orders the uses of both.
// to_dlpack() waits, so the consumer may start at once.
#pragma once

#include "ndarray/io/dlpack_abi.h"
#include "ndarray/ndarray.h"

namespace mx {

/// What the consumer of an export may do.
enum class DLPackAccess {
  read_write,  ///< counts as a change in place: a backward pass that needs the values as they were throws
  read_only,   ///< the consumer must not write; the export is marked so and counts as a read
};

/// The array, with its strides, as DLPack 1.0. The caller owns the result and calls its deleter once; until
/// then the memory stays. Waits for the operations called before that set the array, and for an export to be
/// written also for those that read it. Throws what went wrong with the array, and InvalidArgument for arrays
/// of devices other than the CPU and GPUs, whose memory nobody else can reach. A view that repeats elements
/// (broadcast_to) is always read-only.
dlpack::DLManagedTensorVersioned* to_dlpack(const NDArray& array,
                                            DLPackAccess access = DLPackAccess::read_write);
/// The same in the form before 1.0, which cannot say read-only and therefore always counts as a change in
/// place: InvalidArgument for a view that repeats elements.
dlpack::DLManagedTensor* to_dlpack_legacy(const NDArray& array);

/// Host memory of another library as an array. On success the array owns `tensor`, and calls its deleter
/// once, from any thread, after the last use; what to_dlpack() made gives the same array back. Memory that
/// is read-only is copied. Throws InvalidArgument, and leaves the caller the owner, for null, other major
/// versions, memory that is not the host's, types that mxrun does not have, more than kMaxRank dimensions,
/// shapes and strides that reach beyond the address space, elements that are not aligned, and booleans other
/// than 0 and 1.
NDArray from_dlpack(dlpack::DLManagedTensorVersioned* tensor);
NDArray from_dlpack(dlpack::DLManagedTensor* tensor);

}  // namespace mx
