#include "operators/kernels/sort.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/index_check.h"
#include "operators/kernels/sort_keys.h"
#include "operators/kernels/sort_rows.h"
#include "operators/kernels/top_rows.h"

namespace mx::kernels {
namespace {

/// Sorts rows of n elements of type T, one at a time; a long row on several threads.
template <class T>
class RowSorter {
 public:
  RowSorter(int64_t n, int64_t k, bool descending) : n_(n), k_(k), descending_(descending) {}

  /// Sorts the values without their indices. Returns false, and writes nothing, if some equal elements differ
  /// in their bits (0 and -0, NaNs), because these must keep their order.
  bool sort_values(const SortRow<T>& target, const SortRow<const T>& source) {
    if constexpr (sizeof(T) == 1) {
      count_values(target, source);
      return true;
    } else {
      using Bits = BitsOf<T>;
      Keys<Bits> keys(n_);
      const auto flip = static_cast<Bits>(descending_ ? ~Bits{0} : Bits{0});
      std::atomic<bool> special{false};
      parallel_for(n_, kLoopGrain, [&](int64_t begin, int64_t end) {
        bool found = false;
        for (int64_t i = begin; i < end; ++i) {
          const T value = source[i];
          found |= is_special(value);
          keys[i] = static_cast<Bits>(raw_key(value) ^ flip);
        }
        if (found) special.store(true, std::memory_order_relaxed);
      });
      if (special.load(std::memory_order_relaxed)) return false;
      sorter_.sort(keys);
      parallel_for(n_, kLoopGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          target[i] = element_of_key<T>(static_cast<Bits>(keys[i] ^ flip));
      });
      return true;
    }
  }

  /// Calls take(i, index) for each i < k, where `index` is the position of the i-th element in sorted order.
  /// The calls come from several threads.
  template <class Take>
  void sort_indices(const SortRow<const T>& source, const Take& take) {
    visit_packed<T>(n_, [&](auto packing) {
      using P = decltype(packing);
      Keys<typename P::Number> keys(n_);
      parallel_for(n_, kLoopGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) keys[i] = P::make(key_of(source[i], descending_), i);
      });
      if (k_ < n_ / 4) {
        sorter_.sort_first(keys, k_);
      } else {
        sorter_.sort(keys);
      }
      parallel_for(k_, kLoopGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) take(i, P::index(keys[i]));
      });
    });
  }

 private:
  // Counting sort.
  void count_values(const SortRow<T>& target, const SortRow<const T>& source) {
    std::array<int64_t, 256> counts{};
    for (int64_t i = 0; i < n_; ++i) ++counts[raw_key(source[i])];
    int64_t at = 0;
    for (size_t k = 0; k < counts.size(); ++k) {
      const auto key = static_cast<uint8_t>(descending_ ? 255 - k : k);
      for (const int64_t end = at + counts[key]; at < end; ++at) target[at] = element_of_key<T>(key);
    }
  }

  int64_t n_, k_;
  bool descending_;
  KeySorter sorter_;
};

