// GradCell: where an array keeps its gradient. Internal.
//
// The array owns the cell; nodes only know it weakly. So a gradient whose own graph leads back to the array's
// node (create_graph) makes no circle of owners: when the last handle to the array goes, its gradient and the
// graph of that gradient go too. A pass that brings a gradient later finds no cell, and drops the gradient.
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
  /// Throws InvalidArgument for a gradient unlike the array.
  void set_grad(NDArray grad);
  /// `own`: nobody else has the array `gradient`, so the cell may keep it. Recorded where the thread records.
  void accumulate(NDArray gradient, bool own);

 private:
  mutable std::mutex mutex_;  // guards req_ and grad_
  GradReq req_;
  const Shape shape_;
  const DType dtype_;
  const Context context_;
  NDArray grad_;
};

/// Gives the array a cell beside `edge`, the node that it leads to from now on.
void set_cell(ArrayImpl& array, const Edge& edge, std::shared_ptr<GradCell> cell);
/// The cell of an array; null when there is none.
std::shared_ptr<GradCell> cell_of(const ArrayImpl& array);

}  // namespace mx::detail
