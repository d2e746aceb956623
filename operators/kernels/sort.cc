#include "operators/kernels/sort.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/index_check.h"

namespace mx::kernels {
namespace {

/// An element on its way: a number that orders as the element does, and where it came from. No two are equal,
/// so any way of sorting is stable and gives the same.
struct Entry {
  uint64_t key;
  int64_t index;

  friend bool operator<(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.index < b.index;
  }
};

constexpr int64_t kSortChunk = 16384;

template <class T>
uint64_t key_of(T value, bool descending) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  uint64_t key = 0;
  if constexpr (std::is_integral_v<T>) {
    key = static_cast<uint64_t>(static_cast<int64_t>(value)) ^ kSign;
  } else {
    const double wide = value;
    if (wide != wide) return ~uint64_t{0};  // behind infinity, in either direction
    const uint64_t bits = std::bit_cast<uint64_t>(wide == 0 ? 0.0 : wide);
    key = (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
  return descending ? ~key : key;
}

/// How many of the first k entries of the merged order come from `left`.
int64_t split(const Entry* left, int64_t left_size, const Entry* right, int64_t right_size, int64_t k) {
  int64_t low = std::max(int64_t{0}, k - right_size), high = std::min(k, left_size);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (left[middle] < right[k - middle - 1]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Pieces of kSortChunk, then merges of neighbours; each piece of a merge's result is made by itself.
void sort_entries(std::vector<Entry>& entries) {
  const int64_t n = static_cast<int64_t>(entries.size());
  parallel_for(n, kSortChunk,
               [&](int64_t begin, int64_t end) { std::sort(entries.data() + begin, entries.data() + end); });
  if (n <= kSortChunk) return;
  std::vector<Entry> other(entries.size());
  for (int64_t width = kSortChunk; width < n; width *= 2) {
    parallel_for(n, kSortChunk, [&](int64_t begin, int64_t end) {
      const int64_t first = begin / (2 * width) * (2 * width);
      const int64_t left_size = std::min(width, n - first),
                    right_size = std::min(width, n - first - left_size);
      const Entry* const left = entries.data() + first;
      const Entry* const right = left + left_size;
      const int64_t a = split(left, left_size, right, right_size, begin - first);
      const int64_t b = split(left, left_size, right, right_size, end - first);
      std::merge(left + a, left + b, right + (begin - first - a), right + (end - first - b),
                 other.data() + begin);
    });
    entries.swap(other);
  }
}

/// Distance of row number `row` of `shape` (that of the tensor without the axis).
int64_t place_of(int64_t row, const Shape& shape, const Strides& strides) {
  int64_t place = 0;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    place += row % shape[d] * strides[d];
    row /= shape[d];
  }
  return place;
}

Shape without(Shape shape, int axis) {
  shape.erase(axis);
  return shape;
}

/// Writes the first `k` of each sorted row.
template <class T>
void sort_rows(const Tensor* values, const Tensor* indices, const Tensor& source, int axis, int64_t k,
               bool descending) {
  const int64_t n = source.shape[axis], step = source.strides[axis];
  const Shape rows = without(source.shape, axis);
  const Strides from = without(source.strides, axis);
  const auto one = [&](int64_t row, std::vector<Entry>& entries, std::vector<T>& copy) {
    const T* const s = source.as<T>() + place_of(row, rows, from);
    parallel_for(n, kLoopGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        copy[static_cast<size_t>(i)] = s[i * step];
        entries[static_cast<size_t>(i)] = {key_of(s[i * step], descending), i};
      }
    });
    if (k < n / 4) {
      std::nth_element(entries.begin(), entries.begin() + k, entries.end());
      std::sort(entries.begin(), entries.begin() + k);
    } else {
      sort_entries(entries);
    }
    if (values != nullptr) {
      T* const t = values->as<T>() + place_of(row, rows, without(values->strides, axis));
      for (int64_t i = 0; i < k; ++i)
        t[i * values->strides[axis]] = copy[static_cast<size_t>(entries[static_cast<size_t>(i)].index)];
    }
    if (indices != nullptr) {
      detail::visit_index(indices->dtype, [&](auto tag) {
        using I = typename decltype(tag)::type;
        I* const t = indices->as<I>() + place_of(row, rows, without(indices->strides, axis));
        for (int64_t i = 0; i < k; ++i)
          t[i * indices->strides[axis]] = static_cast<I>(entries[static_cast<size_t>(i)].index);
      });
    }
  };
  if (n == 0 || k == 0) return;
  // Few long rows: threads inside a row. Many short ones: a row is one thread's.
  const int64_t grain = n > 2 * kSortChunk ? rows.numel() : std::max(int64_t{1}, kLoopGrain / 8 / n);
  parallel_for(rows.numel(), grain, [&](int64_t begin, int64_t end) {
    std::vector<Entry> entries(static_cast<size_t>(n));
    std::vector<T> copy(static_cast<size_t>(n));
    for (int64_t row = begin; row < end; ++row) one(row, entries, copy);
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
    sort_rows<typename decltype(tag)::type>(values, indices, source, axis, k, descending);
  });
}

/// The keys of all elements in row-major order.
std::vector<Entry> entries_of(const Tensor& source) {
  std::vector<Entry> entries(static_cast<size_t>(source.numel()));
  const Tensor order{nullptr, DType::i8, source.shape, contiguous_strides(source.shape)};
  const LoopPlan<2> plan({&order, &source});
  const int64_t ls = plan.strides[0][0], ss = plan.strides[1][0];
  visit(source.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_runs<2>(plan, [&](const int64_t* at, int64_t n) {
      const T* s = source.as<T>() + at[1];
      for (int64_t i = 0; i < n; ++i) {
        const int64_t index = at[0] + i * ls;
        entries[static_cast<size_t>(index)] = {key_of(s[i * ss], false), index};
      }
    });
  });
  return entries;
}

/// target[i] = value(i) for a target of indices of rank 1.
template <class F>
void write_indices(const Tensor& target, int64_t n, int64_t largest, const char* op, const F& value) {
  detail::check_index_target(target, largest, "indices", op);
  detail::check_shape(target.shape, {n}, "a target", op);
  detail::visit_index(target.dtype, [&](auto tag) {
    using I = typename decltype(tag)::type;
    for (int64_t i = 0; i < n; ++i)
      target.as<I>()[i * target.strides[0]] = static_cast<I>(value(static_cast<size_t>(i)));
  });
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
           "[topk] expected targets like ", source.shape, " with at most ", source.shape[at], " along axis ",
           at, ", got ", target->shape);
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
              const uint64_t key = key_of(v[i * vs], false);
              int64_t low = 0, high = n;
              while (low < high) {
                const int64_t middle = low + (high - low) / 2;
                const uint64_t there = key_of(s[middle * step], false);
                if (there < key || (behind && there == key)) {
                  low = middle + 1;
                } else {
                  high = middle;
                }
              }
              t[i * ts] = static_cast<I>(low);
            }
          },
          kLoopGrain / 8);
    });
  });
}

