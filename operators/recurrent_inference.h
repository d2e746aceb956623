// Recurrent layers whose gradient is not wanted: they compute the products of their inputs a few steps at a
// time, and store nothing for a backward pass. Internal to recurrent.cc and the kernels.
#pragma once

#include "operators/kernels/recurrent.h"
#include "operators/operator.h"

namespace mx::detail {

// Inputs. The optional ones are biases: of the products of x, and for gru of the products of the state.
//   rnn    x, w_ih, w_hh, h0, bias?
//   lstm   x, w_ih, w_hh, h0, c0, bias?
//   gru    x, w_ih, w_hh, h0, b_ih?, b_hh?
/// The operands of a call of the operator for this cell.
inline kernels::RecurrentInference inference_operands(const KernelArgs& args, kernels::RecurrentCell cell) {
  const bool lstm = cell == kernels::RecurrentCell::lstm, gru = cell == kernels::RecurrentCell::gru;
  const size_t bias = lstm ? 5 : 4;
  kernels::RecurrentInference r{};
  r.x = &args.in[0];
  r.w_ih = &args.in[1];
  r.w_hh = &args.in[2];
  r.h0 = &args.in[3];
  if (lstm) r.c0 = &args.in[4];
  if (args.in.size() > bias) r.bias = &args.in[bias];
  if (gru && args.in.size() > 5) r.state_bias = &args.in[5];
  r.y = &args.out[0];
  if (lstm) r.last_cells = &args.out[1];
  return r;
}

extern const Operator kRnnInference;
extern const Operator kLstmInference;
extern const Operator kGruInference;

}  // namespace mx::detail
