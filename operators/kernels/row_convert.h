// Conversion of runs of elements to and from the type in which a kernel computes: float for f32, f16 and
// bf16, double for f64 (and for other types if a kernel asks for it), int64_t for integers and bool.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ndarray/dtype.h"

namespace mx::kernels {

/// The type in which elements of type T are reduced.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double,
                                       std::conditional_t<std::is_integral_v<T>, int64_t, float>>;

/// to[i] = element first + i * stride of the array at `data`, converted. A: float, double, int64_t.
template <class A>
void load_run(A* to, const void* data, DType type, int64_t first, int64_t stride, int64_t n);

/// The inverse of load_run(): rounds to nearest for f16, bf16 and f32, and converts like convert() for the
/// others.
template <class A>
void store_run(void* data, DType type, int64_t first, int64_t stride, const A* from, int64_t n);

/// Loads or stores `rows` rows of n elements each, `row_stride` apart in the array and `pitch` apart in the
/// buffer. Accesses memory in the order of the smaller stride.
template <class A>
void load_rows(A* to, int64_t pitch, const void* data, DType type, int64_t first, int64_t stride, int64_t n,
               int64_t row_stride, int64_t rows);
template <class A>
void store_rows(void* data, DType type, int64_t first, int64_t stride, int64_t n, int64_t row_stride,
                int64_t rows, const A* from, int64_t pitch);

}  // namespace mx::kernels
