// Tensors of every layout for tests of kernels: the same elements, arranged differently in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ndarray/kernels/convert.h"
#include "ndarray/tensor.h"

namespace mx::testing {

enum class Layout { contiguous, transposed, flipped, gaps, broadcast };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::flipped, Layout::gaps,
                                      Layout::broadcast};
/// The layouts that can be written.
inline constexpr Layout kTargets[] = {Layout::contiguous, Layout::transposed, Layout::flipped, Layout::gaps};

/// A tensor and its memory. The bytes between the elements hold a pattern, which intact() checks.
class Owned {
 public:
  Owned(DType dtype, const Shape& shape, Layout layout = Layout::contiguous) {
    const int rank = shape.rank();
    tensor_ = {nullptr, dtype, shape, Shape::filled(rank, 0)};
    int64_t step = layout == Layout::gaps ? 3 : 1, first = 0;
    for (int i = 0; i < rank; ++i) {
      const int d = layout == Layout::transposed ? i : rank - 1 - i;
      if (layout == Layout::broadcast && d == 0) continue;
      tensor_.strides[d] = layout == Layout::flipped && d % 2 == (rank - 1) % 2 ? -step : step;
      if (tensor_.strides[d] < 0 && shape[d] > 0) first += (shape[d] - 1) * step;
      step *= shape[d];
    }
    bytes_.assign(static_cast<size_t>(step + 1) * size_of(dtype), 0x5a);
    if (dtype == DType::bool_) std::fill(bytes_.begin(), bytes_.end(), static_cast<unsigned char>(1));
    tensor_.data = bytes_.data() + static_cast<size_t>(first) * size_of(dtype);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

 private:
  std::vector<unsigned char> bytes_;
  Tensor tensor_;
};

/// Calls f(offset, i) for the elements in row-major order.
template <class F>
void each_element(const Tensor& tensor, const F& f) {
  Shape at = Shape::filled(tensor.rank(), 0);
  const int64_t n = tensor.numel();
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < at.rank(); ++d) offset += at[d] * tensor.strides[d];
    f(offset, static_cast<size_t>(i));
    for (int d = at.rank() - 1; d >= 0 && ++at[d] == tensor.shape[d]; --d) at[d] = 0;
  }
}

template <class Value = double>
std::vector<Value> read(const Tensor& tensor) {
  std::vector<Value> values(static_cast<size_t>(tensor.numel()));
  visit(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_element(tensor,
                 [&](int64_t offset, size_t i) { values[i] = convert<Value>(tensor.as<T>()[offset]); });
  });
  return values;
}

template <class Value>
void write(const Tensor& tensor, const std::vector<Value>& values) {
  visit(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_element(tensor, [&](int64_t offset, size_t i) {
      tensor.as<T>()[offset] = convert<T>(static_cast<Value>(values[i]));
    });
  });
}

/// Writes random whole numbers from low to high.
inline void write_random(const Tensor& tensor, int64_t low, int64_t high, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> values(static_cast<size_t>(tensor.numel()));
  for (int64_t& value : values)
    value = low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  write(tensor, values);
}

/// Returns the position of row-major element `i` of `shape`.
inline Shape position(const Shape& shape, size_t i) {
  Shape at = shape;
  int64_t rest = static_cast<int64_t>(i);
  for (int d = shape.rank() - 1; d >= 0; --d) {
    at[d] = rest % shape[d];
    rest /= shape[d];
  }
  return at;
}

inline size_t linear(const Shape& shape, const Shape& at) {
  int64_t i = 0;
  for (int d = 0; d < shape.rank(); ++d) i = i * shape[d] + at[d];
  return static_cast<size_t>(i);
}

}  // namespace mx::testing
