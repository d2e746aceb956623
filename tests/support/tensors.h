// Small arrays for tests of kernels: a buffer and a Tensor that views it, in several layouts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ndarray/kernels/convert.h"
#include "ndarray/tensor.h"
#include "tests/support/tolerance.h"

namespace mx::test {

/// Owns elements; `t` views them.
struct Array {
  struct alignas(64) Line {  // arrays of the library have this alignment, and some kernels check it
    char bytes[64] = {};
  };
  std::vector<Line> memory;
  Tensor t;

  Array(DType type, const Shape& shape) : Array(type, shape, "contiguous") {}

  /// layout: contiguous; transposed (column-major); negative (all dimensions flipped); padded (gaps between
  /// elements); broadcast (the first dimension repeats one element: read only).
  Array(DType type, const Shape& shape, const std::string& layout) {
    t.dtype = type;
    t.shape = shape;
    t.strides = contiguous_strides(shape);
    int64_t elements = 1, first = 0;
    for (int64_t dim : shape) elements *= std::max<int64_t>(dim, 1);
    if (layout == "transposed") {
      int64_t step = 1;
      for (int i = 0; i < shape.rank(); ++i) {
        t.strides[i] = step;
        step *= std::max<int64_t>(shape[i], 1);
      }
    } else if (layout == "negative") {
      for (int i = 0; i < shape.rank(); ++i) {
        first += (std::max<int64_t>(shape[i], 1) - 1) * t.strides[i];
        t.strides[i] = -t.strides[i];
      }
    } else if (layout == "padded") {
      for (int i = 0; i < shape.rank(); ++i) t.strides[i] *= 3;
      elements *= 3;
    } else if (layout == "broadcast" && shape.rank() > 0) {
      t.strides[0] = 0;
    }
    memory.resize(static_cast<size_t>(elements) * size_of(type) / 64 + 1);
    t.data = reinterpret_cast<char*>(memory.data()) + first * static_cast<int64_t>(size_of(type));
  }
  Array(const Array& other) = delete;
  Array(Array&& other) = default;

  int64_t offset(int64_t linear) const {
    int64_t at = 0;
    for (int i = t.shape.rank() - 1; i >= 0; --i) {
      at += linear % t.shape[i] * t.strides[i];
      linear /= t.shape[i];
    }
    return at;
  }
  /// Returns element number `linear` in row-major order.
  double get(int64_t linear) const {
    return visit(t.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return convert<double>(t.as<T>()[offset(linear)]);
    });
  }
  void set(int64_t linear, double value) {
    visit(t.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      t.as<T>()[offset(linear)] = convert<T>(value);
    });
  }
  void fill(const std::function<double(int64_t)>& value) {
    for (int64_t i = 0; i < t.numel(); ++i) set(i, value(i));
  }
  /// Fills the array with values of the normal distribution times `scale`; with small integers for integer
  /// types.
  void fill_random(uint64_t seed, double scale = 1) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    fill([&](int64_t) {
      return is_floating(t.dtype) ? normal(engine) * scale
                                  : static_cast<double>(engine() % 7) - (t.dtype == u8 ? 0 : 2);
    });
  }
  std::vector<double> values() const {
    std::vector<double> result;
    for (int64_t i = 0; i < t.numel(); ++i) result.push_back(get(i));
    return result;
  }
  bool same_bits(const Array& other) const {
    return memory.size() == other.memory.size() &&
           std::memcmp(memory.data(), other.memory.data(), memory.size() * sizeof(Line)) == 0;
  }
};

inline const char* const kLayouts[] = {"contiguous", "transposed", "negative", "padded", "broadcast"};

}  // namespace mx::test
