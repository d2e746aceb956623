// The gradient of a loss with respect to the scores is one operator, its backward operator. The other
// gradients (targets that are distributions, weights, second derivatives) are composed of operators as in
// their definition. With p = softmax(x), log p its logarithm, w the class weights and q the target
// distribution of a row after smoothing,
//   loss = sum over rows of scale sum_c w[c] q[c] (-log p[c]),
//   d(loss)/dx[c] = scale (p[c] sum_k w[k] q[k] - w[c] q[c]),
// where scale is the head; for the mean it is divided by the sum of the rows' weights. nll_loss has x in
// place of log p, and no p.
#include "operators/loss_gradient.h"

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/loss.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/softmax.h"

namespace mx::detail {
namespace {

template <class A>
inline constexpr bool kLogits = std::is_same_v<A, CrossEntropyAttrs>;

double smoothing_of(const CrossEntropyAttrs& attrs) { return attrs.label_smoothing; }
double smoothing_of(const NllAttrs&) { return 0; }

/// The operands of a call. Scores, target and weight are the inputs from `first` on; `head` is the gradient
/// of the loss. Members compute their result at each call; it has the shape of the scores or broadcasts to
/// it.
template <class A>
class Problem {
 public:
  Problem(const GradientContext& g, size_t first, const NDArray& head)
      : attrs_(g.attr<A>()), head_(head), x_(g.input(first)), target_(g.input(first + 1)) {
    if (g.inputs() > first + 2) weight_ = g.input(first + 2);
    axis_ = x_.rank() == 1 ? 0 : normalize_axis(attrs_.axis, x_.rank(), "loss");
  }

  bool labels() const { return is_integral(target_.dtype()); }
  bool each() const { return attrs_.reduction == "none"; }
  bool by_weight() const { return attrs_.reduction == "mean" && labels(); }
  double kept() const { return 1 - smoothing_of(attrs_); }
  const NDArray& scores() const { return x_; }
  int axis() const { return axis_; }

  /// Returns the target as a distribution, without smoothing.
  NDArray own() const {
    if (!labels()) return target_;
    const NDArray valid = where(counted(), target_, 0);
    return one_hot(valid, x_.shape()[axis_], x_.dtype()).move_axis(-1, axis_) * counted().expand_dims(axis_);
  }
  /// Returns q.
  NDArray shares() const {
    const double smoothing = smoothing_of(attrs_);
    if (smoothing == 0) return own();
    const NDArray smooth = own() * kept() + smoothing / static_cast<double>(x_.shape()[axis_]);
    return labels() ? smooth * counted().expand_dims(axis_) : smooth;
  }
  /// Returns x times w.
  NDArray weighted(const NDArray& x) const {
    if (!weight_.defined()) return x;
    Shape shape = Shape::filled(x_.rank(), 1);
    shape[axis_] = x_.shape()[axis_];
    return x * weight_.reshape(shape);
  }
  /// Returns x, divided by the divisor of the mean if the reduction is "mean".
  NDArray divided(const NDArray& x) const {
    if (attrs_.reduction != "mean") return x;
    if (by_weight()) return x / sum(weighted(own()));
    return x * (static_cast<double>(x_.shape()[axis_]) / static_cast<double>(x_.numel()));
  }
  /// Returns the gradient of each row's loss.
  NDArray scale() const { return each() ? head_.expand_dims(axis_) : divided(head_); }
  NDArray log_probabilities() const { return kLogits<A> ? log_softmax(x_, axis_) : x_; }

  NDArray by_row(const NDArray& x) const { return sum(x, axis_, true); }
  NDArray by_class(const NDArray& x) const {
    Axes others;
    for (int i = 0; i < x_.rank(); ++i)
      if (i != axis_) others.push_back(i);
    return others.empty() ? x : sum(x, others);
  }
  ClassLossOptions options() const {
    return {.weight = weight_,
            .ignore_index = attrs_.ignore_index,
            .reduction = attrs_.reduction,
            .label_smoothing = smoothing_of(attrs_),
            .axis = attrs_.axis};
  }
  const NDArray& target() const { return target_; }

 private:
  // Returns true for rows that are not ignored. Compares in i64, because a narrow type of labels may not be
  // able to hold ignore_index.
  NDArray counted() const { return target_.to(i64) != attrs_.ignore_index; }

  const A& attrs_;
  const NDArray& head_;
  const NDArray &x_, &target_;
  NDArray weight_;
  int axis_ = 0;
};

template <class A>
void gradient_loss(GradientContext& g) {
  const Problem<A> p(g, 0, g.head());
  if (g.wanted(0)) {
    if constexpr (kLogits<A>) {
      g.set(0, cross_entropy_backward(g.head(), p.scores(), p.target(), p.options()));
    } else {
      g.set(0, nll_loss_backward(g.head(), p.scores(), p.target(), p.options()));
    }
  }
  const bool target = g.wanted(1) && !p.labels(), weight = g.inputs() > 2 && g.wanted(2);
  if (!target && !weight) return;
  const NDArray costs = p.scale() * -p.log_probabilities();  // for q = 1
  if (target) g.set(1, p.weighted(costs) * p.kept());
  if (!weight) return;
  const NDArray shared = costs * p.shares();
  NDArray result = p.by_class(shared);
  // The weights are also in the divisor of the mean.
  if (p.by_weight()) result = result - p.by_class(p.divided(p.own())) * sum(p.weighted(shared));
  g.set(2, result);
}

template <class A>
void gradient_backward(GradientContext& g) {
  const Problem<A> p(g, 1, g.input(0));
  const NDArray& head = g.head();
  const NDArray shares = p.shares();
  const bool weight = g.inputs() > 3 && g.wanted(3);
  NDArray probabilities, mean_head;  // p, and the sum of p times the head
  if constexpr (kLogits<A>) {
    probabilities = softmax(p.scores(), p.axis());
    mean_head = p.by_row(head * probabilities);
  }
  // The derivative of sum(head * result) in w q, without the scale.
  const NDArray worth = kLogits<A> ? mean_head - head : -head;
  if (g.wanted(0)) {
    const NDArray rows = p.weighted(shares) * worth;
    g.set(0, p.each() ? sum(rows, p.axis()) : p.divided(sum(rows)));
  }
  if constexpr (kLogits<A>) {
    if (g.wanted(1))
      g.set(1, softmax_backward(head, probabilities, p.axis()) * (p.by_row(p.weighted(shares)) * p.scale()));
  }
  if (g.wanted(2) && !p.labels()) g.set(2, p.weighted(p.scale() * worth) * p.kept());
  if (!weight) return;
  const NDArray shared = p.scale() * worth * shares;
  NDArray result = p.by_class(shared);
  if (p.by_weight()) result = result - p.by_class(p.divided(p.own())) * sum(p.weighted(shared));
  g.set(3, result);
}

}  // namespace

void gradient_cross_entropy(GradientContext& g) { gradient_loss<CrossEntropyAttrs>(g); }
void gradient_cross_entropy_backward(GradientContext& g) { gradient_backward<CrossEntropyAttrs>(g); }
void gradient_nll_loss(GradientContext& g) { gradient_loss<NllAttrs>(g); }
void gradient_nll_loss_backward(GradientContext& g) { gradient_backward<NllAttrs>(g); }

}  // namespace mx::detail
