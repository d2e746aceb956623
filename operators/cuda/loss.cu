// Cross entropy and the negative log-likelihood, as defined in operators/kernels/loss.h.
//
// A label that is neither a class nor ignore_index is an error (kernel_errors.cuh). Its row's loss and
// gradient are NaN.
#include <algorithm>
#include <string>
#include <type_traits>

#include "ndarray/cuda/kernel_errors.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/bad_values.h"
#include "operators/loss.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

struct Problem {
  Elements x, target, weight;  // weight.data may be null
  Rows<2> rows;                // of x and of the target, if that is a distribution
  Dims<1> labels;              // of the rows otherwise
  int64_t weight_step;
  int64_t ignore;
  double smoothing;
  bool probabilities, from_logits, mean;
  KernelError* bad;
};

__device__ inline double weight_of(const Problem& p, int64_t c) {
  return p.weight.data == nullptr ? 1.0 : load<double>(p.weight, c * p.weight_step);
}

/// A label that is a class, -1 for a row that is ignored, -2 for a number that is neither, which thread 0 of
/// the row notes.
__device__ inline int64_t label_of(const Problem& p, int64_t row, int thread) {
  if (p.probabilities) return 0;
  const int64_t label = load<int64_t>(p.target, p.labels.offset(0, row));
  if (label == p.ignore) return -1;
  if (label >= 0 && label < p.rows.n) return label;
  if (thread == 0) note_error(p.bad, row, label);
  return -2;
}

/// NaN for a row with +infinity, or with -infinity alone, as softmax() has it.
template <class A, class G>
__device__ A logsumexp_of(const Problem& p, int64_t from) {
  A top = static_cast<A>(-INFINITY);
  for (int64_t c = G::lane(); c < p.rows.n; c += G::kThreads)
    top = Larger()(top, load<A>(p.x, from + c * p.rows.step[0]));
  top = G::all(top, Larger());
  A sum = 0;
  for (int64_t c = G::lane(); c < p.rows.n; c += G::kThreads)
    sum += exp(load<A>(p.x, from + c * p.rows.step[0]) - top);
  sum = G::all(sum, Add());
  return isinf(top) ? static_cast<A>(NAN) : top + log(sum);
}

/// losses[row], and in counted[row] the share of the row in the divisor of the mean.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock) loss_rows(Problem p, double* losses, double* counted) {
  using G = Group<kLanes>;
  const int64_t row = G::row();
  if (row >= p.rows.rows) return;
  const int64_t from = p.rows.outer.offset(0, row), target = p.rows.outer.offset(1, row);
  const int64_t label = label_of(p, row, G::lane());
  double loss = 0;
  if (label != -1) {
    const double level = p.from_logits ? static_cast<double>(logsumexp_of<A, G>(p, from)) : 0;
    const double share = p.smoothing / static_cast<double>(p.rows.n), kept = 1 - p.smoothing;
    const auto distance = [&](int64_t c) { return level - load<double>(p.x, from + c * p.rows.step[0]); };
    if (label == -2) {
      loss = NAN;
    } else if (p.probabilities || p.smoothing > 0) {
      for (int64_t c = G::lane(); c < p.rows.n; c += kLanes) {
        const double own = p.probabilities ? load<double>(p.target, target + c * p.rows.step[1])
                           : c == label    ? 1.0
                                           : 0.0;
        loss += weight_of(p, c) * (kept * own + share) * distance(c);
      }
      loss = G::all(loss, Add());
    } else {
      loss = weight_of(p, label) * distance(label);
    }
  }
  if (G::lane() != 0) return;
  losses[row] = loss;
  counted[row] = label < 0 ? 0 : p.probabilities ? 1 : weight_of(p, label);
}

/// Sums of n numbers by one block: the loss, or the divisor of the mean alone.
template <bool kForward>
__global__ void __launch_bounds__(kBlock)
    loss_total(const double* losses, const double* counted, int64_t n, bool mean, Elements out) {
  using G = Group<kBlock>;
  double loss = 0, count = 0;
  for (int64_t i = G::lane(); i < n; i += kBlock) {
    if (kForward) loss += losses[i];
    count += counted[i];
  }
  loss = G::all(loss, Add());
  count = G::all(count, Add());
  if (G::lane() != 0) return;
  if (kForward)
    store(out, 0, mean ? loss / count : loss);
  else
    static_cast<double*>(out.data)[0] = count;
}

