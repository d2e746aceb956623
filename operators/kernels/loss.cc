#include "operators/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/copy.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/reduce.h"
#include "operators/kernels/row_loop.h"
#include "operators/kernels/softmax.h"

namespace mx::kernels {
namespace {

Tensor view(double* data, const Shape& shape) { return {data, f64, shape, contiguous_strides(shape)}; }

double total_of(std::vector<double>& values) {
  double result = 0;
  reduce(ReduceOp::sum, view(&result, {}), view(values.data(), {static_cast<int64_t>(values.size())}), {});
  return result;
}

/// Shared by forward and backward: the checked arguments, with labels and weights as plain numbers.
class Problem {
 public:
  Problem(const char* op, const Tensor& x, const Tensor& target, const Tensor* weight,
          const CrossEntropyOptions& options, bool logits)
      : x_(x),
        target_(target),
        from_logits(logits),
        smoothing(options.label_smoothing),
        reduction(options.reduction) {
    MX_CHECK(x.rank() >= 1, InvalidArgument, "[", op, "] expected scores of rank 1 or more, got rank 0");
    MX_CHECK(is_floating(x.dtype), InvalidArgument, "[", op, "] expected floating-point scores, got ",
             x.dtype);
    MX_CHECK(smoothing >= 0 && smoothing <= 1, InvalidArgument, "[", op,
             "] expected a label_smoothing from 0 to 1, got ", smoothing);
    MX_CHECK(logits || smoothing == 0, InvalidArgument, "[", op, "] expected no label_smoothing, got ",
             smoothing);
    axis = x.rank() == 1 ? 0 : normalize_axis(options.axis, x.rank(), op);
    classes = x.shape[axis];
    rows_shape = x.shape;
    rows_shape.erase(axis);
    rows = rows_shape.numel();
    MX_CHECK(classes > 0 || rows == 0, InvalidArgument, "[", op, "] expected at least one class, got shape ",
             x.shape);
    take_weights(op, weight);
    probabilities = is_floating(target.dtype);
    if (!probabilities) {
      take_labels(op, options.ignore_index);
      return;
    }
    MX_CHECK(logits, InvalidArgument, "[", op, "] expected integer labels, got ", target.dtype);
    MX_CHECK(target.shape == x.shape, InvalidArgument, "[", op, "] expected a distribution of shape ",
             x.shape, ", got ", target.shape);
  }

  /// Returns the divisor of the mean.
  double divisor() const {
    if (probabilities) return static_cast<double>(rows);
    std::vector<double> counted(static_cast<size_t>(rows));
    for (size_t r = 0; r < counted.size(); ++r)
      counted[r] = labels[r] < 0 ? 0 : weights[static_cast<size_t>(labels[r])];
    return total_of(counted);
  }

  void check_loss(const char* op, const char* what, const Tensor& loss) const {
    const Shape expected = reduction == LossReduction::none ? rows_shape : Shape{};
    MX_CHECK(loss.shape == expected, InvalidArgument, "[", op, "] expected ", what, " of shape ", expected,
             ", got ", loss.shape);
    MX_CHECK(is_floating(loss.dtype), InvalidArgument, "[", op, "] expected ", what,
             " of floating point, got ", loss.dtype);
  }

  const Tensor& x_;
  const Tensor& target_;
  bool from_logits, probabilities = false;
  double smoothing, weight_total = 0;
  LossReduction reduction;
  int axis = 0;
  int64_t classes = 0, rows = 0;
  Shape rows_shape;
  std::vector<double> weights;  // one per class
  std::vector<int64_t> labels;  // one per row, -1 if the row is ignored; empty for distributions

 private:
  void take_weights(const char* op, const Tensor* weight) {
    weights.assign(static_cast<size_t>(classes), 1.0);
    if (weight != nullptr) {
      MX_CHECK(weight->shape == Shape{classes}, InvalidArgument, "[", op,
               "] expected one weight for each of ", classes, " classes, got shape ", weight->shape);
      copy(view(weights.data(), {classes}), *weight);
    }
    for (double w : weights) weight_total += w;
  }

