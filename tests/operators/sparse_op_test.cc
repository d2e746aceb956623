// Sparse products, segment reductions and SparseCSR against plain loops.
#include "operators/sparse.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/elementwise_binary.h"
#include "operators/matmul.h"
#include "operators/segment.h"
#include "operators/select.h"
#include "operators/softmax.h"
#include "operators/sparse_csr.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"
#include "tests/support/instruction_sets.h"

namespace mx {
namespace {

using test::expect_error;
using test::expect_values;
using test::kInfinity;
using test::kNan;
using test::numbers;
using test::Values;
using test::values;

constexpr DType kSparseTypes[] = {f64, f32, f16, bf16};

/// A matrix with about `per_row` entries in each row but the second, which is empty.
struct RandomCsr {
  std::vector<int64_t> pointers{0}, columns;
  int64_t rows, width;

  RandomCsr(int64_t r, int64_t w, int64_t per_row, uint64_t seed) : rows(r), width(w) {
    std::mt19937_64 engine(seed);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t count = i == 1 || width == 0
                                ? 0
                                : static_cast<int64_t>(engine() % (2 * static_cast<uint64_t>(per_row) + 1));
      for (int64_t k = 0; k < count; ++k)
        columns.push_back(static_cast<int64_t>(engine() % static_cast<uint64_t>(width)));
      pointers.push_back(static_cast<int64_t>(columns.size()));
    }
  }
  NDArray column_array() const { return array(columns); }
  NDArray pointer_array() const { return array(pointers); }
  int64_t entries() const { return static_cast<int64_t>(columns.size()); }
  /// Calls f(row, column, entry) for all entries.
  template <class F>
  void each(const F& f) const {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = pointers[static_cast<size_t>(i)]; k < pointers[static_cast<size_t>(i) + 1]; ++k)
        f(static_cast<size_t>(i), static_cast<size_t>(columns[static_cast<size_t>(k)]),
          static_cast<size_t>(k));
  }
};

TEST(SparseOp, ProductsAgreeWithPlainLoops) {
  for (const DType type : kSparseTypes)
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{16}, int64_t{33}, int64_t{150}}) {
      const RandomCsr a(40, 30, 5, 7);
      const NDArray v = numbers({a.entries()}, type), x = numbers({a.width, n}, type, 2),
                    z = numbers({a.rows, n}, type, 3);
      const Values vs = values(v), xs = values(x), zs = values(z);
      const auto un = static_cast<size_t>(n);
      Values y(static_cast<size_t>(a.rows) * un), t(static_cast<size_t>(a.width) * un), dots(vs.size());
      a.each([&](size_t i, size_t c, size_t k) {
        for (size_t j = 0; j < un; ++j) {
          y[i * un + j] += vs[k] * xs[c * un + j];
          t[c * un + j] += vs[k] * zs[i * un + j];
          dots[k] += zs[i * un + j] * xs[c * un + j];
        }
      });
      const std::string what = mx::detail::concat(type, " n=", n);
      for (const DType index : {i64, i32}) {
        const NDArray columns = a.column_array().to(index), pointers = a.pointer_array().to(index);
        expect_values(y, csr_matmul(v, columns, pointers, x), what + " product", 20);
        expect_values(t, csr_matmul_transposed(v, columns, pointers, z, a.width), what + " transposed", 20);
        expect_values(dots, csr_sample(z, x, columns, pointers), what + " sample",
                      20 + static_cast<double>(n));
      }
      // Other layouts.
      const NDArray apart = x.transpose().clone().transpose();
      expect_values(y, csr_matmul(v, a.column_array(), a.pointer_array(), apart), what + " layout", 20);
    }
}

TEST(SparseOp, AVectorIsAMatrixOfOneColumn) {
  const RandomCsr a(20, 15, 4, 3);
  const NDArray v = numbers({a.entries()}, f64), x = numbers({15}, f64), z = numbers({20}, f64);
  const NDArray y = csr_matmul(v, a.column_array(), a.pointer_array(), x);
  EXPECT_EQ(y.shape(), Shape{20});
  EXPECT_EQ(values(y), values(csr_matmul(v, a.column_array(), a.pointer_array(), x.expand_dims(1))));
  EXPECT_EQ(csr_matmul_transposed(v, a.column_array(), a.pointer_array(), z, 15).shape(), Shape{15});
}

TEST(SparseOp, ResultsDoNotDependOnThreads) {
  const RandomCsr a(3000, 2000, 12, 5);
  const NDArray v = numbers({a.entries()}, f32), x = numbers({a.width, 40}, f32),
                z = numbers({a.rows, 40}, f32);
  const auto all = [&] {
    return std::vector{values(csr_matmul(v, a.column_array(), a.pointer_array(), x)),
                       values(csr_matmul_transposed(v, a.column_array(), a.pointer_array(), z, a.width)),
                       values(csr_sample(z, x, a.column_array(), a.pointer_array()))};
  };
  const auto many = all();
  const SerialLoops alone;
  EXPECT_EQ(many, all());
}

