// Distances of all pairs of rows and their gradients: operators/kernels/distance.h. A block computes a square
// of distances, or of rows and coordinates of a gradient; it reads the operands in pieces, which its threads
// share. The terms of a piece are added first, then the pieces.
#include "ndarray/cuda/element.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/distance_attrs.h"

namespace mx::cuda {
namespace {

using detail::DistanceAttrs;
using detail::DistanceKind;

constexpr int kSide = 16, kDistanceThreads = kSide * kSide;

/// The matrices of a stack: (m, k), (n, k), and their distances (m, n).
struct DistanceStack {
  Dims<3> batch;  ///< of the distances, a and b
  int64_t m, n, k;
  int64_t to_row, to_column, a_row, a_column, b_row, b_column;
};

/// Adds the term of a difference; NaN is the largest one.
template <DistanceKind kKind, class A>
__device__ A with_term(A sum, A difference, A order) {
  if constexpr (kKind == DistanceKind::squares) return sum + difference * difference;
  if constexpr (kKind == DistanceKind::count) return sum + (difference == 0 ? A{0} : A{1});
  const A size = difference < 0 ? -difference : difference;
  if constexpr (kKind == DistanceKind::most) return size > sum || size != size ? size : sum;
  if constexpr (kKind == DistanceKind::power) return sum + pow(size, order);
  return sum + size;
}
template <DistanceKind kKind, class A>
__device__ A joined(A a, A b) {
  if constexpr (kKind == DistanceKind::most) return b > a || b != b ? b : a;
  return a + b;
}

template <DistanceKind kKind, class A>
__global__ void __launch_bounds__(kDistanceThreads)
    distance_of_rows(Elements to, Elements a, Elements b, DistanceStack s, double order) {
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
      part = with_term<kKind>(part, difference, static_cast<A>(order));
    }
    sum = joined<kKind>(sum, part);
  }
  if constexpr (kKind == DistanceKind::squares) sum = sqrt(sum);
  if constexpr (kKind == DistanceKind::power) sum = pow(sum, static_cast<A>(1 / order));
  if (row + y < s.m && column + x < s.n)
    store(to, s.batch.offset(0, stack) + (row + y) * s.to_row + (column + x) * s.to_column, sum);
}

/// The matrices of a stack: the gradient (m, k), dy and y (m, n), a (m, k) and b (n, k).
struct GradientStack {
  Dims<5> batch;  ///< of the gradient, dy, a, b and y
  int64_t m, n, k;
  int64_t row[5], column[5];
  bool narrow;  ///< the elements are narrower than the numbers in which the gradient is computed
  __device__ int64_t at(int operand, int64_t stack, int64_t i, int64_t j) const {
    return batch.offset(operand, stack) + i * row[operand] + j * column[operand];
  }
};

/// Returns what a head is multiplied with: 0 if the distance is 0.
template <DistanceKind kKind, class A>
__device__ A weight_of(A head, A distance) {
  if constexpr (kKind == DistanceKind::squares) return distance == 0 ? A{0} : head / distance;
  if constexpr (kKind == DistanceKind::power) return distance == 0 ? A{0} : head;
  return head;
}

/// Returns the factor of a pair's weight at one coordinate.
template <DistanceKind kKind, class A>
__device__ A factor_of(A difference, A distance, A order) {
  if constexpr (kKind == DistanceKind::count) return 0;  // of a count there is no gradient
  if constexpr (kKind == DistanceKind::squares) return difference;
  const A size = difference < 0 ? -difference : difference;
  // NaN stays NaN.
  const A sign = difference > 0 ? A{1} : difference < 0 ? A{-1} : difference;
  if constexpr (kKind == DistanceKind::most) return size == distance ? sign : A{0};
  if constexpr (kKind == DistanceKind::power)
    return difference == 0 ? A{0} : sign * pow(size / (distance == 0 ? A{1} : distance), order - 1);
  return sign;
}

