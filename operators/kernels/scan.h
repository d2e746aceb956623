// Running sums, products, maxima and minima along an axis, and linear recurrences.
//
// Floating point is accumulated in f64 and rounded once per element; integers and bool in i64, modulo 2^64.
// Sums are computed in groups of eight; the sum of all previous groups is carried to the next. Rows longer
// than 65536 elements are split into pieces of that size, whose totals are carried in order. Products are not
// split: the total of a piece may overflow although the product does not. Groups and pieces depend on the
// shape alone, so the same input gives the same bits at any number of threads.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

enum class ScanOp { cumsum, cumprod, cummax, cummin, logcumsumexp };

/// Returns the name: "cumsum", ...
const char* to_string(ScanOp op);

/// Returns the type of the result: i64 for cumsum and cumprod of integers and bool, f32 for logcumsumexp of
/// integers and bool, otherwise the type of the input.
DType scan_result(ScanOp op, DType in);

struct ScanOptions {
  bool exclusive = false;  ///< element i has only the elements before i; the first is the neutral element
  bool reverse = false;    ///< from the end to the front
};

/// out[i] = op(in[0], ..., in[i]) along `axis`; after a NaN all results are NaN. The neutral elements of
/// cummax and cummin are the smallest and the largest value of the input's type (-inf and inf in floating
/// point). Same shape, any strides; out may be in, otherwise they must not overlap. Throws InvalidArgument
/// for different shapes and an axis out of range (a rank of 0 has axis 0).
void scan(ScanOp op, const Tensor& out, const Tensor& in, int64_t axis, const ScanOptions& options = {});

/// out[i] = a[i] * out[i - 1] + b[i] along `axis`, with out[0] = b[0]. With `reverse` it runs from the end:
/// out[i] = a[i] * out[i + 1] + b[i]. Floating-point types, accumulated in f64; one shape, any strides; out
/// may be a or b, otherwise they must not overlap. One thread computes a row. Throws InvalidArgument for
/// different shapes, other types and an axis out of range (a rank of 0 has axis 0).
void linear_recurrence(const Tensor& out, const Tensor& a, const Tensor& b, int64_t axis,
                       bool reverse = false);

}  // namespace mx::kernels
