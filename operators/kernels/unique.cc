// The distinct elements of an array.
#include <algorithm>
#include <numeric>

#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/index_check.h"
#include "operators/kernels/sort.h"
#include "operators/kernels/sort_keys.h"

namespace mx::kernels {
namespace {

/// Returns the keys of all elements, with their row-major indices.
template <class P, class T>
Keys<typename P::Number> keys_of(const Tensor& source) {
  Keys<typename P::Number> keys(source.numel());
  const Tensor order = row_major_order(source.shape);
  const LoopPlan<2> plan({&order, &source});
  const int64_t ls = plan.strides[0][0], ss = plan.strides[1][0];
  parallel_runs<2>(plan, [&](const int64_t* at, int64_t n) {
    const T* s = source.as<T>() + at[1];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t index = at[0] + i * ls;
      keys[index] = P::make(key_of(s[i * ss], false), index);
    }
  });
  return keys;
}

/// target[i] = value(i), for a target of indices of rank 1.
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

Unique::Unique(const Tensor& source) : source_(source) {
  const int64_t n = source.numel();
  order_.resize(static_cast<size_t>(n));
  visit(source.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_packed<T>(n, [&](auto packing) {
      using P = decltype(packing);
      Keys<typename P::Number> keys = keys_of<P, T>(source);
      KeySorter().sort(keys);
      // Counts the distinct elements that begin in each piece, then computes where each piece writes them.
      const int64_t pieces = (n + kLoopGrain - 1) / kLoopGrain;
      std::vector<int64_t> begun(static_cast<size_t>(pieces) + 1);
      const auto begins = [&](int64_t i) { return i == 0 || !P::same_key(keys[i], keys[i - 1]); };
      parallel_for(n, kLoopGrain, [&](int64_t begin, int64_t end) {
        int64_t count = 0;
        for (int64_t i = begin; i < end; ++i) {
          order_[static_cast<size_t>(i)] = P::index(keys[i]);
          count += begins(i);
        }
        begun[static_cast<size_t>(begin / kLoopGrain) + 1] = count;
      });
      std::partial_sum(begun.begin(), begun.end(), begun.begin());
      starts_.resize(static_cast<size_t>(begun.back()) + 1);
      parallel_for(n, kLoopGrain, [&](int64_t begin, int64_t end) {
        int64_t* next = starts_.data() + begun[static_cast<size_t>(begin / kLoopGrain)];
        for (int64_t i = begin; i < end; ++i)
          if (begins(i)) *next++ = i;
      });
      starts_.back() = n;
    });
  });
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
