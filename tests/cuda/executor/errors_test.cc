// Errors in the values of arrays: CUDA kernels on the executor give the CPU's messages.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "operators/indexing_records.h"
#include "tests/cuda/bad_values.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {
namespace {

using CudaKernelErrors = KernelTest;

TEST_F(CudaKernelErrors, ABadValueGivesTheMessageOfTheCpuInEveryOrderOfThreads) {
  std::map<std::string, int> refused;
  for_each_bad_value([&](const Operator& op, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    const std::string expected = refusal_of(op, attrs, inputs);
    refused[op.name()] += expected.empty() ? 0 : 1;
    if (kThreadSanitizer && refused[op.name()] > 2) return;
    for (const ExecutorOptions& options : {ExecutorOptions{}, ExecutorOptions{ThreadOrder::reverse},
                                           ExecutorOptions{ThreadOrder::shuffled, 1}}) {
      executor_options() = options;
      EXPECT_EQ(expected, refusal_of(on_host(op), attrs, inputs));
    }
  });
  for (const char* name : kRefusingOperators) EXPECT_GT(refused[name], 0) << name;
}

TEST_F(CudaKernelErrors, MatricesAndWeightsThatTheCpuRefusesGiveItsMessage) {
  int seen = 0;
  for_each_bad_matrix([&](const Operator& op, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    if (kThreadSanitizer && ++seen > 8) return;
    const std::string expected = refusal_of(op, attrs, inputs);
    EXPECT_NE("", expected) << op.name();
    for (const ExecutorOptions& options : {ExecutorOptions{}, ExecutorOptions{ThreadOrder::shuffled, 1}}) {
      executor_options() = options;
      EXPECT_EQ(expected, refusal_of(on_host(op), attrs, inputs));
    }
  });
}

TEST_F(CudaKernelErrors, NegativeIndicesOfAnEmbeddingAreErrorsIfTheyDoNotCountFromTheEnd) {
  const Operator& op = *find_operator("embedding");
  const NDArray table = uniform(0, 1, {4, 3}), indices = array<int64_t>({0, -1, 3});
  for (const bool from_end : {true, false}) {
    const Attrs attrs(detail::EmbeddingAttrs{-1, false, from_end});
    const std::string expected = refusal_of(op, attrs, {table, indices});
    EXPECT_EQ(expected.empty(), from_end);
    EXPECT_EQ(expected, refusal_of(on_host(op), attrs, {table, indices}));
  }
}

}  // namespace
}  // namespace mx::test
