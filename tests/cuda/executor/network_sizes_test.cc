// The CUDA kernels of network operators with shapes that the samples do not have: many rows, tails, empty
// segments and matrices, and wrong offsets, which must not lead out of an array.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "operators/distance_attrs.h"
#include "operators/elementwise_binary.h"
#include "operators/products.h"
#include "operators/recurrent.h"
#include "operators/rotary.h"
#include "operators/row_sparse_attrs.h"
#include "operators/segment_attrs.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"
#include "operators/sparse_attrs.h"
#include "tests/cuda/executor/kernel_cases.h"
#include "tests/support/errors.h"

namespace mx::test {
namespace {

using CudaNetworkSizes = SizesTest;

/// Ascending offsets from 0 to n; some segments are empty.
NDArray offsets_to(int64_t n, int64_t segments) {
  const NDArray inner = sort(Generator(9).randint(0, n + 1, {segments - 1}));
  return concat({zeros({1}, i64), inner, full({1}, n, i64)});
}

TEST_F(CudaNetworkSizes, Segments) {
  for (const DType type : {f32, bf16}) {
    for (const Shape& shape : {Shape{2000}, Shape{300, 40}, Shape{90, 3, 2}, Shape{0, 4}, Shape{7, 0}}) {
      const NDArray x = numbers(shape).to(type), offsets = offsets_to(shape[0], 9);
      for (const char* name :
           {"segment_sum", "segment_mean", "segment_max", "segment_min", "segment_softmax"})
        expect_same(name, {}, {x, offsets});
      Shape few = shape;
      few[0] = 9;
      expect_same("segment_expand", detail::ExpandAttrs{shape[0]}, {numbers(few).to(type), offsets});
      if (kThreadSanitizer) return;
    }
  }
  expect_same("segment_offsets", detail::OffsetsAttrs{50}, {sort(labels({700}, 50))});
  expect_same("segment_offsets", detail::OffsetsAttrs{0}, {zeros({0}, i64)});
}

TEST_F(CudaNetworkSizes, SparseMatrices) {
  for (const int64_t n : {1, 40}) {
    const NDArray columns = labels({500}, 30), pointers = offsets_to(500, 60), values = numbers({500});
    expect_same("csr_matmul", detail::CsrAttrs{false, 0}, {values, columns, pointers, numbers({30, n})});
    if (kThreadSanitizer) return;
    expect_same("csr_matmul", detail::CsrAttrs{true, 30}, {values, columns, pointers, numbers({60, n})});
    expect_same("csr_sample", {}, {numbers({60, n}), numbers({30, n}), columns, pointers});
  }
  const NDArray none = zeros({0}, i64), empty = zeros({4}, i64);
  expect_same("csr_matmul", detail::CsrAttrs{false, 0}, {zeros({0}), none, empty, numbers({5, 2})});
  expect_same("csr_matmul", detail::CsrAttrs{true, 4}, {zeros({0}), none, empty, numbers({3, 2})});
  expect_same("csr_sample", {}, {numbers({3, 2}), numbers({5, 2}), none, empty});
}

TEST_F(CudaNetworkSizes, RowSparseSums) {
  for (const DType type : {f32, f16}) {
    expect_same("sum_rows", detail::SumRowsAttrs{20, 3}, {labels({600}, 21), numbers({600, 9}).to(type)});
    if (kThreadSanitizer) return;
    expect_same("sum_rows", detail::SumRowsAttrs{100000, -1}, {labels({300}, 100000), numbers({300, 1})});
    expect_same("sum_rows", detail::SumRowsAttrs{5, -1}, {full({10}, 5, i64), numbers({10, 2}).to(type)});
    expect_same("sum_rows", detail::SumRowsAttrs{5, -1}, {zeros({0}, i64), zeros({0, 2}, type)});
    expect_same("sum_rows", detail::SumRowsAttrs{5, -1}, {labels({6}, 5), zeros({6, 0}, type)});
  }
}

TEST_F(CudaNetworkSizes, PutRowsWritesTheRowsThatExist) {
  std::vector<float> target(12, 1), values{5, 6, 7, 8, 9, 10};
  std::vector<int64_t> rows{1, 4, 6};  // 6 stands for no row
  const Tensor in[] = {{rows.data(), i64, {3}, {1}}, {values.data(), f32, {3, 2}, {2, 1}}},
               out[] = {{target.data(), f32, {6, 2}, {2, 1}}};
  kernels_on_host().at("put_rows")({.in = in, .out = out});
  EXPECT_EQ((std::vector<float>{1, 1, 5, 6, 1, 1, 1, 1, 7, 8, 1, 1}), target);
  rows[1] = -1;
  expect_error<InvalidArgument>("[put_rows] expected rows from 0 to 5, got -1 at 1",
                                [&] { kernels_on_host().at("put_rows")({.in = in, .out = out}); });
}

TEST_F(CudaNetworkSizes, RecurrentLayers) {
  const int64_t hidden = 35;
  struct Layer {
    const char* name;
    int64_t gates;
  };
  for (const Layer& layer : {Layer{"rnn", 1}, Layer{"lstm", 4}, Layer{"gru", 3}}) {
    for (const bool packed : {false, true}) {
      const std::vector<int64_t> sizes = packed ? std::vector<int64_t>{9, 9, 4, 1} : std::vector<int64_t>{};
      const int64_t width = layer.gates * hidden, batch = packed ? 9 : 12;
      const Shape rows = packed ? Shape{23, width} : Shape{3, batch, width};
      std::vector<NDArray> inputs{numbers(rows), numbers({width, hidden}) * 0.2, numbers({batch, hidden})};
      if (layer.gates == 4) inputs.push_back(numbers({batch, hidden}));
      if (layer.gates == 3) inputs.push_back(numbers({width}));
      for (const bool reverse : {false, true}) {
        Attrs attrs = RecurrentAttrs{.reverse = reverse, .batch_sizes = sizes};
        if (layer.gates == 1) attrs = RnnAttrs{.reverse = reverse, .batch_sizes = sizes};
        expect_same(layer.name, attrs, inputs);
        if (kThreadSanitizer) return;
        const std::vector<NDArray> y = call(*find_operator(layer.name), attrs, inputs);
        std::vector<NDArray> back{numbers(y[0].shape()), inputs[1]};
        if (layer.gates == 4) back.insert(back.end(), {y[1], y[2], inputs[3], numbers(y[0].shape())});
        if (layer.gates == 3) back.insert(back.end(), {y[0], y[1], inputs[2]});
        if (layer.gates == 1) back.push_back(y[0]);
        expect_same((std::string(layer.name) + "_backward").c_str(), attrs, back);
      }
    }
  }
  expect_same("rnn", RnnAttrs{}, {zeros({2, 0, 3}), numbers({3, 3}), zeros({0, 3})});
  expect_same("rnn_backward", RnnAttrs{}, {zeros({2, 0, 3}), numbers({3, 3}), zeros({2, 0, 3})});
}

TEST_F(CudaNetworkSizes, RecurrentLayersWithoutGradients) {
  struct Layer {
    const char* name;
    int64_t gates;
  };
  const auto expect_layer = [](const Layer& layer, int64_t inputs, int64_t hidden,
                               const std::vector<int64_t>& sizes, bool reverse, DType type) {
    const int64_t width = layer.gates * hidden, batch = sizes.empty() ? 12 : sizes[0];
    const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const Shape x = sizes.empty() ? Shape{3, batch, inputs} : Shape{rows, inputs};
    std::vector<NDArray> operands{numbers(x, type), (numbers({width, inputs}) * 0.2).to(type),
                                  (numbers({width, hidden}) * 0.2).to(type), numbers({batch, hidden}, type)};
    if (layer.gates == 4) operands.push_back(numbers({batch, hidden}, type));
    operands.push_back(numbers({width}, type));
    if (layer.gates == 3) operands.push_back(numbers({width}, type));
    const std::string name = std::string(layer.name) + "_inference";
    if (layer.gates == 1)
      expect_same(name.c_str(), RnnAttrs{.reverse = reverse, .batch_sizes = sizes}, operands);
    else
      expect_same(name.c_str(), RecurrentAttrs{reverse, sizes}, operands);
  };
  for (const Layer& layer : {Layer{"rnn", 1}, Layer{"lstm", 4}, Layer{"gru", 3}}) {
    for (const bool reverse : {false, true}) {
      for (const DType type : {f32, bf16}) {
        expect_layer(layer, 19, 35, {}, reverse, type);
        if (kThreadSanitizer) return;
        expect_layer(layer, 19, 35, {9, 9, 4, 1}, reverse, type);
      }
      // Several groups of steps, the last one shorter. A step of the second sequence is larger than a group.
      if (kSlow || layer.gates != 4) continue;
      expect_layer(layer, 1, 1, {200'000, 190'000, 180'000}, reverse, f64);
      expect_layer(layer, 1, 1, {530'000, 7}, reverse, f64);
    }
    expect_layer(layer, 0, 3, {}, false, f32);
  }
  expect_same("rnn_inference", RnnAttrs{},
              {zeros({2, 0, 3}), numbers({3, 3}), numbers({3, 3}), zeros({0, 3})});
}

TEST_F(CudaNetworkSizes, RotaryEmbeddings) {
  for (const DType type : {f32, f64, bf16}) {
    expect_same("rotary_embedding", RotaryAttrs{.offset = 3000}, {numbers({5, 70, 8}).to(type)});
    if (kThreadSanitizer) return;
    expect_same("rotary_embedding", RotaryAttrs{.dims = 6, .interleaved = true},
                {numbers({2, 9, 9}).to(type)});
    expect_same("rotary_embedding", RotaryAttrs{}, {zeros({0, 4}).to(type)});
    expect_same("rotary_embedding", RotaryAttrs{}, {zeros({4, 0}).to(type)});
  }
}

TEST_F(CudaNetworkSizes, Distances) {
  expect_same("euclidean", {}, {numbers({50, 37}), numbers({21, 37})});
  if (kThreadSanitizer) return;
  expect_same("euclidean", {}, {numbers({3, 1, 5, 16}), numbers({2, 18, 16})});
  expect_same("euclidean", {}, {numbers({5, 0}), numbers({7, 0})});
  expect_same("euclidean", {}, {numbers({0, 3}), numbers({7, 3})});
  const NDArray a = numbers({2, 1, 35, 37}), b = numbers({3, 21, 37}) * 0.7;
  for (const double p : {0., 1., 2., 2.5, std::numeric_limits<double>::infinity()}) {
    const detail::DistanceAttrs order{p};
    expect_same("minkowski", order, {a, b});
    const NDArray y = cdist(a, b, p);
    expect_same("distance_backward", order, {numbers(y.shape()), a, b, y});
    expect_same("distance_backward", order, {zeros({0, 3}), zeros({0, 2}), zeros({3, 2}), zeros({0, 3})});
    expect_same("distance_backward", order, {zeros({3, 0}), zeros({3, 2}), zeros({0, 2}), zeros({3, 0})});
  }
}

}  // namespace
}  // namespace mx::test
