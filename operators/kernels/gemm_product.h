// A checked product in the form that the kernels need. Internal to gemm.
#pragma once

#include <cstdint>

#include "ndarray/dtype.h"

namespace mx::kernels {

/// C = alpha * A B + beta * C + bias, normalised. If the rows or the columns of C are contiguous, its rows
/// are: a C with contiguous columns is transposed, which swaps A and B. A single column has become a single
/// row.
struct Product {
  DType dtype;
  DType result;  // of C: dtype, or i32 for i8 and u8
  int64_t m, n, k;
  const void* a;
  const void* b;
  void* c;
  const void* bias;  // of element (i, j): at i * bias_rs + j * bias_cs; one of the two is 0
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs, c_cs, bias_rs, bias_cs;
  double alpha, beta;
  bool swapped = false;  // a and b have been swapped
};

/// Computes C's elements [i0, i1) x [j0, j1) on the calling thread, with the processor's best instruction
/// set.
void gemm_block(const Product& product, int64_t i0, int64_t i1, int64_t j0, int64_t j1);

/// Returns up to how many rows of C a block reads contiguous rows of B where they are; 0: it always packs
/// them.
int64_t gemm_rows_without_packing(DType dtype);

}  // namespace mx::kernels
