#include "executor/autograd/grad_cell.h"

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "operators/row_sparse.h"

namespace mx::detail {

NDArray sum_if_row_sparse(const NDArray& a, const NDArray& b) {
  const NDArray both[] = {a, b};
  return sum_row_sparse(both, b.context());
}

GradCell::GradCell(const ArrayImpl& array, GradReq req)
    : req_(req), shape_(array.shape), dtype_(array.dtype), context_(array.context()) {}

void GradCell::set_req(GradReq req) {
  std::lock_guard lock(mutex_);
  req_ = req;
}

NDArray GradCell::grad() const {
  std::lock_guard lock(mutex_);
  return grad_;
}

void GradCell::set_grad(NDArray grad) {
  MX_CHECK(
      !grad.defined() || (grad.shape() == shape_ && grad.dtype() == dtype_ && grad.context() == context_),
      InvalidArgument, "[set_grad] expected a gradient with the type, shape and device of its array, ",
      dtype_, ' ', shape_, " on ", context_, ", got ", grad.dtype(), ' ', grad.shape(), " on ",
      grad.context());
  std::lock_guard lock(mutex_);
  std::swap(grad_, grad);  // the old gradient is destroyed after the lock is released
}

void GradCell::accumulate(NDArray gradient, bool own) {
  NDArray before;  // destroyed after the lock is released: it may be the last owner of a graph
  std::lock_guard lock(mutex_);
  if (req_ == GradReq::null) return;
  // A row-sparse gradient is kept as it is. To add to it in place, or to copy it, would make it dense.
  if (grad_.defined() && row_sparse(gradient)) {
    NDArray sum = req_ == GradReq::add ? sum_if_row_sparse(grad_, gradient) : own ? gradient : NDArray();
    if (sum.defined()) {
      before = std::exchange(grad_, std::move(sum));
      return;
    }
  }
  if (grad_.defined() && req_ == GradReq::add) {
    if (grad_.impl().recorded() || gradient.impl().recorded()) {
      before = std::exchange(grad_, grad_ + gradient);
    } else {
      NoGrad pause;
      grad_ += gradient;
    }
  } else if (grad_.defined() && !gradient.impl().recorded() && !grad_.requires_grad()) {
    NoGrad pause;
    grad_.copy_from(gradient);
  } else {
    before = std::exchange(grad_, own ? std::move(gradient) : gradient.clone());
  }
}

}  // namespace mx::detail
