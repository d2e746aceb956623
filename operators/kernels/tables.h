// Connects the entry points of elementwise operations with the files of their row functions. Each function
// returns null if its file has no row function for the arguments.
#pragma once

#include "operators/kernels/binary.h"
#include "operators/kernels/rows.h"
#include "operators/kernels/unary.h"

namespace mx::kernels {

/// Returns the type in which rows are computed: f32 for f16 and bf16, otherwise the type itself.
inline DType row_type(DType type) { return type == DType::f16 || type == DType::bf16 ? DType::f32 : type; }

/// Functions with the same bits in every instruction set (IEEE 754 or integers); vectorised by the compiler.
Row unary_exact_row(UnaryOp op, DType computing);
Row binary_exact_row(BinaryOp op, DType computing);
/// Functions written with explicit vectors.
Row unary_f32_row(UnaryOp op);
Row unary_f64_row(UnaryOp op);
Row binary_vector_row(BinaryOp op, DType computing);
/// Functions for RowPass::stream, if non-temporal stores are faster.
Row unary_stream_row(UnaryOp op, DType computing);
Row binary_stream_row(BinaryOp op, DType computing);
/// Functions of the C library, element by element.
Row unary_library_row(UnaryOp op, DType computing);
Row binary_library_row(BinaryOp op, DType computing);
/// x to the power of `exponent`, as a function of one operand; null unless multiplications, divisions and
/// roots compute it.
Row power_row(DType computing, double exponent);
/// Operands: condition (bool), a, b; and x, low, high.
Row where_row(DType type);
Row clamp_row(DType type);

}  // namespace mx::kernels
