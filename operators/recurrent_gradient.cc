#include "operators/recurrent_gradient.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/matmul.h"
#include "operators/recurrent_layer.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"

namespace mx::detail {
namespace {

using kernels::RecurrentCell;
using kernels::SequencePlan;

NDArray sigmoid_slope(const NDArray& s) { return s * (1 - s); }
NDArray tanh_slope(const NDArray& s) { return 1 - s * s; }

/// A gradient that is carried from a step to the one before it, which may have more or fewer samples.
class Carried {
 public:
  explicit Carried(NDArray value) : value_(std::move(value)) {}

  /// Returns it for `samples` samples. Samples that end here are set aside; new ones have the gradient 0.
  NDArray at(int64_t samples) {
    const int64_t had = value_.shape()[0];
    if (had > samples) {
      ended_.insert(ended_.begin(), value_.slice(0, {samples, had}));
      value_ = value_.slice(0, {0, samples});
    } else if (had < samples) {
      const Shape more{samples - had, value_.shape()[1]};
      value_ = mx::concat({value_, zeros(more, value_.dtype(), value_.context())});
    }
    return value_;
  }
  void set(NDArray value) { value_ = std::move(value); }
  /// The gradients of the initial states of all samples.
  NDArray all() const {
    std::vector<NDArray> parts{value_};
    parts.insert(parts.end(), ended_.begin(), ended_.end());
    return parts.size() == 1 ? value_ : mx::concat(parts);
  }

 private:
  NDArray value_;
  std::vector<NDArray> ended_;
};

/// The rows of a step.
NDArray rows_of_step(const NDArray& x, const SequencePlan& plan, int64_t t) {
  return x.slice(0, {plan.first(t), plan.first(t + 1)});
}

/// The parts of the last dimension, each of the same size.
std::vector<NDArray> parts_of(const NDArray& x, int64_t count) {
  const int axis = x.rank() - 1;
  const int64_t size = x.shape()[axis] / count;
  std::vector<NDArray> parts;
  for (int64_t i = 0; i < count; ++i) parts.push_back(x.slice(axis, {i * size, (i + 1) * size}));
  return parts;
}

}  // namespace

NDArray as_rows(const NDArray& x) { return x.rank() == 2 ? x : x.reshape({-1, x.shape().back()}); }

NDArray states_before(const NDArray& y, const NDArray& h0, bool reverse, const SequencePlan& plan) {
  const NDArray rows = as_rows(y);
  std::vector<NDArray> parts;
  if (plan.rows() == plan.steps() * plan.batch()) {
    parts = {h0, rows.slice(0, {0, plan.first(plan.steps() - 1)})};
    if (reverse) parts = {rows.slice(0, {plan.first(1), plan.rows()}), h0};
    return mx::concat(parts);
  }
  for (int64_t t = 0; t < plan.steps(); ++t) {
    const int64_t before = reverse ? t + 1 : t - 1, samples = plan.size(t);
    const int64_t continued = before < 0 || before >= plan.steps() ? 0 : std::min(samples, plan.size(before));
    if (continued > 0) parts.push_back(rows.slice(0, {plan.first(before), plan.first(before) + continued}));
    if (continued < samples) parts.push_back(h0.slice(0, {continued, samples}));
  }
  return mx::concat(parts);
}

void recurrent_gradient_by_operators(GradientContext& g, RecurrentCell cell, bool reverse,
                                     const SequencePlan& plan) {
  const bool lstm = cell == RecurrentCell::lstm, gru = cell == RecurrentCell::gru;
  // Cells and activations are those of states that were not rounded, so 16-bit types are computed in f32.
  const DType type = accumulation_type(g.input_dtype(0));
  const auto operand = [&](const NDArray& x) { return as_rows(x).to(type); };
  const NDArray weights = g.input(1).to(type), h0 = g.input(2).to(type), y = operand(g.output(0));
  const NDArray before = states_before(y, h0, reverse, plan);
  const NDArray dy = operand(g.head_or_zeros(0));
  NDArray cells, dcells, cells_before, activations, dactivations;
  if (lstm) {
    cells = operand(g.output(1));
    dcells = operand(g.head_or_zeros(1));
    cells_before = states_before(cells, g.input(3).to(type), reverse, plan);
  }
  if (lstm || gru) {
    const size_t kept = lstm ? 2 : 1;
    activations = operand(g.output(kept));
    dactivations = operand(g.head_or_zeros(kept));
  }

  const int64_t last = reverse ? 0 : plan.steps() - 1;
  Carried dh(zeros({plan.size(last), h0.shape()[1]}, type, h0.context()));
  Carried dc = dh;
  std::vector<NDArray> dx(static_cast<size_t>(plan.steps())), dproduct = dx;
  for (int64_t k = plan.steps() - 1; k >= 0; --k) {
    const int64_t t = reverse ? plan.steps() - 1 - k : k, samples = plan.size(t);
    const auto step = [&](const NDArray& x) { return rows_of_step(x, plan, t); };
    NDArray& dxt = dx[static_cast<size_t>(t)];
    NDArray& dproduct_t = dproduct[static_cast<size_t>(t)];
    const NDArray state_gradient = step(dy) + dh.at(samples);
    NDArray passed;  // the share of the state's gradient that passes by the gates
    if (lstm) {
      const std::vector<NDArray> a = parts_of(step(activations), 4), da = parts_of(step(dactivations), 4);
      const NDArray bound = tanh(step(cells));
      const NDArray cell_gradient = state_gradient * a[3] * tanh_slope(bound) + dc.at(samples) + step(dcells);
      dxt = mx::concat({(cell_gradient * a[2] + da[0]) * sigmoid_slope(a[0]),
                        (cell_gradient * step(cells_before) + da[1]) * sigmoid_slope(a[1]),
                        (cell_gradient * a[0] + da[2]) * tanh_slope(a[2]),
                        (state_gradient * bound + da[3]) * sigmoid_slope(a[3])},
                       1);
      dproduct_t = dxt;
      dc.set(cell_gradient * a[1]);
    } else if (gru) {
      const std::vector<NDArray> a = parts_of(step(activations), 4), da = parts_of(step(dactivations), 4);
      const NDArray dz = (state_gradient * (step(before) - a[2]) + da[1]) * sigmoid_slope(a[1]);
      const NDArray dn = (state_gradient * (1 - a[1]) + da[2]) * tanh_slope(a[2]);
      const NDArray dr = (dn * a[3] + da[0]) * sigmoid_slope(a[0]);
      dxt = mx::concat({dr, dz, dn}, 1);
      dproduct_t = mx::concat({dr, dz, dn * a[0] + da[3]}, 1);
      passed = state_gradient * a[1];
    } else {
      const NDArray slope = cell == RecurrentCell::tanh ? tanh_slope(step(y)) : (step(y) > 0).to(type);
      dxt = state_gradient * slope;
      dproduct_t = dxt;
    }
    const NDArray through_gates = matmul(dproduct_t, weights);
    dh.set(passed.defined() ? passed + through_gates : through_gates);
  }
  const NDArray products = gru ? mx::concat(dproduct) : mx::concat(dx);
  if (g.wanted(0)) g.set(0, (gru ? mx::concat(dx) : products).reshape(g.input_shape(0)));
  if (g.wanted(1)) g.set(1, matmul(products.swap_axes(0, 1), before));
  if (g.wanted(2)) g.set(2, dh.all());
  if (lstm && g.wanted(3)) g.set(3, dc.all());
  if (gru && g.inputs() > 3 && g.wanted(3)) g.set(3, sum(products, 0));
}

}  // namespace mx::detail
