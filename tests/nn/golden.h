// Golden arrays that PyTorch made, as tests/nn/golden/*.py write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "ndarray/ndarray.h"
#include "operators/operators.h"
#include "tests/operators/golden_arrays.h"

namespace mx::test {

/// Knows which of its arrays were compared.
class GoldenFile : private GoldenArrays {
 public:
  using GoldenArrays::GoldenArrays;
  using GoldenArrays::has;
  /// Returns how many names expect() has not seen.
  size_t unused() const { return size() - seen_.size(); }

  void expect(const std::string& name, const NDArray& got, double tolerance = 1e-11) {
    if (has(name)) seen_.insert(name);
    GoldenArrays::expect(name, got, tolerance);
  }

 private:
  std::set<std::string> seen_;
};

/// numbers() of the scripts.
inline NDArray golden_numbers(const Shape& shape, int64_t step) {
  return ((((arange(shape.numel()) * 7919 + 13 * step) % 101) - 50).to(f64) / 32).reshape(shape);
}

}  // namespace mx::test
