#include "operators/kernels/scan.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "operators/kernels/row_loop.h"

namespace mx::kernels {
namespace {

constexpr const char* kScanNames[] = {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"};
constexpr int64_t kScanPiece = 65536;

template <class A>
struct Sum {
  A neutral = 0;
  A operator()(A a, A x) const {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(x));
    else
      return a + x;
  }
};

template <class A>
struct Prod {
  A neutral = 1;
  A operator()(A a, A x) const {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(x));
    else
      return a * x;
  }
};

template <class A>
struct Max {
  A neutral;
  A operator()(A a, A x) const { return x > a || x != x ? x : a; }
};

template <class A>
struct Min {
  A neutral;
  A operator()(A a, A x) const { return x < a || x != x ? x : a; }
};

struct LogSumExp {
  double neutral = -std::numeric_limits<double>::infinity();
  double operator()(double a, double x) const {
    if (a != a || x != x) return a + x;
    const double high = std::max(a, x), low = std::min(a, x);
    return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
  }
};

/// True if the elements of a row may be combined in groups: op(carry, op(a, b)) for op(op(carry, a), b). Not
/// for products: the product of a few elements may overflow although the running product does not.
template <class Op>
inline constexpr bool kGroups = false;
template <class A>
inline constexpr bool kGroups<Sum<A>> = true;

/// The totals so far, from the beginning of the row and of the piece.
template <class A>
struct Carry {
  A row, piece;
};

/// y = scan of x, continued from carry.row. y may be x. carry.piece is updated only with kPiece.
template <bool kPiece, bool kExclusive, bool kReverse, class A, class Op>
void scan_elements(const Op& op, const A* x, A* y, int64_t n, Carry<A>& carry) {
  const auto at = [n](int64_t k) { return kReverse ? n - 1 - k : k; };
  Carry<A> so_far = carry;
  int64_t k = 0;
  if constexpr (kGroups<Op>) {
    // Within a group no operation depends on the carry, so they can run in parallel.
    constexpr int64_t kGroup = 8;
    for (; k + kGroup <= n; k += kGroup) {
      A sums[kGroup];
      sums[0] = x[at(k)];
      for (int64_t j = 1; j < kGroup; ++j) sums[j] = op(sums[j - 1], x[at(k + j)]);
      if (kExclusive) y[at(k)] = so_far.row;
      for (int64_t j = 0; j + kExclusive < kGroup; ++j) y[at(k + j + kExclusive)] = op(so_far.row, sums[j]);
      so_far.row = op(so_far.row, sums[kGroup - 1]);
      if (kPiece) so_far.piece = op(so_far.piece, sums[kGroup - 1]);
    }
  }
  for (; k < n; ++k) {
    const A element = x[at(k)], next = op(so_far.row, element);
    y[at(k)] = kExclusive ? so_far.row : next;
    so_far.row = next;
    if (kPiece) so_far.piece = op(so_far.piece, element);
  }
  carry = so_far;
}

template <bool kPiece, class A, class Op>
void scan_run(const Op& op, const A* x, A* y, int64_t n, Carry<A>& carry, const ScanOptions& options) {
  if (options.exclusive) {
    (options.reverse ? scan_elements<kPiece, true, true, A, Op>
                     : scan_elements<kPiece, true, false, A, Op>)(op, x, y, n, carry);
  } else {
    (options.reverse ? scan_elements<kPiece, false, true, A, Op>
                     : scan_elements<kPiece, false, false, A, Op>)(op, x, y, n, carry);
  }
}

// A part of a row that fits into the first-level cache; a multiple of the group size.
constexpr int64_t kScanChunk = 2048;

/// Scans elements [begin, end) of a row in chunks. The row begins at `from` in `in` and at `to` in `out`; if
/// `out` is null, only the carry is computed.
template <bool kPiece, class A, class Op>
void scan_piece(const Op& op, const Tensor& in, int64_t from, int64_t from_stride, const Tensor* out,
                int64_t to, int64_t to_stride, int64_t begin, int64_t end, Carry<A>& carry,
                const ScanOptions& options) {
  alignas(64) A buffer[kScanChunk];
  for (int64_t done = 0; done < end - begin; done += kScanChunk) {
    const int64_t n = std::min(kScanChunk, end - begin - done);
    const int64_t first = options.reverse ? end - done - n : begin + done;
    load_run(buffer, in.data, in.dtype, from + first * from_stride, from_stride, n);
    scan_run<kPiece>(op, buffer, buffer, n, carry, options);
    if (out != nullptr) store_run(out->data, out->dtype, to + first * to_stride, to_stride, buffer, n);
  }
}

/// Scans rows in pieces. The start value of a piece is folded from the totals of the pieces before it. If
/// there are few rows, a first pass computes all totals, so that threads can share the pieces; otherwise a
/// thread computes the totals along with the row.
template <class A, class Op>
void scan_long(const Op& op, const RowPlan<2>& plan, const Tensor& out, const Tensor& in,
               const ScanOptions& options) {
  const int64_t pieces = (plan.n + kScanPiece - 1) / kScanPiece;
  const auto scan_number = [&]<bool kPiece>(std::bool_constant<kPiece>, int64_t row, int64_t number,
                                            const Tensor* target, A start) {
    const int64_t begin = (options.reverse ? pieces - 1 - number : number) * kScanPiece;
    const auto first = plan.offsets(row);
    Carry<A> carry{start, op.neutral};
    scan_piece<kPiece>(op, in, first[0], plan.stride[0], target, first[1], plan.stride[1], begin,
                       std::min(begin + kScanPiece, plan.n), carry, options);
    return carry;
  };
  constexpr std::true_type kWithTotal;
  constexpr std::false_type kWithout;
  // Products carry the running product instead: the total of a piece may overflow although the running
  // product does not.
  constexpr bool kAlong = std::is_same_v<Op, Prod<A>>;
  if (kAlong || plan.rows >= parallel_width()) {
    parallel_for(plan.rows, 1, [&](int64_t row, int64_t) {
      A start = op.neutral;
      for (int64_t p = 0; p < pieces; ++p) {
        if constexpr (kAlong) {
          start = scan_number(kWithout, row, p, &out, start).row;
        } else {
          start = op(start, scan_number(kWithTotal, row, p, &out, start).piece);
        }
      }
    });
    return;
  }
  std::vector<A> starts(static_cast<size_t>(plan.rows * pieces));
  parallel_for(plan.rows * pieces, 1, [&](int64_t task, int64_t) {
    starts[static_cast<size_t>(task)] =
        scan_number(kWithout, task / pieces, task % pieces, nullptr, op.neutral).row;
  });
  for (int64_t row = 0; row < plan.rows; ++row) {
    A before = op.neutral;
    for (int64_t p = 0; p < pieces; ++p) {
      const A total = std::exchange(starts[static_cast<size_t>(row * pieces + p)], before);
      before = op(before, total);
    }
  }
  parallel_for(plan.rows * pieces, 1, [&](int64_t task, int64_t) {
    scan_number(kWithout, task / pieces, task % pieces, &out, starts[static_cast<size_t>(task)]);
  });
}

template <class A, class Op>
void scan_with(const Op& op, const Tensor& out, const Tensor& in, int axis, const ScanOptions& options) {
  const std::array<RowOperand, 2> operands{{{&in, true, false}, {&out, false, true}}};
  const RowPlan<2> plan(operands, axis);
  if (plan.n > kScanPiece) {
    scan_long<A>(op, plan, out, in, options);
    return;
  }
  for_each_row<A, 2>(operands, axis, [&](const std::array<A*, 2>& rows, int64_t n, int64_t) {
    Carry<A> carry{op.neutral, op.neutral};
    scan_run<false>(op, rows[0], rows[1], n, carry, options);
  });
}

/// The lowest and the highest value of the input's type.
template <class A>
A lowest(DType in) {
  if constexpr (std::is_floating_point_v<A>) return -std::numeric_limits<A>::infinity();
  return visit(in, [](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) return static_cast<A>(std::numeric_limits<T>::min());
    return A{0};
  });
}
template <class A>
A highest(DType in) {
  if constexpr (std::is_floating_point_v<A>) return std::numeric_limits<A>::infinity();
  return visit(in, [](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) return static_cast<A>(std::numeric_limits<T>::max());
    return A{0};
  });
}

