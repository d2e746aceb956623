// The parts of elementwise losses that have the same bits in every instruction set. They are plain loops,
// which the compiler vectorises once for each instruction set without changing a bit.
#include "operators/kernels/elementwise_loss_rows.h"

#include "operators/loss_formulas.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/elementwise_loss_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// The operands of one element: x, target, inner, weight and the parameter.
template <class T>
struct At {
  T x, t, e, w, p;
};

template <ElementwiseLoss kOp>
struct Loss {
  static constexpr bool kWeighted = kOp == ElementwiseLoss::bce_with_logits;

  /// Return which function of x and the target the caller computes beforehand for a whole row. Its value is
  /// that of loss_inner() or slope_inner() in loss_formulas.h.
  static constexpr LossInner for_value() {
    switch (kOp) {
      case ElementwiseLoss::bce:
        return LossInner::bce;
      case ElementwiseLoss::bce_with_logits:
        return LossInner::softplus_of_minus_x;
      case ElementwiseLoss::kl_div:
        return LossInner::log_of_target;
      case ElementwiseLoss::kl_div_log:
        return LossInner::exp_of_target;
      default:
        return LossInner::none;
    }
  }
  static constexpr LossInner for_slope() {
    switch (kOp) {
      case ElementwiseLoss::bce_with_logits:
        return LossInner::sigmoid_of_x;
      case ElementwiseLoss::kl_div_log:
        return LossInner::exp_of_target;
      default:
        return LossInner::none;
    }
  }

  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return formulas::loss_value(kOp, a.x, a.t, a.e, a.w, a.p);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return formulas::loss_slope(kOp, a.x, a.t, a.e, a.w, a.p);
  }
};

/// The elements of a run. An operand that the function does not use is not read.
template <class T, bool kWeighted>
class Elements {
 public:
  explicit Elements(const LossRun& in)
      : x_(static_cast<const T*>(in.x)),
        t_(static_cast<const T*>(in.target)),
        e_(in.inner != nullptr ? static_cast<const T*>(in.inner) : x_),
        w_(static_cast<const T*>(in.weight)),
        p_(static_cast<T>(in.parameter)) {}
  HWY_INLINE At<T> operator[](int64_t i) const { return {x_[i], t_[i], e_[i], kWeighted ? w_[i] : T{1}, p_}; }

 private:
  const T *x_, *t_, *e_, *w_;
  T p_;
};

template <class F, class T, bool kWeighted>
void value_row(void* out, const LossRun& in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const Elements<T, kWeighted> at(in);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = F::value(at[i]);
}

template <class F, class T, bool kWeighted, bool kEach>
void slope_row(void* out, const LossRun& in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const Elements<T, kWeighted> at(in);
  const T* const h = static_cast<const T*>(in.head);
  const T scale = static_cast<T>(in.scale);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = F::slope(at[i]) * (kEach ? h[i] : scale);
}

template <class F, class T>
void values(void* out, const LossRun& in, int64_t n) {
  if (in.weight != nullptr) return value_row<F, T, F::kWeighted>(out, in, n);
  value_row<F, T, false>(out, in, n);
}
template <class F, class T>
void slopes(void* out, const LossRun& in, int64_t n) {
  constexpr bool w = F::kWeighted;
  const bool each = in.head != nullptr;
  if (in.weight != nullptr) return (each ? slope_row<F, T, w, true> : slope_row<F, T, w, false>)(out, in, n);
  (each ? slope_row<F, T, false, true> : slope_row<F, T, false, false>)(out, in, n);
}

// Enough accumulators to hide the latency of an addition.
template <class T>
double sum(const void* values, int64_t n) {
  constexpr int64_t kSums = 64;
  const T* const v = static_cast<const T*>(values);
  T sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t k = 0; k < kSums; ++k) sums[k] += v[i + k];
  for (int64_t k = 0; i + k < n; ++k) sums[k] += v[i + k];
  for (int64_t width = kSums / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) sums[k] += sums[k + width];
  return static_cast<double>(sums[0]);
}

/// Calls f(Loss<op>{}).
template <class Visitor>
auto visit_loss(ElementwiseLoss op, const Visitor& f) {
  using enum ElementwiseLoss;
  switch (op) {
    case mse:
      return f(Loss<mse>{});
    case l1:
      return f(Loss<l1>{});
    case huber:
      return f(Loss<huber>{});
    case smooth_l1:
      return f(Loss<smooth_l1>{});
    case bce:
      return f(Loss<bce>{});
    case bce_with_logits:
      return f(Loss<bce_with_logits>{});
    case kl_div:
      return f(Loss<kl_div>{});
    case kl_div_log:
      return f(Loss<kl_div_log>{});
    case hinge:
      return f(Loss<hinge>{});
    case hinge_embedding:
      break;
  }
  return f(Loss<hinge_embedding>{});
}

LossRows find_values(ElementwiseLoss op, DType computing) {
  return visit_loss(op, [computing](auto loss) -> LossRows {
    using F = decltype(loss);
    return {computing == DType::f64 ? values<F, double> : values<F, float>, F::for_value()};
  });
}
LossRows find_slopes(ElementwiseLoss op, DType computing) {
  return visit_loss(op, [computing](auto loss) -> LossRows {
    using F = decltype(loss);
    return {computing == DType::f64 ? slopes<F, double> : slopes<F, float>, F::for_slope()};
  });
}
LossSum find_sum(DType computing) { return computing == DType::f64 ? sum<double> : sum<float>; }

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_values);
HWY_EXPORT(find_slopes);
HWY_EXPORT(find_sum);
LossRows loss_values(ElementwiseLoss op, DType computing) {
  return HWY_DYNAMIC_DISPATCH(find_values)(op, computing);
}
LossRows loss_slopes(ElementwiseLoss op, DType computing) {
  return HWY_DYNAMIC_DISPATCH(find_slopes)(op, computing);
}
LossSum loss_sum(DType computing) { return HWY_DYNAMIC_DISPATCH(find_sum)(computing); }
}  // namespace mx::kernels
#endif
