// Tensors of every type and many shapes; their contents differ in every byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ndarray/io/tensor_record.h"

namespace mx::test {

inline const std::vector<Shape>& sample_shapes() {
  static const std::vector<Shape> shapes = {
      {},        {1},       {0},          {5},          {2, 3},
      {0, 3},    {3, 0, 2}, {1, 1, 1, 4}, {2, 3, 4, 5}, {1, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1, 2},
      {7, 1, 11}};
  return shapes;
}

/// Owns the elements of its tensors.
class Samples {
 public:
  Samples() {
    const size_t count = sample_shapes().size() * kDTypes;
    contents_.reserve(count);
    for (DType dtype : kAllDTypes)
      for (const Shape& shape : sample_shapes()) add(dtype, shape);
  }
  Samples(const Samples&) = delete;
  const std::vector<io::TensorData>& tensors() const { return tensors_; }

 private:
  void add(DType dtype, const Shape& shape) {
    const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
    std::string content;
    for (size_t i = 0; i < bytes; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      content += static_cast<char>(dtype == DType::bool_ ? state_ >> 63 : state_ >> 56);
    }
    contents_.push_back(std::move(content));
    // Names in arbitrary order, some with non-ASCII characters.
    const size_t number = tensors_.size();
    tensors_.push_back({(number % 3 == 0 ? "w\xc3\xa9." : "layer/") + std::to_string(number * 7919 % 1000) +
                            "." + std::to_string(number),
                        dtype, shape, std::as_bytes(std::span(contents_.back()))});
  }
  uint64_t state_ = 1;
  std::vector<std::string> contents_;
  std::vector<io::TensorData> tensors_;
};

}  // namespace mx::test
