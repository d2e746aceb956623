#include "operators/kernels/norm_rows.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/norm_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::Dots;
using detail::Moments;
using detail::NormRows;
using detail::Runs;

/// Calls f(offset, lanes) for the vectors of n elements; lanes < Lanes(d) only for the last one.
template <class D, class F>
HWY_INLINE void each_vector(D d, int64_t n, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, lanes);
  if (i < n) f(i, n - i);
}

/// Loads `here` elements; the other lanes are 0.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_some(D d, const T* x, int64_t here) {
  return here == static_cast<int64_t>(hn::Lanes(d)) ? hn::LoadU(d, x) : load_tail(d, x, here, T{0});
}
template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
HWY_INLINE void store_some(D d, V v, T* to, int64_t here) {
  if (here == static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(v, d, to);
  } else {
    store_tail(d, v, to, here);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE double sum_of(D d, V v) {
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, v)));
}

/// Folds all runs into the sums of two values per element, step(vector, sum, other).
template <class T, class Step>
HWY_INLINE std::pair<double, double> fold_runs(const Runs<T>& x, T fill, const Step& step) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  for (int64_t r = 0; r < x.count; ++r) {
    const T* const row = x.data + r * x.pitch;
    int64_t i = 0;
    for (; i + 4 * lanes <= x.n; i += 4 * lanes) {
      step(hn::LoadU(d, row + i), a0, b0);
      step(hn::LoadU(d, row + i + lanes), a1, b1);
      step(hn::LoadU(d, row + i + 2 * lanes), a2, b2);
      step(hn::LoadU(d, row + i + 3 * lanes), a3, b3);
    }
    for (; i + lanes <= x.n; i += lanes) {
      step(hn::LoadU(d, row + i), a0, b0);
      std::swap(a0, a1);
      std::swap(b0, b1);
    }
    if (i < x.n) step(load_tail(d, row + i, x.n - i, fill), a2, b2);
  }
  return {sum_of(d, hn::Add(hn::Add(a0, a1), hn::Add(a2, a3))),
          sum_of(d, hn::Add(hn::Add(b0, b1), hn::Add(b2, b3)))};
}

template <class T>
Moments moments_of_runs(const Runs<T>& x) {
  const hn::ScalableTag<T> d;
  const double count = static_cast<double>(x.count * x.n);
  if (count == 0) return {};
  const double share = 1 / count;  // known before the sums, so that no division waits for them
  const double total = fold_runs(x, T{0}, [](auto v, auto& a, auto&) HWY_ATTR { a = hn::Add(a, v); }).first;
  const T near = static_cast<T>(total * share);
  const auto shift = hn::Set(d, near);
  const auto [rest, squares] = fold_runs(x, near, [&](auto v, auto& a, auto& b) HWY_ATTR {
    const auto difference = hn::Sub(v, shift);
    a = hn::Add(a, difference);
    b = hn::MulAdd(difference, difference, b);
  });
  return {count, near + rest * share, squares - rest * (rest * share)};
}

template <class T>
Moments square_moments_of_runs(const Runs<T>& x) {
  const auto sums = fold_runs(x, T{0}, [](auto v, auto& a, auto&) HWY_ATTR { a = hn::MulAdd(v, v, a); });
  return {static_cast<double>(x.count * x.n), 0, sums.first};
}

template <class T>
void moments_of_each_run(const Runs<T>& x, bool centred, Moments* results) {
  for (int64_t r = 0; r < x.count; ++r) {
    const Runs<T> row{x.data + r * x.pitch, 1, x.n, x.n};
    results[r] = centred ? moments_of_runs(row) : square_moments_of_runs(row);
  }
}

template <class T>
void norm_row_of(const T* x, T* y, int64_t n, T shift, T scale, T offset) {
  const hn::ScalableTag<T> d;
  const auto s = hn::Set(d, shift), f = hn::Set(d, scale), o = hn::Set(d, offset);
  each_vector(d, n, [&](int64_t i, int64_t here) HWY_ATTR {
    store_some(d, hn::MulAdd(hn::Sub(load_some(d, x + i, here), s), f, o), y + i, here);
  });
}

template <class T>
void norm_row_by(const T* x, T* y, int64_t n, T shift, T scale, T offset, const T* weight, const T* bias) {
  const hn::ScalableTag<T> d;
  const auto s = hn::Set(d, shift), f = hn::Set(d, scale), o = hn::Set(d, offset);
  const auto row = [&](const auto& finish) HWY_ATTR {
    each_vector(d, n, [&](int64_t i, int64_t here) HWY_ATTR {
      const auto v = hn::MulAdd(hn::Sub(load_some(d, x + i, here), s), f, o);
      store_some(d, finish(v, i, here), y + i, here);
    });
  };
  if (bias == nullptr) {
    row([&](auto v, int64_t i, int64_t here) HWY_ATTR { return hn::Mul(v, load_some(d, weight + i, here)); });
  } else {
    row([&](auto v, int64_t i, int64_t here)
            HWY_ATTR { return hn::MulAdd(v, load_some(d, weight + i, here), load_some(d, bias + i, here)); });
  }
}

