// Kernels that compute each element of the result from the elements at its place in up to three operands.
//
// A is the type of the computation: float for f32, f16 and bf16, double for f64, int64_t for integers and
// bool. A kernel reads only the types of its A; operands of others are converted to scratch memory before.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "ndarray/cuda/copy.h"
#include "ndarray/cuda/strided.cuh"
#include "operators/scratch.h"

namespace mx::cuda {

/// The operands of a kernel. One whose address is null is a number.
template <int N, class A>
struct Operands {
  Elements array[N];
  A number[N];
};

template <class A>
constexpr bool computes(DType type) {
  if constexpr (std::is_same_v<A, double>) return type == DType::f64;
  if constexpr (std::is_same_v<A, float>) return is_floating(type) && type != DType::f64;
  return !is_floating(type);
}

template <class A, class T>
__device__ inline A widened(T x) {
  if constexpr (sizeof(T) == 2) {
    return to_float(x);
  } else {
    return static_cast<A>(x);
  }
}
template <class T, class A>
__device__ inline T narrowed(A x) {
  if constexpr (std::is_same_v<T, float16>) {
    return to_half(x);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat(x);
  } else {
    return static_cast<T>(x);
  }
}

/// Calls f with a value of the type of the elements, one of those that A computes. bool is `uint8_t` here.
template <class A, class F>
__device__ inline void with_type(DType type, const F& f) {
  if constexpr (std::is_same_v<A, double>) {
    f(double{});
  } else if constexpr (std::is_same_v<A, float>) {
    if (type == DType::f32) {
      f(float{});
    } else if (type == DType::f16) {
      f(float16{});
    } else {
      f(bfloat16{});
    }
  } else {
    switch (type) {
      case DType::i8:
        return f(int8_t{});
      case DType::i32:
        return f(int32_t{});
      case DType::i64:
        return f(int64_t{});
      default:
        return f(uint8_t{});
    }
  }
}

template <class A>
__device__ inline A load_own(const Elements& from, int64_t i) {
  A x{};
  with_type<A>(from.type, [&](auto tag) { x = widened<A>(static_cast<const decltype(tag)*>(from.data)[i]); });
  return x;
}
/// Reads `count` elements, at most kLoopVector; the others are 0.
template <class A>
__device__ inline void load_own(const Elements& from, int64_t i, int64_t count, A (&x)[kLoopVector]) {
  with_type<A>(from.type, [&](auto tag) {
    using T = decltype(tag);
    const T* const at = static_cast<const T*>(from.data) + i;
    if (count == kLoopVector) {
      check_aligned(at, alignof(Vector<T>));
      const Vector<T> all = *reinterpret_cast<const Vector<T>*>(at);
      for (int j = 0; j < kLoopVector; ++j) x[j] = widened<A>(all.v[j]);
    } else {
      for (int j = 0; j < kLoopVector; ++j) x[j] = j < count ? widened<A>(at[j]) : A{0};
    }
  });
}

template <class T, class R>
__device__ inline void store_all(void* data, int64_t i, int64_t count, const R (&y)[kLoopVector]) {
  T* const at = static_cast<T*>(data) + i;
  if (count == kLoopVector) {
    Vector<T> all;
    for (int j = 0; j < kLoopVector; ++j) all.v[j] = narrowed<T>(y[j]);
    check_aligned(at, alignof(Vector<T>));
    *reinterpret_cast<Vector<T>*>(at) = all;
  } else {
    for (int j = 0; j < count; ++j) at[j] = narrowed<T>(y[j]);
  }
}

/// R is bool for arrays of bool that are not computed in A, otherwise A.
template <class A, class R>
__device__ inline void store_own(const Elements& to, int64_t i, int64_t count, const R (&y)[kLoopVector]) {
  if constexpr (std::is_same_v<R, bool>) {
    store_all<uint8_t>(to.data, i, count, y);
  } else {
    if constexpr (std::is_same_v<A, int64_t>) {
      if (to.type == DType::bool_) {
        bool truth[kLoopVector];
        for (int j = 0; j < kLoopVector; ++j) truth[j] = y[j] != 0;
        return store_all<uint8_t>(to.data, i, count, truth);
      }
    }
    with_type<A>(to.type, [&](auto tag) { store_all<decltype(tag)>(to.data, i, count, y); });
  }
}

template <class A, int N, class F>
__device__ inline auto apply(const F& f, const A (&x)[N][kLoopVector], int j) {
  if constexpr (N == 1) {
    return f(x[0][j]);
  } else if constexpr (N == 2) {
    return f(x[0][j], x[1][j]);
  } else {
    return f(x[0][j], x[1][j], x[2][j]);
  }
}

template <class A, int N, class F>
__global__ void __launch_bounds__(kLoopThreads)
    map_elements(Elements to, Operands<N, A> from, Loop<N + 1> loop, F f) {
  using R = decltype(apply<A, N>(f, std::declval<A(&)[N][kLoopVector]>(), 0));
  const int64_t n = loop.plan.numel, step = global_size();
  A x[N][kLoopVector];
  R y[kLoopVector];
  if (loop.flat) {
    for (int64_t i = global_index() * kLoopVector; i < n; i += step * kLoopVector) {
      const int64_t count = n - i < kLoopVector ? n - i : kLoopVector;
      for (int k = 0; k < N; ++k) {
        if (from.array[k].data != nullptr && loop.plan.strides[k + 1][0] != 0) {
          load_own<A>(from.array[k], i, count, x[k]);
        } else {
          const A same = from.array[k].data == nullptr ? from.number[k] : load_own<A>(from.array[k], 0);
          for (int j = 0; j < kLoopVector; ++j) x[k][j] = same;
        }
      }
      for (int j = 0; j < kLoopVector; ++j) y[j] = apply<A, N>(f, x, j);
      store_own<A>(to, i, count, y);
    }
    return;
  }
  for (int64_t i = global_index(); i < n; i += step) {
    int64_t at[N + 1];
    element_offsets(loop.plan, loop.narrow, i, at);
    for (int k = 0; k < N; ++k)
      x[k][0] = from.array[k].data == nullptr ? from.number[k] : load_own<A>(from.array[k], at[k + 1]);
    y[0] = apply<A, N>(f, x, 0);
    store_own<A>(to, at[0], 1, y);
  }
}

/// An operand in a type that A computes, broadcast to a shape; converted if necessary.
template <class A>
class Converted {
 public:
  Converted(const KernelArgs& args, const Tensor& x, const Shape& shape) : tensor_(x.broadcast(shape)) {
    if (computes<A>(x.dtype)) return;
    constexpr DType kType = dtype_of<A>;
    // Repeated elements are converted once.
    Tensor few = tensor_;
    for (int d = 0; d < shape.rank(); ++d)
      if (few.strides[d] == 0 && few.shape[d] > 1) few.shape[d] = 1;
    memory_.emplace(args, static_cast<size_t>(few.numel()) * sizeof(A));
    const Tensor made{memory_->data(), kType, few.shape, contiguous_strides(few.shape)};
    copy_elements(stream_of(args), made, few);
    tensor_ = made.broadcast(shape);
  }
  /// A number, as an array without memory.
  explicit Converted(const Shape& shape)
      : tensor_{nullptr, dtype_of<A>, shape, Strides::filled(shape.rank(), 0)} {}
  const Tensor& tensor() const { return tensor_; }

 private:
  std::optional<Scratch> memory_;
  Tensor tensor_;
};

/// out[i] = f(x0[i], ...). `numbers` replaces operands that have no memory. The result is of a type that A
/// computes, or bool if f returns it.
template <class A, int N, class F>
void map(const KernelArgs& args, const Tensor& out, const std::array<const Tensor*, N>& in,
         const std::array<A, N>& numbers, const F& f) {
  std::array<const Tensor*, N + 1> all{&out};
  Operands<N, A> operands{};
  for (size_t k = 0; k < N; ++k) {
    all[k + 1] = in[k];
    operands.array[k] = elements_of(*in[k]);
    operands.number[k] = numbers[k];
  }
  const Loop<N + 1> loop(all);
  if (loop.empty()) return;
  launch(stream_of(args), loop.blocks(), kLoopThreads, 0, map_elements<A, N, F>, elements_of(out), operands,
         loop, f);
}

}  // namespace mx::cuda
