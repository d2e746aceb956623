// The CUDA kernels of selections and of random numbers with shapes that the samples do not have.
#include <gtest/gtest.h>

#include <vector>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing_records.h"
#include "operators/random_records.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {
namespace {

using CudaSelectionSizes = SizesTest;

NDArray key_at(int64_t offset) { return array<int64_t>({77, offset}); }

TEST_F(CudaSelectionSizes, Masks) {
  for (const Shape& shape : {Shape{3000}, Shape{3, 2, 4, 1, 5, 2}, Shape{1}, Shape{0, 3}}) {
    const NDArray x = numbers(shape), mask = numbers(shape) > 0.3;
    const int64_t count = sum(mask.to(i64)).item<int64_t>();
    expect_same("mask_count", {}, {mask});
    expect_same("mask_count", {}, {x});
    expect_same("argwhere", detail::CountAttrs{count}, {mask});
    expect_same("masked_select", detail::CountAttrs{count}, {x, mask});
    expect_same("masked_scatter", {}, {x, mask, numbers({count + 3})});
    if (kThreadSanitizer) return;
  }
  expect_same("masked_select", detail::CountAttrs{0}, {numbers({40}), numbers({40}) > 100});
  expect_same("argwhere", detail::CountAttrs{1}, {numbers({})});
  // A count that is larger than that of the mask, which the CPU refuses, leaves zeros.
  const NDArray mask = array({1.f, 0.f, 1.f}) != 0;
  const NDArray some =
      call(on_host(*find_operator("masked_select")), detail::CountAttrs{3}, array({5.f, 6.f, 7.f}), mask);
  EXPECT_EQ(content_of(array({5.f, 7.f, 0.f})), content_of(some));
}

TEST_F(CudaSelectionSizes, PermutationsHaveTheValuesOfTheCpu) {
  for (const int64_t n : {0, 1, 2, 3, 10, 257, 3000}) {
    if (kThreadSanitizer && n > 10) break;
    for (const int64_t offset : {0, 5}) expect_same("permutation", detail::KeyAttrs{n}, {key_at(offset)});
  }
}

TEST_F(CudaSelectionSizes, DrawsHaveTheValuesOfTheCpu) {
  const NDArray weights = exp(numbers({3, 700}));
  for (const int64_t offset : {0, 3}) {
    expect_same("categorical", detail::CategoricalAttrs{50, false}, {weights, key_at(offset)});
    if (kThreadSanitizer) return;
    expect_same("categorical", detail::CategoricalAttrs{50, true}, {numbers({2, 1, 300}), key_at(offset)});
    for (const double mean : {0.0, 2.5, 40.0})
      expect_same("poisson", detail::FillAttrs{{200}, i64, mean, 0}, {key_at(offset)});
    for (const double p : {0.0, 0.02, 0.4, 0.9, 1.0})
      expect_same("binomial", detail::FillAttrs{{200}, i64, 60, p}, {key_at(offset)});
    for (const double shape : {0.3, 1.0, 20.0})
      expect_same("gamma", detail::FillAttrs{{200}, f64, shape, 2}, {key_at(offset)});
  }
  expect_same("categorical", detail::CategoricalAttrs{0, false}, {weights, key_at(0)});
}

}  // namespace
}  // namespace mx::test
