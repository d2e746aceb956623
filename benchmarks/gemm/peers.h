// The installed libraries that gemm_bench compares with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::bench {

/// C = op(A) op(B), square n x n matrices, row-major. One of the two functions may be missing.
struct GemmPeer {
  std::string name;
  void (*set_threads)(int threads);
  void (*sgemm)(bool trans_a, bool trans_b, int64_t n, const float* a, const float* b, float* c);
  void (*dgemm)(bool trans_a, bool trans_b, int64_t n, const double* a, const double* b, double* c);
};

std::vector<GemmPeer> gemm_peers();

}  // namespace mx::bench