TEST(SparseOp, WrongStructuresAreNamed) {
  const NDArray v = ones({3}), x = ones({4, 2});
  const auto product = [&](std::vector<int64_t> columns, std::vector<int64_t> pointers) {
    csr_matmul(v, array(columns), array(pointers), x).wait();
  };
  expect_error<InvalidArgument>("expected indices from 0 to 3 into axis 1 of size 4, got 4 at position (1,)",
                                [&] {
                                  product({0, 4, 1}, {0, 3});
                                });
  expect_error<InvalidArgument>("got -1", [&] { product({0, -1, 1}, {0, 3}); });
  expect_error<InvalidArgument>("row pointers that ascend, got 2 and then 1 at position 2", [&] {
    product({0, 1, 2}, {0, 2, 1, 3});
  });
  expect_error<InvalidArgument>("begin with 0, got 1", [&] { product({0, 1, 2}, {1, 3}); });
  expect_error<InvalidArgument>("end with the number of entries, 3, got 2", [&] {
    product({0, 1, 2}, {0, 2});
  });
  expect_error<InvalidArgument>("[csr_matmul] expected a value for each of 2 columns", [&] {
    product({0, 1}, {0, 2});
  });
  expect_error<InvalidArgument>("of one floating-point type, got f32 and f64", [&] {
    csr_matmul(v, array<int64_t>({0, 1, 2}), array<int64_t>({0, 3}), x.to(f64));
  });
  expect_error<InvalidArgument>(
      "[csr_matmul] expected a dense matrix of rank 2, or a vector, with 1 rows, one for each row", [&] {
        csr_matmul_transposed(v, array<int64_t>({0, 1, 2}), array<int64_t>({0, 3}), x, 4);
      });
  expect_error<InvalidArgument>("[csr_sample] expected left (1, n)", [&] {
    csr_sample(x, x, array<int64_t>({0, 1, 2}), array<int64_t>({0, 3}));
  });
}

TEST(SegmentOp, ReductionsAgreeWithPlainLoops) {
  const std::vector<int64_t> offsets = {0, 3, 3, 4, 40, 41};
  for (const DType type : kSparseTypes)
    for (const int64_t n : {int64_t{1}, int64_t{5}, int64_t{37}}) {
      const NDArray x = numbers({41, n}, type);
      const Values xs = values(x);
      const auto un = static_cast<size_t>(n);
      std::map<std::string, Values> want;
      for (size_t s = 0; s + 1 < offsets.size(); ++s)
        for (size_t j = 0; j < un; ++j) {
          double sum = 0, low = test::kInfinity, high = -test::kInfinity;
          const auto first = static_cast<size_t>(offsets[s]), last = static_cast<size_t>(offsets[s + 1]);
          for (size_t i = first; i < last; ++i) {
            sum += xs[i * un + j];
            low = std::min(low, xs[i * un + j]);
            high = std::max(high, xs[i * un + j]);
          }
          const bool none = first == last;
          want["sum"].push_back(sum);
          want["mean"].push_back(none ? 0 : sum / static_cast<double>(last - first));
          want["max"].push_back(none ? 0 : high);
          want["min"].push_back(none ? 0 : low);
        }
      for (const DType index : {i64, i32}) {
        const NDArray at = array(offsets).to(index);
        const std::string what = mx::detail::concat(type, " n=", n);
        expect_values(want["sum"], segment_sum(x, at), what + " sum", 40);
        expect_values(want["mean"], segment_mean(x, at), what + " mean", 10);
        expect_values(want["max"], segment_max(x, at), what + " max");
        expect_values(want["min"], segment_min(x, at), what + " min");
      }
    }
}

TEST(SegmentOp, NaNPasses) {
  const NDArray x = array({1.0, kNan, 2.0, 3.0}), at = array<int64_t>({0, 3, 4});
  for (const auto f : {segment_sum, segment_mean, segment_max, segment_min}) {
    const Values y = values(f(x, at));
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], 3);
  }
}

TEST(SegmentOp, ErrorsNameTheOperatorOnce) {
  const NDArray x = ones({3, 2}), at = array<int64_t>({0, 2, 1});
  const std::vector<std::pair<std::string, NDArray (*)(const Arg&, const NDArray&)>> all{
      {"sum", segment_sum}, {"mean", segment_mean}, {"max", segment_max}, {"min", segment_min}};
  for (const auto& [name, f] : all) {
    const std::string text = test::error_of<InvalidArgument>([&, g = f] { g(x, at).wait(); });
    EXPECT_EQ(0U, text.find("[segment_" + name + "] expected offsets")) << text;
    EXPECT_EQ(std::string::npos, text.find("segment_reduce")) << text;
  }
}

