// CUDA kernels on the executor, compared with the CPU's kernels: the samples of all operators in all types
// and layouts. Threads and blocks run in several orders, and every order must give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/cuda/executor/executor.h"
#include "tests/cuda/executor/kernels_on_host.h"
#include "tests/operators/registry_support.h"

namespace mx::test {
namespace {

/// The operator with the CUDA kernel in place of the CPU's.
Operator on_host(const Operator& op) {
  Operator twin = op;
  twin.kernel.cpu = kernels_on_host().at(op.name());
  return twin;
}

bool has_kernel(const Operator& op) { return kernels_on_host().count(op.name()) != 0; }

std::vector<NDArray> copies(const Operator& op, const Sample& sample) {
  std::vector<NDArray> inputs = sample.inputs;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) inputs[i] = inputs[i].clone();
  return inputs;
}

/// The outputs, followed by the inputs that the operator has updated.
std::vector<NDArray> results_of(const Operator& op, const Sample& sample) {
  std::vector<NDArray> inputs = copies(op, sample);
  std::vector<NDArray> results = call(op, sample.attrs, inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_updated(op, i)) results.push_back(inputs[i]);
  return results;
}

double tolerance_of(DType type) {
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
void expect_close(const NDArray& expected, const NDArray& got, DType type) {
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
                      std::abs(x[i] - y[i]) <= relative * (std::abs(x[i]) + 0.1 * largest + 1e-30);
    EXPECT_TRUE(same) << "element " << i << ": expected " << x[i] << ", got " << y[i];
    if (!same && ++shown == 5) break;
  }
}

class CudaKernels : public ::testing::Test {
 protected:
  ~CudaKernels() override { executor_options() = {}; }

 private:
  static EngineOptions naive() {
    EngineOptions options;
    options.mode = EngineMode::naive;
    return options;
  }
  // Runs operations in the calling thread, which has the executor's options.
  Engine engine_{naive()};
  EngineScope scope_{engine_};
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

/// Calls f(op, sample) for the samples of the operators with a CUDA kernel, in all types.
template <class F>
void for_each_kernel_sample(const F& f) {
  int kernels = 0;
  for (const Operator* op : all_operators()) {
    if (!has_kernel(*op) || !has_samples(*op)) continue;
    ++kernels;
    std::vector<DType> dtypes = dtypes_of(*op);
    if (kSlow && dtypes.size() > 2) dtypes = {dtypes.front(), dtypes[dtypes.size() / 2]};
    for (const Sample& sample : samples_of(*op)) {
      if (op->sized_by_values) dtypes = {sample.inputs[0].dtype()};
      for (const DType dtype : dtypes) {
        const Sample typed = op->sized_by_values ? sample : as_dtype(*op, sample, dtype);
        SCOPED_TRACE(label(*op, typed));
        f(*op, typed, dtype);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(kernels, 0);
}

TEST_F(CudaKernels, SamplesGiveTheResultsOfTheCpu) {
  for_each_kernel_sample([](const Operator& op, const Sample& sample, DType dtype) {
    const std::vector<NDArray> expected = results_of(op, sample), got = results_of(on_host(op), sample);
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) expect_close(expected[i], got[i], dtype);
  });
}

TEST_F(CudaKernels, EveryOrderOfThreadsGivesTheSameBits) {
  for_each_kernel_sample([](const Operator& op, const Sample& sample, DType dtype) {
    if (dtype != dtypes_of(op).front() && dtype != bf16) return;
    const Operator twin = on_host(op);
    executor_options() = {};
    const std::vector<Content> expected = outcome(twin, sample.attrs, sample.inputs);
    for (const ExecutorOptions& options :
         {ExecutorOptions{ThreadOrder::reverse}, ExecutorOptions{ThreadOrder::shuffled, 1},
          ExecutorOptions{ThreadOrder::shuffled, 2}, ExecutorOptions{ThreadOrder::shuffled, 3}}) {
      executor_options() = options;
      EXPECT_EQ(expected, outcome(twin, sample.attrs, sample.inputs));
      if (kSlow) break;
    }
    executor_options() = {};
  });
}

TEST_F(CudaKernels, LayoutsDoNotMatter) {
  for_each_kernel_sample([](const Operator& op, const Sample& sample, DType dtype) {
    if (kSlow && dtype != dtypes_of(op).front()) return;
    const Operator twin = on_host(op);
    for (const Layout layout : kAllLayouts) {
      if ((op.sized_by_values || op.partial) && layout == Layout::broadcast) continue;
      Sample other = sample, plain = sample;
      for (size_t i = 0; i < sample.inputs.size(); ++i) {
        if (is_updated(op, i)) continue;
        other.inputs[i] = laid_out(sample.inputs[i], layout);
        plain.inputs[i] = other.inputs[i].clone();
      }
      const std::vector<NDArray> expected = results_of(op, plain), got = results_of(twin, other);
      for (size_t i = 0; i < got.size(); ++i) expect_close(expected[i], got[i], dtype);
      // The result in another layout, too.
      if (expected.size() != 1 || layout == Layout::broadcast || op.updates != 0) continue;
      NDArray out = laid_out(empty_like(expected[0]), layout);
      call_into(out, twin, sample.attrs, sample.inputs);
      expect_close(call(op, sample.attrs, sample.inputs)[0], out, dtype);
    }
  });
}

TEST_F(CudaKernels, ResultsMayTakeTheMemoryOfAnInput) {
  for_each_kernel_sample([](const Operator& op, const Sample& sample, DType dtype) {
    const std::vector<NDArray> expected = results_of(op, sample);
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      const NDArray& input = sample.inputs[i];
      if (!has_bit(op.in_place, i) || expected.size() != 1 || expected[0].shape() != input.shape() ||
          expected[0].dtype() != input.dtype())
        continue;
      std::vector<NDArray> inputs = sample.inputs;
      inputs[i] = input.clone();
      NDArray out = inputs[i];
      call_into(out, on_host(op), sample.attrs, inputs);
      expect_close(expected[0], out, dtype);
    }
  });
}

}  // namespace
}  // namespace mx::test
