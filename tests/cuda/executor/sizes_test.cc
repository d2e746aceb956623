// Shapes that the samples of the registry do not have: rows of every kind of thread group, with tails;
// reductions in several parts; the largest rank; and arrays without elements.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/indexing_records.h"
#include "operators/loss.h"
#include "operators/norm.h"
#include "operators/reduce.h"
#include "operators/scan.h"
#include "operators/softmax.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {
namespace {

using CudaSizes = SizesTest;

TEST_F(CudaSizes, RowsOfEveryLength) {
  const std::vector<int64_t> lengths{1, 7, 9, 31, 33, 255, 1024, 1025, 1500}, few{33, 1025};
  for (const int64_t n : kThreadSanitizer ? few : lengths) {
    const NDArray x = numbers({3, n}), dy = numbers({3, n});
    for (const char* name : {"softmax", "log_softmax"}) expect_same(name, SoftmaxAttrs{1}, {x});
    for (const char* name : {"softmax_backward", "log_softmax_backward"})
      expect_same(name, SoftmaxAttrs{1}, {dy, x});
    expect_same("layer_norm", LayerNormAttrs{1, 1e-5}, {x});
    expect_same("cumsum", ScanAttrs{1, false, false}, {x});
    expect_same("logcumsumexp", ScanAttrs{1, true, true}, {x});
    expect_same("cross_entropy", CrossEntropyAttrs{}, {x, labels({3}, n)});
    expect_same("sum", TotalAttrs{{1}}, {x});
    expect_same("argmax", ReduceAttrs{{1}}, {x});
    expect_same("var", VarianceAttrs{{1}, 0}, {x});
    expect_same("logsumexp", ReduceAttrs{{1}}, {x});
  }
}

TEST_F(CudaSizes, ReductionsInParts) {
  for (const DType type : {f32, bf16, i32}) {
    if (kThreadSanitizer && type != f32) break;
    const NDArray x = (numbers({70000}) * 4).to(type);
    for (const char* name : {"sum", "mean"}) expect_same(name, TotalAttrs{}, {x});
    for (const char* name : {"max", "argmin", "count_nonzero", "all"}) expect_same(name, ReduceAttrs{}, {x});
    expect_same("stddev", VarianceAttrs{}, {x});
    // Columns, which have a thread each.
    const NDArray columns = x.reshape({1750, 40});
    expect_same("sum", TotalAttrs{{0}}, {columns});
    expect_same("max", ReduceAttrs{{0}}, {columns});
    expect_same("argmax", ReduceAttrs{{0}}, {columns});
  }
}

TEST_F(CudaSizes, TheLargestRank) {
  const Shape shape{2, 1, 2, 3, 1, 2, 1, 2, 1, 2, 1, 2};
  ASSERT_EQ(kMaxRank, shape.rank());
  Shape axes;
  for (int d = kMaxRank - 1; d >= 0; --d) axes.push_back(d);
  const NDArray x = numbers(shape).transpose(axes);
  expect_same("sum", TotalAttrs{{1, 3, 8}}, {x});
  expect_same("softmax", SoftmaxAttrs{8}, {x});
  expect_same("cumsum", ScanAttrs{8, false, false}, {x});
  expect_same("take", detail::TakeAttrs{8, "wrap"}, {x, labels({4}, 100)});
}

TEST_F(CudaSizes, NoElements) {
  for (const Shape& shape : {Shape{0, 4}, Shape{4, 0}}) {
    const NDArray x = zeros(shape);
    expect_same("softmax", SoftmaxAttrs{1}, {x});
    expect_same("sum", TotalAttrs{{1}}, {x});
    expect_same("mean", TotalAttrs{{0}}, {x});
    expect_same("all", ReduceAttrs{{0}}, {x});
    expect_same("var", VarianceAttrs{{1}, 1}, {x});
    expect_same("cumsum", ScanAttrs{0, false, false}, {x});
    expect_same("layer_norm", LayerNormAttrs{1, 1e-5}, {x});
  }
  expect_same("cross_entropy", CrossEntropyAttrs{}, {zeros({0, 4}), zeros({0}, i64)});
  expect_same("batch_norm", BatchNormAttrs{}, {zeros({0, 3, 2})});
  expect_same("layer_norm_backward", LayerNormBackwardAttrs{1, true},
              {zeros({0, 4}), zeros({0, 4}), zeros({0}), zeros({0})});
  expect_same("take", detail::TakeAttrs{0, "raise"}, {zeros({3, 2}), zeros({0}, i64)});
  expect_same("embedding_gradient", detail::EmbeddingGradientAttrs{5, -1}, {zeros({0}, i64), zeros({0, 3})});
}

TEST_F(CudaSizes, NormalisationsOfManyRows) {
  const NDArray x = numbers({300, 40}) + 100, dy = numbers({300, 40}), mean = numbers({300}),
                rstd = numbers({300}) + 3;
  expect_same("layer_norm", LayerNormAttrs{1, 1e-5}, {x, numbers({40}), numbers({40})});
  expect_same("layer_norm_backward", LayerNormBackwardAttrs{1, true}, {dy, x, mean, rstd, numbers({40})});
  expect_same("rms_norm_backward", LayerNormBackwardAttrs{1, true}, {dy, x, rstd, numbers({40})});
  const NDArray image = numbers({3, 4, 50, 7}) * 2 + 10, head = numbers({3, 4, 50, 7});
  expect_same("batch_norm", BatchNormAttrs{}, {image, numbers({4}), numbers({4})});
  expect_same("batch_norm_backward", BatchNormBackwardAttrs{true},
              {head, image, numbers({4}), numbers({4}) + 3, numbers({4})});
  expect_same("group_norm", GroupNormAttrs{2, 1e-5}, {image, numbers({4}), numbers({4})});
  expect_same("group_norm_backward", GroupNormBackwardAttrs{2, true},
              {head, image, numbers({3, 2}), numbers({3, 2}) + 3, numbers({4})});
  if (kThreadSanitizer) return;
  // So many channels that each has one thread, because their elements are not neighbours.
  const NDArray wide = numbers({9, 8200}) + 3, channels = numbers({8200});
  expect_same("batch_norm", BatchNormAttrs{}, {wide, channels, channels});
  expect_same("batch_norm_backward", BatchNormBackwardAttrs{true},
              {numbers({9, 8200}), wide, channels, channels + 3, channels});
}

TEST_F(CudaSizes, ManyUpdatesOfOnePlace) {
  const NDArray rows = labels({1000}, 7);
  for (const DType type : {f32, f16, i32}) {
    if (kThreadSanitizer && type != f32) break;
    const NDArray head = (numbers({1000, 5}) * 3).to(type);
    expect_same("embedding_gradient", detail::EmbeddingGradientAttrs{7, 2}, {rows, head});
    for (const char* how : {"set", "add", "max"})
      expect_same("index_update", detail::UpdateAttrs{0, how}, {numbers({7, 5}).to(type), rows, head});
    expect_same("scatter", detail::UpdateAttrs{1, "add"},
                {numbers({5, 7}).to(type), labels({5, 300}, 7), numbers({5, 300}).to(type)});
    expect_same(
        "put_nd", detail::PutNdAttrs{{0, 2}, 0, "mul"},
        {numbers({4, 2, 3}).to(type), numbers({20, 30, 2}).to(type), labels({20, 1}, 4), labels({1, 30}, 3)});
    expect_same("put_nd", detail::PutNdAttrs{{0}, 0, "min"},
                {numbers({1, 2}).to(type), numbers({400, 2}).to(type), labels({400}, 1)});
  }
}

}  // namespace
}  // namespace mx::test
