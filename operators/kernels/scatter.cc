// Writing at indices (index.h).
//
// Blocks (index_update, put_nd, embedding_gradient): one thread writes small blocks in the order of the
// updates. For large ones the updates are sorted by the block that they change, stably; a block is written by
// one thread at a time, with its updates in order. Lanes (scatter): elements that differ off the axis are
// never combined, so threads share the lanes, each with all its updates in order.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/index.h"
#include "operators/kernels/index_check.h"

namespace mx::kernels {
namespace {

using detail::Advanced;
using detail::Resolve;

/// The type in which values are combined.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float, T>;

/// Values that are only moved need a type of the same size.
template <class T>
using Bits = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

template <Scatter how, class T>
T combine(T a, T b) {
  if constexpr (how == Scatter::set) {
    return b;
  } else if constexpr (std::is_same_v<T, bool>) {
    return how == Scatter::add || how == Scatter::max ? a || b : a && b;
  } else if constexpr (how == Scatter::add || how == Scatter::mul) {
    if constexpr (std::is_integral_v<T>) {  // modulo 2^bits; signed overflow would be undefined
      using U = std::conditional_t<sizeof(T) < sizeof(uint32_t), uint32_t, std::make_unsigned_t<T>>;
      const U x = static_cast<U>(a), y = static_cast<U>(b);
      return static_cast<T>(how == Scatter::add ? x + y : x * y);
    } else {
      return how == Scatter::add ? a + b : a * b;
    }
  } else {
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(a)) return a;
    // If the comparison fails because b is NaN, the result is b.
    return how == Scatter::max ? (a >= b ? a : b) : (a <= b ? a : b);
  }
}

template <class F>
void visit_how(Scatter how, F&& f) {
  switch (how) {
    case Scatter::set:
      return f(std::integral_constant<Scatter, Scatter::set>{});
    case Scatter::add:
      return f(std::integral_constant<Scatter, Scatter::add>{});
    case Scatter::mul:
      return f(std::integral_constant<Scatter, Scatter::mul>{});
    case Scatter::max:
      return f(std::integral_constant<Scatter, Scatter::max>{});
    case Scatter::min:
      return f(std::integral_constant<Scatter, Scatter::min>{});
  }
}

/// Calls f.operator()<T, how>() for elements of that type; T only has the same size if they are only moved.
template <class F>
void visit_kind(DType dtype, Scatter how, const F& f) {
  visit(dtype, [&](auto tag) {
    visit_how(how, [&](auto constant) {
      using T = typename decltype(tag)::type;
      constexpr Scatter kHow = decltype(constant)::value;
      f.template operator()<std::conditional_t<kHow == Scatter::set, Bits<T>, T>, kHow>();
    });
  });
}

/// Updates sorted by block: those of group g are order[starts[g]] .. order[starts[g + 1] - 1].
struct Groups {
  std::vector<int64_t> order, starts;

  std::span<const int64_t> operator[](int64_t group) const {
    const int64_t* const begin = starts.data() + group;
    return {order.data() + begin[0], order.data() + begin[1]};
  }

