#include "tests/cuda/operators/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "engine/base/check.h"
#include "engine/device/registry.h"
#include "ndarray/dtype.h"

namespace mx::test {
namespace {

/// Twice the distance of neighbouring numbers of a half type; some hundred of them for the others, because
/// sums are added in another order.
double tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-11;
    case DType::f16:
      return 4e-3;
    case DType::bf16:
      return 3.2e-2;
    default:
      return 4e-5;
  }
}

bool close(double a, double b, double tolerance, double scale) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= tolerance * (std::abs(a) + scale);
}

}  // namespace

Context tested_device() {
  if (std::getenv("MX_GPU_TEST_VIRTUAL") != nullptr) return virt(0);
  return num_gpus() > 0 ? gpu(0) : cpu();
}

std::string difference_of(const NDArray& expected, const NDArray& got) {
  if (expected.dtype() != got.dtype() || expected.shape() != got.shape())
    return detail::concat("expected ", expected.dtype(), ' ', expected.shape(), ", got ", got.dtype(), ' ',
                          got.shape());
  if (!is_floating(expected.dtype())) {
    const auto a = expected.to(i64).to_vector<int64_t>(), b = got.to(cpu()).to(i64).to_vector<int64_t>();
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) return detail::concat("element ", i, ": expected ", a[i], ", got ", b[i]);
    return {};
  }
  const auto a = expected.to(f64).to_vector<double>(), b = got.to(cpu()).to(f64).to_vector<double>();
  double scale = 1e-3;  // where terms cancel, their rounding errors remain
  for (const double value : a)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < a.size(); ++i)
    if (!close(a[i], b[i], tolerance_of(expected.dtype()), std::min(scale, 1.0)))
      return detail::concat("element ", i, ": expected ", a[i], ", got ", b[i]);
  return {};
}

}  // namespace mx::test
