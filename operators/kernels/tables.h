// Between the entry points of elementwise operations and the files that hold their row functions. Each
// returns null for what it does not have.
#pragma once

#include "operators/kernels/binary.h"
#include "operators/kernels/rows.h"
#include "operators/kernels/unary.h"

namespace mx::kernels {

/// The type that rows are computed in: the halves have none of their own.
inline DType row_type(DType type) { return type == DType::f16 || type == DType::bf16 ? DType::f32 : type; }

/// Exact in every instruction set (IEEE 754 or integers): the compiler makes the vectors.
Row unary_exact_row(UnaryOp op, DType computing);
Row binary_exact_row(BinaryOp op, DType computing);
/// Written with explicit vectors.
Row unary_f32_row(UnaryOp op);
Row unary_f64_row(UnaryOp op);
Row binary_vector_row(BinaryOp op, DType computing);
/// RowPass::stream, where that gains.
Row unary_stream_row(UnaryOp op, DType computing);
Row binary_stream_row(BinaryOp op, DType computing);
/// By the C library, element by element.
Row unary_library_row(UnaryOp op, DType computing);
Row binary_library_row(BinaryOp op, DType computing);
/// x to the power of that exponent, of one operand; null where it is none of those that multiply.
Row power_row(DType computing, double exponent);
/// condition (bool), a, b; and x, low, high.
Row where_row(DType type);
Row clamp_row(DType type);

}  // namespace mx::kernels
