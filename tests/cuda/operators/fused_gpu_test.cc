// Fused expressions on a GPU, which NVRTC compiles, beside the kernels of the single operators.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "operators/fused.h"
#include "operators/operators.h"
#include "tests/cuda/fused/expressions.h"
#include "tests/cuda/operators/compare.h"

namespace mx::test {
namespace {

// Not bit for bit: in one kernel, the compiler joins products and sums of several operators to single
// operations.
TEST(FusedOnGpu, RandomExpressionsHaveTheValuesOfTheirOperators) {
  const Context device = tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  int compared = 0, far = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Fused f = random_expression(seed, 3);
    for (const bool flat : {true, false}) {
      std::vector<NDArray> inputs;
      for (const NDArray& x : random_inputs(f, seed, flat)) inputs.push_back(x.to(device));
      const NDArray got = f(inputs), expected = f.unfused(inputs);
      ASSERT_EQ(expected.shape(), got.shape());
      ASSERT_EQ(expected.dtype(), got.dtype());
      const double tolerance = !is_floating(got.dtype()) ? 0
                               : got.dtype() == f64      ? 1e-9
                               : got.dtype() == f32      ? 1e-4
                                                         : 2e-2;
      const auto x = expected.to(cpu()).to(f64).to_vector<double>(),
                 y = got.to(cpu()).to(f64).to_vector<double>();
      for (size_t i = 0; i < x.size(); ++i) {
        ++compared;
        const bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])) ||
                          std::abs(x[i] - y[i]) <= tolerance * (1 + std::abs(x[i]));
        far += same ? 0 : 1;
      }
    }
  }
  // A rounding may decide a comparison, or turn an infinity, in a few elements.
  EXPECT_GT(compared, 1000);
  EXPECT_LE(far, compared / 200) << "of " << compared;
}

}  // namespace
}  // namespace mx::test
