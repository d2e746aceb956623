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

namespace {

// Marks the memory of an array that becomes a gradient. The memory of a row-sparse array is made when it is
// read, and has the mark from then on. Before that, accumulate() does not change it in place.
void mark(const NDArray& gradient) {
  if (gradient.defined() && !row_sparse(gradient)) gradient.impl().storage->set_has_been_gradient();
}

}  // namespace

NDArray apart_from_gradients(NDArray array) {
  if (!array.ref()->storage->has_been_gradient() || row_sparse(array)) return array;
  return array.clone();
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
  mark(grad);
  std::lock_guard lock(mutex_);
  std::swap(grad_, grad);  // the old gradient is destroyed after the lock is released
}

void GradCell::replace(NDArray& before, NDArray gradient) {
  mark(gradient);
  before = std::exchange(grad_, std::move(gradient));
}

void GradCell::accumulate(NDArray gradient, bool own) {
  NDArray before;  // destroyed after the lock is released: it may be the last owner of a graph
  std::lock_guard lock(mutex_);
  if (req_ == GradReq::null) return;
  // A row-sparse gradient is kept as it is. To add to it in place, or to copy it, would make it dense.
  if (grad_.defined() && row_sparse(gradient)) {
    NDArray sum = req_ == GradReq::add ? sum_if_row_sparse(grad_, gradient) : own ? gradient : NDArray();
    if (sum.defined()) return replace(before, std::move(sum));
  }
  const bool in_place = grad_.defined() && !row_sparse(grad_) && grad_.impl().storage->has_been_gradient();
  if (grad_.defined() && req_ == GradReq::add) {
    if (!in_place || grad_.impl().recorded() || gradient.impl().recorded()) {
      replace(before, grad_ + gradient);
    } else {
      NoGrad pause;
      grad_ += gradient;
    }
  } else if (in_place && !gradient.impl().recorded() && !grad_.requires_grad()) {
    NoGrad pause;
    grad_.copy_from(gradient);
  } else {
    replace(before, own ? std::move(gradient) : gradient.clone());
  }
}

}  // namespace mx::detail
