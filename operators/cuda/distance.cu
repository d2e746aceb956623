// Euclidean distances of all pairs of rows: operators/kernels/distance.h. A block computes a square of
// distances; it reads the coordinates of its rows in pieces, which its threads share. The squares of a piece
// are added first, then the pieces.
#include "ndarray/cuda/element.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"

namespace mx::cuda {
namespace {

constexpr int kSide = 16, kDistanceThreads = kSide * kSide;

/// The matrices of a stack: (m, k), (n, k), and their distances (m, n).
struct DistanceStack {
  Dims<3> batch;  ///< of the distances, a and b
  int64_t m, n, k;
  int64_t to_row, to_column, a_row, a_column, b_row, b_column;
};

template <class A>
__global__ void __launch_bounds__(kDistanceThreads)
    distance_squares(Elements to, Elements a, Elements b, DistanceStack s) {
  constexpr int kPitch = kSide + 1;  // so that threads that read a column use different banks
  A* const left = block_shared<A, 2 * kSide * kPitch>();
  A* const right = left + kSide * kPitch;
  const int64_t across = (s.n + kSide - 1) / kSide, down = (s.m + kSide - 1) / kSide;
  const int64_t block = blockIdx.x, stack = block / (across * down), square = block % (across * down);
  const int64_t row = square / across * kSide, column = square % across * kSide;
  const int64_t from_a = s.batch.offset(1, stack), from_b = s.batch.offset(2, stack);
  const int x = static_cast<int>(threadIdx.x % kSide), y = static_cast<int>(threadIdx.x / kSide);
  A sum = 0;
  for (int64_t first = 0; first < s.k; first += kSide) {
    const int64_t p = first + x;
    barrier();  // the reads of the piece before have ended
    left[y * kPitch + x] =
        row + y < s.m && p < s.k ? load<A>(a, from_a + (row + y) * s.a_row + p * s.a_column) : A{0};
    right[y * kPitch + x] =
        column + y < s.n && p < s.k ? load<A>(b, from_b + (column + y) * s.b_row + p * s.b_column) : A{0};
    barrier();
    A part = 0;
    for (int q = 0; q < kSide; ++q) {
      const A difference = left[y * kPitch + q] - right[x * kPitch + q];
      part += difference * difference;
    }
    sum += part;
  }
  if (row + y < s.m && column + x < s.n)
    store(to, s.batch.offset(0, stack) + (row + y) * s.to_row + (column + x) * s.to_column, sqrt(sum));
}

}  // namespace

void euclidean(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  const int rank = out.rank();
  const auto stacked = [&](const Tensor& x) {
    Shape shape = out.shape;
    for (int d = 1; d <= 2; ++d) shape[rank - d] = x.shape[x.rank() - d];
    return x.broadcast(shape);
  };
  const Tensor a = stacked(args.in[0]), b = stacked(args.in[1]);
  DistanceStack s{};
  int64_t stacks = 1;
  for (int d = rank - 3; d >= 0; --d) {
    s.batch.add(out.shape[d], {out.strides[d], a.strides[d], b.strides[d]});
    stacks *= out.shape[d];
  }
  s.m = out.shape[rank - 2];
  s.n = out.shape[rank - 1];
  s.k = a.shape[rank - 1];
  s.to_row = out.strides[rank - 2];
  s.to_column = out.strides[rank - 1];
  s.a_row = a.strides[rank - 2];
  s.a_column = a.strides[rank - 1];
  s.b_row = b.strides[rank - 2];
  s.b_column = b.strides[rank - 1];
  const int64_t blocks = stacks * ((s.m + kSide - 1) / kSide) * ((s.n + kSide - 1) / kSide);
  visit_real(out.dtype, [&]<class A>() {
    launch(stream_of(args), whole_grid(blocks), kDistanceThreads, 0, distance_squares<A>, elements_of(out),
           elements_of(a), elements_of(b), s);
  });
}

}  // namespace mx::cuda
