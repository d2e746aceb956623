// Second derivatives of a loss, against finite differences of its first ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"
#include "operators/operators.h"
#include "tests/nn/models.h"

namespace mx::test {

/// Compares the derivatives of a weighed sum of all first derivatives with respect to every element of the
/// leaves, which are f64. `loss` computes one number, the same each time. Returns false if no first
/// derivative depends on a leaf.
inline bool expect_second_derivatives(const std::vector<NDArray>& leaves,
                                      const std::function<NDArray()>& loss) {
  const auto weighed = [&](bool create_graph) {
    const std::vector<NDArray> first =
        gradients({loss()}, leaves, {.create_graph = create_graph, .allow_unused = true});
    NDArray total = zeros({}, f64);
    for (size_t i = 0; i < first.size(); ++i)
      if (first[i].defined())
        total = total +
                sum(first[i] * (inputs(first[i].shape(), f64) * (1 + 0.3 * static_cast<double>(i)) + 0.1));
    return total;
  };
  const NDArray total = weighed(true);
  if (!total.requires_grad()) return false;
  const std::vector<NDArray> second = gradients({total}, leaves, {.allow_unused = true});
  for (size_t k = 0; k < leaves.size(); ++k) {
    NDArray flat;
    {
      const NoGrad pause;
      flat = leaves[k].detach().reshape({-1});
    }
    const std::vector<double> found = second[k].defined()
                                          ? second[k].to_vector<double>()
                                          : std::vector<double>(static_cast<size_t>(flat.numel()), 0.0);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      constexpr double kStep = 1e-5;
      const auto moved = [&](double change) {
        const NoGrad pause;
        NDArray element = flat[i];
        element += change;
      };
      moved(kStep);
      const double above = weighed(false).item<double>();
      moved(-2 * kStep);
      const double below = weighed(false).item<double>();
      moved(kStep);
      const double want = (above - below) / (2 * kStep), got = found[static_cast<size_t>(i)];
      EXPECT_NEAR(want, got, 1e-5 * (1 + std::abs(got))) << "array " << k << ", element " << i;
    }
  }
  return true;
}

}  // namespace mx::test
