// A loop over the rows of arrays of one shape. A row is all elements along one axis at one index of the other
// axes.
//
// A kernel gets rows of consecutive elements in its type of computation. Operands that have another layout or
// type are copied through a buffer, several rows at a time so that each cache line is read once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/row_convert.h"

namespace mx::kernels {

struct RowOperand {
  const Tensor* tensor;
  bool reads, writes;
};

/// Finds the rows of N arrays. Rows are numbered in row-major order of the other axes.
template <int N>
class RowPlan {
 public:
  /// The axis is normalised. An array of rank 0 is one row of one element.
  RowPlan(const std::array<RowOperand, N>& operands, int axis) {
    const Tensor& like = *operands[0].tensor;
    for (int i = 0; i < like.rank(); ++i) {
      if (i == axis) continue;
      shape_[rank_] = like.shape[i];
      for (size_t k = 0; k < N; ++k) strides_[k][rank_] = operands[k].tensor->strides[i];
      rows *= like.shape[i];
      ++rank_;
    }
    if (rank_ == 0) {
      shape_[0] = 1;
      for (size_t k = 0; k < N; ++k) strides_[k][0] = 0;
      rank_ = 1;
    }
    n = like.rank() == 0 ? 1 : like.shape[axis];
    // If the axis has one element, its stride has no meaning and counts as 1.
    for (size_t k = 0; k < N; ++k) stride[k] = n <= 1 ? 1 : operands[k].tensor->strides[axis];
  }

  int64_t rows = 1, n = 1;
  std::array<int64_t, N> stride;  ///< along the axis

  /// Returns how many rows from `row` on are a fixed distance apart.
  int64_t together(int64_t row) const { return shape_[rank_ - 1] - row % shape_[rank_ - 1]; }
  int64_t row_stride(size_t operand) const { return strides_[operand][rank_ - 1]; }
  std::array<int64_t, N> offsets(int64_t row) const {
    std::array<int64_t, N> result{};
    for (int i = rank_ - 1; i >= 0; --i) {
      const int64_t index = row % shape_[i];
      row /= shape_[i];
      for (size_t k = 0; k < N; ++k) result[k] += index * strides_[k][i];
    }
    return result;
  }

 private:
  int rank_ = 0;
  int64_t shape_[kMaxRank];
  int64_t strides_[N][kMaxRank];
};

struct NothingToFinish {
  void operator()() const {}
};

/// Rows of one operand that a kernel gets in one call.
template <class A>
struct RowBlock {
  A* first;
  int64_t step;  ///< distance between rows
  A* operator[](int64_t row) const { return first + row * step; }
};

inline constexpr int64_t kMostRows = 16;

/// Calls kernel(blocks, n, row, count) until all rows are done: blocks[k] holds `count` rows (at most
/// kMostRows), from `row` on, of n elements of operand k. If there are many elements, runs on several
/// threads; each calls finish() at the end of each range of rows. A: float, double or int64_t. Operands may
/// be the same array.
template <class A, int N, class Kernel, class Finish = NothingToFinish>
void for_each_row_block(const std::array<RowOperand, N>& operands, int axis, const Kernel& kernel,
                        const Finish& finish = {}) {
  constexpr int64_t kElements = 32768;
  const RowPlan<N> plan(operands, axis);
  if (plan.rows == 0 || plan.n == 0) return;
  std::array<bool, N> direct;
  bool all_direct = true;
  for (size_t k = 0; k < N; ++k) {
    direct[k] = operands[k].tensor->dtype == dtype_of<A> && plan.stride[k] == 1;
    all_direct = all_direct && direct[k];
  }
  // The padding keeps buffered rows from falling into the same cache sets.
  const int64_t n = plan.n, pitch = (n + 15) / 16 * 16 + 16;
  const int64_t block = std::clamp<int64_t>(2 * kElements / n, 1, kMostRows);
  const int64_t grain = std::max<int64_t>(block, kElements / n / block * block);
  parallel_for(plan.rows, grain, [&](int64_t begin, int64_t end) {
    std::unique_ptr<A[]> buffer(all_direct ? nullptr : new A[static_cast<size_t>(N * block * pitch)]);
    for (int64_t row = begin; row < end;) {
      const int64_t count = std::min({block, end - row, plan.together(row)});
      const std::array<int64_t, N> first = plan.offsets(row);
      std::array<RowBlock<A>, N> blocks;
      for (size_t k = 0; k < N; ++k) {
        const Tensor& t = *operands[k].tensor;
        if (direct[k]) {
          blocks[k] = {t.template as<A>() + first[k], plan.row_stride(k)};
          continue;
        }
        blocks[k] = {buffer.get() + static_cast<int64_t>(k) * block * pitch, pitch};
        if (operands[k].reads)
          load_rows(blocks[k].first, pitch, t.data, t.dtype, first[k], plan.stride[k], n, plan.row_stride(k),
                    count);
      }
      kernel(blocks, n, row, count);
      for (size_t k = 0; k < N; ++k) {
        const Tensor& t = *operands[k].tensor;
        if (!direct[k] && operands[k].writes)
          store_rows(t.data, t.dtype, first[k], plan.stride[k], n, plan.row_stride(k), count, blocks[k].first,
                     pitch);
      }
      row += count;
    }
    finish();
  });
}

/// The same with kernel(rows, n, row) for each row; rows[k] points to its elements in operand k.
template <class A, int N, class Kernel>
void for_each_row(const std::array<RowOperand, N>& operands, int axis, const Kernel& kernel) {
  for_each_row_block<A, N>(
      operands, axis,
      [&kernel](const std::array<RowBlock<A>, N>& blocks, int64_t n, int64_t row, int64_t count) {
        for (int64_t r = 0; r < count; ++r) {
          std::array<A*, N> at;
          for (size_t k = 0; k < N; ++k) at[k] = blocks[k][r];
          kernel(at, n, row + r);
        }
      });
}

}  // namespace mx::kernels
