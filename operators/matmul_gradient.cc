// Gradients of products are products of transposed views. A stack that is multiplied by one matrix is treated
// as one larger matrix here too, so no gradients per member are computed and then summed.
#include "operators/matmul_gradient.h"

#include "operators/elementwise_binary.h"
#include "operators/matmul.h"

namespace mx::detail {
namespace {

NDArray transposed(const NDArray& x) { return x.swap_axes(-2, -1); }

/// Returns a stack of matrices as one matrix.
NDArray rows(const NDArray& x) {
  int64_t count = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) count *= x.shape()[i];
  return x.rank() == 2 ? x : x.reshape({count, x.shape().back()});
}

/// The gradient of (.., m, k) times (k,).
void gradient_matrix_vector(GradientContext& g) {
  if (g.wanted(0)) g.set(0, g.head().expand_dims(-1) * g.input(1));
  if (g.wanted(1)) g.set(1, matmul(g.head().flatten(), rows(g.input(0))));
}

/// The gradient of (k,) times (.., k, n).
void gradient_vector_matrix(GradientContext& g) {
  const NDArray& head = g.head();
  if (g.wanted(0)) {
    const NDArray& b = g.input(1);
    g.set(0, b.rank() == 2 ? matmul(b, head) : matmul(b, head.expand_dims(-1)).squeeze(-1));
  }
  if (g.wanted(1)) g.set(1, g.input(0).expand_dims(1) * head.expand_dims(-2));
}

}  // namespace

void gradient_matmul(GradientContext& g) {
  const int left = g.input_shape(0).rank(), right = g.input_shape(1).rank();
  const NDArray& head = g.head();
  if (left == 1 && right == 1) {
    if (g.wanted(0)) g.set(0, head * g.input(1));
    if (g.wanted(1)) g.set(1, head * g.input(0));
    return;
  }
  if (right == 1) return gradient_matrix_vector(g);
  if (left == 1) return gradient_vector_matrix(g);
  if (g.wanted(0)) g.set(0, matmul(head, transposed(g.input(1))));
  if (!g.wanted(1)) return;
  const bool folded = right == 2 && left > 2;
  g.set(1, folded ? matmul(transposed(rows(g.input(0))), rows(head)) : matmul(transposed(g.input(0)), head));
}

void gradient_linear(GradientContext& g) {
  const NDArray& head = g.head();
  if (g.wanted(0)) g.set(0, matmul(head, g.input(1)));
  if (g.wanted(1)) {
    const NDArray& x = g.input(0);
    g.set(1, x.rank() == 1 ? head.expand_dims(1) * x : matmul(transposed(rows(head)), rows(x)));
  }
  if (g.inputs() == 3 && g.wanted(2)) g.set(2, head);
}

void gradient_addmm(GradientContext& g) {
  const auto& attrs = g.attr<AddmmAttrs>();
  const auto times = [](const NDArray& x, double factor) { return factor == 1 ? x : x * factor; };
  if (g.wanted(0) && attrs.beta != 0) g.set(0, times(sum_to(g.head(), g.input_shape(0)), attrs.beta));
  if (g.wanted(1)) g.set(1, times(matmul(g.head(), transposed(g.input(2))), attrs.alpha));
  if (g.wanted(2)) g.set(2, times(matmul(transposed(g.input(1)), g.head()), attrs.alpha));
}

}  // namespace mx::detail
