#include "operators/kernels/softmax.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/kernels/convert_rows.h"
#include "operators/kernels/reduce.h"
#include "operators/kernels/row_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/softmax.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// y = exp(x - shift); returns the sum in the lanes of a vector. y may be x.
template <class T, class D = hn::ScalableTag<T>>
HWY_INLINE hn::Vec<D> exp_and_sum(const T* x, T* y, int64_t n, T shift) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top = hn::Set(d, shift);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = exp_below(d, hn::Sub(hn::LoadU(d, x + i), top));
    const auto b = exp_below(d, hn::Sub(hn::LoadU(d, x + i + lanes), top));
    hn::StoreU(a, d, y + i);
    hn::StoreU(b, d, y + i + lanes);
    even = hn::Add(even, a);
    odd = hn::Add(odd, b);
  }
  for (; i < n; i += lanes) {
    const int64_t here = n - i < lanes ? n - i : lanes;
    if (here == lanes) {
      const auto v = exp_below(d, hn::Sub(hn::LoadU(d, x + i), top));
      hn::StoreU(v, d, y + i);
      even = hn::Add(even, v);
    } else {
      const auto v =
          exp_below(d, hn::Sub(load_tail(d, x + i, here, -std::numeric_limits<T>::infinity()), top));
      store_tail(d, v, y + i, here);
      odd = hn::Add(odd, v);
    }
  }
  return hn::Add(even, odd);
}

template <class T>
void scale_row(const T* from, T* to, int64_t n, T scale, bool stream) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  int64_t i = 0;
  if (stream) {
    for (; i + lanes <= n; i += lanes) hn::Stream(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
  } else {
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
  }
  for (; i < n; ++i) to[i] = from[i] * scale;
}

/// Softmax for rows of so few vectors that their exponentials stay in registers. Folding the lanes of a
/// vector takes as long as the rest of a row, and the instructions that depend on it would delay the other
/// rows. So the next row's maximum is computed before the exponentials of this row, and the previous row's
/// results are stored after them.
template <int kVectors, class T>
void softmax_in_registers(const RowBlock<T>& x, const RowBlock<T>& y, int64_t count, bool stream) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), step = y.step;
  const auto fold = [](V(&v)[kVectors], const auto& combine) HWY_ATTR {
    V partial[kVectors];
    for (int k = 0; k < kVectors; ++k) partial[k] = v[k];
    for (int left = kVectors; left > 1; left = (left + 1) / 2)
      for (int k = 0; k < left / 2; ++k) partial[k] = combine(partial[k], partial[left - 1 - k]);
    return partial[0];
  };
  const auto top_of = [&](const T* row) HWY_ATTR {
    V v[kVectors];
    for (int k = 0; k < kVectors; ++k) v[k] = hn::LoadU(d, row + k * lanes);
    return hn::MaxOfLanes(d, fold(v, [](V a, V b) HWY_ATTR { return hn::Max(a, b); }));
  };
  const V nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  const T* from = x.first;
  T* to = y.first;
  V exps[kVectors], scale = nan, next = top_of(from);
  const auto store = [&]() HWY_ATTR {
    for (int k = 0; k < kVectors; ++k) {
      const V result = hn::Mul(exps[k], scale);
      stream ? hn::Stream(result, d, to + k * lanes) : hn::StoreU(result, d, to + k * lanes);
    }
    to += step;
  };
  for (int64_t r = 0; r < count; ++r) {
    const V top = next;
    if (r + 1 < count) next = top_of(from + x.step);
    V v[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      v[k] = exp_below(d, hn::Sub(hn::LoadU(d, from + k * lanes), top));
      if (stream)
        hwy::Prefetch(from + count * x.step + k * lanes);  // the next block of rows comes from memory
    }
    if (r > 0) store();
    const V total = hn::SumOfLanes(d, fold(v, [](V a, V b) HWY_ATTR { return hn::Add(a, b); }));
    scale = hn::IfThenElse(hn::IsFinite(top), hn::Div(hn::Set(d, T{1}), total), nan);
    for (int k = 0; k < kVectors; ++k) exps[k] = v[k];
    from += x.step;
  }
  store();
}