__global__ void __launch_bounds__(kBlock)
    store_losses(const double* losses, int64_t n, Elements out, Dims<1> dims) {
  const int64_t i = global_index();
  if (i < n) store(out, dims.offset(0, i), losses[i]);
}

__global__ void __launch_bounds__(kBlock) count_rows(Problem p, double* counted) {
  const int64_t row = global_index();
  if (row >= p.rows.rows) return;
  const int64_t label = label_of(p, row, 0);
  counted[row] = label < 0 ? 0 : weight_of(p, label);
}

/// dx from the gradients of the rows' losses. `divisor` is null, or the divisor of a mean.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock)
    loss_gradient_rows(Problem p, Elements dloss, Dims<1> dloss_dims, const double* divisor, Elements dx,
                       Dims<1> dx_outer, int64_t dx_step) {
  using G = Group<kLanes>;
  const int64_t row = G::row();
  if (row >= p.rows.rows) return;
  const int64_t from = p.rows.outer.offset(0, row), target = p.rows.outer.offset(1, row);
  const int64_t to = dx_outer.offset(0, row), label = label_of(p, row, G::lane()), n = p.rows.n;
  if (label < 0) {
    for (int64_t c = G::lane(); c < n; c += kLanes)
      store(dx, to + c * dx_step, label == -1 ? A(0) : static_cast<A>(NAN));
    return;
  }
  double scale = load<double>(dloss, dloss_dims.offset(0, row));
  if (p.mean) scale /= p.probabilities ? static_cast<double>(p.rows.rows) : *divisor;
  const double share = p.smoothing / static_cast<double>(n), kept = 1 - p.smoothing;
  // The weight of a class in the target distribution.
  const auto mass_of = [&](int64_t c) {
    const double own = p.probabilities ? load<double>(p.target, target + c * p.rows.step[1])
                       : c == label    ? 1.0
                                       : 0.0;
    return weight_of(p, c) * (kept * own + share);
  };
  double mass = 0;
  A level = 0;
  if (p.from_logits) {
    if (p.probabilities || share > 0) {
      for (int64_t c = G::lane(); c < n; c += kLanes) mass += mass_of(c);
      mass = G::all(mass, Add());
    } else {
      mass = weight_of(p, label);
    }
    level = logsumexp_of<A, G>(p, from);
  }
  for (int64_t c = G::lane(); c < n; c += kLanes) {
    A gradient = 0;
    if (p.from_logits)
      gradient = exp(load<A>(p.x, from + c * p.rows.step[0]) - level) * static_cast<A>(mass * scale);
    store(dx, to + c * dx_step, gradient - static_cast<A>(scale * mass_of(c)));
  }
}

double smoothing_of(const CrossEntropyAttrs& attrs) { return attrs.label_smoothing; }
double smoothing_of(const NllAttrs&) { return 0; }

template <class A>
Problem problem_of(const KernelArgs& args, size_t first) {
  const A& attrs = args.attr<A>();
  const Tensor &x = args.in[first], &target = args.in[first + 1];
  const int axis = x.rank() == 1 ? 0 : normalize_axis(attrs.axis, x.rank(), "loss");
  Problem p{};
  p.x = elements_of(x);
  p.target = elements_of(target);
  if (args.in.size() > first + 2) {
    p.weight = elements_of(args.in[first + 2]);
    p.weight_step = args.in[first + 2].strides[0];
  }
  p.probabilities = is_floating(target.dtype);
  p.rows = rows_of<2>({&x, p.probabilities ? &target : &x}, axis);
  if (!p.probabilities) p.labels = dims_of<1>({&target});
  p.ignore = attrs.ignore_index;
  p.smoothing = smoothing_of(attrs);
  p.from_logits = std::is_same_v<A, CrossEntropyAttrs>;
  p.mean = attrs.reduction == "mean";
  return p;
}

