// A convolution as the descriptors of cuDNN say it, and its computation in double on the host.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mx::test {

struct FakeTensor {
  int64_t name = 0, alignment = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false;
  std::vector<int64_t> sizes, strides;

  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t size : sizes) n *= size;
    return n;
  }
  /// The place in memory of an element, by its row-major index.
  int64_t place(int64_t index) const {
    int64_t at = 0;
    for (size_t i = sizes.size(); i-- > 0; index /= sizes[i]) at += index % sizes[i] * strides[i];
    return at;
  }
};

struct FakeGraph {
  int part = 0;  // 0: x is computed, 1: the weight, 2: y
  std::array<FakeTensor, 3> arrays;
  std::vector<int64_t> before, after, stride, dilation;
  std::optional<FakeTensor> bias, sum;

  const FakeTensor& result() const { return sum ? *sum : arrays[static_cast<size_t>(part)]; }
};

/// Adds up every product of an element of x, of the weight and of y: the computed one of the three takes the
/// sums. `data`: the addresses of the arrays in memory, by their names.
void compute(const FakeGraph& graph, const std::map<int64_t, void*>& data);

}  // namespace mx::test
