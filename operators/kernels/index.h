// Reading and writing at indices, on the CPU: take, gather, scatter, advanced indexing, embeddings.
//
// Indices are i32 or i64 of any strides, and are checked before anything is written. With IndexMode::raise a
// negative one counts from the end, and one out of range throws InvalidArgument that names the first such
// index in row-major order, its position, the axis and the axis's size. All tensors may have any strides;
// targets must not overlap their inputs, nor have strides of 0. Data tensors of one call have one dtype.
//
// Several indices may name one element. What is written then does not depend on threads: `set` leaves the
// last one in row-major order of the indices, the others combine in that order. f16 and bf16 are summed and
// multiplied in float and rounded once. Large calls run on several threads; any thread may call.
#pragma once

#include <cstdint>
#include <span>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// What to do with an index out of range: refuse it; the nearest valid one (then negative ones become 0);
/// modulo the size. As in numpy.take. No mode finds an element on an axis of size 0.
enum class IndexMode : uint8_t { raise, clip, wrap };

/// How a value meets the one that is there. For bool, add and max are "or", mul and min are "and"; max and
/// min give NaN when either is.
enum class Scatter : uint8_t { set, add, mul, max, min };

/// source.shape with `axis` replaced by the dimensions of `indices`.
Shape take_shape(const Shape& source, const Shape& indices, int64_t axis);

/// target[o.., j.., i..] = source[o.., indices[j..], i..], as numpy.take. target has take_shape().
void take(const Tensor& target, const Tensor& source, const Tensor& indices, int64_t axis,
          IndexMode mode = IndexMode::raise);

/// target[.., j, ..] = source[.., indices[.., j, ..], ..], as torch.gather: target has the shape of
/// `indices`, which has the rank of source and is nowhere larger but along `axis`.
void gather(const Tensor& target, const Tensor& source, const Tensor& indices, int64_t axis,
            IndexMode mode = IndexMode::raise);

/// target[.., indices[.., j, ..], ..] meets updates[.., j, ..], as torch.scatter: updates has the shape of
/// `indices`, which has the rank of target and is nowhere larger but along `axis`.
void scatter(const Tensor& target, const Tensor& indices, const Tensor& updates, int64_t axis,
             Scatter how = Scatter::set, IndexMode mode = IndexMode::raise);

/// target[o.., indices[j], i..] meets updates[o.., j, i..] (index_add, index_copy, ...). `indices` has one
/// dimension.
void index_update(const Tensor& target, const Tensor& indices, const Tensor& updates, int64_t axis,
                  Scatter how = Scatter::add, IndexMode mode = IndexMode::raise);

/// The shape of numpy's source[..] with arrays of indices at `axes` (ascending, distinct) and ":" elsewhere:
/// the dimensions of the indices, broadcast together, stand in the place of the axes when those are
/// neighbours, else in front. `position` >= 0 puts them before that dimension of the rest instead.
/// Errors name `op`.
Shape gather_nd_shape(const Shape& source, std::span<const Tensor> indices, const Shape& axes,
                      int64_t position = -1, const char* op = "gather_nd");

/// Reads so. target has gather_nd_shape().
void gather_nd(const Tensor& target, const Tensor& source, std::span<const Tensor> indices, const Shape& axes,
               int64_t position = -1);

/// Writes so; `updates` broadcasts to gather_nd_shape() of the target.
void put_nd(const Tensor& target, std::span<const Tensor> indices, const Shape& axes, const Tensor& updates,
            Scatter how = Scatter::set, int64_t position = -1);

/// target[j.., c] = indices[j..] == c. Throws InvalidArgument unless all are from 0 to the last size of
/// target minus 1.
void one_hot(const Tensor& target, const Tensor& indices);

/// target[j.., :] = table[indices[j..], :].
void embedding(const Tensor& target, const Tensor& table, const Tensor& indices);
/// Its gradient with respect to the table: target = 0, then target[indices[j..], :] += gradient[j.., :].
/// `skip_row` >= 0 (the padding) gets none.
void embedding_gradient(const Tensor& target, const Tensor& indices, const Tensor& gradient,
                        int64_t skip_row = -1);

}  // namespace mx::kernels
