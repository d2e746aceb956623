#include "operators/recurrent_inference.h"

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/recurrent_layer.h"

namespace mx::detail {
namespace {

using kernels::RecurrentCell;
using kernels::SequencePlan;

template <RecurrentCell kCell>
void infer_inference_of(InferContext& c) {
  constexpr bool kLstm = kCell == RecurrentCell::lstm, kGru = kCell == RecurrentCell::gru;
  const char* const op = c.name();
  constexpr size_t kBias = kLstm ? 5 : 4;
  const RecurrentLayer layer = layer_of<kCell>(c, op);
  const Shape &x = c.shape(0), &w_ih = c.shape(1);
  MX_CHECK(w_ih.rank() == 2 && x.rank() >= 2 && x.back() == w_ih[1], InvalidArgument, "[", op,
           "] expected x (.., inputs) and w_ih (gates * hidden, inputs), got ", x, " and ", w_ih);
  DType type = promote(c.dtype(0), c.dtype(1));
  if (c.inputs() > kBias) {
    MX_CHECK(c.shape(kBias) == Shape{w_ih[0]}, InvalidArgument, "[", op, "] expected a bias of shape ",
             Shape{w_ih[0]}, " for w_ih ", w_ih, ", got ", c.shape(kBias));
    type = promote(type, c.dtype(kBias));
  }
  Shape products = x;
  products[products.rank() - 1] = w_ih[0];
  const RecurrentShapes s =
      check_recurrent_layer(op, layer, {"x w_ih'", products, type, gates_of(kCell)}, c.shape(2), c.dtype(2));
  check_operand(op, c, 3, "h0", {s.batch, s.hidden}, s.type);
  if (kLstm) check_operand(op, c, 4, "c0", {s.batch, s.hidden}, s.type);
  if (kGru && c.inputs() > 5) check_operand(op, c, 5, "b_hh", {3 * s.hidden}, s.type);
  c.output(s.rows_of(s.hidden), s.type);
  if (kLstm) c.output({s.batch, s.hidden}, accumulation_type(s.type));
}

template <RecurrentCell kCell>
void run_inference_of(const KernelArgs& args) {
  const RecurrentLayer layer = layer_of<kCell>(args, "rnn");
  const SequencePlan plan = layer.plan(args.in[0].shape);
  kernels::recurrent_inference(args, {layer.cell, layer.reverse, plan}, inference_operands(args, layer.cell));
}

int64_t work_of_inference(const InferContext& c) {
  const Shape& x = c.shape(0);
  const int64_t rows = x.rank() == 3 ? x[0] * x[1] : x[0];
  return rows * (c.shape(1).numel() + c.shape(2).numel());
}

constexpr int64_t kDirectInference = 1 << 14;
constexpr RecordList<DType, kDTypes> kLayerTypes = {f32, f64, f16, bf16};

}  // namespace

constexpr Operator kRnnInference = {
    .kernel = {"rnn_inference", run_inference_of<RecurrentCell::tanh>, cuda::rnn_inference, kDirectInference},
    .doc =
        "A recurrent layer, h' = f(x w_ih' + bias + h w_hh'), in memory that does not grow with the steps.",
    .family = "recurrent",
    .inputs = {"x", "w_ih", "w_hh", "h0", "bias?"},
    .attrs = &kAttrType<RnnAttrs>,
    .infer = infer_inference_of<RecurrentCell::tanh>,
    .dtypes = kLayerTypes,
    .work = work_of_inference,
};

constexpr Operator kLstmInference = {
    .kernel = {"lstm_inference", run_inference_of<RecurrentCell::lstm>, cuda::lstm_inference,
               kDirectInference},
    .doc =
        "An LSTM layer, in memory that does not grow with the steps. Also returns the cells after each "
        "sample's last step.",
    .family = "recurrent",
    .inputs = {"x", "w_ih", "w_hh", "h0", "c0", "bias?"},
    .outputs = {"y", "c_n"},
    .attrs = &kAttrType<RecurrentAttrs>,
    .infer = infer_inference_of<RecurrentCell::lstm>,
    .dtypes = kLayerTypes,
    .work = work_of_inference,
};

constexpr Operator kGruInference = {
    .kernel = {"gru_inference", run_inference_of<RecurrentCell::gru>, cuda::gru_inference, kDirectInference},
    .doc = "A GRU layer, in memory that does not grow with the steps.",
    .family = "recurrent",
    .inputs = {"x", "w_ih", "w_hh", "h0", "b_ih?", "b_hh?"},
    .attrs = &kAttrType<RecurrentAttrs>,
    .infer = infer_inference_of<RecurrentCell::gru>,
    .dtypes = kLayerTypes,
    .work = work_of_inference,
};

}  // namespace mx::detail
