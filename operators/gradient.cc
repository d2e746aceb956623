#include "operators/gradient.h"

#include "engine/base/check.h"
#include "operators/operator.h"
#include "operators/reduce.h"

namespace mx {

const NDArray& GradientContext::input(size_t i) const {
  MX_CHECK(has_bit(op_.uses(attrs_).inputs, i), InvalidState, "[", op_.name(),
           "] expected the gradient function to read only the inputs that the record lists in gradient_uses, "
           "got a read of input ",
           i);
  return inputs_[i];
}

const NDArray& GradientContext::output(size_t i) const {
  MX_CHECK(has_bit(op_.uses(attrs_).outputs, i), InvalidState, "[", op_.name(),
           "] expected the gradient function to read only the outputs that the record lists in "
           "gradient_uses, got a read of output ",
           i);
  return outputs_[i];
}

NDArray GradientContext::head_or_zeros(size_t i) const {
  return heads_[i].defined() ? heads_[i] : zeros_like(outputs_[i]);
}

void GradientContext::set(size_t i, const NDArray& gradient) {
  MX_CHECK(i < results_.size(), InvalidArgument, "[", op_.name(), "] expected the gradient of one of the ",
           results_.size(), " inputs, got one of input ", i);
  const NDArray& like = known(i);
  NDArray result = gradient.shape() == like.shape() ? gradient : sum_to(gradient, like.shape());
  results_[i] = result.dtype() == like.dtype() ? std::move(result) : result.to(like.dtype());
}

void zero_gradient(GradientContext&) {}

NDArray detail::zeros_view(const Shape& shape, DType dtype, Context context) {
  return scalar_array(0, dtype, context).broadcast_to(shape);
}

NDArray sum_to(const NDArray& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  MX_CHECK(shape.rank() <= x.rank() && broadcast_shapes(shape, x.shape(), "sum_to") == x.shape(),
           InvalidArgument, "[sum_to] expected a shape that broadcasts to ", x.shape(), ", got ", shape);
  const int more = x.rank() - shape.rank();
  Axes axes;
  bool kept = false;
  for (int i = 0; i < x.rank(); ++i) {
    if (i >= more && (shape[i - more] != 1 || x.shape()[i] == 1)) continue;
    axes.push_back(i);
    kept = kept || i >= more;
  }
  const NDArray total = sum(x, axes, kept);
  return total.shape() == shape ? total : total.reshape(shape);
}

}  // namespace mx
