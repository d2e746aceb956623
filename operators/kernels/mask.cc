#include "operators/kernels/mask.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/index_check.h"

namespace mx::kernels {
namespace {

template <class T>
bool is_set(T value) {
  return convert<bool>(value);
}

/// Returns the number of set elements among n.
template <class T>
int64_t count_set(const T* p, int64_t step, int64_t n) {
  int64_t count = 0;
  if constexpr (sizeof(T) == 1) {
    if (step == 1) {
      // Counts eight bytes at a time in one-byte counters, which can hold 255 rounds.
      constexpr uint64_t kLow = 0x0101010101010101, kRest = 0x7f7f7f7f7f7f7f7f;
      const auto* const bytes = reinterpret_cast<const unsigned char*>(p);
      int64_t i = 0;
      while (i + 8 <= n) {
        uint64_t counters = 0;
        for (int round = 0; round < 255 && i + 8 <= n; ++round, i += 8) {
          uint64_t word;
          std::memcpy(&word, bytes + i, sizeof(word));
          // Sets the lowest bit of each byte that is not 0.
          counters += ((((word & kRest) + kRest) | word) >> 7) & kLow;
        }
        constexpr uint64_t kEven = 0x00ff00ff00ff00ff;
        const uint64_t pairs = (counters & kEven) + ((counters >> 8) & kEven);
        count += static_cast<int64_t>((pairs * 0x0001000100010001) >> 48);
      }
      for (; i < n; ++i) count += bytes[i] != 0 ? 1 : 0;
      return count;
    }
  }
  for (int64_t i = 0; i < n; ++i) count += is_set(p[i * step]) ? 1 : 0;
  return count;
}

/// Returns the number of set elements before each piece of kLoopGrain elements in row-major order; the last
/// entry is the total.
template <class T>
std::vector<int64_t> count_before(const Tensor& source) {
  const Tensor order = row_major_order(source.shape);
  const LoopPlan<2> plan({&order, &source});
  const int64_t pieces = (plan.numel + kLoopGrain - 1) / kLoopGrain, step = plan.strides[1][0];
  std::vector<int64_t> before(static_cast<size_t>(pieces) + 1, 0);
  parallel_for(plan.numel, kLoopGrain, [&](int64_t begin, int64_t end) {
    int64_t count = 0;
    for_each_run<2>(plan, begin, end, [&](const int64_t* at, int64_t n) {
      count += count_set(source.as<T>() + at[1], step, n);
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

/// select copies from `spread` to `packed`, scatter from `packed` to `spread`.
enum class Direction : uint8_t { select, scatter };

/// Elements that are collected in a buffer before they are written to the result.
constexpr int64_t kCollectedPositions = 1024;

/// packed[0], packed[step], ... = the elements of `spread` where the mask is set. Returns their number. Has
/// no branch per element, because branch prediction would fail on it.
template <class T>
int64_t select_run(T* packed, int64_t step, const T* spread, int64_t spread_step, const bool* mask,
                   int64_t mask_step, int64_t n) {
  T chosen[kCollectedPositions];
  int64_t all = 0;
  for (int64_t done = 0; done < n; done += kCollectedPositions) {
    const int64_t here = std::min(kCollectedPositions, n - done);
    int64_t count = 0;
    for (int64_t i = done; i < done + here; ++i) {
      chosen[count] = spread[i * spread_step];
      count += mask[i * mask_step] ? 1 : 0;
    }
    T* const to = packed + all * step;
    for (int64_t i = 0; i < count; ++i) to[i * step] = chosen[i];
    all += count;
  }
  return all;
}

/// The inverse of select_run(), for a run with `count` set elements.
template <class T>
void scatter_run(const T* packed, int64_t step, int64_t count, T* spread, int64_t spread_step,
                 const bool* mask, int64_t mask_step, int64_t n) {
  if (count == 0) return;
  int64_t next = 0;
  for (int64_t i = 0; i < n; ++i) {
    // After the last set element the index stays within bounds; the value is not used.
    const T value = packed[std::min(next, count - 1) * step];
    const bool set = mask[i * mask_step];
    T& element = spread[i * spread_step];
    element = set ? value : element;
    next += set ? 1 : 0;
  }
}

/// Copies between packed[k] and the k-th set element of `spread`, in the given direction.
void move_masked(const Tensor& packed, const Tensor& spread, const Tensor& mask,
                 const std::vector<int64_t>& before, Direction direction) {
  const Tensor order = row_major_order(spread.shape);
  const LoopPlan<3> plan({&order, &spread, &mask});
  const Tensor packed_order = row_major_order(packed.shape);
  const LoopPlan<2> packed_plan({&packed_order, &packed});
  const int64_t ss = plan.strides[1][0], ms = plan.strides[2][0], ps = packed_plan.strides[1][0];
  visit_size(spread.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(plan.numel, kLoopGrain, [&](int64_t begin, int64_t end) {
      const size_t piece = static_cast<size_t>(begin / kLoopGrain);
      const int64_t first = before[piece], count = before[piece + 1] - first;
      if (count == 0) return;
      // Unless the packed elements are at one fixed distance from each other, goes through a contiguous copy
      // of them.
      std::vector<T> copy;
      T* next = packed.as<T>() + first * ps;
      int64_t step = ps;
      const auto move_copy = [&] {
        T* at_copy = copy.data();
        for_each_run<2>(packed_plan, first, first + count, [&](const int64_t* at, int64_t n) {
          T* const p = packed.as<T>() + at[1];
          for (int64_t i = 0; i < n; ++i, ++at_copy)
            direction == Direction::select ? p[i * ps] = *at_copy : * at_copy = p[i * ps];
        });
      };
      if (packed_plan.rank > 1) {
        copy.resize(static_cast<size_t>(count));
        if (direction == Direction::scatter) move_copy();
        next = copy.data();
        step = 1;
      }
      for_each_run<3>(plan, begin, end, [&](const int64_t* at, int64_t n) {
        T* const s = spread.as<T>() + at[1];
        const bool* const m = mask.as<bool>() + at[2];
        if (direction == Direction::select) {
          next += select_run(next, step, s, ss, m, ms, n) * step;
        } else {
          const int64_t taken = count_set(m, ms, n);
          scatter_run(next, step, taken, s, ss, m, ms, n);
          next += taken * step;
        }
      });
      if (packed_plan.rank > 1 && direction == Direction::select) move_copy();
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
  if (source.numel() < before.back())
    throw InvalidArgument(detail::bad_mask_count(before.back(), source.shape));
  move_masked(source, target, mask, before, Direction::scatter);
}

void masked_fill(const Tensor& target, const Tensor& mask, double value) { fill_masked(target, mask, value); }
void masked_fill(const Tensor& target, const Tensor& mask, int64_t value) {
  fill_masked(target, mask, value);
}

}  // namespace mx::kernels
