#include "operators/kernels/index_check.h"

#include <atomic>
#include <limits>

#include "engine/base/check.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/index_range.h"

namespace mx::kernels::detail {
namespace {

int64_t index_at(const Tensor& indices, int64_t offset) {
  return indices.dtype == DType::i32 ? indices.as<int32_t>()[offset] : indices.as<int64_t>()[offset];
}

[[noreturn]] void refuse(const Tensor& indices, int64_t lowest, int64_t size, int axis, const char* op) {
  // Searches in row-major order, so that every run names the same index.
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const int64_t index = index_at(indices, place_of(i, indices.shape, indices.strides));
    if (index >= lowest && index < size) continue;
    throw InvalidArgument(bad_index(op, lowest, size, axis, index, position_of(i, indices.shape)));
  }
  throw InvalidArgument(
      "expected indices that do not change during the operation, got an index that was changed by other "
      "code");
}

}  // namespace

void check_indices(const Tensor& indices, int64_t lowest, int64_t size, int axis, IndexMode mode,
                   const char* op) {
  MX_CHECK(indices.dtype == DType::i32 || indices.dtype == DType::i64, InvalidArgument, "[", op,
           "] expected indices of type i32 or i64, got ", indices.dtype);
  if (indices.numel() == 0) return;
  if (size <= 0) throw InvalidArgument(no_place_for_indices(op, axis, indices.numel()));
  if (mode != IndexMode::raise) return;
  std::atomic<bool> bad = false;
  visit_index(indices.dtype, [&](auto tag) {
    using I = typename decltype(tag)::type;
    const LoopPlan<1> plan({&indices});
    const int64_t step = plan.strides[0][0];
    parallel_runs<1>(plan, [&](const int64_t* offsets, int64_t n) {
      const I* p = indices.as<I>() + offsets[0];
      bool outside = false;
      if (step == 1) {
        outside = any_outside(p, n, lowest, size);
      } else {
        for (int64_t i = 0; i < n; ++i) outside |= p[i * step] < lowest || p[i * step] >= size;
      }
      if (outside) bad.store(true, std::memory_order_relaxed);
    });
  });
  if (bad.load()) refuse(indices, lowest, size, axis, op);
}

void check_offsets(std::span<const int64_t> offsets, int64_t entries, OffsetsEnd end, const char* what,
                   const char* op) {
  MX_CHECK(!offsets.empty() || (end == OffsetsEnd::at_most && entries == 0), InvalidArgument, "[", op,
           "] expected ", what, " that begin with 0 for ", entries, " entries, got none");
  if (offsets.empty()) return;
  if (offsets[0] != 0) throw InvalidArgument(bad_first_offset(op, what, offsets[0]));
  for (size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i - 1] > offsets[i])
      throw InvalidArgument(bad_order(op, what, offsets[i - 1], offsets[i], static_cast<int64_t>(i)));
  const int64_t last = offsets.back();
  if (end == OffsetsEnd::exact && last != entries)
    throw InvalidArgument(bad_last_offset(op, what, entries, last));
  MX_CHECK(last <= entries, InvalidArgument, "[", op, "] expected ", what,
           " that end with at most the number of entries, ", entries, ", got ", last);
}

void check_index_target(const Tensor& target, int64_t largest, const char* what, const char* op) {
  MX_CHECK(target.dtype == DType::i32 || target.dtype == DType::i64, InvalidArgument, "[", op, "] expected ",
           what, " of type i32 or i64, got ", target.dtype);
  MX_CHECK(target.dtype == DType::i64 || largest <= std::numeric_limits<int32_t>::max(), InvalidArgument, "[",
           op, "] expected ", what, " of type i64 for numbers up to ", largest, ", got i32");
}

void check_same_dtype(const Tensor& a, const Tensor& b, const char* op) {
  MX_CHECK(a.dtype == b.dtype, InvalidArgument, "[", op, "] expected arrays of the same type, got ", a.dtype,
           " and ", b.dtype);
}

void check_shape(const Shape& got, const Shape& expected, const char* what, const char* op) {
  MX_CHECK(got == expected, InvalidArgument, "[", op, "] expected ", what, " of shape ", expected, ", got ",
           got);
}

Advanced::Advanced(const Shape& array, std::span<const Tensor> indices, const Shape& at, int64_t where,
                   const char* op) {
  MX_CHECK(!indices.empty() && indices.size() == at.size(), InvalidArgument, "[", op,
           "] expected one array of indices per axis, got ", indices.size(), " for axes ", at);
  bool neighbours = true;
  for (int i = 0; i < at.rank(); ++i) {
    axes.push_back(normalize_axis(at[i], array.rank(), op));
    MX_CHECK(i == 0 || axes[i] > axes[i - 1], InvalidArgument, "[", op,
             "] expected axes that are distinct and ascending, got ", at);
    neighbours = neighbours && (i == 0 || axes[i] == axes[i - 1] + 1);
    shape = broadcast_shapes(shape, indices[static_cast<size_t>(i)].shape, op);
  }
  const int others = array.rank() - axes.rank();
  MX_CHECK(where <= others, InvalidArgument, "[", op, "] expected a position up to ", others, ", got ",
           where);
  position = where >= 0 ? static_cast<int>(where) : neighbours ? static_cast<int>(axes[0]) : 0;
}

void Advanced::check(const Tensor& array, std::span<const Tensor> indices, IndexMode mode,
                     const char* op) const {
  // If there are no index combinations, no index is used and none can be out of range.
  if (shape.numel() == 0) return;
  for (int k = 0; k < axes.rank(); ++k) {
    const int axis = static_cast<int>(axes[k]);
    check_indices(indices[static_cast<size_t>(k)], -array.shape[axis], array.shape[axis], axis, mode, op);
  }
}

void Advanced::locate(const Tensor& array, std::span<const Tensor> indices, IndexMode mode, const char* op) {
  check(array, indices, mode, op);
  const int64_t count = shape.numel();
  offsets.assign(static_cast<size_t>(count), 0);
  const Tensor out{offsets.data(), DType::i64, shape, contiguous_strides(shape)};
  for (int k = 0; k < axes.rank(); ++k) {
    const Tensor& own = indices[static_cast<size_t>(k)];
    const Tensor index = own.broadcast(shape);
    const int axis = static_cast<int>(axes[k]);
    const Resolve resolve{array.shape[axis], mode};
    const int64_t stride = array.strides[axis];
    visit_index(index.dtype, [&](auto tag) {
      using I = typename decltype(tag)::type;
      const LoopPlan<2> plan({&out, &index});
      const int64_t os = plan.strides[0][0], is = plan.strides[1][0];
      parallel_runs<2>(plan, [&](const int64_t* at, int64_t n) {
        int64_t* o = offsets.data() + at[0];
        const I* p = index.as<I>() + at[1];
        for (int64_t i = 0; i < n; ++i) o[i * os] += resolve(p[i * is]) * stride;
      });
    });
  }
}

Shape Advanced::rest(const Shape& array) const {
  Shape result;
  for (int i = 0, k = 0; i < array.rank(); ++i) {
    if (k < axes.rank() && axes[k] == i) {
      ++k;
    } else {
      result.push_back(array[i]);
    }
  }
  return result;
}

Shape Advanced::with(const Shape& array, const Shape& middle) const {
  Shape result = rest(array);
  for (int i = 0; i < middle.rank(); ++i) result.insert(position + i, middle[i]);
  return result;
}

}  // namespace mx::kernels::detail
