// op_bench_openblas: the operator cases that a BLAS has, in OpenBLAS. Version 0.3.21 mistakes newer
// processors for a Haswell and reaches only half of their speed, so the program selects the kernels for
// AVX-512 if the processor has it.
#include <cblas.h>

#include <memory>

#include "benchmarks/op/runner.h"
#include "benchmarks/support/report.h"

namespace {

using namespace mx::bench;

std::vector<std::string> environment(int threads) {
  std::vector<std::string> entries = {"OPENBLAS_NUM_THREADS=" + std::to_string(threads)};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vl")) entries.push_back("OPENBLAS_CORETYPE=SkylakeX");
#endif
  return entries;
}

struct Operands {
  Operands(int64_t n, uint32_t seed) : a(op_input(n, seed)), b(op_input(n, seed + 1)), c(a.size()) {}
  std::vector<float> a, b, c;
};

OpCall prepare(const OpCase& c, int) {
  const auto data = std::make_shared<Operands>(c.elements, 1);
  const auto n = static_cast<blasint>(c.side);
  if (c.op == "sgemm") {
    return [data, n] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, data->a.data(), n, data->b.data(), n,
                  0, data->c.data(), n);
    };
  }
  if (c.op == "transpose") {
    return [data, n] {
      cblas_somatcopy(CblasRowMajor, CblasTrans, n, n, 1, data->a.data(), n, data->c.data(), n);
    };
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{
      .bench = "op", .name = "openblas", .cases = op_cases(), .environment = environment, .prepare = prepare};
  system.start = [](int) { note(std::string("OpenBLAS: ") + openblas_get_config()); };
  return run_op_bench(argc, argv, system);
}
