// The installed libraries that gemm_bench compares with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::bench {

/// The sizes of a product: C is m x n, and each element is a sum of k products.
struct GemmSize {
  int64_t m, n, k;
};

/// C = op(A) op(B); all matrices are row-major and dense. One of the two functions may be missing.
struct GemmPeer {
  std::string name;
  void (*set_threads)(int threads);
  void (*sgemm)(bool trans_a, bool trans_b, const GemmSize& size, const float* a, const float* b, float* c);
  void (*dgemm)(bool trans_a, bool trans_b, const GemmSize& size, const double* a, const double* b,
                double* c);
};

std::vector<GemmPeer> gemm_peers();

}  // namespace mx::bench
