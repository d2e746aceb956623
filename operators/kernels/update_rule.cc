#include "operators/kernels/update_rule.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/update_rule.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::AdamRule;
using detail::GradientRule;
using detail::SgdRule;

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> set(D d, double value) {
  return hn::Set(d, static_cast<T>(value));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gradient_of(D d, const GradientRule& rule, V g, V w) {
  g = hn::Mul(g, set(d, rule.scale));
  if (rule.clip > 0) {
    const V limit = set(d, rule.clip);
    g = at_least(hn::Neg(limit), at_most(limit, g));  // NaN stays NaN
  }
  return rule.weight_decay != 0 ? hn::MulAdd(w, set(d, rule.weight_decay), g) : g;
}

template <class T>
struct Sgd {
  const SgdRule& rule;
  template <class D, class V>
  HWY_INLINE void operator()(D d, V& w, V g, V& u, V&, bool has_velocity) const {
    g = gradient_of(d, rule.gradient, g, w);
    V step = g;
    if (has_velocity) {
      u = rule.first ? g : hn::MulAdd(u, set(d, rule.momentum), hn::Mul(g, set(d, rule.kept)));
      step = rule.nesterov ? hn::MulAdd(u, set(d, rule.momentum), hn::Mul(g, set(d, rule.look))) : u;
    }
    w = hn::NegMulAdd(step, set(d, rule.rate), w);
  }
};

template <class T>
struct Adam {
  const AdamRule& rule;
  template <class D, class V>
  HWY_INLINE void operator()(D d, V& w, V g, V& m, V& v, bool) const {
    g = gradient_of(d, rule.gradient, g, w);
    m = hn::MulAdd(m, set(d, rule.beta1), hn::Mul(g, set(d, 1 - rule.beta1)));
    v = hn::MulAdd(v, set(d, rule.beta2), hn::Mul(hn::Mul(g, g), set(d, 1 - rule.beta2)));
    const V size = hn::MulAdd(hn::Sqrt(v), set(d, rule.root), set(d, rule.eps));
    w = hn::NegMulAdd(hn::Div(m, size), set(d, rule.rate), hn::Mul(w, set(d, rule.shrink)));
  }
};

template <class T, class Rule>
HWY_INLINE void apply_rule(const Rule& rule, T* HWY_RESTRICT w, const T* HWY_RESTRICT g, T* HWY_RESTRICT s0,
                           T* HWY_RESTRICT s1, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto x = hn::LoadU(d, w + i);
    if (s0 != nullptr) a = hn::LoadU(d, s0 + i);
    if (s1 != nullptr) b = hn::LoadU(d, s1 + i);
    rule(d, x, hn::LoadU(d, g + i), a, b, s0 != nullptr);
    hn::StoreU(x, d, w + i);
    if (s0 != nullptr) hn::StoreU(a, d, s0 + i);
    if (s1 != nullptr) hn::StoreU(b, d, s1 + i);
  }
  if (i == n) return;
  auto x = load_tail(d, w + i, n - i, T{0});
  if (s0 != nullptr) a = load_tail(d, s0 + i, n - i, T{0});
  if (s1 != nullptr) b = load_tail(d, s1 + i, n - i, T{0});
  rule(d, x, load_tail(d, g + i, n - i, T{0}), a, b, s0 != nullptr);
  store_tail(d, x, w + i, n - i);
  if (s0 != nullptr) store_tail(d, a, s0 + i, n - i);
  if (s1 != nullptr) store_tail(d, b, s1 + i, n - i);
}

void sgd_f32(const SgdRule& rule, float* w, const float* g, float* s0, int64_t n) {
  apply_rule<float>(Sgd<float>{rule}, w, g, s0, nullptr, n);
}
void sgd_f64(const SgdRule& rule, double* w, const double* g, double* s0, int64_t n) {
  apply_rule<double>(Sgd<double>{rule}, w, g, s0, nullptr, n);
}
void adam_f32(const AdamRule& rule, float* w, const float* g, float* s0, float* s1, int64_t n) {
  apply_rule<float>(Adam<float>{rule}, w, g, s0, s1, n);
}
void adam_f64(const AdamRule& rule, double* w, const double* g, double* s0, double* s1, int64_t n) {
  apply_rule<double>(Adam<double>{rule}, w, g, s0, s1, n);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_f64);
HWY_EXPORT(adam_f32);
HWY_EXPORT(adam_f64);

namespace detail {

void apply(const SgdRule& rule, float* w, const float* g, float* s0, float*, int64_t n) {
  HWY_DYNAMIC_DISPATCH(sgd_f32)(rule, w, g, s0, n);
}
void apply(const SgdRule& rule, double* w, const double* g, double* s0, double*, int64_t n) {
  HWY_DYNAMIC_DISPATCH(sgd_f64)(rule, w, g, s0, n);
}
void apply(const AdamRule& rule, float* w, const float* g, float* s0, float* s1, int64_t n) {
  HWY_DYNAMIC_DISPATCH(adam_f32)(rule, w, g, s0, s1, n);
}
void apply(const AdamRule& rule, double* w, const double* g, double* s0, double* s1, int64_t n) {
  HWY_DYNAMIC_DISPATCH(adam_f64)(rule, w, g, s0, s1, n);
}

}  // namespace detail
}  // namespace mx::kernels
#endif
