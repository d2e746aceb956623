#include "nn/recurrent.h"

#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/autocast.h"
#include "operators/indexing.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

RNNOptions with_nonlinearity(const RecurrentLayerOptions& o) {
  return {o.num_layers, "tanh", o.bias, o.batch_first, o.dropout, o.bidirectional, o.context, o.dtype};
}

void check_sizes(const char* name, int64_t inputs, int64_t hidden, DType dtype,
                 const std::string& nonlinearity) {
  MX_CHECK(inputs >= 0 && hidden >= 1, InvalidArgument, "[", name,
           "] expected 0 inputs or more and a hidden size of 1 or more, got ", inputs, " and ", hidden);
  MX_CHECK(is_floating(dtype), InvalidArgument, "[", name, "] expected a floating-point type, got ", dtype);
  MX_CHECK(nonlinearity == "tanh" || nonlinearity == "relu", InvalidArgument, "[", name,
           "] expected the nonlinearity \"tanh\" or \"relu\", got \"", nonlinearity, '"');
}

void reset_all(const std::vector<Parameter>& parameters, int64_t hidden, Generator* generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  for (const Parameter& parameter : parameters) init::uniform_(parameter, -bound, bound, generator);
}

NDArray reordered(const NDArray& state, const std::vector<int64_t>& order) {
  if (order.empty() || !state.defined()) return state;
  const Shape shape{static_cast<int64_t>(order.size())};
  return take(detail::at_call(state), detail::index_array(order, shape, state.context()), 1);
}

LSTMState reordered(const LSTMState& state, const std::vector<int64_t>& order) {
  return {reordered(state.h, order), reordered(state.c, order)};
}

// Without this, the error would be about the state of zeros, which the program has not given.
void check_input_type(const char* module, const NDArray& x, const NDArray& weight) {
  MX_CHECK(x.dtype() == weight.dtype() || mx::detail::autocast_state != nullptr, InvalidArgument, "[", module,
           "] expected x of the type of the weights, ", weight.dtype(), ", got ", x.dtype());
}

}  // namespace

RecurrentModule::RecurrentModule(Kind kind, IntArg inputs, IntArg hidden, const RNNOptions& options)
    : kind_(kind), inputs_(inputs), hidden_(hidden), options_(options) {
  check_sizes(name(), inputs_, hidden_, options.dtype, options.nonlinearity);
  MX_CHECK(options.num_layers >= 1, InvalidArgument, "[", name(), "] expected 1 layer or more, got ",
           options.num_layers);
  MX_CHECK(options.dropout >= 0 && options.dropout <= 1, InvalidArgument, "[", name(),
           "] expected a dropout from 0 to 1, got ", options.dropout);
  const int64_t gates = kind == Kind::lstm ? 4 : kind == Kind::gru ? 3 : 1;
  for (int64_t layer = 0; layer < options.num_layers; ++layer)
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const std::string suffix = mx::detail::concat("_l", layer, direction == 1 ? "_reverse" : "");
      const auto parameter = [&](const char* what, const Shape& shape) {
        parameters_.push_back(add_parameter(what + suffix, empty(shape, options.dtype, options.context)));
      };
      parameter("weight_ih", {gates * hidden_, layer == 0 ? inputs_ : directions() * hidden_});
      parameter("weight_hh", {gates * hidden_, hidden_});
      if (!options.bias) continue;
      parameter("bias_ih", {gates * hidden_});
      parameter("bias_hh", {gates * hidden_});
    }
  reset_parameters();
}

const char* RecurrentModule::name() const {
  return kind_ == Kind::lstm ? "LSTM" : kind_ == Kind::gru ? "GRU" : "RNN";
}

void RecurrentModule::reset_parameters(Generator* generator) { reset_all(parameters_, hidden_, generator); }

RecurrentWeights RecurrentModule::weights(int64_t layer, int64_t direction) const {
  const int64_t count = options_.bias ? 4 : 2;
  const auto first = static_cast<size_t>((layer * directions() + direction) * count);
  RecurrentWeights w{parameters_[first], parameters_[first + 1], {}, {}};
  if (options_.bias) {
    w.b_ih = parameters_[first + 2];
    w.b_hh = parameters_[first + 3];
  }
  return w;
}

