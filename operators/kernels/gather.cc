// Reading at indices (index.h). One loop runs over the target, the source and the indices, all with the
// target's shape: the source has strides of 0 along the dimensions of the indices, and the indices along the
// others.
#include <cstring>

#include "engine/base/check.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/index.h"
#include "operators/kernels/index_check.h"

namespace mx::kernels {
namespace {

using detail::Advanced;
using detail::Resolve;

/// target[e] = source[e + resolve(index[e]) * step]; the three have one shape.
void gather_elements(const Tensor& target, const Tensor& source, const Tensor& index, int64_t step,
                     const Resolve& resolve) {
  const LoopPlan<3> plan({&target, &source, &index});
  const int64_t ts = plan.strides[0][0], ss = plan.strides[1][0], is = plan.strides[2][0];
  // If the source does not fit into the caches, elements are prefetched far ahead, so that many memory
  // accesses are in flight at once.
  constexpr int64_t kAhead = 128, kFarBytes = 1 << 20;
  const bool far = resolve.size * static_cast<int64_t>(size_of(target.dtype)) > kFarBytes;
  visit_size(target.dtype, [&](auto element) {
    detail::visit_index(index.dtype, [&](auto integer) {
      using E = typename decltype(element)::type;
      using I = typename decltype(integer)::type;
      parallel_runs<3>(plan, [&](const int64_t* offsets, int64_t n) {
        E* t = target.as<E>() + offsets[0];
        const E* s = source.as<E>() + offsets[1];
        const I* p = index.as<I>() + offsets[2];
        if (is == 0) {
          s += resolve(*p) * step;
          if (ts == 1 && ss == 1) {
            std::memcpy(t, s, static_cast<size_t>(n) * sizeof(E));
          } else {
            for (int64_t i = 0; i < n; ++i) t[i * ts] = s[i * ss];
          }
        } else if (resolve.mode == IndexMode::raise) {
          const int64_t size = resolve.size;
          if (ts == 1 && is == 1 && ss == 0 && step == 1) {
            const auto place = [=](int64_t i) {
              const int64_t k = p[i];
              return s + k + ((k >> 63) & size);
            };
            int64_t i = 0;
            for (; far && i + kAhead < n; ++i) {
              __builtin_prefetch(place(i + kAhead));
              t[i] = *place(i);
            }
#pragma GCC unroll 4
            for (; i < n; ++i) t[i] = *place(i);
          } else {
            for (int64_t i = 0; i < n; ++i) {
              const int64_t k = p[i * is];
              t[i * ts] = s[i * ss + (k < 0 ? k + size : k) * step];
            }
          }
        } else {
          for (int64_t i = 0; i < n; ++i) t[i * ts] = s[i * ss + resolve(p[i * is]) * step];
        }
      });
    });
  });
}

/// Returns the source with the target's shape: strides of 0 along the dimensions of the indices.
Tensor along_rest(const Tensor& source, const Advanced& way, const Shape& target) {
  return {source.data, source.dtype, target, way.with(source.strides, Shape::filled(way.shape.rank(), 0))};
}

/// Returns the indices with the target's shape: strides of 0 along the other dimensions.
Tensor along_indices(const Tensor& indices, const Tensor& source, const Advanced& way, const Shape& target) {
  const Tensor wide = indices.broadcast(way.shape);
  return {wide.data, wide.dtype, target, way.with(Shape::filled(source.rank(), 0), wide.strides)};
}

void take_named(const Tensor& target, const Tensor& source, const Tensor& indices, int64_t axis,
                IndexMode mode, const char* op, bool from_end = true) {
  const Advanced way(source.shape, {&indices, 1}, {axis}, -1, op);
  detail::check_same_dtype(target, source, op);
  detail::check_shape(target.shape, way.with(source.shape, indices.shape), "a target", op);
  const int at = static_cast<int>(way.axes[0]);
  detail::check_indices(indices, from_end ? -source.shape[at] : 0, source.shape[at], at, mode, op);
  gather_elements(target, along_rest(source, way, target.shape),
                  along_indices(indices, source, way, target.shape), source.strides[at],
                  {source.shape[at], mode});
}

}  // namespace

Shape take_shape(const Shape& source, const Shape& indices, int64_t axis) {
  const int at = normalize_axis(axis, source.rank(), "take");
  Shape result = source;
  result.erase(at);
  for (int i = 0; i < indices.rank(); ++i) result.insert(at + i, indices[i]);
  return result;
}

void take(const Tensor& target, const Tensor& source, const Tensor& indices, int64_t axis, IndexMode mode) {
  take_named(target, source, indices, axis, mode, "take");
}

void gather(const Tensor& target, const Tensor& source, const Tensor& indices, int64_t axis, IndexMode mode) {
  const int at = normalize_axis(axis, source.rank(), "gather");
  detail::check_same_dtype(target, source, "gather");
  detail::check_shape(target.shape, indices.shape, "a target", "gather");
  MX_CHECK(indices.rank() == source.rank(), InvalidArgument, "[gather] expected indices of rank ",
           source.rank(), ", got shape ", indices.shape);
  for (int i = 0; i < source.rank(); ++i)
    MX_CHECK(i == at || indices.shape[i] <= source.shape[i], InvalidArgument,
             "[gather] expected indices no larger than shape ", source.shape, " except along axis ", at,
             ", got shape ", indices.shape);
  detail::check_indices(indices, -source.shape[at], source.shape[at], at, mode, "gather");
  Tensor from{source.data, source.dtype, target.shape, source.strides};
  from.strides[at] = 0;
  gather_elements(target, from, indices, source.strides[at], {source.shape[at], mode});
}

Shape gather_nd_shape(const Shape& source, std::span<const Tensor> indices, const Shape& axes,
                      int64_t position, const char* op) {
  const Advanced way(source, indices, axes, position, op);
  return way.with(source, way.shape);
}

void gather_nd(const Tensor& target, const Tensor& source, std::span<const Tensor> indices, const Shape& axes,
               int64_t position) {
  Advanced way(source.shape, indices, axes, position, "gather_nd");
  detail::check_same_dtype(target, source, "gather_nd");
  detail::check_shape(target.shape, way.with(source.shape, way.shape), "a target", "gather_nd");
  if (way.axes.size() == 1) {
    // One axis needs no offsets: the indices themselves are read.
    const int axis = static_cast<int>(way.axes[0]);
    const int64_t size = source.shape[axis];
    if (way.shape.numel() > 0)
      detail::check_indices(indices[0], -size, size, axis, IndexMode::raise, "gather_nd");
    return gather_elements(target, along_rest(source, way, target.shape),
                           along_indices(indices[0], source, way, target.shape), source.strides[axis],
                           {size, IndexMode::raise});
  }
  way.locate(source, indices, IndexMode::raise, "gather_nd");
  const Tensor offsets{way.offsets.data(), DType::i64, way.shape, contiguous_strides(way.shape)};
  // The offsets, which may be negative, are already distances in memory. With a size of 0 Resolve leaves them
  // unchanged.
  gather_elements(target, along_rest(source, way, target.shape),
                  along_indices(offsets, source, way, target.shape), 1, {0, IndexMode::raise});
}

void one_hot(const Tensor& target, const Tensor& indices) {
  Shape expected = indices.shape;
  MX_CHECK(target.rank() == indices.rank() + 1, InvalidArgument, "[one_hot] expected a target of rank ",
           indices.rank() + 1, ", got shape ", target.shape);
  const int64_t classes = target.shape.back();
  expected.push_back(classes);
  detail::check_shape(target.shape, expected, "a target", "one_hot");
  detail::check_indices(indices, 0, classes, indices.rank(), IndexMode::raise, "one_hot");
  fill(target, int64_t{0});
  const int64_t step = target.strides.back();
  Tensor rows{target.data, target.dtype, indices.shape, target.strides};
  rows.strides.resize(indices.rank());
  const LoopPlan<2> plan({&rows, &indices});
  const int64_t ts = plan.strides[0][0], is = plan.strides[1][0];
  visit(target.dtype, [&](auto element) {
    detail::visit_index(indices.dtype, [&](auto integer) {
      using T = typename decltype(element)::type;
      using I = typename decltype(integer)::type;
      parallel_runs<2>(plan, [&](const int64_t* offsets, int64_t n) {
        T* t = target.as<T>() + offsets[0];
        const I* p = indices.as<I>() + offsets[1];
        for (int64_t i = 0; i < n; ++i) t[i * ts + p[i * is] * step] = T(1);
      });
    });
  });
}

void embedding(const Tensor& target, const Tensor& table, const Tensor& indices, bool from_end) {
  MX_CHECK(table.rank() == 2, InvalidArgument, "[embedding] expected a table of rank 2, got shape ",
           table.shape);
  take_named(target, table, indices, 0, IndexMode::raise, "embedding", from_end);
}

}  // namespace mx::kernels
