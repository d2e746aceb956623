// GradCell: holds the gradient of an array. Internal.
//
// The array owns the cell; nodes hold weak pointers to it. With create_graph, the graph of a gradient may
// lead back to the array's node; thanks to the weak pointers this is no cycle of owners. When the last handle
// to the array is destroyed, its gradient and the graph of that gradient are destroyed too. A backward pass
// that computes a gradient after that finds no cell and drops the gradient.
#pragma once

#include <memory>
#include <mutex>

#include "executor/autograd/node.h"

namespace mx::detail {

class GradCell {
 public:
  GradCell(const ArrayImpl& array, GradReq req);

  void set_req(GradReq req);
  NDArray grad() const;
  /// Throws InvalidArgument if the gradient's shape, type or device is not the array's.
  void set_grad(NDArray grad);
  /// Adds a gradient, or replaces the old one, as `req` says. If `own`, `gradient` is not shared, and the
  /// cell may keep the array itself instead of a copy. The addition is recorded if the thread is recording.
  /// Otherwise the old gradient is changed in place if its memory is marked as a gradient's: then no pass has
  /// it among its own arrays (apart_from_gradients()).
  void accumulate(NDArray gradient, bool own);

 private:
  void replace(NDArray& before, NDArray gradient);

  mutable std::mutex mutex_;  // guards req_ and grad_
  GradReq req_;
  const Shape shape_;
  const DType dtype_;
  const Context context_;
  NDArray grad_;
};

/// Returns an array that a program has given to a backward pass, as a head or as the result of a hook or of a
/// user's function, or a copy if the array shares memory with the gradient of a leaf or of a result with
/// retain_grad(). Without the copy, the pass would compute other gradients from what it has made of that one.
NDArray apart_from_gradients(NDArray array);

/// Returns a + b as a row-sparse gradient if both are (operators/row_sparse.h), otherwise an empty handle.
NDArray sum_if_row_sparse(const NDArray& a, const NDArray& b);

/// Sets the array's edge and its cell.
void set_cell(ArrayImpl& array, const Edge& edge, std::shared_ptr<GradCell> cell);
/// Returns the cell of an array, or null if it has none.
std::shared_ptr<GradCell> cell_of(const ArrayImpl& array);

}  // namespace mx::detail
