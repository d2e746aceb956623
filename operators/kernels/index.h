// Reading and writing at indices, on the CPU: take, gather, scatter, advanced indexing, embeddings.
//
// Indices are i32 or i64 of any strides. They are checked before anything is written. With IndexMode::raise a
// negative index counts from the end. If an index is out of range, InvalidArgument is thrown; its message
// names the first such index in row-major order, its position, the axis and the axis's size. All tensors may
// have any strides, but targets must not overlap their inputs, nor have strides of 0. The data tensors of a
// call have one dtype.
//
// Several indices may name one element. The result does not depend on threads: `set` keeps the last value in
// row-major order of the indices; the other modes combine the values in that order. f16 and bf16 are summed
// and multiplied in float and rounded once. Large calls run on several threads. Thread-safety: any thread may
// call.
#pragma once

#include <cstdint>
#include <span>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Treatment of an index out of range, as in numpy.take. raise: throws. clip: the nearest valid index, so
/// negative indices become 0. wrap: modulo the size. On an axis of size 0 every index is out of range in
/// every mode.
enum class IndexMode : uint8_t { raise, clip, wrap };

/// How a value is combined with the element at its index. For bool, add and max are "or", mul and min are
/// "and". max and min give NaN if either value is NaN.
enum class Scatter : uint8_t { set, add, mul, max, min };

/// Returns source.shape with `axis` replaced by the dimensions of `indices`.
Shape take_shape(const Shape& source, const Shape& indices, int64_t axis);

/// target[o.., j.., i..] = source[o.., indices[j..], i..], as numpy.take. target has take_shape().
void take(const Tensor& target, const Tensor& source, const Tensor& indices, int64_t axis,
          IndexMode mode = IndexMode::raise);

/// target[.., j, ..] = source[.., indices[.., j, ..], ..], as torch.gather. target has the shape of
/// `indices`, which has the rank of source and, except along `axis`, is nowhere larger than source.
void gather(const Tensor& target, const Tensor& source, const Tensor& indices, int64_t axis,
            IndexMode mode = IndexMode::raise);

/// Combines target[.., indices[.., j, ..], ..] with updates[.., j, ..], as torch.scatter. updates has the
/// shape of `indices`, which has the rank of target and, except along `axis`, is nowhere larger than target.
void scatter(const Tensor& target, const Tensor& indices, const Tensor& updates, int64_t axis,
             Scatter how = Scatter::set, IndexMode mode = IndexMode::raise);

/// Combines target[o.., indices[j], i..] with updates[o.., j, i..], as index_add, index_copy and others do.
/// `indices` has one dimension.
void index_update(const Tensor& target, const Tensor& indices, const Tensor& updates, int64_t axis,
                  Scatter how = Scatter::add, IndexMode mode = IndexMode::raise);

/// Returns the shape of numpy's source[..] with arrays of indices at `axes` (ascending, distinct) and ":"
/// elsewhere. The indices are broadcast together. Their dimensions replace the axes if these are adjacent,
/// and otherwise come first. `position` >= 0 instead puts them before that dimension of the remaining ones.
/// Error messages name `op`.
Shape gather_nd_shape(const Shape& source, std::span<const Tensor> indices, const Shape& axes,
                      int64_t position = -1, const char* op = "gather_nd");

/// Reads the elements at these indices. target has gather_nd_shape().
void gather_nd(const Tensor& target, const Tensor& source, std::span<const Tensor> indices, const Shape& axes,
               int64_t position = -1);

/// Writes the elements at these indices; `updates` is broadcast to gather_nd_shape() of the target.
void put_nd(const Tensor& target, std::span<const Tensor> indices, const Shape& axes, const Tensor& updates,
            Scatter how = Scatter::set, int64_t position = -1);

/// target[j.., c] = indices[j..] == c. Throws InvalidArgument unless every index is from 0 to the last size
/// of target minus 1.
void one_hot(const Tensor& target, const Tensor& indices);

/// target[j.., :] = table[indices[j..], :].
void embedding(const Tensor& target, const Tensor& table, const Tensor& indices, bool from_end = true);
/// Computes the gradient of embedding() with respect to the table: target = 0, then target[indices[j..], :]
/// += gradient[j.., :]. Row `skip_row` (the padding), if it is >= 0, gets no gradient.
void embedding_gradient(const Tensor& target, const Tensor& indices, const Tensor& gradient,
                        int64_t skip_row = -1);

}  // namespace mx::kernels
