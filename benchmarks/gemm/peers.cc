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
void onednn_sgemm(bool trans_a, bool trans_b, const GemmSize& size, const float* a, const float* b,
                  float* c) {
  const auto [m, n, k] = size;
  dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0F, a, trans_a ? m : k, b, trans_b ? k : n,
             0.0F, c, n);
}
#endif

#ifdef MX_BENCH_OPENBLAS
CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

template <class T, auto kGemm>
void openblas_gemm(bool trans_a, bool trans_b, const GemmSize& size, const T* a, const T* b, T* c) {
  const auto m = static_cast<blasint>(size.m), n = static_cast<blasint>(size.n),
             k = static_cast<blasint>(size.k);
  kGemm(CblasRowMajor, flag(trans_a), flag(trans_b), m, n, k, T{1}, a, trans_a ? m : k, b, trans_b ? k : n,
        T{0}, c, n);
}
#endif

}  // namespace

std::vector<GemmPeer> gemm_peers() {
  std::vector<GemmPeer> peers;
#ifdef MX_BENCH_ONEDNN
  peers.push_back({"onednn", [](int threads) { omp_set_num_threads(threads); }, onednn_sgemm, nullptr});
#endif
#ifdef MX_BENCH_OPENBLAS
  peers.push_back({"openblas", [](int threads) { openblas_set_num_threads(threads); },
                   openblas_gemm<float, cblas_sgemm>, openblas_gemm<double, cblas_dgemm>});
#endif
  return peers;
}

}  // namespace mx::bench
