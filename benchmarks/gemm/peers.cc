#include "benchmarks/gemm/peers.h"

#ifdef MX_BENCH_ONEDNN
#  include <omp.h>

#  include <oneapi/dnnl/dnnl.h>
#endif
#ifdef MX_BENCH_OPENBLAS
#  include <cblas.h>
#endif

namespace mx::bench {
namespace {

#ifdef MX_BENCH_ONEDNN
void onednn_sgemm(bool trans_a, bool trans_b, int64_t n, const float* a, const float* b, float* c) {
  dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', n, n, n, 1.0F, a, n, b, n, 0.0F, c, n);
}
#endif

#ifdef MX_BENCH_OPENBLAS
CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

void openblas_sgemm(bool trans_a, bool trans_b, int64_t n, const float* a, const float* b, float* c) {
  const auto i = static_cast<blasint>(n);
  cblas_sgemm(CblasRowMajor, flag(trans_a), flag(trans_b), i, i, i, 1.0F, a, i, b, i, 0.0F, c, i);
}
void openblas_dgemm(bool trans_a, bool trans_b, int64_t n, const double* a, const double* b, double* c) {
  const auto i = static_cast<blasint>(n);
  cblas_dgemm(CblasRowMajor, flag(trans_a), flag(trans_b), i, i, i, 1.0, a, i, b, i, 0.0, c, i);
}
#endif

}  // namespace

std::vector<GemmPeer> gemm_peers() {
  std::vector<GemmPeer> peers;
#ifdef MX_BENCH_ONEDNN
  peers.push_back({"onednn", [](int threads) { omp_set_num_threads(threads); }, onednn_sgemm, nullptr});
#endif
#ifdef MX_BENCH_OPENBLAS
  peers.push_back(
      {"openblas", [](int threads) { openblas_set_num_threads(threads); }, openblas_sgemm, openblas_dgemm});
#endif
  return peers;
}

}  // namespace mx::bench
