// DLPack: arrays shared with other libraries of the process, without a copy.
// Source: https://dmlc.github.io/dlpack/latest/ (the structs: io/dlpack_abi.h)
//
// What is shared has two names that do not know of each other: who uses both orders the uses. to_dlpack()
// returns when everything pushed before has ended, readers included, so the consumer may write.
#pragma once

#include "ndarray/io/dlpack_abi.h"
#include "ndarray/ndarray.h"

namespace mx {

/// The array, with its strides, as DLPack 1.0. The caller owns the result and calls its deleter once; until
/// then the memory stays. Waits; throws what went wrong with the array, and InvalidArgument for arrays of
/// devices other than the CPU and GPUs, whose memory nobody else can reach. A view that repeats elements
/// (broadcast_to) is marked read-only.
dlpack::DLManagedTensorVersioned* to_dlpack(const NDArray& array);
/// The same in the form before 1.0, which cannot say read-only: InvalidArgument for a view that repeats
/// elements.
dlpack::DLManagedTensor* to_dlpack_legacy(const NDArray& array);

/// Host memory of another library as an array. On success the array owns `tensor`, and calls its deleter
/// once, from any thread, after the last use; what to_dlpack() made gives the same array back. Memory that
/// is read-only is copied. Throws InvalidArgument, and leaves the caller the owner, for null, other major
/// versions, memory that is not the host's, types that mxrun does not have, more than kMaxRank dimensions,
/// and elements that are not aligned.
NDArray from_dlpack(dlpack::DLManagedTensorVersioned* tensor);
NDArray from_dlpack(dlpack::DLManagedTensor* tensor);

}  // namespace mx