  void take_labels(const char* op, int64_t ignore) {
    MX_CHECK(is_integral(target_.dtype), InvalidArgument, "[", op,
             "] expected integer labels or a distribution, got ", target_.dtype);
    MX_CHECK(target_.shape == rows_shape, InvalidArgument, "[", op, "] expected labels of shape ", rows_shape,
             " for scores of shape ", x_.shape, " with classes along axis ", axis, ", got ", target_.shape);
    labels.resize(static_cast<size_t>(rows));
    copy({labels.data(), i64, rows_shape, contiguous_strides(rows_shape)}, target_);
    for (int64_t r = 0; r < rows; ++r) {
      int64_t& label = labels[static_cast<size_t>(r)];
      if (label == ignore) {
        label = -1;
        continue;
      }
      if (label < 0 || label >= classes)
        throw InvalidArgument(
            detail::bad_label(op, classes, ignore, label, detail::position_of(r, rows_shape)));
    }
  }
};

/// NaN for a row with +infinity, or with -infinity alone, as softmax() has it.
template <class A>
A level_of(const A* x, int64_t n) {
  const A level = detail::logsumexp_row(x, n);
  return std::isfinite(level) ? level : std::numeric_limits<A>::quiet_NaN();
}

// Computes in A. Sums over classes are in double; otherwise smoothing and distributions would lose digits.
template <class A>
double row_loss(const Problem& p, const A* x, const A* target, int64_t row) {
  const int64_t label = p.probabilities ? 0 : p.labels[static_cast<size_t>(row)];
  if (label < 0) return 0;
  const double level = p.from_logits ? static_cast<double>(level_of(x, p.classes)) : 0;
  const double share = p.smoothing / static_cast<double>(p.classes);
  double loss = 0;
  if (p.probabilities || p.smoothing > 0) {
    for (int64_t c = 0; c < p.classes; ++c) {
      const double own = p.probabilities ? static_cast<double>(target[c]) : c == label ? 1.0 : 0.0;
      loss += p.weights[static_cast<size_t>(c)] * ((1 - p.smoothing) * own + share) *
              (level - static_cast<double>(x[c]));
    }
    return loss;
  }
  return p.weights[static_cast<size_t>(label)] * (level - static_cast<double>(x[label]));
}

/// `scale` is the gradient of this row's loss.
template <class A>
void row_gradient(const Problem& p, const A* x, const A* target, A* dx, int64_t row, double scale) {
  const int64_t label = p.probabilities ? 0 : p.labels[static_cast<size_t>(row)];
  if (label < 0) {
    std::fill_n(dx, p.classes, A{0});
    return;
  }
  const double share = p.smoothing / static_cast<double>(p.classes), kept = 1 - p.smoothing;
  const double* const w = p.weights.data();
  double mass = 0;  // the sum of the target distribution times the weights
  if (p.probabilities) {
    for (int64_t c = 0; c < p.classes; ++c) mass += w[c] * (kept * static_cast<double>(target[c]) + share);
  } else {
    mass = kept * w[label] + share * p.weight_total;
  }
  if (p.from_logits) {
    detail::exp_row(x, dx, p.classes, level_of(x, p.classes), static_cast<A>(mass * scale));
  } else {
    std::fill_n(dx, p.classes, A{0});
  }
  if (p.probabilities) {
    for (int64_t c = 0; c < p.classes; ++c)
      dx[c] -= static_cast<A>(scale * w[c] * (kept * static_cast<double>(target[c]) + share));
    return;
  }
  if (share > 0)
    for (int64_t c = 0; c < p.classes; ++c) dx[c] -= static_cast<A>(scale * share * w[c]);
  dx[label] -= static_cast<A>(scale * kept * w[label]);
}

/// Labels do not have the shape of the scores, so the scores replace them as an operand.
const Tensor& target_rows(const Problem& p) { return p.probabilities ? p.target_ : p.x_; }

template <class A>
void losses(const Problem& p, double* out) {
  const std::array<RowOperand, 2> operands{{{&p.x_, true, false}, {&target_rows(p), p.probabilities, false}}};
  for_each_row<A, 2>(operands, p.axis, [&](const std::array<A*, 2>& rows, int64_t, int64_t row) {
    out[row] = row_loss(p, rows[0], rows[1], row);
  });
}

template <class A>
void gradients(const Problem& p, const Tensor& dx, const double* scales, int64_t scale_step) {
  const std::array<RowOperand, 3> operands{
      {{&p.x_, true, false}, {&target_rows(p), p.probabilities, false}, {&dx, false, true}}};
  for_each_row<A, 3>(operands, p.axis, [&](const std::array<A*, 3>& rows, int64_t, int64_t row) {
    row_gradient(p, rows[0], rows[1], rows[2], row, scales[row * scale_step]);
  });
}

bool in_f64(const Problem& p) { return p.x_.dtype == f64 || (p.probabilities && p.target_.dtype == f64); }

void forward(const char* op, const Tensor& loss, const Problem& p) {
  p.check_loss(op, "a loss", loss);
  std::vector<double> values(static_cast<size_t>(p.rows));
  in_f64(p) ? losses<double>(p, values.data()) : losses<float>(p, values.data());
  if (p.reduction == LossReduction::none) {
    copy(loss, view(values.data(), p.rows_shape));
    return;
  }
  double result = total_of(values);
  if (p.reduction == LossReduction::mean) result /= p.divisor();
  copy(loss, view(&result, {}));
}

void backward(const char* op, const Tensor& dx, const Tensor& dloss, const Problem& p) {
  p.check_loss(op, "a gradient of the loss", dloss);
  MX_CHECK(dx.shape == p.x_.shape && is_floating(dx.dtype), InvalidArgument, "[", op,
           "] expected a floating-point result of shape ", p.x_.shape, ", got ", dx.dtype, " of ", dx.shape);
  const bool each = p.reduction == LossReduction::none;
  std::vector<double> scales(static_cast<size_t>(each ? p.rows : 1));
  copy(view(scales.data(), each ? p.rows_shape : Shape{}), dloss);
  if (p.reduction == LossReduction::mean) scales[0] /= p.divisor();
  if (in_f64(p) || dx.dtype == f64) {
    gradients<double>(p, dx, scales.data(), each);
  } else {
    gradients<float>(p, dx, scales.data(), each);
  }
}

}  // namespace

void cross_entropy(const Tensor& loss, const Tensor& logits, const Tensor& target, const Tensor* weight,
                   const CrossEntropyOptions& options) {
  forward("cross_entropy", loss, Problem("cross_entropy", logits, target, weight, options, true));
}

void cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& target, const Tensor* weight, const CrossEntropyOptions& options) {
  backward("cross_entropy", dlogits, dloss, Problem("cross_entropy", logits, target, weight, options, true));
}

void nll(const Tensor& loss, const Tensor& x, const Tensor& target, const Tensor* weight,
         const CrossEntropyOptions& options) {
  forward("nll_loss", loss, Problem("nll_loss", x, target, weight, options, false));
}

void nll_backward(const Tensor& dx, const Tensor& dloss, const Tensor& x, const Tensor& target,
                  const Tensor* weight, const CrossEntropyOptions& options) {
  backward("nll_loss", dx, dloss, Problem("nll_loss", x, target, weight, options, false));
}

}  // namespace mx::kernels