NDArray RecurrentModule::state_or_zeros(const NDArray& given, const char* state_name, int64_t batch,
                                        const NDArray& x, bool one_sequence) const {
  const int64_t layers = num_layers() * directions();
  const Shape shape{layers, batch, hidden_}, expected = one_sequence ? Shape{layers, hidden_} : shape;
  if (!given.defined()) return zeros(shape, x.dtype(), x.context());
  MX_CHECK(given.shape() == expected, InvalidArgument, "[", name(), "] expected ", state_name, " of shape ",
           expected, ", got ", given.shape());
  return one_sequence ? given.expand_dims(1) : given;
}

RecurrentModule::LayerResults RecurrentModule::layers(const NDArray& x,
                                                      const std::vector<int64_t>& batch_sizes,
                                                      const LSTMState& start) const {
  NDArray y = x;
  std::vector<NDArray> h, c;
  for (int64_t layer = 0; layer < num_layers(); ++layer) {
    if (layer > 0 && options_.dropout > 0) y = dropout(detail::at_call(y), options_.dropout, train_mode());
    std::vector<NDArray> results;
    for (int64_t direction = 0; direction < directions(); ++direction) {
      const RecurrentWeights w = weights(layer, direction);
      const int64_t place = layer * directions() + direction;
      const NDArray h0 = start.h.select(0, place);
      const bool reverse = direction == 1;
      RecurrentResult r;
      if (kind_ == Kind::lstm)
        r = lstm(detail::at_call(y), w, h0, start.c.select(0, place), {reverse, batch_sizes});
      else if (kind_ == Kind::gru)
        r = gru(detail::at_call(y), w, h0, {reverse, batch_sizes});
      else
        r = rnn(detail::at_call(y), w, h0, {options_.nonlinearity, reverse, batch_sizes});
      results.push_back(r.y);
      h.push_back(r.h_n);
      if (kind_ == Kind::lstm) c.push_back(r.c_n);
    }
    y = results.size() == 1 ? results[0] : concat(results, -1, detail::call_site());
  }
  const auto stacked = [](const std::vector<NDArray>& states) {
    return states.empty()       ? NDArray()
           : states.size() == 1 ? states[0].expand_dims(0)
                                : stack(states, 0, detail::call_site());
  };
  return {y, {stacked(h), stacked(c)}};
}

RecurrentModule::LayerResults RecurrentModule::run_padded(const NDArray& x, const LSTMState& start) const {
  const bool one_sequence = x.rank() == 2;
  MX_CHECK((one_sequence || x.rank() == 3) && x.shape().back() == inputs_, InvalidArgument, "[", name(),
           "] expected x ", options_.batch_first ? "(batch, steps, " : "(steps, batch, ", inputs_,
           ") or (steps, ", inputs_, "), got ", x.shape());
  check_input_type(name(), x, parameters_[0]);
  const bool swapped = options_.batch_first && !one_sequence;
  const NDArray sequence = one_sequence ? x.expand_dims(1) : swapped ? x.swap_axes(0, 1) : x;
  const int64_t batch = sequence.shape()[1];
  LSTMState from{state_or_zeros(start.h, "h0", batch, x, one_sequence), {}};
  if (kind_ == Kind::lstm) from.c = state_or_zeros(start.c, "c0", batch, x, one_sequence);
  LayerResults result = layers(sequence, {}, from);
  if (swapped) result.y = result.y.swap_axes(0, 1);
  if (one_sequence)
    for (NDArray* array : {&result.y, &result.state.h, &result.state.c})
      if (array->defined()) *array = array->squeeze(1);
  return result;
}

