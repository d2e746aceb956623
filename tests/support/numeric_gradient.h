// Gradients compared with finite differences in float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "executor/autograd/gradcheck.h"
#include "ndarray/ndarray.h"
#include "operators/operators.h"

namespace mx::test {

/// Returns d(f)/d(x[i]) for all elements x[i] of arguments[which]. f returns one element; the arguments are
/// float64.
inline std::vector<double> numeric_gradient(const std::function<NDArray(const std::vector<NDArray>&)>& f,
                                            const std::vector<NDArray>& arguments, size_t which,
                                            double step = 1e-5) {
  std::vector<double> gradient;
  const int64_t n = arguments[which].numel();
  for (int64_t i = 0; i < n; ++i) {
    double value[2];
    for (int side = 0; side < 2; ++side) {
      std::vector<double> elements = arguments[which].to_vector<double>();
      elements[static_cast<size_t>(i)] += side == 0 ? step : -step;
      std::vector<NDArray> changed;
      for (const NDArray& a : arguments) changed.push_back(a.detach());
      changed[which] = array(elements).reshape(arguments[which].shape());
      value[side] = f(changed).item<double>();
    }
    gradient.push_back((value[0] - value[1]) / (2 * step));
  }
  return gradient;
}

inline void expect_close(const std::vector<double>& expected, const std::vector<double>& got,
                         double tolerance, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], got[i], tolerance * std::max(1.0, std::abs(expected[i])))
        << what << ", element " << i;
}

/// Compares the gradients of f with finite differences for all arguments, which are float64.
inline void expect_gradients(const std::function<NDArray(const std::vector<NDArray>&)>& f,
                             const std::vector<NDArray>& arguments, double tolerance = 1e-6) {
  EXPECT_NO_THROW(gradcheck(f, arguments, {.step = 1e-5, .atol = tolerance, .rtol = tolerance}));
}

/// Returns pseudorandom numbers between 0.3 and 1.7.
inline NDArray some(const Shape& shape, uint64_t seed = 1) {
  std::vector<double> values;
  uint64_t state = seed * 0x9e3779b97f4a7c15;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    values.push_back(0.3 + 1.4 * static_cast<double>(state >> 11) / 9007199254740992.0);
  }
  return array(values).reshape(shape);
}

}  // namespace mx::test
