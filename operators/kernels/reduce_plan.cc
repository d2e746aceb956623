#include "operators/kernels/reduce_plan.h"

#include <algorithm>
#include <utility>

namespace mx::kernels {
namespace {

struct Dim {
  int64_t size, in, out;
};

/// Returns the distance in memory. Broadcast dimensions count as the largest and become outermost, where they
/// cost nothing.
int64_t distance(const Dim& dim) { return dim.in == 0 ? INT64_MAX : dim.in < 0 ? -dim.in : dim.in; }

/// A stable sort, smallest distance first. It is an insertion sort, because there are few dimensions and
/// std::stable_sort allocates.
void sort_by_distance(Dim* dims, int n) {
  for (int i = 1; i < n; ++i)
    for (int k = i; k > 0 && distance(dims[k]) < distance(dims[k - 1]); --k) std::swap(dims[k], dims[k - 1]);
}

void join(Dim* dims, int n, bool sort, WalkedDims& walked) {
  if (sort) sort_by_distance(dims, n);
  for (int i = 0; i < n; ++i) {
    const int last = walked.rank - 1;
    if (last >= 0 && dims[i].in == walked.in[last] * walked.shape[last] &&
        dims[i].out == walked.out[last] * walked.shape[last]) {
      walked.shape[last] *= dims[i].size;
      continue;
    }
    walked.shape[walked.rank] = dims[i].size;
    walked.in[walked.rank] = dims[i].in;
    walked.out[walked.rank] = dims[i].out;
    ++walked.rank;
  }
  if (walked.rank == 0) {
    walked.rank = 1;
    walked.shape[0] = 1;
    walked.in[0] = 1;
    walked.out[0] = 0;
  }
}

}  // namespace

ReducePlan::ReducePlan(const Tensor& in, const Tensor& out, const Shape& axes, bool ordered) {
  Dim stay[kMaxRank], fold[kMaxRank];
  int stays = 0, folds = 0;
  const bool ones = out.rank() == in.rank();
  int next_axis = axes.rank() - 1, next_out = out.rank() - 1;
  for (int i = in.rank() - 1; i >= 0; --i) {
    Dim dim{in.shape[i], in.strides[i], 0};
    if (next_axis >= 0 && axes[next_axis] == i) {
      --next_axis;
      if (ones) --next_out;
      reduced_count *= dim.size;
      if (dim.size == 1) continue;
      if (!ordered && dim.in < 0) {
        in_offset += (dim.size - 1) * dim.in;
        dim.in = -dim.in;
      }
      fold[folds++] = dim;
      continue;
    }
    dim.out = out.strides[next_out--];
    kept_count *= dim.size;
    if (dim.size == 1) continue;
    if (dim.in < 0) {
      in_offset += (dim.size - 1) * dim.in;
      out_offset += (dim.size - 1) * dim.out;
      dim.in = -dim.in;
      dim.out = -dim.out;
    }
    stay[stays++] = dim;
  }
  join(stay, stays, true, kept);
  join(fold, folds, !ordered, reduced);
}

bool ReducePlan::by_columns() const {
  constexpr int64_t kFewest = 16;
  if (kept.shape[0] < kFewest || kept.in[0] == 0 || reduced_count == 1)
    return kept.shape[0] >= kFewest && kept.in[0] == 1;
  int64_t closest = INT64_MAX;
  for (int i = 0; i < reduced.rank; ++i)
    if (reduced.in[i] != 0) closest = std::min(closest, reduced.in[i] < 0 ? -reduced.in[i] : reduced.in[i]);
  return kept.in[0] < closest;
}

}  // namespace mx::kernels