std::pair<PackedSequence, LSTMState> RecurrentModule::run_packed(const PackedSequence& x,
                                                                 const LSTMState& start) const {
  MX_CHECK(x.data.defined() && x.data.rank() == 2 && x.data.shape()[1] == inputs_ && !x.batch_sizes.empty(),
           InvalidArgument, "[", name(), "] expected a packed sequence (rows, ", inputs_,
           ") of 1 step or more, got ", x.data.defined() ? mx::detail::concat(x.data.shape()) : "none",
           " of ", x.batch_sizes.size(), " steps");
  const NDArray& data = x.data;
  check_input_type(name(), data, parameters_[0]);
  MX_CHECK(x.sorted_indices.empty() || static_cast<int64_t>(x.sorted_indices.size()) == x.batch(),
           InvalidArgument, "[", name(), "] expected one of the sorted_indices for each of ", x.batch(),
           " sequences, got ", x.sorted_indices.size());
  const std::vector<int64_t> places = detail::inverse_order(x.sorted_indices);  // checks them
  LSTMState from{state_or_zeros(start.h, "h0", x.batch(), data, false), {}};
  if (kind_ == Kind::lstm) from.c = state_or_zeros(start.c, "c0", x.batch(), data, false);
  LayerResults result = layers(data, x.batch_sizes, reordered(from, x.sorted_indices));
  return {PackedSequence{result.y, x.batch_sizes, x.sorted_indices}, reordered(result.state, places)};
}

std::string RecurrentModule::extra() const {
  std::string text = mx::detail::concat("inputs=", inputs_, ", hidden=", hidden_);
  if (kind_ == Kind::rnn && options_.nonlinearity != "tanh")
    text += ", nonlinearity=" + options_.nonlinearity;
  if (num_layers() != 1) text += mx::detail::concat(", num_layers=", num_layers());
  if (!options_.bias) text += ", bias=false";
  if (options_.batch_first) text += ", batch_first=true";
  if (options_.dropout != 0) text += mx::detail::concat(", dropout=", options_.dropout);
  if (options_.bidirectional) text += ", bidirectional=true";
  return text;
}

RNN::RNN(IntArg inputs, IntArg hidden, const RNNOptions& options, std::source_location where) try
    : ModuleOf(Kind::rnn, inputs, hidden, options) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

std::pair<NDArray, NDArray> RNN::forward(const NDArray& x, const NDArray& h0) {
  const LayerResults r = run_padded(x, {h0, {}});
  return {r.y, r.state.h};
}

std::pair<PackedSequence, NDArray> RNN::forward(const PackedSequence& x, const NDArray& h0) {
  auto [y, state] = run_packed(x, {h0, {}});
  return {y, state.h};
}

GRU::GRU(IntArg inputs, IntArg hidden, const GRUOptions& options, std::source_location where) try
    : ModuleOf(Kind::gru, inputs, hidden, with_nonlinearity(options)) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

std::pair<NDArray, NDArray> GRU::forward(const NDArray& x, const NDArray& h0) {
  const LayerResults r = run_padded(x, {h0, {}});
  return {r.y, r.state.h};
}

std::pair<PackedSequence, NDArray> GRU::forward(const PackedSequence& x, const NDArray& h0) {
  auto [y, state] = run_packed(x, {h0, {}});
  return {y, state.h};
}

LSTM::LSTM(IntArg inputs, IntArg hidden, const LSTMOptions& options, std::source_location where) try
    : ModuleOf(Kind::lstm, inputs, hidden, with_nonlinearity(options)) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

std::pair<NDArray, LSTMState> LSTM::forward(const NDArray& x, const std::optional<LSTMState>& start) {
  const LayerResults r = run_padded(x, start.value_or(LSTMState{}));
  return {r.y, r.state};
}

std::pair<PackedSequence, LSTMState> LSTM::forward(const PackedSequence& x,
                                                   const std::optional<LSTMState>& start) {
  return run_packed(x, start.value_or(LSTMState{}));
}

RecurrentCellModule::RecurrentCellModule(const char* name, int64_t gates, IntArg inputs, IntArg hidden,
                                         const RNNCellOptions& options)
    : name_(name) {
  check_sizes(name, inputs, hidden, options.dtype, options.nonlinearity);
  const auto parameter = [&](const char* what, const Shape& shape) {
    return add_parameter(what, empty(shape, options.dtype, options.context));
  };
  weight_ih = parameter("weight_ih", {gates * hidden, int64_t{inputs}});
  weight_hh = parameter("weight_hh", {gates * hidden, int64_t{hidden}});
  if (options.bias) {
    bias_ih = parameter("bias_ih", {gates * hidden});
    bias_hh = parameter("bias_hh", {gates * hidden});
  }
  reset_parameters();
}

