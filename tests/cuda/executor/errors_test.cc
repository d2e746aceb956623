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

TEST_F(CudaKernelErrors, OfManyBadValuesTheFirstOneIsNamed) {
  const Operator& op = *find_operator("take");
  const NDArray values = zeros({7});
  NDArray indices = arange(0, 5000, 1, i64) + 7;
  indices.slice(0, Slice{0, 3}).fill_(1);
  const Attrs attrs(detail::TakeAttrs{0, "raise"});
  const std::string expected = refusal_of(op, attrs, {values, indices});
  EXPECT_NE(std::string::npos, expected.find("10")) << expected;
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::reverse, ThreadOrder::shuffled}) {
    if (kThreadSanitizer) break;
    executor_options() = {order, 3};
    EXPECT_EQ(expected, refusal_of(on_host(op), attrs, {values, indices}));
  }
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

TEST_F(CudaKernelErrors, IndicesAreCheckedWhetherOrNotAnElementIsReadAtThem) {
  using detail::EmbeddingGradientAttrs, detail::GatherAttrs, detail::TakeAttrs, detail::UpdateAttrs;
  const auto compare = [](const char* name, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    const Operator& op = *find_operator(name);
    const std::string expected = refusal_of(op, attrs, inputs);
    EXPECT_NE("", expected) << name;
    EXPECT_EQ(expected, refusal_of(on_host(op), attrs, inputs));
  };
  const NDArray two = array<int64_t>({1, 2}), far = array<int64_t>({1, 200});
  compare("take", TakeAttrs{0, "raise"}, {zeros({3, 0}), far});
  for (const char* mode : {"raise", "wrap"}) compare("take", TakeAttrs{0, mode}, {zeros({0, 3}), two});
  compare("embedding", detail::EmbeddingAttrs{-1, false, true}, {zeros({0, 3}), two});
  compare("gather", GatherAttrs{0}, {zeros({0, 3}), zeros({1, 3}, i64)});
  compare("scatter", UpdateAttrs{0, "add"}, {zeros({0, 3}), zeros({1, 3}, i64), zeros({1, 3})});
  compare("index_update", UpdateAttrs{0, "add"}, {zeros({0, 3}), two, zeros({2, 3})});
  compare("index_update", UpdateAttrs{0, "add"}, {zeros({3, 0}), far, zeros({2, 0})});
  compare("embedding_gradient", EmbeddingGradientAttrs{5, -1}, {far, zeros({2, 0})});
  compare("masked_scatter", {}, {zeros({4}), array({1.f, 0.f, 1.f, 1.f}).to(bool_), zeros({2})});
  compare("masked_scatter", {}, {zeros({4}), array({1.f, 0.f, 1.f, 1.f}).to(bool_), zeros({0})});
}

TEST_F(CudaKernelErrors, ThePlaceOfABadIndexDoesNotDependOnTheLayoutOfTheResult) {
  const auto compare = [](const char* name, const Attrs& attrs, const std::vector<NDArray>& inputs,
                          const Shape& turned) {
    const Operator& op = *find_operator(name);
    std::string errors[2];
    for (const bool host : {false, true}) try {
        NDArray result = zeros(turned).transpose();
        call_into(result, host ? on_host(op) : op, attrs, inputs);
        result.wait();
      } catch (const InvalidArgument& e) {
        errors[host ? 1 : 0] = e.what();
      }
    EXPECT_NE("", errors[0]) << name;
    EXPECT_EQ(errors[0], errors[1]);
  };
  const NDArray indices = array<int64_t>({0, 1, 2, 3, 9, 1}).reshape({2, 3});
  compare("gather", detail::GatherAttrs{1}, {zeros({2, 4}), indices}, {3, 2});
  compare("take", detail::TakeAttrs{0, "raise"}, {zeros({3, 4}), array<int64_t>({0, 1, 77})}, {4, 3});
  compare("take", detail::TakeAttrs{1, "raise"}, {zeros({3, 4}), array<int64_t>({0, 55, 77})}, {3, 3});
}

}  // namespace
}  // namespace mx::test