template <DistanceKind kKind, class A>
__global__ void __launch_bounds__(kDistanceThreads)
    distance_gradient(Elements to, Elements dy, Elements a, Elements b, Elements distance, GradientStack s,
                      double order) {
  constexpr int kPitch = kSide + 1;
  A* const weights = block_shared<A, 3 * kSide * kPitch>();  // [row of a][row of b]
  A* const sizes = weights + kSide * kPitch;                 // their distances
  A* const right = sizes + kSide * kPitch;                   // [row of b][coordinate]
  const int64_t across = (s.k + kSide - 1) / kSide, down = (s.m + kSide - 1) / kSide;
  const int64_t block = blockIdx.x, stack = block / (across * down), square = block % (across * down);
  const int64_t row = square / across * kSide, column = square % across * kSide;
  const int x = static_cast<int>(threadIdx.x % kSide), y = static_cast<int>(threadIdx.x / kSide);
  const bool inside = row + y < s.m && column + x < s.k;
  const A own = inside ? load<A>(a, s.at(2, stack, row + y, column + x)) : A{0};
  A sum = 0;
  for (int64_t first = 0; first < s.n; first += kSide) {
    const bool pair = row + y < s.m && first + x < s.n;
    A size = pair ? load<A>(distance, s.at(4, stack, row + y, first + x)) : A{0};
    A weight = pair ? weight_of<kKind>(load<A>(dy, s.at(1, stack, row + y, first + x)), size) : A{0};
    if constexpr (kKind == DistanceKind::most) {
      const auto difference = [&](int64_t p) {
        const A d = load<A>(a, s.at(2, stack, row + y, p)) - load<A>(b, s.at(3, stack, first + x, p));
        return d < 0 ? -d : d;
      };
      // A distance of a narrower type has been rounded, so the largest difference is computed again.
      if (s.narrow) {
        size = 0;
        for (int64_t p = 0; pair && p < s.k; ++p) size = joined<kKind>(size, difference(p));
      }
      int64_t count = 0;  // coordinates that share the gradient; none with NaN
      for (int64_t p = 0; pair && p < s.k; ++p) count += difference(p) == size ? 1 : 0;
      weight /= static_cast<A>(count > 0 ? count : 1);
    }
    barrier();  // the reads of the piece before have ended
    weights[y * kPitch + x] = weight;
    sizes[y * kPitch + x] = size;
    right[y * kPitch + x] =
        first + y < s.n && column + x < s.k ? load<A>(b, s.at(3, stack, first + y, column + x)) : A{0};
    barrier();
    const int count = static_cast<int>(s.n - first < kSide ? s.n - first : kSide);
    A part = 0;
    for (int q = 0; q < count; ++q)
      part += weights[y * kPitch + q] *
              factor_of<kKind>(own - right[q * kPitch + x], sizes[y * kPitch + q], static_cast<A>(order));
    sum += part;
  }
  if (inside) store(to, s.at(0, stack, row + y, column + x), sum);
}

/// Calls f with the kind as a constant.
template <class F>
void visit_kind(DistanceKind kind, const F& f) {
  switch (kind) {
    case DistanceKind::count:
      return f.template operator()<DistanceKind::count>();
    case DistanceKind::sum:
      return f.template operator()<DistanceKind::sum>();
    case DistanceKind::squares:
      return f.template operator()<DistanceKind::squares>();
    case DistanceKind::most:
      return f.template operator()<DistanceKind::most>();
    case DistanceKind::power:
      return f.template operator()<DistanceKind::power>();
  }
}

void compute_distances(const KernelArgs& args, double order) {
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
  visit_kind(detail::distance_kind(order), [&]<DistanceKind kKind>() {
    visit_real(out.dtype, [&]<class A>() {
      launch(stream_of(args), whole_grid(blocks), kDistanceThreads, 0, distance_of_rows<kKind, A>,
             elements_of(out), elements_of(a), elements_of(b), s, order);
    });
  });
}

}  // namespace

void euclidean(const KernelArgs& args) { compute_distances(args, 2); }
void minkowski(const KernelArgs& args) { compute_distances(args, args.attr<DistanceAttrs>().p); }

void distance_backward(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  const double order = args.attr<DistanceAttrs>().p;
  const int rank = out.rank();
  const auto stacked = [&](const Tensor& x) {
    Shape shape = out.shape;
    for (int d = 1; d <= 2; ++d) shape[rank - d] = x.shape[x.rank() - d];
    return x.broadcast(shape);
  };
  const Tensor operands[] = {out, stacked(args.in[0]), stacked(args.in[1]), stacked(args.in[2]),
                             stacked(args.in[3])};
  GradientStack s{};
  s.narrow = out.dtype == f16 || out.dtype == bf16;
  int64_t stacks = 1;
  for (int d = rank - 3; d >= 0; --d) {
    s.batch.add(out.shape[d], {operands[0].strides[d], operands[1].strides[d], operands[2].strides[d],
                               operands[3].strides[d], operands[4].strides[d]});
    stacks *= out.shape[d];
  }
  s.m = out.shape[rank - 2];
  s.n = operands[1].shape[rank - 1];
  s.k = out.shape[rank - 1];
  for (int i = 0; i < 5; ++i) {
    s.row[i] = operands[i].strides[rank - 2];
    s.column[i] = operands[i].strides[rank - 1];
  }
  const int64_t blocks = stacks * ((s.m + kSide - 1) / kSide) * ((s.k + kSide - 1) / kSide);
  visit_kind(detail::distance_kind(order), [&]<DistanceKind kKind>() {
    visit_real(out.dtype, [&]<class A>() {
      launch(stream_of(args), whole_grid(blocks), kDistanceThreads, 0, distance_gradient<kKind, A>,
             elements_of(out), elements_of(operands[1]), elements_of(operands[2]), elements_of(operands[3]),
             elements_of(operands[4]), s, order);
    });
  });
}

}  // namespace mx::cuda
