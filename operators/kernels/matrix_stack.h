// Loops over stacks of matrices: the last dimensions of a tensor are a matrix, a vector or a number, the
// others count how many there are. Internal to the kernels of linear algebra and Fourier transforms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>

#include "ndarray/kernels/parallel.h"
#include "ndarray/tensor.h"
#include "operators/kernels/dense.h"

namespace mx::kernels::detail {

/// Returns the first dimensions of a shape or list of strides, without the last `core` ones.
inline Shape leading(const Shape& shape, int core) {
  Shape result = shape;
  result.resize(shape.rank() - core);
  return result;
}

/// The items of a stack as blocks: item (2) is a matrix, (1) a vector as a column, (0) a number.
template <class T>
class Stack {
 public:
  /// `core`: the dimensions of an item. The other dimensions broadcast to `batch`.
  Stack(const Tensor& x, int core, const Shape& batch) : batch_(batch) {
    strides_ = broadcast_strides(leading(x.shape, core), leading(x.strides, core), batch);
    const int r = x.rank() - core;
    first_.data = static_cast<T*>(x.data);
    first_.rows = core > 0 ? x.shape[r] : 1;
    first_.row_stride = core > 0 ? x.strides[r] : 0;
    first_.columns = core > 1 ? x.shape[r + 1] : 1;
    first_.column_stride = core > 1 ? x.strides[r + 1] : 1;
  }
  MatrixBlock<T> operator[](int64_t i) const {
    MatrixBlock<T> item = first_;
    item.data += place_of(i, batch_, strides_);
    return item;
  }

 private:
  Shape batch_;
  Strides strides_;
  MatrixBlock<T> first_;
};

/// Calls body(begin, end) for pieces of the stack. `work`: the operations of one item.
template <class Body>
void each_item(const Shape& batch, double work, const Body& body) {
  constexpr double kPieceWork = 1 << 18;
  const double items = std::max(1., kPieceWork / std::max(work, 1.));
  parallel_for(batch.numel(), static_cast<int64_t>(items), body);
}

/// Remembers the first item of a stack that failed, whichever thread finds it.
class FirstFailure {
 public:
  void note(int64_t item, int64_t detail) {
    const std::lock_guard lock(mutex_);
    if (item >= item_) return;
    item_ = item;
    detail_ = detail;
  }
  bool any() const { return item_ != kNone; }
  int64_t item() const { return item_; }
  int64_t detail() const { return detail_; }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::mutex mutex_;
  int64_t item_ = kNone, detail_ = 0;
};

/// Calls f(tag) with the type of the elements, float or double.
template <class F>
void visit_real(DType type, const F& f) {
  if (type == DType::f32) {
    f(float{});
  } else {
    f(double{});
  }
}

}  // namespace mx::kernels::detail