template <class T>
void norm_rows_by(const Runs<T>& x, T* y, const T* shift, const T* scale, const T* offset, const T* weight,
                  const T* bias) {
  const hn::ScalableTag<T> d;
  const auto all = [&](const auto& finish) HWY_ATTR {
    each_vector(d, x.n, [&](int64_t i, int64_t here) HWY_ATTR {
      const auto w = load_some(d, weight + i, here);
      const auto b = bias == nullptr ? hn::Zero(d) : load_some(d, bias + i, here);
      for (int64_t r = 0; r < x.count; ++r) {
        const auto v = hn::Sub(load_some(d, x.data + r * x.pitch + i, here), hn::Set(d, shift[r]));
        const auto normal = hn::MulAdd(v, hn::Set(d, scale[r]), hn::Set(d, offset[r]));
        store_some(d, finish(normal, w, b), y + r * x.pitch + i, here);
      }
    });
  };
  if (bias == nullptr) {
    all([](auto v, auto w, auto) HWY_ATTR { return hn::Mul(v, w); });
  } else {
    all([](auto v, auto w, auto b) HWY_ATTR { return hn::MulAdd(v, w, b); });
  }
}

template <class T>
Dots dots_of_runs(const Runs<T>& dy, const Runs<T>& x, T shift) {
  const hn::ScalableTag<T> d;
  const auto s = hn::Set(d, shift);
  auto a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  for (int64_t r = 0; r < x.count; ++r) {
    const T *const g = dy.data + r * dy.pitch, *const at = x.data + r * x.pitch;
    each_vector(d, x.n, [&](int64_t i, int64_t here) HWY_ATTR {
      const auto v = load_some(d, g + i, here);  // 0 in the lanes after the last element
      a0 = hn::Add(a0, v);
      b0 = hn::MulAdd(v, hn::Sub(load_some(d, at + i, here), s), b0);
      std::swap(a0, a1);
      std::swap(b0, b1);
    });
  }
  return {sum_of(d, hn::Add(a0, a1)), sum_of(d, hn::Add(b0, b1))};
}

template <class T>
Dots dots_of_row_by(const T* dy, const T* x, int64_t n, T shift, const T* weight) {
  const hn::ScalableTag<T> d;
  const auto s = hn::Set(d, shift);
  auto a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  each_vector(d, n, [&](int64_t i, int64_t here) HWY_ATTR {
    const auto v = hn::Mul(load_some(d, dy + i, here), load_some(d, weight + i, here));
    a0 = hn::Add(a0, v);
    b0 = hn::MulAdd(v, hn::Sub(load_some(d, x + i, here), s), b0);
    std::swap(a0, a1);
    std::swap(b0, b1);
  });
  return {sum_of(d, hn::Add(a0, a1)), sum_of(d, hn::Add(b0, b1))};
}

template <class T>
void backward_row_of(const T* dy, const T* x, T* dx, int64_t n, T shift, T p, T q, T r, const T* weight) {
  const hn::ScalableTag<T> d;
  const auto s = hn::Set(d, shift), vp = hn::Set(d, p), vq = hn::Set(d, q), vr = hn::Set(d, r);
  const auto row = [&](const auto& head) HWY_ATTR {
    each_vector(d, n, [&](int64_t i, int64_t here) HWY_ATTR {
      const auto rest = hn::MulAdd(vq, hn::Sub(load_some(d, x + i, here), s), vr);
      store_some(d, hn::MulAdd(vp, head(i, here), rest), dx + i, here);
    });
  };
  if (weight == nullptr) {
    row([&](int64_t i, int64_t here) HWY_ATTR { return load_some(d, dy + i, here); });
  } else {
    row([&](int64_t i, int64_t here)
            HWY_ATTR { return hn::Mul(load_some(d, dy + i, here), load_some(d, weight + i, here)); });
  }
}

template <class T>
void add_products_of(const Runs<T>& dy, const Runs<T>& x, const T* shift, const T* scale, T* dweight,
                     T* dbias) {
  const hn::ScalableTag<T> d;
  each_vector(d, x.n, [&](int64_t i, int64_t here) HWY_ATTR {
    auto products = load_some(d, dweight + i, here), heads = load_some(d, dbias + i, here);
    for (int64_t r = 0; r < x.count; ++r) {
      const auto g = load_some(d, dy.data + r * dy.pitch + i, here);
      const auto v = hn::Sub(load_some(d, x.data + r * x.pitch + i, here), hn::Set(d, shift[r]));
      products = hn::MulAdd(g, hn::Mul(v, hn::Set(d, scale[r])), products);
      heads = hn::Add(heads, g);
    }
    store_some(d, products, dweight + i, here);
    store_some(d, heads, dbias + i, here);
  });
}