/// Softmax of a block's rows, one step after the other for all rows. Within a step the rows are independent,
/// so that the processor works on several while the maximum or sum of a row is being folded. With `scratch`,
/// the exponentials are written there, and the results with non-temporal stores.
template <class T>
void softmax_rows(const RowBlock<T>& x, const RowBlock<T>& y, int64_t n, int64_t count, T* scratch) {
  const hn::ScalableTag<T> d;
  const RowBlock<T> exps = scratch != nullptr ? RowBlock<T>{scratch, n} : y;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T top[kMostRows];
  HWY_ALIGN T totals[kMostRows * (HWY_MAX_BYTES / sizeof(T))];
  for (int64_t r = 0; r < count; ++r) top[r] = exp_shift_of_row(d, x[r], n);
  for (int64_t r = 0; r < count; ++r) {
    if (scratch != nullptr)  // the next block of rows comes from memory
      for (int64_t i = 0; i < n; i += 64 / static_cast<int64_t>(sizeof(T)))
        hwy::Prefetch(x[r] + count * x.step + i);
    hn::Store(exp_and_sum(x[r], exps[r], n, std::isfinite(top[r]) ? top[r] : T{0}), d, totals + r * lanes);
  }
  T scale[kMostRows];
  for (int64_t r = 0; r < count; ++r)
    scale[r] = T{1} / hn::GetLane(hn::SumOfLanes(d, hn::Load(d, totals + r * lanes)));
  for (int64_t r = 0; r < count; ++r) {
    if (std::isfinite(top[r]))
      scale_row(exps[r], y[r], n, scale[r], scratch != nullptr);
    else
      std::fill_n(y[r], n, std::numeric_limits<T>::quiet_NaN());
  }
}

/// Returns the sum of exp(x - top).
template <class T>
HWY_INLINE T sum_of_exp(const T* x, int64_t n, T top) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, top);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, exp_below(d, hn::Sub(hn::LoadU(d, x + i), shift)));
    odd = hn::Add(odd, exp_below(d, hn::Sub(hn::LoadU(d, x + i + lanes), shift)));
  }
  for (; i < n; i += lanes) {
    const auto v = n - i >= lanes ? hn::LoadU(d, x + i)
                                  : load_tail(d, x + i, n - i, -std::numeric_limits<T>::infinity());
    even = hn::Add(even, exp_below(d, hn::Sub(v, shift)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

template <class T>
T logsumexp_row_of(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const T top = exp_shift_of_row(d, x, n);
  return std::isfinite(top) ? top + std::log(sum_of_exp(x, n, top)) : max_row(d, x, n);
}

template <class T>
void log_softmax_row(const T* x, T* y, int64_t n) {
  const hn::ScalableTag<T> d;
  // Subtracts maximum and logarithm one after the other: if the maximum is large, their sum would round the
  // logarithm away.
  T top = exp_shift_of_row(d, x, n), rest = 0;
  if (std::isfinite(top)) {
    rest = std::log(sum_of_exp(x, n, top));
  } else {
    top = std::numeric_limits<T>::quiet_NaN();
  }
  const auto shift = hn::Set(d, top), log = hn::Set(d, rest);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), shift), log), d, y + i);
  for (; i < n; ++i) y[i] = x[i] - top - rest;
}

template <class T>
void exp_row_of(const T* x, T* y, int64_t n, T shift, T scale) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto s = hn::Set(d, shift), f = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(exp_of(d, hn::Sub(hn::LoadU(d, x + i), s)), f), d, y + i);
  if (i < n) store_tail(d, hn::Mul(exp_of(d, hn::Sub(load_tail(d, x + i, n - i, T{0}), s)), f), y + i, n - i);
}

