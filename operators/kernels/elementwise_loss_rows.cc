// The parts of elementwise losses that have the same bits in every instruction set. They are plain loops,
// which the compiler vectorises once for each instruction set without changing a bit.
#include "operators/kernels/elementwise_loss_rows.h"

#include <cmath>

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

// NaN for NaN.
template <class T>
HWY_INLINE T positive_part(T s) {
  return s <= T{0} ? T{0} : s;
}
template <class T>
HWY_INLINE T limited(T z, T limit) {
  return z > limit ? limit : z < -limit ? -limit : z;
}
template <class T>
HWY_INLINE T at_most(T z, T limit) {
  return z < limit ? z : limit;
}

/// Defaults that most losses share.
struct Plain {
  static constexpr bool kWeighted = false;
  static constexpr LossInner kForValue = LossInner::none, kForSlope = LossInner::none;
};

struct Mse : Plain {
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return (a.x - a.t) * (a.x - a.t);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return T{2} * (a.x - a.t);
  }
};

struct L1 : Plain {
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return std::fabs(a.x - a.t);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    const T z = a.x - a.t;
    return z > T{0} ? T{1} : z < T{0} ? T{-1} : z;  // NaN for NaN
  }
};

/// The square only up to the parameter; linear beyond it.
struct Huber : Plain {
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    const T z = std::fabs(a.x - a.t), near = at_most(z, a.p);
    return T{0.5} * near * near + a.p * (z - near);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return limited(a.x - a.t, a.p);
  }
};

struct SmoothL1 : Plain {
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    const T z = std::fabs(a.x - a.t), near = at_most(z, a.p);
    return T{0.5} * near * (near / a.p) + (z - near);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return limited((a.x - a.t) / a.p, T{1});
  }
};

struct Bce : Plain {
  static constexpr LossInner kForValue = LossInner::bce;
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return a.e;
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    const T variance = a.x * (T{1} - a.x), least = T{1e-12};  // PyTorch's bound
    return (a.x - a.t) / (variance < least ? least : variance);
  }
};

struct BceWithLogits {
  static constexpr bool kWeighted = true;
  static constexpr LossInner kForValue = LossInner::softplus_of_minus_x, kForSlope = LossInner::sigmoid_of_x;
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return (T{1} - a.t) * a.x + (T{1} + (a.w - T{1}) * a.t) * a.e;
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return (T{1} - a.t) * a.e - a.w * a.t * (T{1} - a.e);
  }
};

struct KlDiv : Plain {
  static constexpr LossInner kForValue = LossInner::log_of_target;
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return a.t == T{0} ? T{0} : a.t * (a.e - a.x);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return -a.t;
  }
};

struct KlDivLog : Plain {
  static constexpr LossInner kForValue = LossInner::exp_of_target, kForSlope = LossInner::exp_of_target;
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return a.e == T{0} ? T{0} : a.e * (a.t - a.x);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return -a.e;
  }
};

struct Hinge : Plain {
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return positive_part(a.p - a.x * a.t);
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    return a.p - a.x * a.t <= T{0} ? T{0} : -a.t;
  }
};

struct HingeEmbedding : Plain {
  template <class T>
  static HWY_INLINE T value(const At<T>& a) {
    return a.t == T{1} ? a.x : a.t == T{-1} ? positive_part(a.p - a.x) : T{0};
  }
  template <class T>
  static HWY_INLINE T slope(const At<T>& a) {
    const T unlike = a.p - a.x <= T{0} ? T{0} : T{-1};
    return a.t == T{1} ? T{1} : a.t == T{-1} ? unlike : T{0};
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

/// Calls f(F{}), where F has the functions of the loss.
template <class Visitor>
auto visit_loss(ElementwiseLoss op, const Visitor& f) {
  switch (op) {
    case ElementwiseLoss::mse:
      return f(Mse{});
    case ElementwiseLoss::l1:
      return f(L1{});
    case ElementwiseLoss::huber:
      return f(Huber{});
    case ElementwiseLoss::smooth_l1:
      return f(SmoothL1{});
    case ElementwiseLoss::bce:
      return f(Bce{});
    case ElementwiseLoss::bce_with_logits:
      return f(BceWithLogits{});
    case ElementwiseLoss::kl_div:
      return f(KlDiv{});
    case ElementwiseLoss::kl_div_log:
      return f(KlDivLog{});
    case ElementwiseLoss::hinge:
      return f(Hinge{});
    case ElementwiseLoss::hinge_embedding:
      break;
  }
  return f(HingeEmbedding{});
}

LossRows find_values(ElementwiseLoss op, DType computing) {
  return visit_loss(op, [computing](auto loss) -> LossRows {
    using F = decltype(loss);
    return {computing == DType::f64 ? values<F, double> : values<F, float>, F::kForValue};
  });
}
LossRows find_slopes(ElementwiseLoss op, DType computing) {
  return visit_loss(op, [computing](auto loss) -> LossRows {
    using F = decltype(loss);
    return {computing == DType::f64 ? slopes<F, double> : slopes<F, float>, F::kForSlope};
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