DType computed_in(const KernelArgs& args, size_t first) {
  for (size_t i = first; i < first + 2; ++i)
    if (args.in[i].dtype == f64) return f64;
  return accumulation_type(args.out[0].dtype);
}

/// Bad labels, which are noted at their rows.
BadValues::Text bad_labels(const KernelArgs& args, const Problem& p, size_t first) {
  const char* const op = p.from_logits ? "cross_entropy" : "nll_loss";
  return [op, classes = p.rows.n, ignore = p.ignore, rows = args.in[first + 1].shape](const KernelError& e) {
    return kernels::detail::bad_label(op, classes, ignore, e.value,
                                      kernels::detail::position_of(e.place, rows));
  };
}

template <class A>
void forward(const KernelArgs& args) {
  Problem p = problem_of<A>(args, 0);
  BadValues bad(args, bad_labels(args, p, 0));
  p.bad = bad.word();
  const Tensor& loss = args.out[0];
  const int64_t n = p.rows.rows;
  const auto stream = stream_of(args);
  const Scratch memory(args, static_cast<size_t>(std::max<int64_t>(n, 1)) * 2 * sizeof(double));
  double *const losses = memory.as<double>(), *const counted = losses + n;
  if (n > 0)
    visit_real(computed_in(args, 0), [&]<class C>() {
      visit_lanes(lanes_for(n, p.rows.n, p.rows.step[0] == 1), n, [&]<int kLanes>(unsigned blocks) {
        launch(stream, blocks, kBlock, 0, loss_rows<C, kLanes>, p, losses, counted);
      });
    });
  if (args.attr<A>().reduction != "none") {
    launch(stream, 1, kBlock, 0, loss_total<true>, static_cast<const double*>(losses),
           static_cast<const double*>(counted), n, p.mean, elements_of(loss));
  } else if (n > 0) {
    launch(stream, whole_grid(n, kBlock), kBlock, 0, store_losses, static_cast<const double*>(losses), n,
           elements_of(loss), dims_of<1>({&loss}));
  }
  bad.check();
}

template <class A>
void backward(const KernelArgs& args) {
  Problem p = problem_of<A>(args, 1);
  const Tensor &dloss = args.in[0], &dx = args.out[0];
  const int64_t n = p.rows.rows;
  if (n == 0 || p.rows.n == 0) return;
  BadValues bad(args, bad_labels(args, p, 1));
  p.bad = bad.word();
  const auto stream = stream_of(args);
  const Scratch memory(args, static_cast<size_t>(n + 1) * sizeof(double));
  double *const divisor = memory.as<double>(), *const counted = divisor + 1;
  if (p.mean && !p.probabilities) {
    launch(stream, whole_grid(n, kBlock), kBlock, 0, count_rows, p, counted);
    launch(stream, 1, kBlock, 0, loss_total<false>, static_cast<const double*>(nullptr),
           static_cast<const double*>(counted), n, true, Elements{divisor, f64});
  }
  // One gradient for all rows, or one for each.
  Dims<1> each = dims_of<1>({&dloss});
  if (dloss.rank() == 0 && args.attr<A>().reduction != "none") each.add(n + 1, {0});
  const int axis =
      args.in[1].rank() == 1 ? 0 : normalize_axis(args.attr<A>().axis, args.in[1].rank(), "loss");
  const Rows<1> to = rows_of<1>({&dx}, axis);
  visit_real(computed_in(args, 1), [&]<class C>() {
    visit_lanes(lanes_for(n, p.rows.n, p.rows.step[0] == 1), n, [&]<int kLanes>(unsigned blocks) {
      launch(stream, blocks, kBlock, 0, loss_gradient_rows<C, kLanes>, p, elements_of(dloss), each,
             static_cast<const double*>(divisor), elements_of(dx), to.outer, to.step[0]);
    });
  });
  bad.check();
}

}  // namespace

void cross_entropy(const KernelArgs& args) { forward<CrossEntropyAttrs>(args); }
void cross_entropy_backward(const KernelArgs& args) { backward<CrossEntropyAttrs>(args); }
void nll_loss(const KernelArgs& args) { forward<NllAttrs>(args); }
void nll_loss_backward(const KernelArgs& args) { backward<NllAttrs>(args); }

}  // namespace mx::cuda
