#include "operators/sparse.h"
#include "operators/segment.h"

#include "operators/samples/table.h"

namespace mx::detail {
namespace {

// (4, 3); row 1 is empty, row 3 has column 1 twice.
NDArray csr_columns() { return array<int64_t>({0, 2, 1, 1, 1}); }
NDArray csr_pointers() { return array<int64_t>({0, 2, 2, 3, 5}); }
NDArray csr_values() { return array({1.5f, -2.f, 0.25f, 3.f, -0.5f}); }
NDArray dense_columns() { return array({{0.5f, -1.f}, {2.f, 0.25f}, {-0.75f, 1.25f}}); }
NDArray dense_rows() { return array({{1.f, -0.5f}, {0.25f, 2.f}, {-1.5f, 0.75f}, {0.125f, 1.f}}); }

std::vector<Sample> samples_csr_matmul() {
  const auto attrs = [](bool transposed, int64_t width) {
    return attrs_of("csr_matmul", {{"transposed", transposed}, {"width", width}});
  };
  return {{{csr_values(), csr_columns(), csr_pointers(), dense_columns()},
           attrs(false, 0),
           "(4, 3) times (3, 2)"},
          {{csr_values(), csr_columns().to(i32), csr_pointers().to(i32), dense_columns()},
           attrs(false, 0),
           "i32"},
          {{csr_values(), csr_columns(), csr_pointers(), dense_rows()}, attrs(true, 3), "transposed"},
          {{csr_values(), csr_columns().to(i32), csr_pointers(), dense_rows()},
           attrs(true, 5),
           "transposed, width=5"}};
}

std::vector<Sample> samples_csr_sample() {
  return {{{dense_rows(), dense_columns(), csr_columns(), csr_pointers()}, {}, "(4, 3) from n=2"},
          {{dense_rows(), dense_columns(), csr_columns().to(i32), csr_pointers()}, {}, "i32"}};
}

NDArray segment_rows() {
  return array({{1.5f, -2.f}, {0.25f, 3.f}, {-0.5f, 2.f}, {1.f, -1.f}, {0.75f, 0.5f}});
}

std::vector<Sample> samples_segment_reduce() {
  return {{{segment_rows(), csr_pointers()}, {}, "(5, 2) in 4 segments"},
          {{segment_rows().select(1, 0), csr_pointers().to(i32)}, {}, "rank 1"},
          {{segment_rows().reshape({5, 1, 2}), array<int64_t>({0, 5})}, {}, "one segment of (5, 1, 2)"}};
}

std::vector<Sample> samples_segment_expand() {
  const auto attrs = [](int64_t n) { return attrs_of("segment_expand", {{"rows", n}}); };
  return {{{dense_rows(), csr_pointers()}, attrs(5), "rows=5"},
          {{dense_rows().select(1, 1), array<int32_t>({0, 0, 1, 2, 6})}, attrs(6), "rows=6 of rank 1"}};
}

std::vector<Sample> samples_segment_offsets() {
  const auto attrs = [](int64_t n) { return attrs_of("segment_offsets", {{"segments", n}}); };
  return {{{array<int64_t>({0, 0, 2, 3, 3})}, attrs(4), "segments=4"},
          {{array<int32_t>({1, 4})}, attrs(6), "segments=6"},
          {{array<int64_t>({2, 2, 2})}, attrs(3), "one segment has all rows"}};
}

std::vector<Sample> samples_sum_rows() {
  const auto attrs = [](int64_t size, int64_t skip_row) {
    return attrs_of("sum_rows", {{"size", size}, {"skip_row", skip_row}});
  };
  const NDArray indices = array<int64_t>({3, 0, 3, -1, 4}), values = segment_rows();
  return {{{indices, values}, attrs(4, -1), "size=4"},
          {{indices.to(i32), values.transpose().to_contiguous().transpose()}, attrs(6, 3), "skip_row=3"}};
}

}  // namespace

void add_sparse_samples(SampleTable& table) {
  table["csr_matmul"] = samples_csr_matmul;
  table["csr_sample"] = samples_csr_sample;
  for (const char* name : {"segment_sum", "segment_mean", "segment_max", "segment_min", "segment_softmax"})
    table[name] = samples_segment_reduce;
  table["sum_rows"] = samples_sum_rows;
  table["segment_expand"] = samples_segment_expand;
  table["segment_offsets"] = samples_segment_offsets;
}

}  // namespace mx::detail