template <class A>
void scan_as(ScanOp op, const Tensor& out, const Tensor& in, int axis, const ScanOptions& options) {
  switch (op) {
    case ScanOp::cumsum:
      return scan_with<A>(Sum<A>{}, out, in, axis, options);
    case ScanOp::cumprod:
      return scan_with<A>(Prod<A>{}, out, in, axis, options);
    case ScanOp::cummax:
      return scan_with<A>(Max<A>{lowest<A>(in.dtype)}, out, in, axis, options);
    case ScanOp::cummin:
      return scan_with<A>(Min<A>{highest<A>(in.dtype)}, out, in, axis, options);
    case ScanOp::logcumsumexp:
      if constexpr (std::is_floating_point_v<A>) scan_with<A>(LogSumExp{}, out, in, axis, options);
      return;
  }
}

}  // namespace

const char* to_string(ScanOp op) { return kScanNames[static_cast<int>(op)]; }

DType scan_result(ScanOp op, DType in) {
  if (is_floating(in)) return in;
  if (op == ScanOp::logcumsumexp) return f32;
  return op == ScanOp::cumsum || op == ScanOp::cumprod ? i64 : in;
}

void scan(ScanOp op, const Tensor& out, const Tensor& in, int64_t axis, const ScanOptions& options) {
  MX_CHECK(out.shape == in.shape, InvalidArgument, "[", to_string(op), "] expected a result of shape ",
           in.shape, ", got ", out.shape);
  const int along = normalize_axis(axis, std::max(in.rank(), 1), to_string(op));
  if (in.numel() == 0) return;
  if (is_floating(in.dtype) || op == ScanOp::logcumsumexp) {
    scan_as<double>(op, out, in, along, options);
  } else {
    scan_as<int64_t>(op, out, in, along, options);
  }
}

void linear_recurrence(const Tensor& out, const Tensor& a, const Tensor& b, int64_t axis, bool reverse) {
  const char* const op = "linear_recurrence";
  MX_CHECK(a.shape == out.shape && b.shape == out.shape, InvalidArgument, "[", op,
           "] expected operands of the result's shape ", out.shape, ", got ", a.shape, " and ", b.shape);
  MX_CHECK(is_floating(out.dtype) && is_floating(a.dtype) && is_floating(b.dtype), InvalidArgument, "[", op,
           "] expected floating-point elements, got ", a.dtype, " and ", b.dtype, " for ", out.dtype);
  const int along = normalize_axis(axis, std::max(out.rank(), 1), op);
  if (out.numel() == 0) return;
  const std::array<RowOperand, 3> operands{{{&a, true, false}, {&b, true, false}, {&out, false, true}}};
  for_each_row<double, 3>(operands, along, [&](const std::array<double*, 3>& rows, int64_t n, int64_t) {
    const int64_t step = reverse ? -1 : 1;
    int64_t i = reverse ? n - 1 : 0;
    double y = rows[1][i];
    rows[2][i] = y;
    for (int64_t k = 1; k < n; ++k) {
      i += step;
      y = rows[0][i] * y + rows[1][i];
      rows[2][i] = y;
    }
  });
}

}  // namespace mx::kernels
