#include "ndarray/kernels/strided_loop.h"

#include <algorithm>
#include <cstdlib>

namespace mx::kernels {

template <int N>
LoopPlan<N>::LoopPlan(const std::array<const Tensor*, N>& operands) {
  const Shape& full = operands[0]->shape;
  // Sorts the dimensions by the first operand's strides, the smallest innermost. Dimensions with equal
  // strides keep their order.
  const auto distance = [&](int i) { return std::abs(operands[0]->strides[i]); };
  int order[kMaxRank];
  int dims = 0;
  for (int i = full.rank() - 1; i >= 0; --i) {
    numel *= full[i];
    if (full[i] == 1) continue;
    int place = dims++;
    for (; place > 0 && distance(order[place - 1]) > distance(i); --place) order[place] = order[place - 1];
    order[place] = i;
  }
  for (int i = 0; i < dims; ++i) {
    const int d = order[i];
    bool joins = rank > 0;
    for (int k = 0; k < N && joins; ++k)
      joins = operands[k]->strides[d] == strides[k][rank - 1] * shape[rank - 1];
    if (joins) {
      shape[rank - 1] *= full[d];
      continue;
    }
    shape[rank] = full[d];
    for (int k = 0; k < N; ++k) strides[k][rank] = operands[k]->strides[d];
    ++rank;
  }
  if (rank == 0) {
    rank = 1;
    shape[0] = 1;
    for (int k = 0; k < N; ++k) strides[k][0] = 0;
  }
}

template <int N>
std::array<int64_t, N> LoopPlan<N>::offsets(int first, int64_t index) const {
  std::array<int64_t, N> at{};
  for (int i = first; i < rank; ++i) {
    for (int k = 0; k < N; ++k) at[static_cast<size_t>(k)] += index % shape[i] * strides[k][i];
    index /= shape[i];
  }
  return at;
}

template <int N>
void LoopPlan<N>::walk(int64_t begin, int64_t end, RunBody call, const void* body) const {
  if (begin >= end) return;
  int64_t index[kMaxRank];
  int64_t at[N] = {};
  int64_t rest = begin;
  for (int i = 0; i < rank; ++i) {
    index[i] = rest % shape[i];
    rest /= shape[i];
    for (int k = 0; k < N; ++k) at[k] += index[i] * strides[k][i];
  }
  for (int64_t done = begin; done < end;) {
    const int64_t n = std::min(shape[0] - index[0], end - done);
    call(body, at, n);
    done += n;
    if (done >= end) return;
    // Go to the next run: the start of the innermost dimension, one step further in the others.
    for (int k = 0; k < N; ++k) at[k] -= index[0] * strides[k][0];
    index[0] = 0;
    for (int i = 1; i < rank; ++i) {
      for (int k = 0; k < N; ++k) at[k] += strides[k][i];
      if (++index[i] < shape[i]) break;
      for (int k = 0; k < N; ++k) at[k] -= shape[i] * strides[k][i];
      index[i] = 0;
    }
  }
}

template <int N>
void LoopPlan<N>::walk_in_parallel(int64_t grain, RunBody call, const void* body) const {
  parallel_for(numel, grain, [&](int64_t begin, int64_t end) { walk(begin, end, call, body); });
}

template struct LoopPlan<1>;
template struct LoopPlan<2>;
template struct LoopPlan<3>;
template struct LoopPlan<4>;
template struct LoopPlan<kLoopOperands>;

}  // namespace mx::kernels
