#include "operators/kernels/update_step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/update_step.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::GradientStep;
using detail::StateRun;

/// Which slots of the state a run has.
struct Slots {
  bool s0, s1, s2;
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> set(D d, double value) {
  return hn::Set(d, static_cast<T>(value));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gradient_of(D d, const GradientStep& rule, V g, V w) {
  g = hn::Mul(g, set(d, rule.scale));
  if (rule.clip > 0) {
    const V limit = set(d, rule.clip);
    g = at_least(hn::Neg(limit), at_most(limit, g));  // NaN stays NaN
  }
  return rule.weight_decay != 0 ? hn::MulAdd(w, set(d, rule.weight_decay), g) : g;
}

/// Returns decay * average + (1 - decay) * x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V averaged(D d, double decay, V average, V x) {
  return hn::MulAdd(average, set(d, decay), hn::Mul(x, set(d, 1 - decay)));
}

/// Returns 1, -1, or x itself if it is 0 or NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sign_of(D d, V x) {
  const V zero = hn::Zero(d);
  return hn::IfThenElse(hn::Gt(x, zero), set(d, 1), hn::IfThenElse(hn::Lt(x, zero), set(d, -1), x));
}

// One function for each rule: g is the gradient after gradient_of().

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::SgdStep& rule, Slots has, V& w, V g, V& u, V&, V&) {
  V change = g;
  if (has.s0) {
    u = rule.first ? g : hn::MulAdd(u, set(d, rule.momentum), hn::Mul(g, set(d, rule.kept)));
    change = rule.nesterov ? hn::MulAdd(u, set(d, rule.momentum), hn::Mul(g, set(d, rule.look))) : u;
  }
  w = hn::NegMulAdd(change, set(d, rule.rate), w);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::AdamStep& rule, Slots has, V& w, V g, V& m, V& v, V& largest) {
  m = averaged(d, rule.beta1, m, g);
  v = averaged(d, rule.beta2, v, hn::Mul(g, g));
  if (has.s2) largest = at_least(largest, v);
  const V size = hn::MulAdd(hn::Sqrt(has.s2 ? largest : v), set(d, rule.root), set(d, rule.eps));
  w = hn::NegMulAdd(hn::Div(m, size), set(d, rule.rate), hn::Mul(w, set(d, rule.shrink)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::AdagradStep& rule, Slots, V& w, V g, V& sum, V&, V&) {
  sum = hn::MulAdd(g, g, sum);
  w = hn::NegMulAdd(hn::Div(g, hn::Add(hn::Sqrt(sum), set(d, rule.eps))), set(d, rule.rate), w);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::AdadeltaStep& rule, Slots, V& w, V g, V& square, V& changes, V&) {
  const V eps = set(d, rule.eps);
  square = averaged(d, rule.rho, square, hn::Mul(g, g));
  const V change = hn::Mul(hn::Div(hn::Sqrt(hn::Add(changes, eps)), hn::Sqrt(hn::Add(square, eps))), g);
  changes = averaged(d, rule.rho, changes, hn::Mul(change, change));
  w = hn::NegMulAdd(change, set(d, rule.rate), w);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::RmspropStep& rule, Slots has, V& w, V g, V& square, V& mean, V& u) {
  square = averaged(d, rule.alpha, square, hn::Mul(g, g));
  V variance = square;
  if (has.s1) {
    mean = averaged(d, rule.alpha, mean, g);
    // Rounding can make the difference of two nearly equal numbers negative.
    variance = at_least(hn::Zero(d), hn::NegMulAdd(mean, mean, square));
  }
  V change = hn::Div(g, hn::Add(hn::Sqrt(variance), set(d, rule.eps)));
  if (has.s2) change = u = hn::MulAdd(u, set(d, rule.momentum), change);
  w = hn::NegMulAdd(change, set(d, rule.rate), w);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::AdamaxStep& rule, Slots, V& w, V g, V& m, V& norm, V&) {
  m = averaged(d, rule.beta1, m, g);
  norm = at_least(hn::Mul(norm, set(d, rule.beta2)), hn::Add(hn::Abs(g), set(d, rule.eps)));
  w = hn::NegMulAdd(hn::Div(m, norm), set(d, rule.rate), w);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::NadamStep& rule, Slots, V& w, V g, V& m, V& v, V&) {
  m = averaged(d, rule.beta1, m, g);
  v = averaged(d, rule.beta2, v, hn::Mul(g, g));
  const V size = hn::MulAdd(hn::Sqrt(v), set(d, rule.root), set(d, rule.eps));
  const V ahead = hn::MulAdd(g, set(d, rule.gradient_rate), hn::Mul(m, set(d, rule.moment_rate)));
  w = hn::Sub(hn::Mul(w, set(d, rule.shrink)), hn::Div(ahead, size));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::RadamStep& rule, Slots, V& w, V g, V& m, V& v, V&) {
  m = averaged(d, rule.beta1, m, g);
  v = averaged(d, rule.beta2, v, hn::Mul(g, g));
  const V change = rule.rectified ? hn::Div(m, hn::Add(hn::Sqrt(v), set(d, rule.eps))) : m;
  w = hn::NegMulAdd(change, set(d, rule.rate), hn::Mul(w, set(d, rule.shrink)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::FtrlStep& rule, Slots, V& w, V g, V& z, V& squares, V&) {
  const V before = hn::Sqrt(squares), per_rate = set(d, 1 / rule.rate), limit = set(d, rule.lambda1);
  squares = hn::MulAdd(g, g, squares);
  const V root = hn::Sqrt(squares);
  z = hn::Add(z, hn::NegMulAdd(hn::Mul(hn::Sub(root, before), per_rate), w, g));
  const V above = hn::Sub(hn::Mul(sign_of(d, z), limit), z);
  const V size = hn::MulAdd(hn::Add(set(d, rule.beta), root), per_rate, set(d, rule.weight_decay));
  w = hn::IfThenElse(hn::Le(hn::Abs(z), limit), hn::Zero(d), hn::Div(above, size));  // NaN stays NaN
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::SignumStep& rule, Slots has, V& w, V g, V& u, V&, V&) {
  if (has.s0) g = u = averaged(d, rule.momentum, u, g);
  w = hn::NegMulAdd(sign_of(d, g), set(d, rule.rate), hn::Mul(w, set(d, rule.shrink)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::RpropStep& rule, Slots, V& w, V g, V& previous, V& size, V&) {
  const V zero = hn::Zero(d), product = hn::Mul(g, previous);
  const auto turned = hn::Lt(product, zero);
  const V factor = hn::IfThenElse(hn::Gt(product, zero), set(d, rule.eta_plus),
                                  hn::IfThenElse(turned, set(d, rule.eta_minus), set(d, 1)));
  size = at_least(set(d, rule.step_min), at_most(set(d, rule.step_max), hn::Mul(size, factor)));
  previous = hn::IfThenElse(turned, zero, g);
  w = hn::NegMulAdd(sign_of(d, previous), size, w);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::AsgdStep& rule, Slots, V& w, V g, V& average, V&, V&) {
  w = hn::NegMulAdd(g, set(d, rule.rate), hn::Mul(w, set(d, rule.shrink)));
  average = rule.mu == 1 ? w : hn::MulAdd(hn::Sub(w, average), set(d, rule.mu), average);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::LarsStep& rule, Slots has, V& w, V g, V& u, V&, V&) {
  V change = hn::Mul(g, set(d, rule.rate));
  if (has.s0) change = u = hn::MulAdd(u, set(d, rule.momentum), change);
  w = hn::Sub(w, change);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void step(D d, const detail::LambStep& rule, Slots, V& w, V g, V& m, V& v, V& direction) {
  if (rule.moments) {
    m = averaged(d, rule.beta1, m, g);
    v = averaged(d, rule.beta2, v, hn::Mul(g, g));
  }
  const V size = hn::MulAdd(hn::Sqrt(v), set(d, rule.root), set(d, rule.eps));
  const V change =
      hn::MulAdd(w, set(d, rule.weight_decay), hn::Div(hn::Mul(m, set(d, rule.correction)), size));
  direction = change;
  if (!rule.moments) w = hn::NegMulAdd(change, set(d, rule.rate), w);
}

template <class T, class Rule>
HWY_INLINE void apply_rule(const Rule& rule, T* HWY_RESTRICT w, const T* HWY_RESTRICT g, T* HWY_RESTRICT s0,
                           T* HWY_RESTRICT s1, T* HWY_RESTRICT s2, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Slots has = {s0 != nullptr, s1 != nullptr, s2 != nullptr};
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto x = hn::LoadU(d, w + i);
    if (has.s0) a = hn::LoadU(d, s0 + i);
    if (has.s1) b = hn::LoadU(d, s1 + i);
    if (has.s2) c = hn::LoadU(d, s2 + i);
    step(d, rule, has, x, gradient_of(d, rule.gradient, hn::LoadU(d, g + i), x), a, b, c);
    hn::StoreU(x, d, w + i);
    if (has.s0) hn::StoreU(a, d, s0 + i);
    if (has.s1) hn::StoreU(b, d, s1 + i);
    if (has.s2) hn::StoreU(c, d, s2 + i);
  }
  if (i >= n) return;
  const int64_t left = n - i;
  auto x = load_tail(d, w + i, left, T{0});
  if (has.s0) a = load_tail(d, s0 + i, left, T{0});
  if (has.s1) b = load_tail(d, s1 + i, left, T{0});
  if (has.s2) c = load_tail(d, s2 + i, left, T{0});
  step(d, rule, has, x, gradient_of(d, rule.gradient, load_tail(d, g + i, left, T{0}), x), a, b, c);
  store_tail(d, x, w + i, left);
  if (has.s0) store_tail(d, a, s0 + i, left);
  if (has.s1) store_tail(d, b, s1 + i, left);
  if (has.s2) store_tail(d, c, s2 + i, left);
}

/// Calls apply_rule() with the alternative that `rule` holds, from number I on.
template <size_t I, class T>
HWY_INLINE void apply_alternative(const detail::Step& rule, T* w, const T* g, const StateRun<T>& s,
                                  int64_t n) {
  if constexpr (I < std::variant_size_v<detail::Step>) {
    if (const auto* held = std::get_if<I>(&rule)) {
      apply_rule<T>(*held, w, g, s[0], s[1], s[2], n);
    } else {
      apply_alternative<I + 1>(rule, w, g, s, n);
    }
  }
}

void apply_f32(const detail::Step& rule, float* w, const float* g, const StateRun<float>& s, int64_t n) {
  apply_alternative<0>(rule, w, g, s, n);
}
void apply_f64(const detail::Step& rule, double* w, const double* g, const StateRun<double>& s, int64_t n) {
  apply_alternative<0>(rule, w, g, s, n);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(apply_f32);
HWY_EXPORT(apply_f64);

namespace detail {

void apply(const Step& step, float* w, const float* g, const StateRun<float>& s, int64_t n) {
  HWY_DYNAMIC_DISPATCH(apply_f32)(step, w, g, s, n);
}
void apply(const Step& step, double* w, const double* g, const StateRun<double>& s, int64_t n) {
  HWY_DYNAMIC_DISPATCH(apply_f64)(step, w, g, s, n);
}

}  // namespace detail
}  // namespace mx::kernels
#endif
