// Calls of operators with their CUDA kernels on the executor, and the comparison with the CPU's kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "operators/random.h"
#include "tests/cuda/executor/executor.h"
#include "tests/cuda/executor/kernels_on_host.h"
#include "tests/operators/registry_support.h"

namespace mx::test {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;  // each CUDA thread then takes a quarter of a millisecond
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

/// The operator with the CUDA kernel in place of the CPU's.
inline Operator on_host(const Operator& op) {
  Operator twin = op;
  twin.kernel.cpu = kernels_on_host().at(op.name());
  return twin;
}

inline bool has_kernel(const Operator& op) { return kernels_on_host().count(op.name()) != 0; }

inline std::vector<NDArray> copies(const Operator& op, const Sample& sample) {
  std::vector<NDArray> inputs = sample.inputs;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) inputs[i] = inputs[i].clone();
  return inputs;
}

/// The outputs, followed by the inputs that the operator has updated.
inline std::vector<NDArray> results_of(const Operator& op, const Sample& sample) {
  std::vector<NDArray> inputs = copies(op, sample);
  std::vector<NDArray> results = call(op, sample.attrs, inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) results.push_back(inputs[i]);
  return results;
}

inline double tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 2e-5;
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 1.6e-2;
    default:
      return 0;
  }
}

/// `type`: the narrowest type of the computation.
inline void expect_close(const NDArray& expected, const NDArray& got, DType type) {
  ASSERT_EQ(expected.shape(), got.shape());
  ASSERT_EQ(expected.dtype(), got.dtype());
  if (!is_floating(got.dtype())) {
    EXPECT_EQ(content_of(expected), content_of(got));
    return;
  }
  const double relative = std::max(tolerance_of(type), tolerance_of(got.dtype()));
  const auto x = expected.to(f64).to_vector<double>(), y = got.to(f64).to_vector<double>();
  double largest = 0;
  for (const double v : x)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  int shown = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])) ||
                      std::abs(x[i] - y[i]) <= relative * (std::abs(x[i]) + 0.1 * largest + 1e-3);
    EXPECT_TRUE(same) << "element " << i << ": expected " << x[i] << ", got " << y[i];
    if (!same && ++shown == 5) break;
  }
}

/// Runs operations in the calling thread, which has the executor's options.
class KernelTest : public ::testing::Test {
 protected:
  ~KernelTest() override { executor_options() = {}; }

 private:
  static EngineOptions naive() {
    EngineOptions options;
    options.mode = EngineMode::naive;
    return options;
  }
  Engine engine_{naive()};
  EngineScope scope_{engine_};
};

/// Calls with arrays of other sizes than those of the samples.
class SizesTest : public KernelTest {
 protected:
  static void expect_same(const char* name, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    const Operator& op = *find_operator(name);
    const Sample sample{inputs, attrs};
    SCOPED_TRACE(label(op, sample));
    const std::vector<NDArray> expected = results_of(op, sample);
    executor_options() = {};
    const std::vector<NDArray> got = results_of(on_host(op), sample);
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) expect_close(expected[i], got[i], inputs[0].dtype());
    if (kSlow) return;  // the accesses are the same in another order
    executor_options() = {ThreadOrder::reverse};
    const std::vector<NDArray> again = results_of(on_host(op), sample);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(content_of(got[i]), content_of(again[i]));
    executor_options() = {};
  }
  static NDArray numbers(const Shape& shape, DType type = f32) {
    return Generator(7).normal(0, 1, shape).to(type);
  }
  static NDArray labels(const Shape& shape, int64_t below) { return Generator(8).randint(0, below, shape); }
};

}  // namespace mx::test