void RecurrentCellModule::reset_parameters(Generator* generator) {
  std::vector<Parameter> all{weight_ih, weight_hh};
  if (bias_ih.defined()) all.insert(all.end(), {bias_ih, bias_hh});
  reset_all(all, weight_hh.shape()[1], generator);
}

RecurrentWeights RecurrentCellModule::weights() const {
  RecurrentWeights w{weight_ih, weight_hh, {}, {}};
  if (bias_ih.defined()) {
    w.b_ih = bias_ih;
    w.b_hh = bias_hh;
  }
  return w;
}

NDArray RecurrentCellModule::one_step(const NDArray& x) const {
  const int64_t inputs = weight_ih.shape()[1];
  MX_CHECK((x.rank() == 1 || x.rank() == 2) && x.shape().back() == inputs, InvalidArgument, "[", name_,
           "] expected x (batch, ", inputs, ") or (", inputs, "), got ", x.shape());
  return x.reshape({1, x.rank() == 1 ? 1 : x.shape()[0], inputs});
}

NDArray RecurrentCellModule::state_or_zeros(const NDArray& given, const NDArray& x) const {
  const int64_t hidden = weight_hh.shape()[1];
  const Shape shape{x.rank() == 1 ? 1 : x.shape()[0], hidden};
  if (!given.defined()) return zeros(shape, x.dtype(), x.context());
  const Shape expected = x.rank() == 1 ? Shape{hidden} : shape;
  MX_CHECK(given.shape() == expected, InvalidArgument, "[", name_, "] expected a state of shape ", expected,
           ", got ", given.shape());
  return given.reshape(shape);
}

std::string RecurrentCellModule::extra() const {
  return mx::detail::concat("inputs=", weight_ih.shape()[1], ", hidden=", weight_hh.shape()[1],
                            bias_ih.defined() ? "" : ", bias=false");
}

RNNCell::RNNCell(IntArg inputs, IntArg hidden, const RNNCellOptions& options, std::source_location where) try
    : ModuleOf("RNNCell", int64_t{1}, inputs, hidden, options), nonlinearity_(options.nonlinearity) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray RNNCell::forward(const NDArray& x, const NDArray& h) {
  const NDArray step = one_step(x), state = state_or_zeros(h, x);
  const NDArray next = rnn(detail::at_call(step), weights(), state, {.nonlinearity = nonlinearity_}).h_n;
  return x.rank() == 1 ? next.squeeze(0) : next;
}

GRUCell::GRUCell(IntArg inputs, IntArg hidden, const GRUCellOptions& options, std::source_location where) try
    : ModuleOf("GRUCell", int64_t{3}, inputs, hidden,
               RNNCellOptions{options.bias, "tanh", options.context, options.dtype}) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray GRUCell::forward(const NDArray& x, const NDArray& h) {
  const NDArray step = one_step(x), state = state_or_zeros(h, x);
  const NDArray next = gru(detail::at_call(step), weights(), state).h_n;
  return x.rank() == 1 ? next.squeeze(0) : next;
}

LSTMCell::LSTMCell(IntArg inputs, IntArg hidden, const LSTMCellOptions& options,
                   std::source_location where) try
    : ModuleOf("LSTMCell", int64_t{4}, inputs, hidden,
               RNNCellOptions{options.bias, "tanh", options.context, options.dtype}) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

LSTMState LSTMCell::forward(const NDArray& x, const std::optional<LSTMState>& state) {
  const LSTMState from = state.value_or(LSTMState{});
  const NDArray step = one_step(x), h = state_or_zeros(from.h, x), c = state_or_zeros(from.c, x);
  const RecurrentResult next = lstm(detail::at_call(step), weights(), h, c);
  if (x.rank() == 1) return {next.h_n.squeeze(0), next.c_n.squeeze(0)};
  return {next.h_n, next.c_n};
}

}  // namespace mx::nn
