// Softmax, its logarithm, and their gradients: one group of threads for each row. The sums of a row are
// formed in a fixed order. A thread reads and writes the same elements of a row, so a result may have the
// memory of an input.
#include <algorithm>

#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/softmax.h"

namespace mx::cuda {
namespace {

template <class A, int kLanes, bool kLog>
__global__ void __launch_bounds__(kBlock) softmax_rows(Elements x, Elements y, Rows<2> rows) {
  using G = Group<kLanes>;
  const int64_t row = G::row(), step = kLanes;
  if (row >= rows.rows) return;
  const int64_t from = rows.outer.offset(0, row), to = rows.outer.offset(1, row);
  A top = static_cast<A>(-INFINITY);
  for (int64_t i = G::lane(); i < rows.n; i += step) top = Larger()(top, load<A>(x, from + i * rows.step[0]));
  top = G::all(top, Larger());
  // If the row has a NaN or an infinity, or only -infinity, an exponential is NaN, and so is the sum.
  A sum = 0;
  for (int64_t i = G::lane(); i < rows.n; i += step) sum += exp(load<A>(x, from + i * rows.step[0]) - top);
  sum = G::all(sum, Add());
  const A scale = kLog ? log(sum) : 1 / sum;
  for (int64_t i = G::lane(); i < rows.n; i += step) {
    const A v = load<A>(x, from + i * rows.step[0]) - top;
    store(y, to + i * rows.step[1], kLog ? v - scale : exp(v) * scale);
  }
}

template <class A, int kLanes, bool kLog>
__global__ void __launch_bounds__(kBlock)
    softmax_backward_rows(Elements dy, Elements y, Elements dx, Rows<3> rows) {
  using G = Group<kLanes>;
  const int64_t row = G::row(), step = kLanes;
  if (row >= rows.rows) return;
  const int64_t from = rows.outer.offset(0, row), result = rows.outer.offset(1, row),
                to = rows.outer.offset(2, row);
  A sum = 0;
  for (int64_t i = G::lane(); i < rows.n; i += step) {
    const A g = load<A>(dy, from + i * rows.step[0]);
    sum += kLog ? g : g * load<A>(y, result + i * rows.step[1]);
  }
  sum = G::all(sum, Add());
  for (int64_t i = G::lane(); i < rows.n; i += step) {
    const A g = load<A>(dy, from + i * rows.step[0]), v = load<A>(y, result + i * rows.step[1]);
    store(dx, to + i * rows.step[2], kLog ? g - exp(v) * sum : v * (g - sum));
  }
}

int axis_of(const KernelArgs& args) {
  return normalize_axis(args.attr<SoftmaxAttrs>().axis, std::max(args.in[0].rank(), 1), "softmax");
}

template <bool kLog>
void forward(const KernelArgs& args) {
  const Tensor &x = args.in[0], &y = args.out[0];
  const Rows<2> rows = rows_of<2>({&x, &y}, axis_of(args));
  if (rows.rows == 0 || rows.n == 0) return;
  visit_real(x.dtype, [&]<class A>() {
    visit_lanes(lanes_for(rows.rows, rows.n, rows.step[0] == 1), rows.rows, [&]<int kLanes>(unsigned blocks) {
      launch(stream_of(args), blocks, kBlock, 0, softmax_rows<A, kLanes, kLog>, elements_of(x),
             elements_of(y), rows);
    });
  });
}

template <bool kLog>
void backward(const KernelArgs& args) {
  const Tensor &dy = args.in[0], &y = args.in[1], &dx = args.out[0];
  const Rows<3> rows = rows_of<3>({&dy, &y, &dx}, axis_of(args));
  if (rows.rows == 0 || rows.n == 0) return;
  const bool wide = dy.dtype == f64 || y.dtype == f64 || dx.dtype == f64;
  visit_real(wide ? f64 : f32, [&]<class A>() {
    visit_lanes(lanes_for(rows.rows, rows.n, rows.step[0] == 1), rows.rows, [&]<int kLanes>(unsigned blocks) {
      launch(stream_of(args), blocks, kBlock, 0, softmax_backward_rows<A, kLanes, kLog>, elements_of(dy),
             elements_of(y), elements_of(dx), rows);
    });
  });
}

}  // namespace

void softmax(const KernelArgs& args) { forward<false>(args); }
void log_softmax(const KernelArgs& args) { forward<true>(args); }
void softmax_backward(const KernelArgs& args) { backward<false>(args); }
void log_softmax_backward(const KernelArgs& args) { backward<true>(args); }

}  // namespace mx::cuda