/// kLog: dx = dy - exp(y) * sum(dy). Otherwise: dx = y * (dy - sum(dy * y)).
template <class T, bool kLog>
void backward_row(const T* dy, const T* y, T* dx, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i < n; i += lanes) {
    const bool whole = n - i >= lanes;
    const auto g = whole ? hn::LoadU(d, dy + i) : load_tail(d, dy + i, n - i, T{0});
    if constexpr (kLog) {
      even = hn::Add(even, g);
    } else {
      even = hn::MulAdd(g, whole ? hn::LoadU(d, y + i) : load_tail(d, y + i, n - i, T{0}), even);
    }
    std::swap(even, odd);
  }
  const auto total = hn::SumOfLanes(d, hn::Add(even, odd));
  for (i = 0; i < n; i += lanes) {
    const bool whole = n - i >= lanes;
    const auto g = whole ? hn::LoadU(d, dy + i) : load_tail(d, dy + i, n - i, T{0});
    const auto v = whole ? hn::LoadU(d, y + i) : load_tail(d, y + i, n - i, T{0});
    const auto result = kLog ? hn::NegMulAdd(exp_of(d, v), total, g) : hn::Mul(v, hn::Sub(g, total));
    if (whole) {
      hn::StoreU(result, d, dx + i);
    } else {
      store_tail(d, result, dx + i, n - i);
    }
  }
}

void softmax_f32(const RowBlock<float>& x, const RowBlock<float>& y, int64_t n, int64_t count,
                 float* scratch) {
  if constexpr (kExpBelowKeepsNan<float>) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
    const bool done = [&]<int... kVectors>(std::integer_sequence<int, kVectors...>) HWY_ATTR {
      return ((n == (kVectors + 1) * lanes &&
               (softmax_in_registers<kVectors + 1>(x, y, count, scratch != nullptr), true)) ||
              ...);
    }
    (std::make_integer_sequence<int, 8>());
    if (done) return;
  }
  softmax_rows(x, y, n, count, scratch);
}
void softmax_f64(const RowBlock<double>& x, const RowBlock<double>& y, int64_t n, int64_t count) {
  softmax_rows<double>(x, y, n, count, nullptr);
}
void log_softmax_f32(const float* x, float* y, int64_t n) { log_softmax_row(x, y, n); }
void log_softmax_f64(const double* x, double* y, int64_t n) { log_softmax_row(x, y, n); }
float logsumexp_f32(const float* x, int64_t n) { return logsumexp_row_of(x, n); }
double logsumexp_f64(const double* x, int64_t n) { return logsumexp_row_of(x, n); }
void exp_f32(const float* x, float* y, int64_t n, float shift, float scale) {
  exp_row_of(x, y, n, shift, scale);
}
void exp_f64(const double* x, double* y, int64_t n, double shift, double scale) {
  exp_row_of(x, y, n, shift, scale);
}
void softmax_backward_f32(const float* dy, const float* y, float* dx, int64_t n, bool log) {
  log ? backward_row<float, true>(dy, y, dx, n) : backward_row<float, false>(dy, y, dx, n);
}
void softmax_backward_f64(const double* dy, const double* y, double* dx, int64_t n, bool log) {
  log ? backward_row<double, true>(dy, y, dx, n) : backward_row<double, false>(dy, y, dx, n);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);
HWY_EXPORT(log_softmax_f32);
HWY_EXPORT(log_softmax_f64);
HWY_EXPORT(logsumexp_f32);
HWY_EXPORT(logsumexp_f64);
HWY_EXPORT(exp_f32);
HWY_EXPORT(exp_f64);
HWY_EXPORT(softmax_backward_f32);
HWY_EXPORT(softmax_backward_f64);

namespace {

constexpr int64_t kScratchBytes = 16384;

int check(const char* op, std::initializer_list<const Tensor*> operands, int64_t axis) {
  const Tensor& first = **operands.begin();
  for (const Tensor* t : operands) {
    MX_CHECK(t->shape == first.shape, InvalidArgument, "[", op, "] expected operands of the same shape, got ",
             first.shape, " and ", t->shape);
    MX_CHECK(is_floating(t->dtype), InvalidArgument, "[", op, "] expected a floating-point type, got ",
             t->dtype);
  }
  return normalize_axis(axis, std::max(first.rank(), 1), op);
}

bool any_f64(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* t : operands)
    if (t->dtype == f64) return true;
  return false;
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

}  // namespace

