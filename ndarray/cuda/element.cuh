// Elements of any type, converted to and from the type of a computation: float (f32, f16, bf16), double (f64)
// or int64_t (integers and bool). So a kernel is compiled once for each of the three, not for each of nine
// types. Conversions have the results of ndarray/kernels/convert.h.
#pragma once

#include <cstdint>

#include "ndarray/cuda/kernel.cuh"

namespace mx::cuda {

/// An array as a kernel sees it.
struct Elements {
  void* data;
  DType type;
};

inline Elements elements_of(const Tensor& t) { return {t.data, t.dtype}; }

/// Floating point to an integer type with these limits: values out of range become the nearest limit, and NaN
/// becomes 0.
template <class F>
__device__ inline int64_t saturated(F x, int64_t low, int64_t high) {
  if (x != x) return 0;
  // high + 1 and low are powers of two or zero, so they are exact.
  if (x >= static_cast<F>(high / 2 + 1) * F{2}) return high;
  if (x <= static_cast<F>(low)) return low;
  return static_cast<int64_t>(x);
}

template <class A>
__device__ inline A from_float(float x) {
  if constexpr (sizeof(A) == 8 && static_cast<A>(0.5) == 0)
    return saturated(x, INT64_MIN, INT64_MAX);
  else
    return static_cast<A>(x);
}
template <class A>
__device__ inline A from_double(double x) {
  if constexpr (sizeof(A) == 8 && static_cast<A>(0.5) == 0)
    return saturated(x, INT64_MIN, INT64_MAX);
  else
    return static_cast<A>(x);
}

template <class A>
__device__ inline A load(const Elements& from, int64_t i) {
  switch (from.type) {
    case DType::f32:
      return from_float<A>(static_cast<const float*>(from.data)[i]);
    case DType::f64:
      return from_double<A>(static_cast<const double*>(from.data)[i]);
    case DType::f16:
      return from_float<A>(to_float(static_cast<const float16*>(from.data)[i]));
    case DType::bf16:
      return from_float<A>(to_float(static_cast<const bfloat16*>(from.data)[i]));
    case DType::i8:
      return static_cast<A>(static_cast<const int8_t*>(from.data)[i]);
    case DType::u8:
      return static_cast<A>(static_cast<const uint8_t*>(from.data)[i]);
    case DType::i32:
      return static_cast<A>(static_cast<const int32_t*>(from.data)[i]);
    case DType::i64:
      return static_cast<A>(static_cast<const int64_t*>(from.data)[i]);
    case DType::bool_:
      break;
  }
  return static_cast<A>(static_cast<const uint8_t*>(from.data)[i] != 0);
}

/// The value as the integer type would hold it. From floating point it saturates, from i64 it wraps.
template <class T, class A>
__device__ inline T to_integer(A x, int64_t low, int64_t high) {
  if constexpr (static_cast<A>(0.5) == 0)
    return static_cast<T>(x);
  else
    return static_cast<T>(saturated(x, low, high));
}

template <class A>
__device__ inline void store(const Elements& to, int64_t i, A x) {
  switch (to.type) {
    case DType::f32:
      static_cast<float*>(to.data)[i] = static_cast<float>(x);
      return;
    case DType::f64:
      static_cast<double*>(to.data)[i] = static_cast<double>(x);
      return;
    case DType::f16:
      static_cast<float16*>(to.data)[i] = to_half(static_cast<float>(x));
      return;
    case DType::bf16:
      static_cast<bfloat16*>(to.data)[i] = to_bfloat(static_cast<float>(x));
      return;
    case DType::i8:
      static_cast<int8_t*>(to.data)[i] = to_integer<int8_t>(x, INT8_MIN, INT8_MAX);
      return;
    case DType::u8:
      static_cast<uint8_t*>(to.data)[i] = to_integer<uint8_t>(x, 0, UINT8_MAX);
      return;
    case DType::i32:
      static_cast<int32_t*>(to.data)[i] = to_integer<int32_t>(x, INT32_MIN, INT32_MAX);
      return;
    case DType::i64:
      static_cast<int64_t*>(to.data)[i] = to_integer<int64_t>(x, INT64_MIN, INT64_MAX);
      return;
    case DType::bool_:
      break;
  }
  static_cast<uint8_t*>(to.data)[i] = x != A{0};
}

/// Calls f.template operator()<A>() with the type in which elements of `type` are computed.
template <class F>
void visit_real(DType type, const F& f) {
  type == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}

}  // namespace mx::cuda
