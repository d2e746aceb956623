#include "operators/kernels/scan.h"

#include <cmath>
#include <limits>
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

/// y = scan of x, on from `carry`; returns the carry at the end. y may be x.
template <class A, class Op>
A scan_run(const Op& op, const A* x, A* y, int64_t n, A carry, const ScanOptions& options) {
  const int64_t step = options.reverse ? -1 : 1;
  int64_t i = options.reverse ? n - 1 : 0;
  for (int64_t k = 0; k < n; ++k, i += step) {
    const A next = op(carry, x[i]);
    y[i] = options.exclusive ? carry : next;
    carry = next;
  }
  return carry;
}

/// Rows in pieces: the total of each, what each starts from, then each by itself.
template <class A, class Op>
void scan_long(const Op& op, const RowPlan<2>& plan, const Tensor& out, const Tensor& in,
               const ScanOptions& options) {
  const int64_t pieces = (plan.n + kScanPiece - 1) / kScanPiece;
  std::vector<A> carry(static_cast<size_t>(plan.rows * pieces));
  // Pieces are numbered in the order in which the row is walked.
  const auto for_each_piece = [&](const auto& body) {
    parallel_for(plan.rows * pieces, 1, [&](int64_t task, int64_t) {
      const int64_t row = task / pieces, number = task % pieces;
      const int64_t begin = (options.reverse ? pieces - 1 - number : number) * kScanPiece;
      const int64_t n = std::min(kScanPiece, plan.n - begin);
      const auto first = plan.offsets(row);
      std::unique_ptr<A[]> buffer(new A[static_cast<size_t>(n)]);
      load_run(buffer.get(), in.data, in.dtype, first[0] + begin * plan.stride[0], plan.stride[0], n);
      body(carry[static_cast<size_t>(task)], buffer.get(), n, first[1] + begin * plan.stride[1]);
    });
  };
  for_each_piece(
      [&](A& total, A* x, int64_t n, int64_t) { total = scan_run(op, x, x, n, op.neutral, options); });
  for (int64_t row = 0; row < plan.rows; ++row) {
    A before = op.neutral;
    for (int64_t p = 0; p < pieces; ++p) {
      A& at = carry[static_cast<size_t>(row * pieces + p)];
      const A after = op(before, at);
      at = before;
      before = after;
    }
  }
  for_each_piece([&](const A& start, A* x, int64_t n, int64_t to) {
    scan_run(op, x, x, n, start, options);
    store_run(out.data, out.dtype, to, plan.stride[1], x, n);
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
    scan_run(op, rows[0], rows[1], n, op.neutral, options);
  });
}

/// The ends of what the input's type can hold.
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
