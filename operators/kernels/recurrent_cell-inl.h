// The arithmetic of recurrent cells on the columns of one row, and its derivative. Included once per
// instruction set.
#if defined(MX_OPERATORS_KERNELS_RECURRENT_CELL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_OPERATORS_KERNELS_RECURRENT_CELL_INL_H_
#    undef MX_OPERATORS_KERNELS_RECURRENT_CELL_INL_H_
#  else
#    define MX_OPERATORS_KERNELS_RECURRENT_CELL_INL_H_
#  endif

#  include <hwy/highway.h>

#  include <cstdint>
#  include <type_traits>

#  include "operators/kernels/gemm_tile-inl.h"
#  include "operators/kernels/math_f32-inl.h"
#  include "operators/kernels/recurrent_cell.h"
#  include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace recurrent_steps {

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_of(D d, V x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>)
    return SigmoidFloat::of(d, x);
  else
    return patched<Sigmoid>(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_of(D d, V x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>)
    return TanhFloat::of(d, x);
  else
    return patched<Tanh>(d, x);
}

/// Loads `n` elements, a vector or less; the other lanes are 0.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_columns(D d, const T* x, int64_t n) {
  return n >= static_cast<int64_t>(hn::Lanes(d)) ? hn::LoadU(d, x) : load_tail(d, x, n, T{0});
}
template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
HWY_INLINE void store_columns(D d, V v, T* to, int64_t n) {
  if (n >= static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(v, d, to);
  else
    store_tail(d, v, to, n);
}

/// `count` columns of a sample in a step. Gates are `hidden` elements apart in x, bias and activations, and
/// kTileCols in sums.
template <class T>
struct CellRow {
  int64_t hidden, count;
  const T* x;       ///< products with the inputs
  const T* sums;    ///< products with the state
  const T* bias;    ///< of the products with the state; gru, may be null
  const T* before;  ///< the state
  T* state;         ///< result
  T* y;             ///< result: the same
  T* cell;          ///< lstm: the cell, which is updated
  T* kept_cell;     ///< lstm: result; null if no gradient is wanted
  T* activations;   ///< lstm, gru: result; null if no gradient is wanted
};

template <class T, RecurrentCell kCell>
HWY_INLINE void cell_forward(const CellRow<T>& row) {
  const Lanes<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), hidden = row.hidden;
  for (int64_t j = 0; j < row.count; j += lanes) {
    const int64_t n = row.count - j;
    const auto input = [&](int gate) HWY_ATTR { return load_columns(d, row.x + gate * hidden + j, n); };
    const auto sum = [&](int gate) HWY_ATTR { return hn::LoadU(d, row.sums + gate * kTileCols<T> + j); };
    const auto keep = [&](int gate, auto v) HWY_ATTR {
      if (row.activations != nullptr) store_columns(d, v, row.activations + gate * hidden + j, n);
    };
    auto h = hn::Zero(d);
    if constexpr (kCell == RecurrentCell::tanh) {
      h = tanh_of(d, hn::Add(input(0), sum(0)));
    } else if constexpr (kCell == RecurrentCell::relu) {
      h = at_least(hn::Zero(d), hn::Add(input(0), sum(0)));
    } else if constexpr (kCell == RecurrentCell::lstm) {
      const auto i = sigmoid_of(d, hn::Add(input(0), sum(0)));
      const auto f = sigmoid_of(d, hn::Add(input(1), sum(1)));
      const auto g = tanh_of(d, hn::Add(input(2), sum(2)));
      const auto o = sigmoid_of(d, hn::Add(input(3), sum(3)));
      const auto c = hn::MulAdd(f, load_columns(d, row.cell + j, n), hn::Mul(i, g));
      h = hn::Mul(o, tanh_of(d, c));
      store_columns(d, c, row.cell + j, n);
      if (row.kept_cell != nullptr) store_columns(d, c, row.kept_cell + j, n);
      keep(0, i);
      keep(1, f);
      keep(2, g);
      keep(3, o);
    } else {
      const auto recurrent_part = [&](int gate) HWY_ATTR {
        if (row.bias == nullptr) return sum(gate);
        return hn::Add(sum(gate), load_columns(d, row.bias + gate * hidden + j, n));
      };
      const auto r = sigmoid_of(d, hn::Add(input(0), recurrent_part(0)));
      const auto z = sigmoid_of(d, hn::Add(input(1), recurrent_part(1)));
      const auto inner = recurrent_part(2);
      const auto candidate = tanh_of(d, hn::MulAdd(r, inner, input(2)));
      const auto before = load_columns(d, row.before + j, n);
      h = hn::MulAdd(z, hn::Sub(before, candidate), candidate);
      keep(0, r);
      keep(1, z);
      keep(2, candidate);
      keep(3, inner);
    }
    store_columns(d, h, row.state + j, n);
    store_columns(d, h, row.y + j, n);
  }
}

