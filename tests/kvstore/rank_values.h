// Values whose sums depend on the order of the additions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "operators/operators.h"

namespace mx::test {

inline NDArray rank_value(int rank, int64_t size, uint64_t key = 0) {
  std::vector<float> values(static_cast<size_t>(size));
  uint64_t state = 0x9e3779b97f4a7c15u * (static_cast<uint64_t>(rank) + 1) + key;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = (static_cast<float>(state >> 40) - 8e6f) * ((state & 1) != 0 ? 1e-3f : 1e3f);
  }
  return array(values);
}

inline NDArray serial_sum(int ranks, int64_t size, uint64_t key = 0) {
  NDArray sum = rank_value(0, size, key);
  for (int r = 1; r < ranks; ++r) sum = sum + rank_value(r, size, key);
  return sum;
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ("", errors[r]) << "rank " << r;
}

}  // namespace mx::test