template <class T>
void column_moments_of(const Runs<T>& x, T* near_mean, T* rests, T* squares) {
  const hn::ScalableTag<T> d;
  const auto share = hn::Set(d, T{1} / static_cast<T>(x.count));
  each_vector(d, x.n, [&](int64_t i, int64_t here) HWY_ATTR {
    auto total = hn::Zero(d), rest = total, sum = total;
    for (int64_t r = 0; r < x.count; ++r)
      total = hn::Add(total, load_some(d, x.data + r * x.pitch + i, here));
    const auto near = hn::Mul(total, share);
    for (int64_t r = 0; r < x.count; ++r) {
      const auto difference = hn::Sub(load_some(d, x.data + r * x.pitch + i, here), near);
      rest = hn::Add(rest, difference);
      sum = hn::MulAdd(difference, difference, sum);
    }
    store_some(d, near, near_mean + i, here);
    store_some(d, rest, rests + i, here);
    store_some(d, sum, squares + i, here);
  });
}

template <class T>
void norm_columns_of(const T* x, T* y, int64_t n, const T* shift, const T* scale, const T* offset) {
  const hn::ScalableTag<T> d;
  each_vector(d, n, [&](int64_t i, int64_t here) HWY_ATTR {
    const auto v = hn::Sub(load_some(d, x + i, here), load_some(d, shift + i, here));
    store_some(d, hn::MulAdd(v, load_some(d, scale + i, here), load_some(d, offset + i, here)), y + i, here);
  });
}

template <class T>
void column_dots_of(const Runs<T>& dy, const Runs<T>& x, const T* shift, T* sum, T* dot) {
  const hn::ScalableTag<T> d;
  each_vector(d, x.n, [&](int64_t i, int64_t here) HWY_ATTR {
    const auto s = load_some(d, shift + i, here);
    auto a = hn::Zero(d), b = a;
    for (int64_t r = 0; r < x.count; ++r) {
      const auto g = load_some(d, dy.data + r * dy.pitch + i, here);
      a = hn::Add(a, g);
      b = hn::MulAdd(g, hn::Sub(load_some(d, x.data + r * x.pitch + i, here), s), b);
    }
    store_some(d, a, sum + i, here);
    store_some(d, b, dot + i, here);
  });
}

template <class T>
void backward_columns_of(const T* dy, const T* x, T* dx, int64_t n, const T* shift, const T* p, const T* q,
                         const T* r) {
  const hn::ScalableTag<T> d;
  each_vector(d, n, [&](int64_t i, int64_t here) HWY_ATTR {
    const auto v = hn::Sub(load_some(d, x + i, here), load_some(d, shift + i, here));
    const auto rest = hn::MulAdd(load_some(d, q + i, here), v, load_some(d, r + i, here));
    store_some(d, hn::MulAdd(load_some(d, p + i, here), load_some(d, dy + i, here), rest), dx + i, here);
  });
}

template <class T>
constexpr NormRows<T> kNormRows = {.moments = moments_of_runs<T>,
                                   .square_moments = square_moments_of_runs<T>,
                                   .moments_of_each = moments_of_each_run<T>,
                                   .row = norm_row_of<T>,
                                   .weighted_row = norm_row_by<T>,
                                   .weighted_rows = norm_rows_by<T>,
                                   .dots = dots_of_runs<T>,
                                   .weighted_dots = dots_of_row_by<T>,
                                   .backward_row = backward_row_of<T>,
                                   .add_products = add_products_of<T>,
                                   .column_moments = column_moments_of<T>,
                                   .columns = norm_columns_of<T>,
                                   .column_dots = column_dots_of<T>,
                                   .backward_columns = backward_columns_of<T>};

const NormRows<float>* norm_rows_f32() { return &kNormRows<float>; }
const NormRows<double>* norm_rows_f64() { return &kNormRows<double>; }

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(norm_rows_f32);
HWY_EXPORT(norm_rows_f64);

namespace detail {
template <>
const NormRows<float>& norm_rows<float>() {
  return *HWY_DYNAMIC_DISPATCH(norm_rows_f32)();
}
template <>
const NormRows<double>& norm_rows<double>() {
  return *HWY_DYNAMIC_DISPATCH(norm_rows_f64)();
}
}  // namespace detail

}  // namespace mx::kernels
#endif