  explicit Groups(const std::vector<int64_t>& offsets) : order(offsets.size()) {
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto key = [&](int64_t i) { return offsets[static_cast<size_t>(i)]; };
    if (!offsets.empty()) {
      const auto [low, high] = std::minmax_element(offsets.begin(), offsets.end());
      const int64_t first = *low;
      // Blocks lie at multiples of some distance, because most often they are the rows of a table.
      int64_t unit = 0;
      for (int64_t offset : offsets) unit = unit == 1 ? 1 : std::gcd(unit, offset - first);
      const uint64_t buckets = unit == 0 ? 1
                                         : (static_cast<uint64_t>(*high) - static_cast<uint64_t>(first)) /
                                                   static_cast<uint64_t>(unit) +
                                               1;
      if (buckets <= 4 * offsets.size() + 1024) {
        std::vector<int64_t> next(buckets + 1, 0);
        const auto bucket = [&](int64_t offset) {
          return unit == 0 ? size_t{0} : static_cast<size_t>((offset - first) / unit);
        };
        for (int64_t offset : offsets) ++next[bucket(offset) + 1];
        std::partial_sum(next.begin(), next.end(), next.begin());
        for (size_t i = 0; i < offsets.size(); ++i)
          order[static_cast<size_t>(next[bucket(offsets[i])]++)] = static_cast<int64_t>(i);
      } else {
        std::sort(order.begin(), order.end(),
                  [&](int64_t a, int64_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
      }
    }
    for (size_t i = 0; i < order.size(); ++i)
      if (i == 0 || key(order[i]) != key(order[i - 1])) starts.push_back(static_cast<int64_t>(i));
    starts.push_back(static_cast<int64_t>(order.size()));
  }
};

/// Elements of a block that are combined at once; they take a part of the first-level cache.
constexpr int64_t kChunk = 1024;

/// A run of elements of one block, with the same run of every update of this block, in order. `target` points
/// at its first element, `updates` at the first element of an update with start 0.
struct BlockRun {
  void* target;
  int64_t target_stride;
  const void* updates;
  int64_t updates_stride;
  std::span<const int64_t> which;  // the updates of this block
  const int64_t* starts;           // start of every update
  int64_t n;                       // at most kChunk
};

template <class T, Scatter how>
void update_run(const BlockRun& run) {
  using W = Wide<T>;
  const int64_t ts = run.target_stride, us = run.updates_stride, n = run.n;
  T* const t = static_cast<T*>(run.target);
  const auto from = [&](int64_t b) { return static_cast<const T*>(run.updates) + run.starts[b]; };
  if constexpr (how == Scatter::set) {
    const T* u = from(run.which.back());
    for (int64_t i = 0; i < n; ++i) t[i * ts] = u[i * us];
  } else if (n == 1) {
    W sum = static_cast<W>(*t);
    for (int64_t b : run.which) sum = combine<how, W>(sum, static_cast<W>(*from(b)));
    *t = T(sum);
  } else {
    W sum[kChunk];
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<W>(t[i * ts]);
    for (int64_t b : run.which) {
      const T* u = from(b);
      if (us == 1) {
        for (int64_t i = 0; i < n; ++i) sum[i] = combine<how, W>(sum[i], static_cast<W>(u[i]));
      } else {
        for (int64_t i = 0; i < n; ++i) sum[i] = combine<how, W>(sum[i], static_cast<W>(u[i * us]));
      }
    }
    for (int64_t i = 0; i < n; ++i) t[i * ts] = T(sum[i]);
  }
}

using UpdateRun = void (*)(const BlockRun& run);

UpdateRun update_run_of(DType dtype, Scatter how) {
  UpdateRun found = nullptr;
  visit_kind(dtype, how, [&]<class T, Scatter kHow>() { found = update_run<T, kHow>; });
  return found;
}

/// Combines block b of `updates` with the block of `target` that begins at offsets[b]. Both blocks have
/// target.shape; starts[b] is where the update's block begins.
void update_blocks(const Tensor& target, const Tensor& updates, const std::vector<int64_t>& offsets,
                   const std::vector<int64_t>& starts, Scatter how) {
  const LoopPlan<2> plan({&target, &updates});
  if (plan.numel == 0 || offsets.empty()) return;
  const Groups groups(offsets);
  const UpdateRun update = update_run_of(target.dtype, how);
  const int64_t count = static_cast<int64_t>(groups.starts.size()) - 1;
  const int64_t chunks = (plan.numel + kChunk - 1) / kChunk;
  const int64_t work = std::min(plan.numel, kChunk) * (static_cast<int64_t>(offsets.size()) / count + 1);
  const auto part = [&](int64_t group, int64_t chunk) {
    const std::span<const int64_t> which = groups[group];
    const int64_t offset = offsets[static_cast<size_t>(which.front())];
    for_each_run<2>(plan, chunk * kChunk, std::min((chunk + 1) * kChunk, plan.numel),
                    [&](const int64_t* at, int64_t n) {
                      update({element_at(target.data, target.dtype, offset + at[0]), plan.strides[0][0],
                              element_at(updates.data, updates.dtype, at[1]), plan.strides[1][0], which,
                              starts.data(), n});
                    });
  };
  parallel_for(count * chunks, std::max(int64_t{1}, kLoopGrain / work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) part(i / chunks, i % chunks);
  });
}

/// True for sums and products: those of 16-bit floats are accumulated in a float copy of the target.
constexpr bool is_sum(Scatter how) { return how == Scatter::add || how == Scatter::mul; }
bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// n lanes of `length` elements each. strides[0] is the distance between lanes, strides[1] that along a lane.
struct LaneRun {
  void* target;
  int64_t target_strides[2];
  const int64_t* index;
  int64_t index_strides[2];
  const void* updates;
  int64_t updates_strides[2];
  int64_t n, length;
  bool along_lanes;  // the inner loop runs along the lane; either way each element gets its updates in order
  Resolve resolve;
};

template <class T, class U, Scatter how>
void scatter_run(const LaneRun& run) {
  T* const to = static_cast<T*>(run.target);
  const U* const from = static_cast<const U*>(run.updates);
  const auto meet = [](T& element, U update) {
    if constexpr (how == Scatter::set) {
      element = update;
    } else {
      using W = Wide<T>;
      element = static_cast<T>(combine<how, W>(static_cast<W>(element), static_cast<W>(update)));
    }
  };
  const auto one = [&](int64_t i, int64_t j) {
    const int64_t index = run.resolve(run.index[i * run.index_strides[0] + j * run.index_strides[1]]);
    meet(to[i * run.target_strides[0] + index * run.target_strides[1]],
         from[i * run.updates_strides[0] + j * run.updates_strides[1]]);
  };
  if (run.index_strides[0] == 0 && run.n > 1) {
    // All lanes have the same index.
    const int64_t ts = run.target_strides[0], us = run.updates_strides[0];
    for (int64_t j = 0; j < run.length; ++j) {
      T* const t = to + run.resolve(run.index[j * run.index_strides[1]]) * run.target_strides[1];
      const U* const u = from + j * run.updates_strides[1];
      for (int64_t i = 0; i < run.n; ++i) meet(t[i * ts], u[i * us]);
    }
  } else if (run.along_lanes) {
    for (int64_t i = 0; i < run.n; ++i)
      for (int64_t j = 0; j < run.length; ++j) one(i, j);
  } else {
    for (int64_t j = 0; j < run.length; ++j)
      for (int64_t i = 0; i < run.n; ++i) one(i, j);
  }
}

using ScatterRun = void (*)(const LaneRun& run);

ScatterRun scatter_run_of(DType dtype, Scatter how) {
  ScatterRun found = nullptr;
  visit_kind(dtype, how, [&]<class T, Scatter kHow>() {
    found = scatter_run<std::conditional_t<is_sum(kHow), Wide<T>, T>, T, kHow>;
  });
  return found;
}

/// Precondition: `indices` are i64.
void scatter_lanes(const Tensor& target, const Tensor& indices, const Tensor& updates, int axis,
                   const Resolve& resolve, ScatterRun scatter) {
  const int64_t length = indices.shape[axis];
  Tensor t = target, x = indices, u = updates;
  t.shape = indices.shape;
  for (Tensor* each : {&t, &x, &u}) {
    each->shape.erase(axis);
    each->strides.erase(axis);
  }
  const LoopPlan<3> plan({&t, &x, &u});
  LaneRun lanes{.target = nullptr,
                .target_strides = {plan.strides[0][0], target.strides[axis]},
                .index = nullptr,
                .index_strides = {plan.strides[1][0], indices.strides[axis]},
                .updates = nullptr,
                .updates_strides = {plan.strides[2][0], updates.strides[axis]},
                .n = 0,
                .length = length,
                .along_lanes = false,
                .resolve = resolve};
  // The inner loop runs along the smaller stride of the indices.
  lanes.along_lanes =
      std::abs(lanes.index_strides[1]) <= std::abs(lanes.index_strides[0]) || plan.shape[0] == 1;
  const auto run = [&](const int64_t* at, int64_t n) {
    LaneRun here = lanes;
    here.target = element_at(target.data, target.dtype, at[0]);
    here.index = indices.as<int64_t>() + at[1];
    here.updates = element_at(updates.data, updates.dtype, at[2]);
    here.n = n;
    scatter(here);
  };
  if (length > 0) parallel_runs<3>(plan, run, std::max(int64_t{1}, kLoopGrain / length));
}

/// Size of a block up to which sorting the updates by block costs more than it saves.
constexpr int64_t kSmallBlock = 16;

/// The start of a block in the target for each index: resolve(index) * step.
struct Places {
  Tensor index;  ///< i32 or i64
  int64_t step;
  Resolve resolve;
};

/// Returns the places of one array of indices, or of several together, whose offsets are stored in `way`.
Places places_of(const Tensor& target, Advanced& way, std::span<const Tensor> indices, IndexMode mode,
                 const char* op) {
  if (way.axes.size() == 1) {
    const int axis = static_cast<int>(way.axes[0]);
    if (way.shape.numel() > 0)
      detail::check_indices(indices[0], -target.shape[axis], target.shape[axis], axis, mode, op);
    return {indices[0].broadcast(way.shape), target.strides[axis], {target.shape[axis], mode}};
  }
  way.locate(target, indices, mode, op);
  // The offsets, which may be negative, are already distances in memory. With a size of 0 Resolve leaves them
  // unchanged.
  return {
      {way.offsets.data(), DType::i64, way.shape, contiguous_strides(way.shape)}, 1, {0, IndexMode::raise}};
}

/// One thread updates blocks of block.shape[0] elements each, in the order of the updates: a store costs less
/// than assigning it to a thread. `updates` has the shape of where.index.
void update_in_order(const Tensor& target, const LoopPlan<2>& block, const Tensor& updates,
                     const Places& where, ScatterRun scatter) {
  const Tensor order = row_major_order(where.index.shape);
  const LoopPlan<3> plan({&order, &where.index, &updates});
  LaneRun lanes{.target = target.data,
                .target_strides = {block.strides[0][0], where.step},
                .index = nullptr,
                .index_strides = {0, plan.strides[1][0]},
                .updates = nullptr,
                .updates_strides = {block.strides[1][0], plan.strides[2][0]},
                .n = block.shape[0],
                .length = 0,
                .along_lanes = block.shape[0] == 1,
                .resolve = where.resolve};
  const auto run = [&](const int64_t* index, const int64_t* at, int64_t done, int64_t n) {
    lanes.index = index;
    lanes.updates = element_at(updates.data, updates.dtype, at[2] + done * lanes.updates_strides[1]);
    lanes.length = n;
    scatter(lanes);
  };
  if (where.index.dtype == DType::i64) {
    for_each_run<3>(plan, 0, plan.numel,
                    [&](const int64_t* at, int64_t n) { run(where.index.as<int64_t>() + at[1], at, 0, n); });
    return;
  }
  const int64_t step = lanes.index_strides[1];
  lanes.index_strides[1] = 1;
  for_each_run<3>(plan, 0, plan.numel, [&](const int64_t* at, int64_t n) {
    constexpr int64_t kConverted = 512;
    int64_t wide[kConverted];
    const int32_t* const narrow = where.index.as<int32_t>() + at[1];
    for (int64_t done = 0; done < n; done += kConverted) {
      const int64_t here = std::min(kConverted, n - done);
      for (int64_t i = 0; i < here; ++i) wide[i] = narrow[(done + i) * step];
      run(wide, at, done, here);
    }
  });
}

/// The strides of the updates along the dimensions of the indices, and along the others.
struct UpdateStrides {
  Strides middle, rest;
};

UpdateStrides split_strides(const Tensor& updates, const Advanced& way) {
  UpdateStrides s;
  for (int i = 0; i < updates.rank(); ++i) {
    const bool inside = i >= way.position && i < way.position + way.shape.rank();
    (inside ? s.middle : s.rest).push_back(updates.strides[i]);
  }
  return s;
}

/// Performs the update if the blocks are small. Otherwise returns false and does nothing.
bool update_small(const Tensor& target, Advanced& way, std::span<const Tensor> indices, const Tensor& updates,
                  const UpdateStrides& strides, Scatter how, IndexMode mode, const char* op) {
  const Tensor block{target.data, target.dtype, way.rest(target.shape), way.rest(target.strides)};
  const Tensor from{updates.data, updates.dtype, block.shape, strides.rest};
  const LoopPlan<2> plan({&block, &from});
  if (plan.numel > kSmallBlock || plan.rank > 1) return false;
  if (target.dtype == updates.dtype && is_half(target.dtype) && is_sum(how)) {
    // A float copy of the whole target pays off only if the target is not much larger than the updates.
    if (target.numel() > 16 * updates.numel()) return false;
    std::vector<float> wide(static_cast<size_t>(target.numel()));
    const Tensor sums{wide.data(), DType::f32, target.shape, contiguous_strides(target.shape)};
    copy(sums, target);
    update_small(sums, way, indices, updates, strides, how, mode, op);
    copy(target, sums);
    return true;
  }
  const Places where = places_of(target, way, indices, mode, op);
  if (plan.numel > 0 && way.shape.numel() > 0)
    update_in_order(target, plan, {updates.data, updates.dtype, way.shape, strides.middle}, where,
                    scatter_run_of(updates.dtype, how));
  return true;
}

/// `updates` has the target's shape with way.shape in place of the axes.
void update_advanced(const Tensor& target, Advanced& way, std::span<const Tensor> indices,
                     const Tensor& updates, Scatter how, IndexMode mode, const char* op) {
  const UpdateStrides strides = split_strides(updates, way);
  if (update_small(target, way, indices, updates, strides, how, mode, op)) return;
  way.locate(target, indices, mode, op);
  std::vector<int64_t> starts;
  starts.reserve(way.offsets.size());
  Shape at = Shape::filled(way.shape.rank(), 0);
  for (size_t b = 0; b < way.offsets.size(); ++b) {
    int64_t start = 0;
    for (int i = 0; i < at.rank(); ++i) start += at[i] * strides.middle[i];
    starts.push_back(start);
    for (int i = at.rank() - 1; i >= 0 && ++at[i] == way.shape[i]; --i) at[i] = 0;
  }
  const Tensor block{target.data, target.dtype, way.rest(target.shape), way.rest(target.strides)};
  update_blocks(block, {updates.data, updates.dtype, block.shape, strides.rest}, way.offsets, starts, how);
}

}  // namespace

void scatter(const Tensor& target, const Tensor& indices, const Tensor& updates, int64_t axis, Scatter how,
             IndexMode mode) {
  const int at = normalize_axis(axis, target.rank(), "scatter");
  detail::check_same_dtype(target, updates, "scatter");
  detail::check_shape(updates.shape, indices.shape, "updates", "scatter");
  MX_CHECK(indices.rank() == target.rank(), InvalidArgument, "[scatter] expected indices of rank ",
           target.rank(), ", got shape ", indices.shape);
  for (int i = 0; i < target.rank(); ++i)
    MX_CHECK(i == at || indices.shape[i] <= target.shape[i], InvalidArgument,
             "[scatter] expected indices no larger than shape ", target.shape, " except along axis ", at,
             ", got shape ", indices.shape);
  detail::check_indices(indices, -target.shape[at], target.shape[at], at, mode, "scatter");
  if (indices.numel() == 0) return;
  const Resolve resolve{target.shape[at], mode};
  Tensor index = indices;
  std::vector<int64_t> whole;
  if (index.dtype != DType::i64) {
    whole.resize(static_cast<size_t>(index.numel()));
    index = {whole.data(), DType::i64, indices.shape, contiguous_strides(indices.shape)};
    copy(index, indices);
  }
  const ScatterRun run = scatter_run_of(target.dtype, how);
  if (is_half(target.dtype) && is_sum(how)) {
    std::vector<float> wide(static_cast<size_t>(target.numel()));
    const Tensor sums{wide.data(), DType::f32, target.shape, contiguous_strides(target.shape)};
    copy(sums, target);
    scatter_lanes(sums, index, updates, at, resolve, run);
    copy(target, sums);
  } else {
    scatter_lanes(target, index, updates, at, resolve, run);
  }
}

void index_update(const Tensor& target, const Tensor& indices, const Tensor& updates, int64_t axis,
                  Scatter how, IndexMode mode) {
  const char* const op = "index_update";
  Advanced way(target.shape, {&indices, 1}, {axis}, -1, op);
  detail::check_same_dtype(target, updates, op);
  MX_CHECK(indices.rank() == 1, InvalidArgument, "[", op, "] expected indices of rank 1, got shape ",
           indices.shape);
  detail::check_shape(updates.shape, way.with(target.shape, indices.shape), "updates", op);
  update_advanced(target, way, {&indices, 1}, updates, how, mode, op);
}

void put_nd(const Tensor& target, std::span<const Tensor> indices, const Shape& axes, const Tensor& updates,
            Scatter how, int64_t position) {
  Advanced way(target.shape, indices, axes, position, "put_nd");
  detail::check_same_dtype(target, updates, "put_nd");
  const Shape full = way.with(target.shape, way.shape);
  MX_CHECK(broadcast_shapes(updates.shape, full, "put_nd") == full, InvalidArgument,
           "[put_nd] expected updates that broadcast to ", full, ", got ", updates.shape);
  update_advanced(target, way, indices, updates.broadcast(full), how, IndexMode::raise, "put_nd");
}

void embedding_gradient(const Tensor& target, const Tensor& indices, const Tensor& gradient,
                        int64_t skip_row) {
  const char* const op = "embedding_gradient";
  MX_CHECK(target.rank() == 2, InvalidArgument, "[", op, "] expected a target of rank 2, got shape ",
           target.shape);
  MX_CHECK(skip_row < target.shape[0], InvalidArgument, "[", op, "] expected a row to skip below ",
           target.shape[0], ", got ", skip_row);
  Advanced way(target.shape, {&indices, 1}, {0}, -1, op);
  detail::check_same_dtype(target, gradient, op);
  detail::check_shape(gradient.shape, way.with(target.shape, indices.shape), "a gradient", op);
  detail::check_indices(indices, -target.shape[0], target.shape[0], 0, IndexMode::raise, op);
  fill(target, int64_t{0});
  update_advanced(target, way, {&indices, 1}, gradient, Scatter::add, IndexMode::raise, op);
  if (skip_row < 0) return;
  fill(target.narrowed(0, skip_row, 1), int64_t{0});
}

}  // namespace mx::kernels
