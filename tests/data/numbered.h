// A data set whose samples contain their own number, and the batches that a loader makes of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "nn/data/loader.h"
#include "operators/elementwise_binary.h"

namespace mx::test {

/// Returns a data set in which sample i is {i, i + 0.5} with label 10 i.
inline data::ArrayDataset numbered(int64_t n) {
  const NDArray x = arange(n).to(f32).expand_dims(1);
  return data::ArrayDataset({x + array({0.f, 0.5f}), arange(n) * 10});
}

inline std::vector<int64_t> up_to(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Returns the sample numbers of the next epoch, batch by batch; checks that the arrays agree with the
/// indices.
inline std::vector<std::vector<int64_t>> epoch_of(data::Loader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (auto& [images, labels] : loader) {
    std::vector<int64_t> indices = labels.to_vector<int64_t>();
    for (int64_t& index : indices) index /= 10;
    const std::vector<float> x = images.to_vector<float>();
    EXPECT_EQ((Shape{static_cast<int64_t>(indices.size()), 2}), images.shape());
    for (size_t i = 0; i < indices.size(); ++i) {
      EXPECT_EQ(static_cast<float>(indices[i]), x[2 * i]);
      EXPECT_EQ(static_cast<float>(indices[i]) + 0.5f, x[2 * i + 1]);
    }
    batches.push_back(std::move(indices));
  }
  return batches;
}

inline std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& batches) {
  std::vector<int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

inline std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace mx::test
