#include "operators/kernels/pooling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/base/check.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/pooling_pairs.h"
#include "operators/kernels/workspace.h"

namespace mx::kernels {
namespace {

// Elements that one piece of a parallel loop reads at least.
constexpr int64_t kPieceElements = 16 << 10;

/// The planes of an array (images, channels, spatial...) with three spatial axes.
template <class S>
struct Planes {
  S* data;
  int64_t channels, count;
  int64_t size[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  int64_t image_stride, channel_stride;

  explicit Planes(const Tensor& t)
      : data(t.as<S>()),
        channels(t.shape[1]),
        count(t.shape[0] * t.shape[1]),
        image_stride(t.strides[0]),
        channel_stride(t.strides[1]) {
    for (int a = 2; a < t.rank(); ++a) {
      size[3 - t.rank() + a] = t.shape[a];
      stride[3 - t.rank() + a] = t.strides[a];
    }
  }
  S* plane(int64_t i) const { return data + i / channels * image_stride + i % channels * channel_stride; }
  int64_t elements() const { return size[0] * size[1] * size[2]; }
  bool contiguous() const {
    return (size[2] == 1 || stride[2] == 1) && (size[1] == 1 || stride[1] == size[2]) &&
           (size[0] == 1 || stride[0] == size[1] * size[2]);
  }
  /// Calls f(index in row-major order, element) for the elements of a plane.
  template <class F>
  void each(int64_t i, const F& f) const {
    S* const at = plane(i);
    int64_t n = 0;
    for (int64_t d = 0; d < size[0]; ++d)
      for (int64_t h = 0; h < size[1]; ++h) {
        S* const row = at + d * stride[0] + h * stride[1];
        for (int64_t w = 0; w < size[2]; ++w) f(n++, row[w * stride[2]]);
      }
  }
};

/// Returns the elements of a plane in the type of the computation: in place, or copied to `copy`.
template <class T, class S>
const T* read_plane(const Planes<S>& x, int64_t i, T* copy) {
  if constexpr (std::is_same_v<T, std::remove_const_t<S>>) {
    if (x.contiguous()) return x.plane(i);
  }
  x.each(i, [&](int64_t n, const S& value) { copy[n] = static_cast<T>(value); });
  return copy;
}

template <class T>
T* floats(int64_t elements) {
  return static_cast<T*>(thread_workspace(static_cast<size_t>(elements) * sizeof(T)));
}

int64_t grain_of(int64_t elements) {
  return std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, elements));
}

/// Calls f(depth, height, row) for the rows of the windows at (od, oh).
template <class F>
void each_row(const PoolWindows& w, int64_t od, int64_t oh, int64_t height, const F& f) {
  const auto d = static_cast<size_t>(od), h = static_cast<size_t>(oh);
  for (int64_t i = 0; i < w.axes[0].count[d]; ++i)
    for (int64_t j = 0; j < w.axes[1].count[h]; ++j)
      f((w.axes[0].first[d] + i * w.axes[0].gap) * height + w.axes[1].first[h] + j * w.axes[1].gap);
}

template <class T>
struct Largest {
  T value;
  int64_t row, column;
};

/// best[w] = the largest element of the column w in the rows of a window, row[w] = its row.
template <class T>
void largest_of_columns(T* best, int64_t* rows, const T* from, int64_t row, int64_t width) {
  for (int64_t w = 0; w < width; ++w) {
    const T v = from[w];
    const bool better = v > best[w] || v != v;
    best[w] = better ? v : best[w];
    rows[w] = better ? row : rows[w];
  }
}

template <class T>
void take_larger(Largest<T>& best, T v, int64_t row, int64_t column) {
  const bool larger = v > best.value || (v == best.value && row < best.row);
  const bool not_a_number = v != v && (best.value == best.value || row >= best.row);
  if (larger || not_a_number) best = {v, row, column};
}

/// Returns whether every window of the axis has the elements 2 * o and 2 * o + 1.
bool pairs(const PoolAxis& axis) {
  for (size_t o = 0; o < axis.first.size(); ++o)
    if (axis.first[o] != 2 * static_cast<int64_t>(o) || axis.count[o] != 2) return false;
  return axis.gap == 1;
}

/// Computes max_pool() with vectors and returns true if the windows are of 2 x 2 and do not overlap.
bool max_pool_of_pairs(const Tensor& to, const Tensor& to_indices, const Tensor& from, const PoolWindows& w) {
  const Planes<const float> x(from);
  const Planes<float> y(to);
  const Planes<int64_t> indices(to_indices);
  if (!pairs(w.axes[1]) || !pairs(w.axes[2]) || x.size[0] != 1 || y.size[0] != 1 || w.axes[0].count[0] != 1 ||
      !x.contiguous() || !y.contiguous() || !indices.contiguous() ||
      x.elements() > std::numeric_limits<int32_t>::max())
    return false;
  parallel_for(y.count, grain_of(x.elements()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      detail::max_pool_pairs(x.plane(i), x.size[2], y.size[1], y.size[2], y.plane(i), indices.plane(i));
  });
  return true;
}

template <class S, class T>
void max_pool_in(const Tensor& to, const Tensor& to_indices, const Tensor& from, const PoolWindows& w) {
  const Planes<const S> x(from);
  const Planes<S> y(to);
  const Planes<int64_t> indices(to_indices);
  const int64_t width = x.size[2], height = x.size[1];
  parallel_for(y.count, grain_of(x.elements()), [&](int64_t begin, int64_t end) {
    const int64_t rows_at = (x.elements() + width + 15) / 16 * 16;
    T* const copy = floats<T>(rows_at + width * static_cast<int64_t>(sizeof(int64_t) / sizeof(T)) + 16);
    T* const best = copy + x.elements();
    auto* const rows = reinterpret_cast<int64_t*>(copy + rows_at);
    for (int64_t i = begin; i < end; ++i) {
      const T* const plane = read_plane<T>(x, i, copy);
      for (int64_t od = 0; od < y.size[0]; ++od)
        for (int64_t oh = 0; oh < y.size[1]; ++oh) {
          int64_t first_row = -1;
          std::fill_n(best, width, -std::numeric_limits<T>::infinity());
          each_row(w, od, oh, height, [&](int64_t row) {
            if (first_row < 0) {
              first_row = row;
              std::fill_n(rows, width, row);
            }
            largest_of_columns(best, rows, plane + row * width, row, width);
          });
          S* const out = y.plane(i) + od * y.stride[0] + oh * y.stride[1];
          int64_t* const at = indices.plane(i) + od * indices.stride[0] + oh * indices.stride[1];
          const PoolAxis& axis = w.axes[2];
          for (int64_t o = 0; o < y.size[2]; ++o) {
            const auto n = static_cast<size_t>(o);
            const int64_t first = axis.first[n], count = first_row < 0 ? 0 : axis.count[n];
            Largest<T> largest{-std::numeric_limits<T>::infinity(), std::max<int64_t>(first_row, 0),
                               count > 0 ? first : 0};
            for (int64_t k = 0, column = first; k < count; ++k, column += axis.gap)
              take_larger(largest, best[column], rows[column], column);
            out[o * y.stride[2]] = static_cast<S>(largest.value);
            at[o * indices.stride[2]] = largest.row * width + largest.column;
          }
        }
    }
  });
}

/// Calls f(plane of sums, index of the plane) for each plane, and writes the sums that f has added to zeros.
/// `extra`: further elements behind the sums, which f may use. A plane is left out if set(index) returns
/// true: then set() has written it.
template <class S, class T, class Set, class F>
void sum_planes(const Planes<S>& dx, int64_t extra, const Set& set, const F& f) {
  parallel_for(dx.count, grain_of(dx.elements()), [&](int64_t begin, int64_t end) {
    T* const sums = floats<T>(dx.elements() + extra);
    for (int64_t i = begin; i < end; ++i) {
      if (set(i)) continue;
      if constexpr (std::is_same_v<S, T>) {
        if (extra == 0 && dx.contiguous()) {
          std::fill_n(dx.plane(i), dx.elements(), T{0});
          f(dx.plane(i), i);
          continue;
        }
      }
      std::fill_n(sums, dx.elements(), T{0});
      f(sums, i);
      dx.each(i, [&](int64_t n, S& element) { element = static_cast<S>(sums[n]); });
    }
  });
}

template <class S, class T>
void max_pool_backward_in(const Tensor& to, const Tensor& from, const Tensor& from_indices) {
  const Planes<S> dx(to);
  const Planes<const S> dy(from);
  const Planes<const int64_t> indices(from_indices);
  const int64_t elements = dx.elements();
  const bool contiguous = dx.contiguous() && dy.contiguous() && indices.contiguous();
  // Whether the windows may be of 2 x 2 without overlap. The indices tell.
  const bool may_be_pairs = contiguous && dx.size[0] == 1 && dy.size[0] == 1 &&
                            dx.size[1] / 2 == dy.size[1] && dx.size[2] / 2 == dy.size[2] &&
                            elements <= std::numeric_limits<int32_t>::max();
  const auto set_plane = [&](int64_t i) {
    if constexpr (std::is_same_v<S, float>)
      return may_be_pairs && detail::max_pool_pairs_backward(dy.plane(i), indices.plane(i), dx.size[2],
                                                             dx.size[1], dx.plane(i));
    return false;
  };
  sum_planes<S, T>(dx, 0, set_plane, [&](T* sums, int64_t i) {
    const auto add = [&](int64_t index, const S& value) {
      if (index < 0 || index >= elements) throw InvalidArgument(detail::bad_pool_index(elements, index, i));
      sums[index] += static_cast<T>(value);
    };
    const int64_t* const at = indices.plane(i);
    const S* const values = dy.plane(i);
    if (dy.contiguous() && indices.contiguous()) {
      for (int64_t n = 0; n < dy.elements(); ++n) add(at[n], values[n]);
      return;
    }
    dy.each(i, [&](int64_t n, const S& value) {
      const int64_t w = n % dy.size[2], h = n / dy.size[2] % dy.size[1], d = n / dy.size[2] / dy.size[1];
      add(at[d * indices.stride[0] + h * indices.stride[1] + w * indices.stride[2]], value);
    });
  });
}

double divisor_of(const PoolWindows& w, int64_t od, int64_t oh, int64_t ow) {
  if (w.divisor != 0) return w.divisor;
  return static_cast<double>(w.axes[0].divisor[static_cast<size_t>(od)] *
                             w.axes[1].divisor[static_cast<size_t>(oh)] *
                             w.axes[2].divisor[static_cast<size_t>(ow)]);
}

template <class S, class T>
void avg_pool_in(const Tensor& to, const Tensor& from, const PoolWindows& w) {
  const Planes<const S> x(from);
  const Planes<S> y(to);
  const int64_t width = x.size[2], height = x.size[1];
  parallel_for(y.count, grain_of(x.elements()), [&](int64_t begin, int64_t end) {
    T* const copy = floats<T>(x.elements() + width);
    T* const sums = copy + x.elements();
    for (int64_t i = begin; i < end; ++i) {
      const T* const plane = read_plane<T>(x, i, copy);
      for (int64_t od = 0; od < y.size[0]; ++od)
        for (int64_t oh = 0; oh < y.size[1]; ++oh) {
          std::fill_n(sums, width, T{0});
          each_row(w, od, oh, height, [&](int64_t row) {
            const T* const elements = plane + row * width;
            for (int64_t c = 0; c < width; ++c) sums[c] += elements[c];
          });
          S* const out = y.plane(i) + od * y.stride[0] + oh * y.stride[1];
          const PoolAxis& axis = w.axes[2];
          for (int64_t o = 0; o < y.size[2]; ++o) {
            const int64_t first = axis.first[static_cast<size_t>(o)],
                          count = axis.count[static_cast<size_t>(o)];
            T sum{0};
            for (int64_t k = 0; k < count; ++k) sum += sums[first + k * axis.gap];
            out[o * y.stride[2]] = static_cast<S>(sum / static_cast<T>(divisor_of(w, od, oh, o)));
          }
        }
    }
  });
}

template <class S, class T>
void avg_pool_backward_in(const Tensor& to, const Tensor& from, const PoolWindows& w) {
  const Planes<S> dx(to);
  const Planes<const S> dy(from);
  const int64_t width = dx.size[2], height = dx.size[1];
  sum_planes<S, T>(
      dx, width, [](int64_t) { return false; },
      [&](T* sums, int64_t i) {
        T* const row_sums = sums + dx.elements();
        for (int64_t od = 0; od < dy.size[0]; ++od)
          for (int64_t oh = 0; oh < dy.size[1]; ++oh) {
            std::fill_n(row_sums, width, T{0});
            const S* const in = dy.plane(i) + od * dy.stride[0] + oh * dy.stride[1];
            const PoolAxis& axis = w.axes[2];
            for (int64_t o = 0; o < dy.size[2]; ++o) {
              const int64_t first = axis.first[static_cast<size_t>(o)],
                            count = axis.count[static_cast<size_t>(o)];
              const T value = static_cast<T>(in[o * dy.stride[2]]) / static_cast<T>(divisor_of(w, od, oh, o));
              for (int64_t k = 0; k < count; ++k) row_sums[first + k * axis.gap] += value;
            }
            each_row(w, od, oh, height, [&](int64_t row) {
              T* const elements = sums + row * width;
              for (int64_t c = 0; c < width; ++c) elements[c] += row_sums[c];
            });
          }
      });
}

/// Calls f(tag of the elements, tag of the computation) for a floating-point type.
template <class F>
void visit_floating(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{}, double{});
    case DType::f16:
      return f(float16{}, float{});
    case DType::bf16:
      return f(bfloat16{}, float{});
    default:
      return f(float{}, float{});
  }
}

}  // namespace

void max_pool(const Tensor& y, const Tensor& indices, const Tensor& x, const PoolWindows& windows) {
  if (y.numel() == 0) return;
  if (y.dtype == DType::f32 && max_pool_of_pairs(y, indices, x, windows)) return;
  visit_floating(y.dtype, [&]<class S, class T>(S, T) { max_pool_in<S, T>(y, indices, x, windows); });
}

void max_pool_backward(const Tensor& dx, const Tensor& dy, const Tensor& indices) {
  if (dx.numel() == 0) return;
  visit_floating(dx.dtype, [&]<class S, class T>(S, T) { max_pool_backward_in<S, T>(dx, dy, indices); });
}

void avg_pool(const Tensor& y, const Tensor& x, const PoolWindows& windows) {
  if (y.numel() == 0) return;
  visit_floating(y.dtype, [&]<class S, class T>(S, T) { avg_pool_in<S, T>(y, x, windows); });
}

void avg_pool_backward(const Tensor& dx, const Tensor& dy, const PoolWindows& windows) {
  if (dx.numel() == 0) return;
  visit_floating(dx.dtype, [&]<class S, class T>(S, T) { avg_pool_backward_in<S, T>(dx, dy, windows); });
}

}  // namespace mx::kernels
