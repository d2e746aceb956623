#include "operators/recurrent.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/kernels/recurrent.h"
#include "operators/matmul.h"
#include "operators/recurrent_gradient.h"
#include "operators/recurrent_inference.h"
#include "operators/recurrent_layer.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"

namespace mx {
namespace {

using kernels::RecurrentCell;
using kernels::SequencePlan;

using detail::check_operand;
using detail::check_recurrent_layer;
using detail::layer_of;
using detail::RecurrentLayer;
using detail::RecurrentShapes;

template <RecurrentCell kCell>
void infer(InferContext& c) {
  constexpr bool kLstm = kCell == RecurrentCell::lstm, kGru = kCell == RecurrentCell::gru;
  const RecurrentLayer layer = layer_of<kCell>(c, c.name());
  const RecurrentShapes s = check_recurrent_layer(
      c.name(), layer, {"x w_ih'", c.shape(0), c.dtype(0), gates_of(kCell)}, c.shape(1), c.dtype(1));
  check_operand(c.name(), c, 2, "h0", {s.batch, s.hidden}, s.type);
  if (kLstm) check_operand(c.name(), c, 3, "c0", {s.batch, s.hidden}, s.type);
  if (kGru && c.inputs() > 3) check_operand(c.name(), c, 3, "b_hh", {3 * s.hidden}, s.type);
  c.output(s.rows_of(s.hidden), s.type);
  if (kLstm) c.output(s.rows_of(s.hidden), accumulation_type(s.type));
  if (kLstm || kGru) c.output(s.rows_of(4 * s.hidden), accumulation_type(s.type));
}

template <RecurrentCell kCell>
void run(const KernelArgs& args) {
  constexpr bool kLstm = kCell == RecurrentCell::lstm, kGru = kCell == RecurrentCell::gru;
  const RecurrentLayer layer = layer_of<kCell>(args, "rnn");
  const SequencePlan plan = layer.plan(args.in[0].shape);
  kernels::recurrent(args, {layer.cell, layer.reverse, plan}, args.in[0], args.in[1], args.in[2],
                     kLstm ? &args.in[3] : nullptr, kGru && args.in.size() > 3 ? &args.in[3] : nullptr,
                     args.out[0], kLstm ? &args.out[1] : nullptr,
                     kLstm  ? &args.out[2]
                     : kGru ? &args.out[1]
                            : nullptr);
}

// Inputs of the backward operators.
//   rnn_backward    dy, w_hh, y
//   lstm_backward   dy, w_hh, cells, activations, c0, dcells?
//   gru_backward    dy, w_hh, y, activations, h0
template <RecurrentCell kCell>
void infer_backward(InferContext& c) {
  constexpr bool kLstm = kCell == RecurrentCell::lstm, kGru = kCell == RecurrentCell::gru;
  const RecurrentLayer layer = layer_of<kCell>(c, c.name());
  const RecurrentShapes s =
      check_recurrent_layer(c.name(), layer, {"dy", c.shape(0), c.dtype(0), 1}, c.shape(1), c.dtype(1));
  const Shape products = s.rows_of(gates_of(kCell) * s.hidden), state{s.batch, s.hidden};
  check_operand(c.name(), c, 2, kLstm ? "cells" : "y", s.rows, s.type);
  if (kLstm || kGru) check_operand(c.name(), c, 3, "activations", s.rows_of(4 * s.hidden), s.type);
  if (kLstm || kGru) check_operand(c.name(), c, 4, kLstm ? "c0" : "h0", state, s.type);
  if (kLstm && c.inputs() > 5) check_operand(c.name(), c, 5, "dcells", s.rows, s.type);
  c.output(products, s.type);
  if (kGru) c.output(products, s.type);
  c.output(state, s.type);
  if (kLstm) c.output(state, s.type);
}

template <RecurrentCell kCell>
void run_backward(const KernelArgs& args) {
  constexpr bool kLstm = kCell == RecurrentCell::lstm, kGru = kCell == RecurrentCell::gru;
  const RecurrentLayer layer = layer_of<kCell>(args, "rnn_backward");
  const SequencePlan plan = layer.plan(args.in[0].shape);
  kernels::RecurrentGradient g{};
  g.dy = &args.in[0];
  g.weights = &args.in[1];
  (kLstm ? g.cells : g.y) = &args.in[2];
  if (kLstm || kGru) g.activations = &args.in[3];
  if (kLstm || kGru) (kLstm ? g.c0 : g.h0) = &args.in[4];
  if (kLstm && args.in.size() > 5) g.dcells = &args.in[5];
  g.dx = &args.out[0];
  if (kGru) g.dproduct = &args.out[1];
  g.dh0 = &args.out[kGru ? 2 : 1];
  if (kLstm) g.dc0 = &args.out[2];
  kernels::recurrent_backward(args, {layer.cell, layer.reverse, plan}, g);
}

int64_t work(const InferContext& c) {
  const Shape &x = c.shape(0), &w = c.shape(1);
  return x.numel() / x.back() * w.numel();
}

template <RecurrentCell kCell>
void gradient(GradientContext& g);

constexpr int64_t kDirectWork = 1 << 14;
constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kRnn = {
    .kernel = {"rnn", run<RecurrentCell::tanh>, cuda::rnn, kDirectWork},
    .doc = "The steps of a recurrent layer, h' = f(x + h w_hh'), from the products x of its inputs.",
    .family = "recurrent",
    .inputs = {"x", "w_hh", "h0"},
    .attrs = &kAttrType<RnnAttrs>,
    .infer = infer<RecurrentCell::tanh>,
    .gradient = gradient<RecurrentCell::tanh>,
    .gradient_uses = {.inputs = bit_set(1, 2), .outputs = bit_set(0)},
    .dtypes = kFloating,
    .work = work,
};

constexpr Operator kRnnBackward = {
    .kernel = {"rnn_backward", run_backward<RecurrentCell::tanh>, cuda::rnn_backward, kDirectWork},
    .doc = "Gradients of rnn with respect to x and h0.",
    .family = "recurrent",
    .inputs = {"dy", "w_hh", "y"},
    .outputs = {"dx", "dh0"},
    .attrs = &kAttrType<RnnAttrs>,
    .infer = infer_backward<RecurrentCell::tanh>,
    .dtypes = kFloating,
    .work = work,
};

constexpr Operator kLstm = {
    .kernel = {"lstm", run<RecurrentCell::lstm>, cuda::lstm, kDirectWork},
    .doc =
        "The steps of an LSTM layer, from the products x of its inputs. Also returns the cells and the "
        "activations of the gates i, f, g, o.",
    .family = "recurrent",
    .inputs = {"x", "w_hh", "h0", "c0"},
    .outputs = {"y", "cells", "activations"},
    .attrs = &kAttrType<RecurrentAttrs>,
    .infer = infer<RecurrentCell::lstm>,
    .gradient = gradient<RecurrentCell::lstm>,
    .gradient_uses = {.inputs = bit_set(1, 2, 3), .outputs = bit_set(0, 1, 2)},
    .dtypes = kFloating,
    .work = work,
};

constexpr Operator kLstmBackward = {
    .kernel = {"lstm_backward", run_backward<RecurrentCell::lstm>, cuda::lstm_backward, kDirectWork},
    .doc = "Gradients of lstm with respect to x, h0 and c0. dcells is the gradient of the cells.",
    .family = "recurrent",
    .inputs = {"dy", "w_hh", "cells", "activations", "c0", "dcells?"},
    .outputs = {"dx", "dh0", "dc0"},
    .attrs = &kAttrType<RecurrentAttrs>,
    .infer = infer_backward<RecurrentCell::lstm>,
    .dtypes = kFloating,
    .work = work,
};

constexpr Operator kGru = {
    .kernel = {"gru", run<RecurrentCell::gru>, cuda::gru, kDirectWork},
    .doc =
        "The steps of a GRU layer, from the products x of its inputs. Also returns the activations of the "
        "gates r, z, n and the recurrent part of n.",
    .family = "recurrent",
    .inputs = {"x", "w_hh", "h0", "b_hh?"},
    .outputs = {"y", "activations"},
    .attrs = &kAttrType<RecurrentAttrs>,
    .infer = infer<RecurrentCell::gru>,
    .gradient = gradient<RecurrentCell::gru>,
    .gradient_uses = {.inputs = bit_set(1, 2), .outputs = bit_set(0, 1)},
    .dtypes = kFloating,
    .work = work,
};

constexpr Operator kGruBackward = {
    .kernel = {"gru_backward", run_backward<RecurrentCell::gru>, cuda::gru_backward, kDirectWork},
    .doc = "Gradients of gru with respect to x, h w_hh' + b_hh and h0.",
    .family = "recurrent",
    .inputs = {"dy", "w_hh", "y", "activations", "h0"},
    .outputs = {"dx", "dproduct", "dh0"},
    .attrs = &kAttrType<RecurrentAttrs>,
    .infer = infer_backward<RecurrentCell::gru>,
    .dtypes = kFloating,
    .work = work,
};

template <RecurrentCell kCell>
void gradient(GradientContext& g) {
  constexpr bool kIsLstm = kCell == RecurrentCell::lstm, kIsGru = kCell == RecurrentCell::gru;
  const RecurrentLayer layer = layer_of<kCell>(g, "rnn");
  const SequencePlan plan = layer.plan(g.input_shape(0));
  const bool of_activations = (kIsLstm && g.head(2).defined()) || (kIsGru && g.head(1).defined());
  if (grad_enabled() || of_activations)
    return detail::recurrent_gradient_by_operators(g, layer.cell, layer.reverse, plan);
  std::vector<NDArray> inputs{g.head_or_zeros(0), g.input(1)};
  if (kIsLstm) {
    inputs.insert(inputs.end(), {g.output(1), g.output(2), g.input(3)});
    if (g.head(1).defined()) inputs.push_back(g.head(1));
  } else {
    inputs.push_back(g.output(0));
    if (kIsGru) inputs.insert(inputs.end(), {g.output(1), g.input(2)});
  }
  std::vector<NDArray> results;
  if constexpr (kCell == RecurrentCell::tanh)
    results = call(kRnnBackward, g.attr<RnnAttrs>(), inputs);
  else
    results = call(kIsLstm ? kLstmBackward : kGruBackward, g.attr<RecurrentAttrs>(), inputs);
  const NDArray products = detail::as_rows(results[kIsGru ? 1 : 0]);
  if (g.wanted(0)) g.set(0, results[0]);
  if (g.wanted(1)) {
    const NDArray before = detail::states_before(g.output(0), g.input(2), layer.reverse, plan);
    g.set(1, matmul(products.swap_axes(0, 1), before));
  }
  if (g.wanted(2)) g.set(2, results[kIsGru ? 2 : 1]);
  if (kIsLstm && g.wanted(3)) g.set(3, results[2]);
  if (kIsGru && g.inputs() > 3 && g.wanted(3)) g.set(3, sum(products, 0));
}

/// The state after each sample's last step, from the states of all steps.
NDArray last_states(const NDArray& states, const RecurrentLayer& layer) {
  if (layer.batch_sizes.empty()) return states.select(0, layer.reverse ? 0 : states.shape()[0] - 1);
  const SequencePlan plan(layer.batch_sizes);
  if (layer.reverse) return states.slice(0, {0, plan.batch()});
  // The samples that end at a step are the last of its rows; later samples end earlier.
  std::vector<NDArray> parts;
  for (int64_t t = plan.steps() - 1; t >= 0; --t) {
    const int64_t going_on = t + 1 < plan.steps() ? plan.size(t + 1) : 0;
    if (plan.size(t) > going_on)
      parts.push_back(states.slice(0, {plan.first(t) + going_on, plan.first(t) + plan.size(t)}));
  }
  return concat(parts);
}

void check_inputs(const char* op, const Arg& x, const RecurrentWeights& w) {
  MX_CHECK(w.w_ih.rank() == 2 && x.array.rank() >= 2 && x.array.shape().back() == w.w_ih.shape()[1],
           InvalidArgument, "[", op, "] expected x (.., inputs) and w_ih (gates * hidden, inputs), got ",
           x.array.shape(), " and ", w.w_ih.shape());
  MX_CHECK(w.b_ih.defined() == w.b_hh.defined(), InvalidArgument, "[", op,
           "] expected both b_ih and b_hh, or none of them");
}

/// x w_ih' + bias, for all steps.
NDArray input_products(const Arg& x, const RecurrentWeights& w, const NDArray& bias) {
  return bias.defined() ? linear(x, w.w_ih, bias) : linear(x, w.w_ih);
}

/// Returns true if no operand's gradient is recorded.
bool only_inference(const Arg& x, const RecurrentWeights& w, std::initializer_list<const NDArray*> states) {
  if (!grad_enabled()) return true;
  const auto trained = [](const NDArray& array) { return array.defined() && array.requires_grad(); };
  return !trained(x.array) && !trained(w.w_ih) && !trained(w.w_hh) && !trained(w.b_ih) && !trained(w.b_hh) &&
         std::none_of(states.begin(), states.end(), [&](const NDArray* state) { return trained(*state); });
}

/// The arrays without the empty handles.
std::vector<NDArray> present(std::initializer_list<NDArray> arrays) {
  std::vector<NDArray> result;
  for (const NDArray& array : arrays)
    if (array.defined()) result.push_back(array);
  return result;
}

/// The sum of both biases: for cells that add both products.
NDArray sum_of_biases(const RecurrentWeights& w) {
  return w.b_ih.defined() && w.b_hh.defined() ? w.b_ih + w.b_hh : NDArray();
}

}  // namespace

namespace detail {
OperatorFamily family_recurrent() {
  return {&kRnn,           &kRnnBackward, &kRnnInference, &kLstm,        &kLstmBackward,
          &kLstmInference, &kGru,         &kGruBackward,  &kGruInference};
}
}  // namespace detail

RecurrentResult rnn(const Arg& x, const RecurrentWeights& weights, const NDArray& h0,
                    const RnnOptions& options) try {
  const RecurrentLayer layer{detail::cell_of("rnn", options.nonlinearity), options.reverse,
                             options.batch_sizes};
  check_inputs("rnn", x, weights);
  const NDArray bias = sum_of_biases(weights);
  NDArray y;
  if (only_inference(x, weights, {&h0}))
    y = call(detail::kRnnInference, options, present({x.array, weights.w_ih, weights.w_hh, h0, bias}),
             x.where)[0];
  else
    y = call(kRnn, options, present({input_products(x, weights, bias), weights.w_hh, h0}), x.where)[0];
  return {y, last_states(y, layer), {}};
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

RecurrentResult lstm(const Arg& x, const RecurrentWeights& weights, const NDArray& h0, const NDArray& c0,
                     const RecurrentOptions& options) try {
  const RecurrentLayer layer{RecurrentCell::lstm, options.reverse, options.batch_sizes};
  check_inputs("lstm", x, weights);
  const NDArray bias = sum_of_biases(weights);
  if (only_inference(x, weights, {&h0, &c0})) {
    const std::vector<NDArray> results =
        call(detail::kLstmInference, options, present({x.array, weights.w_ih, weights.w_hh, h0, c0, bias}),
             x.where);
    return {results[0], last_states(results[0], layer), results[1].to(x.array.dtype())};
  }
  const std::vector<NDArray> results =
      call(kLstm, options, present({input_products(x, weights, bias), weights.w_hh, h0, c0}), x.where);
  return {results[0], last_states(results[0], layer), last_states(results[1], layer).to(x.array.dtype())};
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

RecurrentResult gru(const Arg& x, const RecurrentWeights& weights, const NDArray& h0,
                    const RecurrentOptions& options) try {
  const RecurrentLayer layer{RecurrentCell::gru, options.reverse, options.batch_sizes};
  check_inputs("gru", x, weights);
  NDArray y;
  if (only_inference(x, weights, {&h0}))
    y = call(detail::kGruInference, options,
             present({x.array, weights.w_ih, weights.w_hh, h0, weights.b_ih, weights.b_hh}), x.where)[0];
  else
    y = call(kGru, options,
             present({input_products(x, weights, weights.b_ih), weights.w_hh, h0, weights.b_hh}), x.where)[0];
  return {y, last_states(y, layer), {}};
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
