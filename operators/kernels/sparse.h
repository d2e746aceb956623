// Sparse products and segment reductions, on the CPU.
//
// A matrix in compressed sparse rows (CSR) has three arrays: row i consists of the entries k from pointers[i]
// to pointers[i + 1] - 1, with the values values[k] in the columns columns[k]. The columns of a row may come
// in any order and may repeat; repeated ones add up. The segments of an array are runs of its rows: segment s
// consists of the rows from offsets[s] to offsets[s + 1] - 1.
//
// Pointers, offsets and columns are i32 or i64 of any strides. They are checked before anything is written:
// pointers and offsets must ascend from 0 to the number of entries, and columns must exist. Otherwise
// InvalidArgument is thrown, which names the first wrong number and its position.
//
// Values are f32, f64, f16 or bf16; all data tensors of a call have one type. f16 and bf16 are computed in
// f32 and rounded once. The terms of a sum are added in the order of the entries, so results do not depend on
// the number of threads. Data tensors may have any strides; outputs must not overlap inputs. Thread-safety:
// any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ndarray/launch.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// The structure of a sparse matrix of `pointers.shape[0] - 1` rows.
struct CsrPattern {
  const Tensor& columns;
  const Tensor& pointers;
  int64_t width;  ///< number of columns
};

/// out (rows, n) = A dense, for dense (width, n).
void csr_matmul(const KernelArgs& args, const Tensor& out, const Tensor& values, const CsrPattern& a,
                const Tensor& dense);
/// out (width, n) = A' dense, for dense (rows, n).
void csr_matmul_transposed(const KernelArgs& args, const Tensor& out, const Tensor& values,
                           const CsrPattern& a, const Tensor& dense);
/// out[k] = dot(left[row of entry k, :], right[columns[k], :]): the entries of left right' at the places of
/// A.
void csr_sample(const KernelArgs& args, const Tensor& out, const Tensor& left, const Tensor& right,
                const CsrPattern& a);

enum class SegmentReduce : uint8_t { sum, mean, max, min };
/// Returns the name of the operator.
constexpr const char* name_of(SegmentReduce how) {
  constexpr const char* kNames[] = {"segment_sum", "segment_mean", "segment_max", "segment_min"};
  return kNames[static_cast<size_t>(how)];
}

/// out[s, ..] = reduction of x[i, ..] over the rows i of segment s. Gives 0 for a segment without rows. max
/// and min give NaN if an element is NaN.
void segment_reduce(const KernelArgs& args, const Tensor& out, const Tensor& x, const Tensor& offsets,
                    SegmentReduce how);
/// out[i, ..] = exp(x[i, ..]) / sum of exp(x[k, ..]) over the rows k of the segment of i. As softmax: no
/// overflow, and NaN where the largest x of a segment is not finite.
void segment_softmax(const KernelArgs& args, const Tensor& out, const Tensor& x, const Tensor& offsets);
/// out[i, ..] = x[s, ..] for every row i of segment s. Any type.
void segment_expand(const KernelArgs& args, const Tensor& out, const Tensor& x, const Tensor& offsets);
/// out[s] = number of ids below s, for s = 0 .. out.shape[0] - 1: the offsets of segments whose rows have
/// these ids. Throws InvalidArgument for ids that do not ascend, and for an id that is negative or too large.
void segment_offsets(const Tensor& out, const Tensor& ids);

}  // namespace mx::kernels
