// CUDA kernels on the executor, compared with the CPU's kernels: the samples of all operators in all types
// and layouts. Threads and blocks run in several orders, and every order must give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cuda/comparable.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {
namespace {

using CudaKernels = KernelTest;

/// Calls f(op, sample) for the samples of the operators with a CUDA kernel, in all types.
template <class F>
void for_each_kernel_sample(const F& f) {
  int kernels = 0;
  for (const Operator* op : all_operators()) {
    if (!has_kernel(*op) || !has_samples(*op)) continue;
    // The C library's lgamma() writes the sign to a variable that all threads share.
    if (kThreadSanitizer && std::string(op->name()) == "lgamma") continue;
    ++kernels;
    std::vector<DType> dtypes = dtypes_of(*op);
    if (kSlow && dtypes.size() > 2) dtypes = {dtypes.front(), dtypes[dtypes.size() / 2]};
    std::vector<Sample> samples = samples_of(*op);
    if (kThreadSanitizer) {
      dtypes.resize(1);
      samples.resize(std::min<size_t>(samples.size(), 2));
    }
    for (const Sample& sample : samples) {
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
  if (kThreadSanitizer) GTEST_SKIP() << "the next test runs the same kernels";
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
      if (kThreadSanitizer) break;
    }
    executor_options() = {};
  });
}

TEST_F(CudaKernels, LayoutsDoNotMatter) {
  if (kThreadSanitizer) GTEST_SKIP() << "too slow under ThreadSanitizer";
  for_each_kernel_sample([](const Operator& op, const Sample& sample, DType dtype) {
    if (kSlow && dtype != dtypes_of(op).front()) return;
    const Operator twin = on_host(op);
    for (const Layout layout : kAllLayouts) {
      if (!is_comparable(op, layout)) continue;
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
      NDArray out = laid_out(zeros_like(expected[0]), layout);
      call_into(out, twin, sample.attrs, sample.inputs);
      expect_close(call(op, sample.attrs, sample.inputs)[0], out, dtype);
    }
  });
}

TEST_F(CudaKernels, ResultsMayTakeTheMemoryOfAnInput) {
  if (kThreadSanitizer) GTEST_SKIP() << "too slow under ThreadSanitizer";
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
