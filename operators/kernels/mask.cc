#include "operators/kernels/mask.h"

#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/index_check.h"

namespace mx::kernels {
namespace {

template <class T>
bool is_set(T value) {
  return convert<bool>(value);
}

/// How many set elements come before each piece of kLoopGrain elements in row-major order; the last entry is
/// the number of them all.
template <class T>
std::vector<int64_t> count_before(const Tensor& source) {
  const Tensor order = row_major_order(source.shape);
  const LoopPlan<2> plan({&order, &source});
  const int64_t pieces = (plan.numel + kLoopGrain - 1) / kLoopGrain, step = plan.strides[1][0];
  std::vector<int64_t> before(static_cast<size_t>(pieces) + 1, 0);
  parallel_for(plan.numel, kLoopGrain, [&](int64_t begin, int64_t end) {
    int64_t count = 0;
    for_each_run<2>(plan, begin, end, [&](const int64_t* at, int64_t n) {
      const T* p = source.as<T>() + at[1];
      for (int64_t i = 0; i < n; ++i) count += is_set(p[i * step]) ? 1 : 0;
    });
    before[static_cast<size_t>(begin / kLoopGrain) + 1] = count;
  });
  for (size_t i = 1; i < before.size(); ++i) before[i] += before[i - 1];
  return before;
}

void check_mask(const Tensor& mask, const Shape& shape, const char* op) {
  MX_CHECK(mask.dtype == DType::bool_, InvalidArgument, "[", op, "] expected a mask of type bool, got ",
           mask.dtype);
  detail::check_shape(mask.shape, shape, "a mask", op);
}

/// The operand whose elements a masked call walks in their own order, next to one walked with the mask.
enum class Direction : uint8_t { select, scatter };

/// packed[k] <-> spread[position of the k-th set element].
void move_masked(const Tensor& packed, const Tensor& spread, const Tensor& mask,
                 const std::vector<int64_t>& before, Direction direction) {
  const Tensor order = row_major_order(spread.shape);
  const LoopPlan<3> plan({&order, &spread, &mask});
  const Tensor packed_order = row_major_order(packed.shape);
  const LoopPlan<2> packed_plan({&packed_order, &packed});
  const int64_t ss = plan.strides[1][0], ms = plan.strides[2][0];
  visit(spread.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(plan.numel, kLoopGrain, [&](int64_t begin, int64_t end) {
      const size_t piece = static_cast<size_t>(begin / kLoopGrain);
      const int64_t first = before[piece], count = before[piece + 1] - first;
      if (count == 0) return;
      // The chosen elements one after another, so that neither side need know the other's strides.
      std::vector<T*> chosen;
      chosen.reserve(static_cast<size_t>(count));
      for_each_run<3>(plan, begin, end, [&](const int64_t* at, int64_t n) {
        T* s = spread.as<T>() + at[1];
        const bool* m = mask.as<bool>() + at[2];
        for (int64_t i = 0; i < n; ++i)
          if (m[i * ms]) chosen.push_back(s + i * ss);
      });
      T* const* next = chosen.data();
      const int64_t ps = packed_plan.strides[1][0];
      for_each_run<2>(packed_plan, first, first + count, [&](const int64_t* at, int64_t n) {
        T* p = packed.as<T>() + at[1];
        if (direction == Direction::select) {
          for (int64_t i = 0; i < n; ++i) p[i * ps] = **next++;
        } else {
          for (int64_t i = 0; i < n; ++i) **next++ = p[i * ps];
        }
      });
    });
  });
}

template <class Value>
void fill_masked(const Tensor& target, const Tensor& mask, Value value) {
  check_mask(mask, target.shape, "masked_fill");
  const LoopPlan<2> plan({&target, &mask});
  const int64_t ts = plan.strides[0][0], ms = plan.strides[1][0];
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = convert<T>(value);
    parallel_runs<2>(plan, [&](const int64_t* at, int64_t n) {
      T* t = target.as<T>() + at[0];
      const bool* m = mask.as<bool>() + at[1];
      for (int64_t i = 0; i < n; ++i) t[i * ts] = m[i * ms] ? element : t[i * ts];
    });
  });
}

}  // namespace

int64_t count_nonzero(const Tensor& source) {
  return visit(source.dtype,
               [&](auto tag) { return count_before<typename decltype(tag)::type>(source).back(); });
}

void nonzero(const Tensor& target, const Tensor& source) {
  const int rank = source.rank();
  MX_CHECK(target.dtype == DType::i64, InvalidArgument, "[nonzero] expected a target of type i64, got ",
           target.dtype);
  visit(source.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::vector<int64_t> before = count_before<T>(source);
    detail::check_shape(target.shape, {before.back(), rank}, "a target", "nonzero");
    const Tensor order = row_major_order(source.shape);
    const LoopPlan<2> plan({&order, &source});
    const int64_t ls = plan.strides[0][0], ss = plan.strides[1][0];
    parallel_for(plan.numel, kLoopGrain, [&](int64_t begin, int64_t end) {
      int64_t row = before[static_cast<size_t>(begin / kLoopGrain)];
      for_each_run<2>(plan, begin, end, [&](const int64_t* at, int64_t n) {
        const T* p = source.as<T>() + at[1];
        for (int64_t i = 0; i < n; ++i) {
          if (!is_set(p[i * ss])) continue;
          int64_t rest = at[0] + i * ls;
          int64_t* out = target.as<int64_t>() + row++ * target.strides[0];
          for (int d = rank - 1; d >= 0; --d) {
            out[d * target.strides[1]] = rest % source.shape[d];
            rest /= source.shape[d];
          }
        }
      });
    });
  });
}

void masked_select(const Tensor& target, const Tensor& source, const Tensor& mask) {
  detail::check_same_dtype(target, source, "masked_select");
  check_mask(mask, source.shape, "masked_select");
  const std::vector<int64_t> before = count_before<bool>(mask);
  detail::check_shape(target.shape, {before.back()}, "a target", "masked_select");
  move_masked(target, source, mask, before, Direction::select);
}

void masked_scatter(const Tensor& target, const Tensor& mask, const Tensor& source) {
  detail::check_same_dtype(target, source, "masked_scatter");
  check_mask(mask, target.shape, "masked_scatter");
  const std::vector<int64_t> before = count_before<bool>(mask);
  MX_CHECK(source.numel() >= before.back(), InvalidArgument,
           "[masked_scatter] expected a source of at least ", before.back(), " elements, got shape ",
           source.shape);
  move_masked(source, target, mask, before, Direction::scatter);
}

void masked_fill(const Tensor& target, const Tensor& mask, double value) { fill_masked(target, mask, value); }
void masked_fill(const Tensor& target, const Tensor& mask, int64_t value) {
  fill_masked(target, mask, value);
}

}  // namespace mx::kernels