Unique::Unique(const Tensor& source) : source_(source) {
  std::vector<Entry> entries = entries_of(source);
  sort_entries(entries);
  order_.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    order_.push_back(entries[i].index);
    if (i == 0 || entries[i].key != entries[i - 1].key) starts_.push_back(static_cast<int64_t>(i));
  }
  starts_.push_back(static_cast<int64_t>(entries.size()));
}

void Unique::values(const Tensor& target) const {
  detail::check_same_dtype(target, source_, "unique");
  detail::check_shape(target.shape, {count()}, "a target", "unique");
  visit(source_.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < count(); ++i) {
      const int64_t index = order_[static_cast<size_t>(starts_[static_cast<size_t>(i)])];
      target.as<T>()[i * target.strides[0]] =
          source_.as<T>()[place_of(index, source_.shape, source_.strides)];
    }
  });
}

void Unique::first(const Tensor& target) const {
  write_indices(target, count(), source_.numel(), "unique",
                [&](size_t i) { return order_[static_cast<size_t>(starts_[i])]; });
}

void Unique::counts(const Tensor& target) const {
  write_indices(target, count(), source_.numel(), "unique",
                [&](size_t i) { return starts_[i + 1] - starts_[i]; });
}

void Unique::inverse(const Tensor& target) const {
  detail::check_index_target(target, count(), "indices", "unique");
  detail::check_shape(target.shape, source_.shape, "a target", "unique");
  std::vector<int64_t> which(order_.size());
  for (size_t g = 0; g + 1 < starts_.size(); ++g)
    for (int64_t i = starts_[g]; i < starts_[g + 1]; ++i)
      which[static_cast<size_t>(order_[static_cast<size_t>(i)])] = static_cast<int64_t>(g);
  copy(target, {which.data(), DType::i64, source_.shape, contiguous_strides(source_.shape)});
}

}  // namespace mx::kernels