TEST(SegmentOp, OffsetsCountTheIdsBelow) {
  EXPECT_EQ(segment_offsets(array<int64_t>({0, 0, 2, 2, 2}), 4).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 2, 2, 5, 5}));
  EXPECT_EQ(segment_offsets(zeros({0}, i64), 2).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0}));
  expect_error<InvalidArgument>("expected ids that ascend, got 2 and then 1 at position 2", [] {
    segment_offsets(array<int64_t>({0, 2, 1}), 4).wait();
  });
  expect_error<InvalidArgument>("expected indices from 0 to 3", [] {
    segment_offsets(array<int64_t>({0, 4}), 4).wait();
  });
}

TEST(SegmentOp, ExpandRepeatsRowsOfAnyType) {
  for (const DType type : {f32, f16, i64, u8, bool_}) {
    const NDArray y =
        segment_expand(array<int64_t>({{1, 2}, {3, 4}, {5, 6}}).to(type), array<int64_t>({0, 2, 2, 3}), 3);
    EXPECT_EQ(y.dtype(), type);
    const Values want = type == bool_ ? Values{1, 1, 1, 1, 1, 1} : Values{1, 2, 1, 2, 5, 6};
    EXPECT_EQ(values(y), want);
  }
  expect_error<InvalidArgument>("end with the number of entries, 4, got 3", [] {
    segment_expand(ones({2}), array<int64_t>({0, 1, 3}), 4).wait();
  });
}

// Rows of fewer elements than a vector, of a few and of many; the second segment is empty.
void expect_softmax_of_each_segment() {
  const NDArray at = array<int64_t>({0, 2, 2, 7, 50});
  for (const DType type : {f64, f32, f16, bf16})
    for (const int64_t n : {0, 1, 3, 8, 16, 37})
      for (const NDArray& x : test::layouts((numbers({50, n}, f64) * 30).to(type))) {
        Values want;
        for (const auto& [begin, end] : {std::pair(0, 2), {2, 7}, {7, 50}}) {
          const Values part = values(softmax(x.slice(0, Slice{begin, end}).to(f64), 0));
          want.insert(want.end(), part.begin(), part.end());
        }
        expect_values(want, segment_softmax(x, at), "segment_softmax " + std::to_string(n));
      }
}

TEST(SegmentOp, SoftmaxIsThatOfEachSegmentAlone) {
  test::with_every_instruction_set([](int64_t) { expect_softmax_of_each_segment(); });
  const NDArray at = array<int64_t>({0, 2, 2, 7, 50});
  EXPECT_EQ(values(segment_softmax(numbers({50}, f64), at)),
            values(segment_softmax(numbers({50}, f64).reshape({50, 1}), at)));
  expect_error<InvalidArgument>("end with the number of entries, 4, got 3", [] {
    segment_softmax(ones({4}), array<int64_t>({0, 3})).wait();
  });
}

void expect_softmax_of_extremes() {
  for (const DType type : {f64, f32})
    for (const int64_t n : {1, 16}) {
      const NDArray column =
          array<double>({1000, -1000, 999, kInfinity, 1, -kInfinity, -kInfinity, -kInfinity, 2, kNan, 3, 4});
      const NDArray x = (column.reshape({12, 1}) + zeros({1, n}, f64)).to(type);
      const NDArray y = segment_softmax(x, array<int64_t>({0, 3, 5, 7, 9, 12}));
      Values want;
      for (const auto& [begin, end] : {std::pair(0, 3), {3, 5}, {5, 7}, {7, 9}, {9, 12}}) {
        const Values part = values(softmax(x.slice(0, Slice{begin, end}), 0));
        want.insert(want.end(), part.begin(), part.end());
      }
      expect_values(want, y, "segment_softmax");
    }
}

TEST(SegmentOp, SoftmaxOfLargeAndInfiniteNumbersIsThatOfSoftmax) {
  test::with_every_instruction_set([](int64_t) { expect_softmax_of_extremes(); });
}