/// Writes the first `k` of each sorted row.
template <class T>
void sort_rows(const Tensor* values, const Tensor* indices, const Tensor& source, int axis, int64_t k,
               bool descending) {
  const int64_t n = source.shape[axis];
  if (n == 0 || k == 0) return;
  const RowsAlong sources(source, axis);
  const int64_t grain = rows_at_a_time(sources.count(), n);
  parallel_for(sources.count(), grain, [&](int64_t begin, int64_t end) {
    RowSorter<T> sorter(n, k, descending);
    std::unique_ptr<T[]> copy;  // because the target of values may be the source
    for (int64_t row = begin; row < end; ++row) {
      const SortRow<const T> from = sources.row<const T>(row);
      SortRow<T> to{};
      if (values != nullptr) to = RowsAlong(*values, axis).row<T>(row);
      if (indices == nullptr && k == n && sorter.sort_values(to, from)) continue;
      if (values != nullptr) {
        if (copy == nullptr) copy.reset(new T[static_cast<size_t>(n)]);
        parallel_for(n, kLoopGrain, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) copy[static_cast<size_t>(i)] = from[i];
        });
      }
      if (indices == nullptr) {
        sorter.sort_indices(from,
                            [&](int64_t i, int64_t index) { to[i] = copy[static_cast<size_t>(index)]; });
        continue;
      }
      detail::visit_index(indices->dtype, [&](auto tag) {
        using I = typename decltype(tag)::type;
        const SortRow<I> places = RowsAlong(*indices, axis).row<I>(row);
        sorter.sort_indices(from, [&](int64_t i, int64_t index) {
          places[i] = static_cast<I>(index);
          if (values != nullptr) to[i] = copy[static_cast<size_t>(index)];
        });
      });
    }
  });
}

/// Calls f(k numbers, in sorted order) for each row, with the row's index. P is a packing.
template <class T, class P, class F>
void each_top(const Tensor& source, int axis, int64_t k, bool descending, const F& f) {
  const int64_t n = source.shape[axis], width = parallel_width();
  const RowsAlong sources(source, axis);
  const int64_t rows = sources.count();
  // Several threads scan pieces of a long row if there are fewer rows than threads. The result does not
  // depend on the pieces.
  constexpr int64_t kLeastPiece = 32768;
  const int64_t pieces = rows >= width ? 1 : std::clamp<int64_t>(n / std::max(kLeastPiece, 8 * k), 1, width);
  const int64_t piece = (n + pieces - 1) / pieces;
  parallel_for(rows, pieces > 1 ? rows : std::max<int64_t>(1, kLoopGrain / n),
               [&](int64_t begin, int64_t end) {
                 KeySorter sorter;
                 TopRow<T, P> alone(k, descending);
                 for (int64_t row = begin; row < end; ++row) {
                   const SortRow<const T> from = sources.template row<const T>(row);
                   if (pieces == 1) {
                     alone.scan(from, 0, n);
                     sorter.sort_front(alone.keys(), k);
                     f(row, alone.keys());
                     continue;
                   }
                   Keys<typename P::Number> best(pieces * k);
                   parallel_for(n, piece, [&](int64_t first, int64_t last) {
                     TopRow<T, P> part(k, descending);
                     part.scan(from, first, last);
                     std::copy_n(part.keys().begin(), k, best.begin() + first / piece * k);
                   });
                   sorter.sort_first(best, k);
                   f(row, best);
                 }
               });
}

/// Writes the first k > 0 of each sorted row without sorting it, for a small k.
template <class T>
void select_rows(const Tensor* values, const Tensor* indices, const Tensor& source, int axis, int64_t k,
                 bool descending) {
  visit_packed<T>(source.shape[axis], [&](auto packing) {
    using P = decltype(packing);
    each_top<T, P>(source, axis, k, descending, [&](int64_t row, const Keys<typename P::Number>& keys) {
      if (values != nullptr) {
        const SortRow<const T> from = RowsAlong(source, axis).row<const T>(row);
        const SortRow<T> to = RowsAlong(*values, axis).row<T>(row);
        for (int64_t i = 0; i < k; ++i) to[i] = from[P::index(keys[i])];
      }
      if (indices == nullptr) return;
      detail::visit_index(indices->dtype, [&](auto tag) {
        using I = typename decltype(tag)::type;
        const SortRow<I> to = RowsAlong(*indices, axis).row<I>(row);
        for (int64_t i = 0; i < k; ++i) to[i] = static_cast<I>(P::index(keys[i]));
      });
    });
  });
}

