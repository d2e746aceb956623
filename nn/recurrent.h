// RNN, LSTM and GRU over sequences, and their cells for single steps, with the names, options, layouts and
// initial values of torch.nn.
//
//   nn::LSTM lstm(64, 256, {.num_layers = 2, .batch_first = true});
//   auto [y, state] = lstm(x);                     // from zeros
//   auto [more, last] = lstm(next, state);         // goes on
//   auto [out, end] = lstm(nn::pack_padded_sequence(x, lengths, {.batch_first = true}));
//
// The state is an argument and a result, not a buffer: calls of several threads do not disturb each other.
// For truncated backpropagation pass state.detach().
//
// Shapes, with D = 2 for bidirectional layers, else 1: x (steps, batch, inputs), or (batch, steps, inputs)
// with batch_first; y (steps, batch, D * hidden); states (num_layers * D, batch, hidden). A single sequence x
// (steps, inputs) has y and states without the dimension of the batch.
//
// Calls throw InvalidArgument for other shapes. Thread-safety: that of Module (nn/module.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"
#include "nn/packed_sequence.h"
#include "operators/random.h"
#include "operators/recurrent.h"

namespace mx::nn {

struct RecurrentLayerOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  ///< of the results of all layers but the last, in training mode
  bool bidirectional = false;
  Context context = cpu();
  DType dtype = f32;
};

struct RNNOptions {
  int64_t num_layers = 1;
  std::string nonlinearity = "tanh";  ///< or "relu"
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  Context context = cpu();
  DType dtype = f32;
};
using LSTMOptions = RecurrentLayerOptions;
using GRUOptions = RecurrentLayerOptions;

/// The state of an LSTM: of its results and of its cells.
struct LSTMState {
  NDArray h, c;

  LSTMState detach() const { return {h.detach(), c.detach()}; }
  template <class V>
  void arrays(V&& visit) {
    visit(h);
    visit(c);
  }
};

/// The options and parameters of all recurrent layers. For each layer k, and again with the suffix
/// "_reverse" if it is bidirectional: weight_ih_l<k> (gates * hidden, inputs), weight_hh_l<k> (gates *
/// hidden, hidden), bias_ih_l<k> and bias_hh_l<k> (gates * hidden), all uniform in [-b, b) with b = 1 /
/// sqrt(hidden).
class RecurrentModule : public Module {
 public:
  int64_t input_size() const { return inputs_; }
  int64_t hidden_size() const { return hidden_; }
  int64_t directions() const { return options_.bidirectional ? 2 : 1; }
  int64_t num_layers() const { return options_.num_layers; }
  std::string extra() const override;
  /// Initialises the parameters again.
  void reset_parameters(Generator* generator = nullptr);

 protected:
  enum class Kind : uint8_t { rnn, lstm, gru };
  /// Throws InvalidArgument for sizes below 1, a dropout outside of [0, 1], and a type that is not floating
  /// point.
  RecurrentModule(Kind kind, IntArg inputs, IntArg hidden, const RNNOptions& options);

  struct LayerResults {
    NDArray y;
    LSTMState state;
  };
  LayerResults run_padded(const NDArray& x, const LSTMState& start) const;
  std::pair<PackedSequence, LSTMState> run_packed(const PackedSequence& x, const LSTMState& start) const;

 private:
  /// Runs all layers on x (steps, batch, inputs), or on packed rows. `start` has the shape of the states.
  LayerResults layers(const NDArray& x, const std::vector<int64_t>& batch_sizes,
                      const LSTMState& start) const;
  /// The state to start with: `given`, checked, or zeros.
  NDArray state_or_zeros(const NDArray& given, const char* name, int64_t batch, const NDArray& x,
                         bool one_sequence) const;
  const char* name() const;
  RecurrentWeights weights(int64_t layer, int64_t direction) const;

  Kind kind_;
  int64_t inputs_, hidden_;
  RNNOptions options_;
  std::vector<Parameter> parameters_;  // in the order of registration
};

class RNN : public ModuleOf<RNN, RecurrentModule> {
 public:
  RNN(IntArg inputs, IntArg hidden, const RNNOptions& options = {},
      std::source_location where = std::source_location::current());
  /// Returns y and the last state. An empty `h0`: zeros.
  std::pair<NDArray, NDArray> forward(const NDArray& x, const NDArray& h0 = {});
  std::pair<PackedSequence, NDArray> forward(const PackedSequence& x, const NDArray& h0 = {});
};

class GRU : public ModuleOf<GRU, RecurrentModule> {
 public:
  GRU(IntArg inputs, IntArg hidden, const GRUOptions& options = {},
      std::source_location where = std::source_location::current());
  std::pair<NDArray, NDArray> forward(const NDArray& x, const NDArray& h0 = {});
  std::pair<PackedSequence, NDArray> forward(const PackedSequence& x, const NDArray& h0 = {});
};

/// There is no projection of the state (proj_size).
class LSTM : public ModuleOf<LSTM, RecurrentModule> {
 public:
  LSTM(IntArg inputs, IntArg hidden, const LSTMOptions& options = {},
       std::source_location where = std::source_location::current());
  std::pair<NDArray, LSTMState> forward(const NDArray& x, const std::optional<LSTMState>& start = {});
  std::pair<PackedSequence, LSTMState> forward(const PackedSequence& x,
                                               const std::optional<LSTMState>& start = {});
};

struct RecurrentCellOptions {
  bool bias = true;
  Context context = cpu();
  DType dtype = f32;
};
struct RNNCellOptions {
  bool bias = true;
  std::string nonlinearity = "tanh";
  Context context = cpu();
  DType dtype = f32;
};
using LSTMCellOptions = RecurrentCellOptions;
using GRUCellOptions = RecurrentCellOptions;

/// The parameters of all cells: weight_ih, weight_hh, bias_ih and bias_hh, with the shapes and initial values
/// of a recurrent layer. A cell takes x (batch, inputs) and states (batch, hidden), or both without the
/// dimension of the batch. An empty state: zeros.
class RecurrentCellModule : public Module {
 public:
  std::string extra() const override;
  void reset_parameters(Generator* generator = nullptr);

  Parameter weight_ih, weight_hh;
  Parameter bias_ih, bias_hh;  ///< not defined() without bias

 protected:
  RecurrentCellModule(const char* name, int64_t gates, IntArg inputs, IntArg hidden,
                      const RNNCellOptions& options);
  /// x as a sequence of one step, after a check.
  NDArray one_step(const NDArray& x) const;
  NDArray state_or_zeros(const NDArray& given, const NDArray& x) const;
  RecurrentWeights weights() const;

  const char* name_;
};

class RNNCell : public ModuleOf<RNNCell, RecurrentCellModule> {
 public:
  RNNCell(IntArg inputs, IntArg hidden, const RNNCellOptions& options = {},
          std::source_location where = std::source_location::current());
  /// Returns the next state.
  NDArray forward(const NDArray& x, const NDArray& h = {});

 private:
  std::string nonlinearity_;
};

class GRUCell : public ModuleOf<GRUCell, RecurrentCellModule> {
 public:
  GRUCell(IntArg inputs, IntArg hidden, const GRUCellOptions& options = {},
          std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x, const NDArray& h = {});
};

class LSTMCell : public ModuleOf<LSTMCell, RecurrentCellModule> {
 public:
  LSTMCell(IntArg inputs, IntArg hidden, const LSTMCellOptions& options = {},
           std::source_location where = std::source_location::current());
  LSTMState forward(const NDArray& x, const std::optional<LSTMState>& state = {});
};

}  // namespace mx::nn
