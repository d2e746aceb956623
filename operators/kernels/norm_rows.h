// The vector loops of the normalisations, for contiguous elements of float and double. Internal.
//
// `x - shift` is always computed first: if the elements are large compared with their spread, it loses
// nothing, while scale * x + offset would.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// Mean and sum of squared deviations of some elements, in double.
struct Moments {
  double count = 0, mean = 0, squares = 0;

  /// Adds the elements of `other`. Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise
  /// algorithm for computing sample variances", 1979.
  void add(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {  // the usual case of short rows, without divisions
      *this = other;
      return;
    }
    const double total = count + other.count, delta = other.mean - mean;
    squares += other.squares + delta * delta * (count * other.count / total);
    mean += delta * (other.count / total);
    count = total;
  }
};

/// `count` runs of n elements each, `pitch` apart.
template <class T>
struct Runs {
  const T* data;
  int64_t count, pitch, n;
};

/// The sum of dy and that of dy (x - shift).
struct Dots {
  double dy = 0, dy_x = 0;
};

/// The loops as compiled for this processor's instruction set.
template <class T>
struct NormRows {
  /// Two passes: the second one corrects the rounding of the mean. For up to some thousand elements.
  Moments (*moments)(const Runs<T>& x);
  /// Moments about 0: `squares` is the sum of x * x.
  Moments (*square_moments)(const Runs<T>& x);
  /// moments() or square_moments() of each run; with several runs in one call, the processor works on one
  /// while the lanes of another are being added.
  void (*moments_of_each)(const Runs<T>& x, bool centred, Moments* results);
  /// y = (x - shift) * scale + offset.
  void (*row)(const T* x, T* y, int64_t n, T shift, T scale, T offset);
  /// y = ((x - shift) * scale + offset) * weight[i] + bias[i]; bias may be null.
  void (*weighted_row)(const T* x, T* y, int64_t n, T shift, T scale, T offset, const T* weight,
                       const T* bias);
  /// The same for several rows of x and y, `pitch` apart, with their own shift, scale and offset.
  void (*weighted_rows)(const Runs<T>& x, T* y, const T* shift, const T* scale, const T* offset,
                        const T* weight, const T* bias);
  Dots (*dots)(const Runs<T>& dy, const Runs<T>& x, T shift);
  /// The same with dy * weight[i] in place of dy, for one run.
  Dots (*weighted_dots)(const T* dy, const T* x, int64_t n, T shift, const T* weight);
  /// dx = p * dy * weight[i] + q * (x - shift) + r; weight may be null, for 1.
  void (*backward_row)(const T* dy, const T* x, T* dx, int64_t n, T shift, T p, T q, T r, const T* weight);
  /// Adds dy (x - shift[k]) scale[k] of each run k to dweight[i], and dy to dbias[i].
  void (*add_products)(const Runs<T>& dy, const Runs<T>& x, const T* shift, const T* scale, T* dweight,
                       T* dbias);
  /// Moments of each column; the runs are the rows, up to some hundred. `near` is about the mean, `rest` the
  /// sum of the differences from it, and `squares` that of their squares.
  void (*column_moments)(const Runs<T>& x, T* near, T* rest, T* squares);
  /// y = (x - shift[i]) * scale[i] + offset[i].
  void (*columns)(const T* x, T* y, int64_t n, const T* shift, const T* scale, const T* offset);
  /// The sums of dy and of dy (x - shift[i]) of each column.
  void (*column_dots)(const Runs<T>& dy, const Runs<T>& x, const T* shift, T* sum, T* dot);
  /// dx = p[i] * dy + q[i] * (x - shift[i]) + r[i].
  void (*backward_columns)(const T* dy, const T* x, T* dx, int64_t n, const T* shift, const T* p, const T* q,
                           const T* r);
};

/// T: float or double.
template <class T>
const NormRows<T>& norm_rows();

}  // namespace mx::kernels::detail
