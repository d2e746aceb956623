#include "operators/kernels/row_convert.h"

#include <cstdlib>
#include <cstring>

#include "ndarray/kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/row_convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Plain loops over bits: they have no branches that the compiler cannot turn into selections, so that it
// vectorises them for each instruction set, with the same results as the functions of ndarray/half.h.

void widen_bf16(float* HWY_RESTRICT to, const uint16_t* HWY_RESTRICT from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void narrow_bf16(uint16_t* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const uint32_t nan = (bits >> 16) | 0x40, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to[i] = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
  }
}

#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
// Instructions that convert exactly as the loops below.
constexpr bool kHardwareHalf = true;
#else
constexpr bool kHardwareHalf = false;
#endif

void widen_f16(float* HWY_RESTRICT to, const uint16_t* HWY_RESTRICT from, int64_t n) {
  int64_t i = 0;
  if constexpr (kHardwareHalf) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from + i))), d,
                 to + i);
  }
  for (; i < n; ++i) {
    const uint32_t half = from[i], sign = (half & 0x8000) << 16, magnitude = half & 0x7fff;
    const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? 0x70000000 : 0x38000000);
    const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
    uint32_t small_bits;
    std::memcpy(&small_bits, &small, sizeof small_bits);
    const uint32_t bits = sign | (magnitude < 0x400 ? small_bits : normal);
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

void narrow_f16(uint16_t* HWY_RESTRICT to, const float* HWY_RESTRICT from, int64_t n) {
  int64_t i = 0;
  if constexpr (kHardwareHalf) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh, reinterpret_cast<hwy::float16_t*>(to + i));
  }
  for (; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    const uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    float size;
    std::memcpy(&size, &magnitude, sizeof size);
    // Adding 0.5 puts the bits of a subnormal, correctly rounded, at the end of the sum's mantissa.
    const float sum = size + 0.5f;
    uint32_t sum_bits;
    std::memcpy(&sum_bits, &sum, sizeof sum_bits);
    const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    uint32_t half = magnitude < 0x38800000 ? sum_bits - 0x3f000000 : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? nan : half;
    to[i] = static_cast<uint16_t>(sign | half);
  }
}

template <class To, class From>
HWY_INLINE void widen(To* HWY_RESTRICT to, const From* HWY_RESTRICT from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}
void widen_i8(int64_t* to, const int8_t* from, int64_t n) { widen(to, from, n); }
void widen_u8(int64_t* to, const uint8_t* from, int64_t n) { widen(to, from, n); }
void widen_i32(int64_t* to, const int32_t* from, int64_t n) { widen(to, from, n); }
void widen_f32(double* to, const float* from, int64_t n) { widen(to, from, n); }

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(widen_i8);
HWY_EXPORT(widen_u8);
HWY_EXPORT(widen_i32);
HWY_EXPORT(widen_f32);

namespace {

template <class T>
constexpr bool kHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

}  // namespace

template <class A>
void load_run(A* to, const void* data, DType type, int64_t first, int64_t stride, int64_t n) {
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = static_cast<const T*>(data) + first;
    if constexpr (std::is_same_v<A, float> && kHalf<T>) {
      if (stride == 1) {
        const uint16_t* const bits = reinterpret_cast<const uint16_t*>(from);
        if constexpr (std::is_same_v<T, float16>)
          HWY_DYNAMIC_DISPATCH(widen_f16)(to, bits, n);
        else
          HWY_DYNAMIC_DISPATCH(widen_bf16)(to, bits, n);
        return;
      }
    }
    if constexpr (std::is_same_v<A, int64_t> && std::is_integral_v<T> && !std::is_same_v<T, int64_t>) {
      if (stride == 1) {
        if constexpr (std::is_same_v<T, int32_t>)
          HWY_DYNAMIC_DISPATCH(widen_i32)(to, from, n);
        else if constexpr (std::is_same_v<T, int8_t>)
          HWY_DYNAMIC_DISPATCH(widen_i8)(to, from, n);
        else  // a bool is a byte of 0 or 1
          HWY_DYNAMIC_DISPATCH(widen_u8)(to, reinterpret_cast<const uint8_t*>(from), n);
        return;
      }
    }
    if constexpr (std::is_same_v<A, double> && std::is_same_v<T, float>) {
      if (stride == 1) return HWY_DYNAMIC_DISPATCH(widen_f32)(to, from, n);
    }
    if (stride == 1) {
      for (int64_t i = 0; i < n; ++i) to[i] = convert<A>(from[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = convert<A>(from[i * stride]);
    }
  });
}

template <class A>
void store_run(void* data, DType type, int64_t first, int64_t stride, const A* from, int64_t n) {
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = static_cast<T*>(data) + first;
    if constexpr (std::is_same_v<A, float> && kHalf<T>) {
      if (stride == 1) {
        uint16_t* const bits = reinterpret_cast<uint16_t*>(to);
        if constexpr (std::is_same_v<T, float16>)
          HWY_DYNAMIC_DISPATCH(narrow_f16)(bits, from, n);
        else
          HWY_DYNAMIC_DISPATCH(narrow_bf16)(bits, from, n);
        return;
      }
    }
    if (stride == 1) {
      for (int64_t i = 0; i < n; ++i) to[i] = convert<T>(from[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * stride] = convert<T>(from[i]);
    }
  });
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
#endif
