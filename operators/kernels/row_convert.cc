#include "operators/kernels/row_convert.h"

#include <cstdlib>

#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/convert_rows.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

template <class A>
void load_run(A* to, const void* data, DType type, int64_t first, int64_t stride, int64_t n) {
  const void* const from = element_at(data, type, first);
  convert_row(dtype_of<A>, type)(to, 1, from, stride, n);
}

template <class A>
void store_run(void* data, DType type, int64_t first, int64_t stride, const A* from, int64_t n) {
  void* const to = element_at(data, type, first);
  convert_row(type, dtype_of<A>)(to, stride, from, 1, n);
}

template <class A>
void load_rows(A* to, int64_t pitch, const void* data, DType type, int64_t first, int64_t stride, int64_t n,
               int64_t row_stride, int64_t rows) {
  if (rows == 1 || std::abs(stride) <= std::abs(row_stride)) {
    for (int64_t r = 0; r < rows; ++r)
      load_run(to + r * pitch, data, type, first + r * row_stride, stride, n);
    return;
  }
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = static_cast<const T*>(data) + first;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t r = 0; r < rows; ++r) to[r * pitch + i] = convert<A>(from[i * stride + r * row_stride]);
  });
}

template <class A>
void store_rows(void* data, DType type, int64_t first, int64_t stride, int64_t n, int64_t row_stride,
                int64_t rows, const A* from, int64_t pitch) {
  if (rows == 1 || std::abs(stride) <= std::abs(row_stride)) {
    for (int64_t r = 0; r < rows; ++r)
      store_run(data, type, first + r * row_stride, stride, from + r * pitch, n);
    return;
  }
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = static_cast<T*>(data) + first;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t r = 0; r < rows; ++r) to[i * stride + r * row_stride] = convert<T>(from[r * pitch + i]);
  });
}

template void load_run(float*, const void*, DType, int64_t, int64_t, int64_t);
template void load_run(double*, const void*, DType, int64_t, int64_t, int64_t);
template void load_run(int64_t*, const void*, DType, int64_t, int64_t, int64_t);
template void store_run(void*, DType, int64_t, int64_t, const float*, int64_t);
template void store_run(void*, DType, int64_t, int64_t, const double*, int64_t);
template void store_run(void*, DType, int64_t, int64_t, const int64_t*, int64_t);
template void load_rows(float*, int64_t, const void*, DType, int64_t, int64_t, int64_t, int64_t, int64_t);
template void store_rows(void*, DType, int64_t, int64_t, int64_t, int64_t, int64_t, const float*, int64_t);
template void load_rows(double*, int64_t, const void*, DType, int64_t, int64_t, int64_t, int64_t, int64_t);
template void store_rows(void*, DType, int64_t, int64_t, int64_t, int64_t, int64_t, const double*, int64_t);
template void load_rows(int64_t*, int64_t, const void*, DType, int64_t, int64_t, int64_t, int64_t, int64_t);
template void store_rows(void*, DType, int64_t, int64_t, int64_t, int64_t, int64_t, const int64_t*, int64_t);

}  // namespace mx::kernels