void softmax(const Tensor& y, const Tensor& x, int64_t axis) {
  const int along = check("softmax", {&x, &y}, axis);
  const std::array<RowOperand, 2> operands{{{&x, true, false}, {&y, false, true}}};
  if (any_f64({&x, &y})) {
    for_each_row_block<double, 2>(
        operands, along, [](const std::array<RowBlock<double>, 2>& rows, int64_t n, int64_t, int64_t count) {
          HWY_DYNAMIC_DISPATCH(softmax_f64)(rows[0], rows[1], n, count);
        });
    return;
  }
  const bool large = y.dtype == f32 && y.numel() * 4 >= kStreamBytes;
  for_each_row_block<float, 2>(
      operands, along,
      [&](const std::array<RowBlock<float>, 2>& rows, int64_t n, int64_t, int64_t count) {
        alignas(64) float scratch[kScratchBytes / sizeof(float)];
        const bool stream = large && count * n * 4 <= kScratchBytes && n % 16 == 0 &&
                            aligned(rows[1].first) && rows[1].step % 16 == 0;
        HWY_DYNAMIC_DISPATCH(softmax_f32)(rows[0], rows[1], n, count, stream ? scratch : nullptr);
      },
      [&] {
        if (large) hwy::FlushStream();  // only this thread can order its non-temporal stores
      });
}

void log_softmax(const Tensor& y, const Tensor& x, int64_t axis) {
  const int along = check("log_softmax", {&x, &y}, axis);
  const std::array<RowOperand, 2> operands{{{&x, true, false}, {&y, false, true}}};
  if (any_f64({&x, &y})) {
    for_each_row<double, 2>(operands, along, [](const std::array<double*, 2>& rows, int64_t n, int64_t) {
      HWY_DYNAMIC_DISPATCH(log_softmax_f64)(rows[0], rows[1], n);
    });
  } else {
    for_each_row<float, 2>(operands, along, [](const std::array<float*, 2>& rows, int64_t n, int64_t) {
      HWY_DYNAMIC_DISPATCH(log_softmax_f32)(rows[0], rows[1], n);
    });
  }
}

void logsumexp(const Tensor& y, const Tensor& x, int64_t axis) {
  if (x.rank() == 0) {
    normalize_axis(axis, 1, "logsumexp");
    reduce(ReduceOp::logsumexp, y, x, {});
  } else {
    reduce(ReduceOp::logsumexp, y, x, {axis});
  }
}

namespace {

void backward(const Tensor& dx, const Tensor& dy, const Tensor& y, int along, bool log) {
  const std::array<RowOperand, 3> operands{{{&dy, true, false}, {&y, true, false}, {&dx, false, true}}};
  if (any_f64({&dx, &dy, &y})) {
    for_each_row<double, 3>(operands, along, [=](const std::array<double*, 3>& rows, int64_t n, int64_t) {
      HWY_DYNAMIC_DISPATCH(softmax_backward_f64)(rows[0], rows[1], rows[2], n, log);
    });
  } else {
    for_each_row<float, 3>(operands, along, [=](const std::array<float*, 3>& rows, int64_t n, int64_t) {
      HWY_DYNAMIC_DISPATCH(softmax_backward_f32)(rows[0], rows[1], rows[2], n, log);
    });
  }
}

}  // namespace

void softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t axis) {
  backward(dx, dy, y, check("softmax_backward", {&dx, &dy, &y}, axis), false);
}

void log_softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t axis) {
  backward(dx, dy, y, check("log_softmax_backward", {&dx, &dy, &y}, axis), true);
}

namespace detail {

float logsumexp_row(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(logsumexp_f32)(x, n); }
double logsumexp_row(const double* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(logsumexp_f64)(x, n); }
void exp_row(const float* x, float* y, int64_t n, float shift, float scale) {
  HWY_DYNAMIC_DISPATCH(exp_f32)(x, y, n, shift, scale);
}
void exp_row(const double* x, double* y, int64_t n, double shift, double scale) {
  HWY_DYNAMIC_DISPATCH(exp_f64)(x, y, n, shift, scale);
}

}  // namespace detail
}  // namespace mx::kernels
#endif
