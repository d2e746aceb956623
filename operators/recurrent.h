// Recurrent layers over whole sequences: rnn (tanh, relu), lstm and gru, in one direction.
//
// The formulas, the order of the gates and the layouts are those of torch.nn:
//
//   rnn    h' = f(x w_ih' + b_ih + h w_hh' + b_hh), f = tanh or relu
//   lstm   gates i, f, g, o:  c' = f c + i g,  h' = o tanh(c')
//   gru    gates r, z, n:  n = tanh(x w_in' + b_in + r (h w_hn' + b_hn)),  h' = (1 - z) n + z h
//
// A sequence is x (T, B, I) and gives y (T, B, H). A packed sequence has samples of several lengths, sorted
// by falling length: x (N, I) has the rows of all steps one after the other, and batch_sizes says how many
// rows each step has. y is (N, H) then. The products of x with w_ih are one matrix product for all steps.
//
// Types: f32, f64, f16, bf16, the same for all operands. f16 and bf16 are computed in f32 and rounded once.
// All functions throw InvalidArgument for shapes and types that do not fit, and for a sequence of no steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operators/operator.h"

namespace mx {

struct RecurrentAttrs {
  bool reverse = false;
  std::vector<int64_t> batch_sizes{};
  template <class V>
  static void fields(V&& v) {
    v("reverse", &RecurrentAttrs::reverse, "runs from the last step to the first");
    v("batch_sizes", &RecurrentAttrs::batch_sizes,
      "the number of rows of each step, which does not grow; empty: all steps have all samples");
  }
};

struct RnnAttrs {
  std::string nonlinearity = "tanh";
  bool reverse = false;
  std::vector<int64_t> batch_sizes{};
  template <class V>
  static void fields(V&& v) {
    v("nonlinearity", &RnnAttrs::nonlinearity, "tanh or relu");
    v("reverse", &RnnAttrs::reverse, "runs from the last step to the first");
    v("batch_sizes", &RnnAttrs::batch_sizes,
      "the number of rows of each step, which does not grow; empty: all steps have all samples");
  }
};

using RecurrentOptions = RecurrentAttrs;
using RnnOptions = RnnAttrs;

/// Weights of a layer in one direction: w_ih (G * H, I), w_hh (G * H, H), and b_ih and b_hh (G * H), which
/// may be empty handles. G is 1 for rnn, 4 for lstm, 3 for gru.
struct RecurrentWeights {
  NDArray w_ih, w_hh, b_ih, b_hh;
};

/// y has the results of all steps. h_n and, for lstm, c_n (B, H) are the state after each sample's last step.
struct RecurrentResult {
  NDArray y, h_n, c_n;
};

/// h0 and c0 (B, H) are the state before the first step.
RecurrentResult rnn(const Arg& x, const RecurrentWeights& weights, const NDArray& h0,
                    const RnnOptions& options = {});
RecurrentResult lstm(const Arg& x, const RecurrentWeights& weights, const NDArray& h0, const NDArray& c0,
                     const RecurrentOptions& options = {});
RecurrentResult gru(const Arg& x, const RecurrentWeights& weights, const NDArray& h0,
                    const RecurrentOptions& options = {});

}  // namespace mx