/// A sample in a step of the backward pass. Unused pointers are null.
template <class T>
struct CellGradientRow {
  int64_t hidden;
  const T *dy, *y, *activations;
  const T *cell, *cell_before, *dcell;  ///< lstm; dcell may be null
  const T* before;                      ///< gru: the state before the step
  T* dh;        ///< gradient of the state after the step; gru: the share that passes by the gates, afterwards
  T* dc;        ///< lstm: gradient of the cell after the step; afterwards, before it
  T* dproduct;  ///< result: the gradient of the products with the state
  T* dx;        ///< result for gru: the gradient of x
};

template <class T, RecurrentCell kCell>
HWY_INLINE void cell_backward(const CellGradientRow<T>& row) {
  const Lanes<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), hidden = row.hidden;
  const auto one = hn::Set(d, T{1});
  for (int64_t j = 0; j < hidden; j += lanes) {
    const int64_t n = hidden - j;
    const auto activation = [&](int gate)
                                HWY_ATTR { return load_columns(d, row.activations + gate * hidden + j, n); };
    const auto set = [&](T* to, int gate, auto v)
                         HWY_ATTR { store_columns(d, v, to + gate * hidden + j, n); };
    const auto sigmoid_slope = [&](auto s) HWY_ATTR { return hn::NegMulAdd(s, s, s); };
    const auto tanh_slope = [&](auto s) HWY_ATTR { return hn::NegMulAdd(s, s, one); };
    const auto dh = hn::Add(load_columns(d, row.dy + j, n), load_columns(d, row.dh + j, n));
    if constexpr (kCell == RecurrentCell::tanh) {
      set(row.dproduct, 0, hn::Mul(dh, tanh_slope(load_columns(d, row.y + j, n))));
    } else if constexpr (kCell == RecurrentCell::relu) {
      const auto on = hn::Gt(load_columns(d, row.y + j, n), hn::Zero(d));
      set(row.dproduct, 0, hn::IfThenElseZero(on, dh));
    } else if constexpr (kCell == RecurrentCell::lstm) {
      const auto i = activation(0), f = activation(1), g = activation(2), o = activation(3);
      const auto t = tanh_of(d, load_columns(d, row.cell + j, n));
      auto dc = hn::MulAdd(hn::Mul(dh, o), tanh_slope(t), load_columns(d, row.dc + j, n));
      if (row.dcell != nullptr) dc = hn::Add(dc, load_columns(d, row.dcell + j, n));
      set(row.dproduct, 0, hn::Mul(hn::Mul(dc, g), sigmoid_slope(i)));
      set(row.dproduct, 1, hn::Mul(hn::Mul(dc, load_columns(d, row.cell_before + j, n)), sigmoid_slope(f)));
      set(row.dproduct, 2, hn::Mul(hn::Mul(dc, i), tanh_slope(g)));
      set(row.dproduct, 3, hn::Mul(hn::Mul(dh, t), sigmoid_slope(o)));
      store_columns(d, hn::Mul(dc, f), row.dc + j, n);
    } else {
      const auto r = activation(0), z = activation(1), candidate = activation(2), inner = activation(3);
      const auto before = load_columns(d, row.before + j, n);
      const auto dz = hn::Mul(hn::Mul(dh, hn::Sub(before, candidate)), sigmoid_slope(z));
      const auto dn = hn::Mul(hn::Mul(dh, hn::Sub(one, z)), tanh_slope(candidate));
      const auto dr = hn::Mul(hn::Mul(dn, inner), sigmoid_slope(r));
      for (T* const to : {row.dproduct, row.dx}) {
        set(to, 0, dr);
        set(to, 1, dz);
      }
      set(row.dx, 2, dn);
      set(row.dproduct, 2, hn::Mul(dn, r));
      store_columns(d, hn::Mul(dh, z), row.dh + j, n);
    }
  }
}

}  // namespace recurrent_steps
}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
