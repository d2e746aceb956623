// Running sums, products, maxima and minima along an axis, and linear recurrences: operators/kernels/scan.h.
//
// A block scans a row in pieces of one element for each thread, and carries the total from piece to piece.
// Many short rows, products and recurrences have one thread for each row: the product of a piece might
// overflow although the running product does not.
#include <algorithm>
#include <cmath>

#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/scan.h"
#include "operators/scan.h"

namespace mx::cuda {
namespace {

using kernels::ScanOp;

template <class A>
struct ScanStep {
  ScanOp op;
  A neutral;

  __device__ A operator()(A a, A x) const {
    switch (op) {
      case ScanOp::cumsum:
        if constexpr (static_cast<A>(0.5) == 0)
          return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(x));
        else
          return a + x;
      case ScanOp::cumprod:
        if constexpr (static_cast<A>(0.5) == 0)
          return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(x));
        else
          return a * x;
      case ScanOp::cummax:
        return a == a && (x > a || x != x) ? x : a;
      case ScanOp::cummin:
        return a == a && (x < a || x != x) ? x : a;
      case ScanOp::logcumsumexp:
        break;
    }
    if constexpr (static_cast<A>(0.5) != 0) {
      if (a != a || x != x) return a + x;
      const A high = x > a ? x : a, low = x > a ? a : x;
      return isinf(high) ? high : high + log1p(exp(low - high));
    } else {
      return a;
    }
  }
};

template <class A>
__global__ void __launch_bounds__(kBlock)
    scan_by_thread(ScanStep<A> step, Elements in, Elements out, Rows<2> rows, bool exclusive, bool reverse) {
  const int64_t row = global_index();
  if (row >= rows.rows) return;
  const int64_t from = rows.outer.offset(0, row), to = rows.outer.offset(1, row);
  A total = step.neutral;
  for (int64_t k = 0; k < rows.n; ++k) {
    const int64_t i = reverse ? rows.n - 1 - k : k;
    const A next = step(total, load<A>(in, from + i * rows.step[0]));
    store(out, to + i * rows.step[1], exclusive ? total : next);
    total = next;
  }
}

template <class A>
__global__ void __launch_bounds__(kBlock)
    scan_by_block(ScanStep<A> step, Elements in, Elements out, Rows<2> rows, bool exclusive, bool reverse) {
  const int64_t row = blockIdx.x;
  const int64_t from = rows.outer.offset(0, row), to = rows.outer.offset(1, row);
  constexpr int kWarps = kBlock / kWarp;
  A* const totals = block_shared<A, kWarps>();
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  A carry = step.neutral;
  for (int64_t first = 0; first < rows.n; first += kBlock) {
    const int64_t k = first + threadIdx.x, i = reverse ? rows.n - 1 - k : k;
    const bool inside = k < rows.n;
    A x = inside ? load<A>(in, from + i * rows.step[0]) : step.neutral;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const A before = shuffle_up(x, distance);
      if (lane >= distance) x = step(before, x);
    }
    barrier();  // the reads of the piece before have ended
    if (lane == kWarp - 1) totals[warp] = x;
    barrier();
    A before = carry;  // of all elements before this warp
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before = step(before, totals[w]);
      carry = step(carry, totals[w]);
    }
    const A here = step(before, x), left = shuffle_up(x, 1);
    const A ahead = lane == 0 ? before : step(before, left);
    if (inside) store(out, to + i * rows.step[1], exclusive ? ahead : here);
  }
}

/// y[i] = a[i] * y[i - 1] + b[i].
__global__ void __launch_bounds__(kBlock)
    recurrence_rows(Elements a, Elements b, Elements y, Rows<3> rows, bool reverse) {
  const int64_t row = global_index();
  if (row >= rows.rows) return;
  const int64_t from_a = rows.outer.offset(0, row), from_b = rows.outer.offset(1, row),
                to = rows.outer.offset(2, row);
  double value = 0;
  for (int64_t k = 0; k < rows.n; ++k) {
    const int64_t i = reverse ? rows.n - 1 - k : k;
    const double term = load<double>(b, from_b + i * rows.step[1]);
    value = k == 0 ? term : load<double>(a, from_a + i * rows.step[0]) * value + term;
    store(y, to + i * rows.step[2], value);
  }
}

/// The neutral element: of maxima and minima the lowest and the highest value of the input's type.
template <class A>
A neutral_of(ScanOp op, DType in) {
  constexpr bool kReal = static_cast<A>(0.5) != 0;
  if (op == ScanOp::cumsum) return 0;
  if (op == ScanOp::cumprod) return 1;
  const bool low = op != ScanOp::cummin;
  if constexpr (kReal) return low ? -INFINITY : INFINITY;
  return visit(in, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>)
      return static_cast<A>(low ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max());
    return A{0};
  });
}

int axis_of(const KernelArgs& args, int64_t axis) {
  return normalize_axis(axis, std::max(args.in[0].rank(), 1), "scan");
}

template <class A>
void scan(const KernelArgs& args, ScanOp op) {
  const auto& attrs = args.attr<ScanAttrs>();
  const Tensor &in = args.in[0], &out = args.out[0];
  const Rows<2> rows = rows_of<2>({&in, &out}, axis_of(args, attrs.axis));
  if (rows.rows == 0 || rows.n == 0) return;
  const ScanStep<A> step{op, neutral_of<A>(op, in.dtype)};
  constexpr int64_t kManyRows = 8192, kShort = 64;
  const bool product = op == ScanOp::cumprod && static_cast<A>(0.5) != 0;
  if (product || rows.n <= kShort || (rows.rows >= kManyRows && rows.step[0] != 1)) {
    launch(stream_of(args), whole_grid(rows.rows, kBlock), kBlock, 0, scan_by_thread<A>, step,
           elements_of(in), elements_of(out), rows, attrs.exclusive, attrs.reverse);
  } else {
    launch(stream_of(args), whole_grid(rows.rows), kBlock, 0, scan_by_block<A>, step, elements_of(in),
           elements_of(out), rows, attrs.exclusive, attrs.reverse);
  }
}

void scan(const KernelArgs& args, ScanOp op) {
  const bool real = is_floating(args.in[0].dtype) || op == ScanOp::logcumsumexp;
  real ? scan<double>(args, op) : scan<int64_t>(args, op);
}

}  // namespace

void cumsum(const KernelArgs& args) { scan(args, ScanOp::cumsum); }
void cumprod(const KernelArgs& args) { scan(args, ScanOp::cumprod); }
void cummax(const KernelArgs& args) { scan(args, ScanOp::cummax); }
void cummin(const KernelArgs& args) { scan(args, ScanOp::cummin); }
void logcumsumexp(const KernelArgs& args) { scan(args, ScanOp::logcumsumexp); }

void linear_recurrence(const KernelArgs& args) {
  const auto& attrs = args.attr<RecurrenceAttrs>();
  const Tensor &a = args.in[0], &b = args.in[1], &y = args.out[0];
  const Rows<3> rows = rows_of<3>({&a, &b, &y}, axis_of(args, attrs.axis));
  if (rows.rows == 0 || rows.n == 0) return;
  launch(stream_of(args), whole_grid(rows.rows, kBlock), kBlock, 0, recurrence_rows, elements_of(a),
         elements_of(b), elements_of(y), rows, attrs.reverse);
}

}  // namespace mx::cuda