void sort_any(const Tensor* values, const Tensor* indices, const Tensor& source, int axis, int64_t k,
              bool descending, const char* op) {
  Shape expected = source.shape;
  expected[axis] = k;
  if (values != nullptr) {
    detail::check_same_dtype(*values, source, op);
    detail::check_shape(values->shape, expected, "values", op);
  }
  if (indices != nullptr) {
    detail::check_index_target(*indices, source.shape[axis] - 1, "indices", op);
    detail::check_shape(indices->shape, expected, "indices", op);
  }
  visit(source.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    // For a larger share of a row, too many elements pass the filter.
    if (k > 0 && k <= source.shape[axis] / 8 && source.numel() > 0) {
      select_rows<T>(values, indices, source, axis, k, descending);
    } else {
      sort_rows<T>(values, indices, source, axis, k, descending);
    }
  });
}

/// Returns how many of n sorted elements come before `key`; kBehind counts the elements equal to it too.
template <bool kBehind, class T>
int64_t count_before(const T* sorted, int64_t step, int64_t n, BitsOf<T> key) {
  const auto before = [&](int64_t i) {
    const BitsOf<T> there = key_of(sorted[i * step], false);
    return kBehind ? there <= key : there < key;
  };
  // Bisection without branches, which could not be predicted.
  int64_t at = 0;
  for (int64_t left = n; left > 0;) {
    const int64_t half = (left + 1) / 2;
    at += before(at + half - 1) ? half : 0;
    left -= half;
  }
  return at;
}

}  // namespace

void sort(const Tensor& target, const Tensor& source, int64_t axis, bool descending) {
  const int at = normalize_axis(axis, source.rank(), "sort");
  sort_any(&target, nullptr, source, at, source.shape[at], descending, "sort");
}

void argsort(const Tensor& target, const Tensor& source, int64_t axis, bool descending) {
  const int at = normalize_axis(axis, source.rank(), "argsort");
  sort_any(nullptr, &target, source, at, source.shape[at], descending, "argsort");
}

void topk(const Tensor* values, const Tensor* indices, const Tensor& source, int64_t axis, bool largest) {
  const int at = normalize_axis(axis, source.rank(), "topk");
  const Tensor* const target = values != nullptr ? values : indices;
  if (target == nullptr) return;
  MX_CHECK(target->rank() == source.rank() && target->shape[at] <= source.shape[at], InvalidArgument,
           "[topk] expected targets of shape ", source.shape, ", with at most ", source.shape[at],
           " elements along axis ", at, ", got ", target->shape);
  sort_any(values, indices, source, at, target->shape[at], largest, "topk");
}

void searchsorted(const Tensor& target, const Tensor& sorted, const Tensor& values, bool behind) {
  const char* const op = "searchsorted";
  MX_CHECK(sorted.rank() == 1, InvalidArgument, "[", op, "] expected a sorted array of rank 1, got shape ",
           sorted.shape);
  detail::check_same_dtype(sorted, values, op);
  detail::check_index_target(target, sorted.shape[0], "indices", op);
  detail::check_shape(target.shape, values.shape, "a target", op);
  const int64_t n = sorted.shape[0], step = sorted.strides[0];
  const LoopPlan<2> plan({&target, &values});
  const int64_t ts = plan.strides[0][0], vs = plan.strides[1][0];
  visit(values.dtype, [&](auto tag) {
    detail::visit_index(target.dtype, [&](auto integer) {
      using T = typename decltype(tag)::type;
      using I = typename decltype(integer)::type;
      const T* const s = sorted.as<T>();
      parallel_runs<2>(
          plan,
          [&](const int64_t* at, int64_t count) {
            I* t = target.as<I>() + at[0];
            const T* v = values.as<T>() + at[1];
            for (int64_t i = 0; i < count; ++i) {
              const BitsOf<T> key = key_of(v[i * vs], false);
              t[i * ts] = static_cast<I>(behind ? count_before<true>(s, step, n, key)
                                                : count_before<false>(s, step, n, key));
            }
          },
          kLoopGrain / 8);
    });
  });
}

}  // namespace mx::kernels
