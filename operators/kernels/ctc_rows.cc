#include "operators/kernels/ctc_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/ctc_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// Calls f(load, store) for each vector of n elements: load(x) and store(v, x) access the elements of x
/// there.
template <class D, class F>
HWY_INLINE void each_vector(D d, int64_t n, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    f([&](const double* x) HWY_ATTR { return hn::LoadU(d, x + i); },
      [&](hn::Vec<D> v, double* x) HWY_ATTR { hn::StoreU(v, d, x + i); });
  if (i < n)
    f([&](const double* x) HWY_ATTR { return load_tail(d, x + i, n - i, 0.); },
      [&](hn::Vec<D> v, double* x) HWY_ATTR { store_tail(d, v, x + i, n - i); });
}

/// From here on exponentials are subnormal numbers, which take the processor a hundred cycles each.
constexpr double kLeastExponent = -700;

/// log(exp(a) + exp(b) + exp(c)). The exponential of the largest one, less itself, is 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_sum(D d, V a, V b, V c) {
  const V high = max_or_nan(d, a, b), low = min_or_nan(d, a, b);
  const V top = max_or_nan(d, high, c), middle = min_or_nan(d, high, c);
  const auto none = hn::Eq(top, hn::Set(d, -std::numeric_limits<double>::infinity()));
  const V shift = hn::IfThenZeroElse(none, top);  // -infinity less itself would be NaN
  // Beside 1, the exponential of the limit is nothing.
  const V limit = hn::Set(d, kLeastExponent);
  const V rest = hn::Add(exp_of(d, at_least(limit, hn::Sub(low, shift))),
                         exp_of(d, at_least(limit, hn::Sub(middle, shift))));
  return hn::IfThenElse(none, top, hn::Add(top, hn::Log(d, hn::Add(hn::Set(d, 1.), rest))));
}

void next_states(const detail::CtcStates& s, int64_t n) {
  const hn::ScalableTag<double> d;
  each_vector(d, n, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto skip = hn::Add(load(s.skip), load(s.may_skip));
    store(hn::Add(log_sum(d, load(s.stay), load(s.step), skip), load(s.score)), s.to);
  });
}

void shares_of(const double* alpha, const double* beta, const double* score, double loss, double* shares,
               int64_t n) {
  const hn::ScalableTag<double> d;
  const auto never = hn::Set(d, -std::numeric_limits<double>::infinity()), all = hn::Set(d, loss),
             least = hn::Set(d, kLeastExponent);
  each_vector(d, n, [&](const auto& load, const auto& store) HWY_ATTR {
    const auto a = load(alpha), b = load(beta);
    const auto x = hn::Add(hn::Sub(hn::Add(a, b), load(score)), all);
    const auto none = hn::Or(hn::Or(hn::Eq(a, never), hn::Eq(b, never)), hn::Lt(x, least));
    store(hn::IfThenZeroElse(none, exp_of(d, at_least(least, x))), shares);
  });
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels::detail {
HWY_EXPORT(next_states);
HWY_EXPORT(shares_of);

void ctc_next_states(const CtcStates& states, int64_t n) { HWY_DYNAMIC_DISPATCH(next_states)(states, n); }
void ctc_shares(const double* alpha, const double* beta, const double* score, double loss, double* shares,
                int64_t n) {
  HWY_DYNAMIC_DISPATCH(shares_of)(alpha, beta, score, loss, shares, n);
}

}  // namespace mx::kernels::detail
#endif