TEST(SparseCSRTest, CoordinatesInAnyOrderAddUp) {
  const SparseCSR a = SparseCSR::from_coo(array<int64_t>({2, 0, 2, 2}), array<int64_t>({1, 2, 0, 1}),
                                          array({1.f, 2.f, 3.f, 4.f}), {3, 3});
  EXPECT_EQ(a.entries(), 3);
  EXPECT_EQ(values(a.to_dense()), (Values{0, 0, 2, 0, 0, 0, 3, 5, 0}));
  EXPECT_EQ(a.pointers().to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 1, 3}));
  EXPECT_EQ(a.row_indices().to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 2}));
  EXPECT_EQ(values(a.transpose().to_dense()), values(a.to_dense().transpose()));
  const SparseCSR edges = SparseCSR::from_edges(array<int64_t>({2, 0, 2}), array<int64_t>({1, 2, 1}), {3, 4});
  EXPECT_EQ(values(edges.to_dense()), (Values{0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
}

TEST(SparseCSRTest, DenseAndBackIsTheSame) {
  const NDArray x = where(numbers({9, 5}, f64) > 0.25, numbers({9, 5}, f64), 0);
  const SparseCSR a = SparseCSR::from_dense(x);
  EXPECT_EQ(values(a.to_dense()), values(x));
  const NDArray y = numbers({5, 4}, f64), z = numbers({9, 4}, f64);
  expect_values(values(matmul(x, y)), matmul(a, y), "product", 10);
  expect_values(values(matmul(x.transpose(), z)), matmul(a, z, true), "transposed", 10);
  const SparseCSR nothing = SparseCSR::from_dense(zeros({0, 4}));
  EXPECT_EQ(matmul(nothing, ones({4, 2})).shape(), (Shape{0, 2}));
  EXPECT_EQ(values(matmul(nothing, ones({0, 2}), true)), Values(8, 0));
}

TEST(SparseCSRTest, BadInputIsNamed) {
  const NDArray two = array<int64_t>({0, 1}), v = ones({2});
  expect_error<InvalidArgument>("expected rows from 0 to 1, got 2 at position 1", [&] {
    SparseCSR::from_coo(array<int64_t>({0, 2}), two, v, {2, 2});
  });
  expect_error<InvalidArgument>("expected columns from 0 to 1, got -1 at position 0", [&] {
    SparseCSR::from_coo(two, array<int64_t>({-1, 1}), v, {2, 2});
  });
  expect_error<InvalidArgument>("expected pointers (3,)", [&] { SparseCSR(two, two, v, {2, 2}); });
  expect_error<InvalidArgument>("expected the shape of a matrix", [&] { SparseCSR(two, two, v, {2}); });
  expect_error<InvalidArgument>("row pointers that ascend", [&] {
    SparseCSR(array<int64_t>({0, 3, 2}), two, v, {2, 2}).check();
  });
  expect_error<InvalidArgument>("expected an array (2, n)", [&] {
    matmul(SparseCSR(array<int64_t>({0, 1, 2}), two, v, {2, 2}), ones({3, 1}));
  });
  expect_error<InvalidArgument>("got an empty handle", [&] { matmul(SparseCSR(), ones({3, 1})); });
}

// Wrong structures are found when an operation runs; each error names the line of this file.
TEST(SparseCSRTest, ErrorsNameTheLineOfTheCall) {
  const NDArray values = ones({2});
  const SparseCSR columns(array<int64_t>({0, 1, 2}), array<int64_t>({0, 9}), values, {2, 3});
  const SparseCSR rows(array<int64_t>({0, 3, 2}), array<int64_t>({0, 1}), values, {2, 3});
  const auto here = [](int line, const auto& f) {
    expect_error<InvalidArgument>(detail::concat("sparse_op_test.cc:", line, ')'), f);
  };
  here(__LINE__, [&] { matmul(columns, ones({3, 2})).wait(); });
  here(__LINE__, [&] { matmul(columns, ones({2, 2}), true).wait(); });
  here(__LINE__, [&] { columns.to_dense().wait(); });
  here(__LINE__, [&] { columns.check(); });
  here(__LINE__, [&] { rows.row_indices().wait(); });
  here(__LINE__, [&] { rows.to_dense().wait(); });
  here(__LINE__, [&] { rows.transpose(); });
}

TEST(SparseCSRTest, AbsurdSizesAreErrorsOfThisLibrary) {
  const NDArray zero = array<int64_t>({0}), value = ones({1});
  const int64_t large = int64_t{1} << 61;
  expect_error<OutOfMemory>("a list of", [&] { SparseCSR::from_coo(zero, zero, value, {large, 3}); });
  expect_error<InvalidArgument>("fewer than 2^63 - 1 rows", [&] {
    SparseCSR::from_coo(zero, zero, value, {INT64_MAX, 3});
  });
  const SparseCSR wide = SparseCSR::from_coo(zero, zero, value, {2, INT64_MAX});
  expect_error<InvalidArgument>("[to_dense] expected an array of fewer than 2^63 bytes",
                                [&] { wide.to_dense(); });
  expect_error<InvalidArgument>("fewer than 2^63 - 1 rows", [&] { wide.transpose(); });
}

TEST(SparseCSRTest, ToDenseFindsColumnsThatDoNotExist) {
  for (const int64_t column : {int64_t{3}, int64_t{-1}}) {
    const SparseCSR bad(array<int64_t>({0, 1, 1}), array({column}), array({5.f}), {2, 3});
    expect_error<InvalidArgument>("", [&] { bad.to_dense().wait(); });
  }
}

}  // namespace
}  // namespace mx
