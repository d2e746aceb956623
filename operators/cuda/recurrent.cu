// Recurrent layers: operators/kernels/recurrent.h. Each step is a product of the states of all samples with
// the weights (blas.h), and one kernel for the arithmetic of the cells. f16 and bf16 are computed in f32, and
// results are rounded once.
#include "operators/kernels/recurrent.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "operators/cuda/blas.h"
#include "operators/cuda/group.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"
#include "operators/formulas.h"
#include "operators/recurrent.h"
#include "operators/recurrent_inference.h"

namespace mx::cuda {
namespace {

using kernels::RecurrentCell;
using kernels::SequencePlan;

struct Sequence {
  RecurrentCell cell;
  bool reverse;
  SequencePlan plan;

  int64_t steps() const { return plan.steps(); }
  /// The step that is computed as number i.
  int64_t step(int64_t i) const { return reverse ? steps() - 1 - i : i; }
};

template <class Attrs>
Sequence sequence_of(RecurrentCell cell, const Attrs& attrs, const Shape& x) {
  return {cell, attrs.reverse,
          attrs.batch_sizes.empty() ? SequencePlan(x[0], x[1]) : SequencePlan(attrs.batch_sizes)};
}

/// The rows of a step. Arrays of null do not exist for the cell.
template <class A>
struct StepForward {
  RecurrentCell cell;
  int64_t samples, hidden;
  const A* x;         ///< (samples, gates * hidden): the products of the inputs
  const A* products;  ///< the same of the states
  const A* bias;      ///< gru, may be null: added to the products
  A* state;           ///< (samples, hidden)
  A* cells_now;       ///< lstm: (samples, hidden)
  A* y;
  A* cells;        ///< lstm: what the backward pass needs; null if there is none
  A* activations;  ///< (samples, 4 * hidden); the same

  /// Stores the activations of element j of sample b.
  __device__ void keep(int64_t b, int64_t j, A first, A second, A third, A fourth) const {
    if (activations == nullptr) return;
    A* const to = activations + b * 4 * hidden + j;
    to[0] = first;
    to[hidden] = second;
    to[2 * hidden] = third;
    to[3 * hidden] = fourth;
  }
};

template <class A>
__global__ void __launch_bounds__(kBlock) recurrent_step(StepForward<A> s) {
  using formulas::sigmoid;
  const int64_t gates = kernels::gates_of(s.cell), hidden = s.hidden;
  for (int64_t index = global_index(); index < s.samples * hidden; index += global_size()) {
    const int64_t b = index / hidden, j = index - b * hidden;
    const A *const x = s.x + b * gates * hidden + j, *const p = s.products + b * gates * hidden + j;
    A h;
    if (s.cell == RecurrentCell::tanh) {
      h = std::tanh(x[0] + p[0]);
    } else if (s.cell == RecurrentCell::relu) {
      const A sum = x[0] + p[0];
      h = sum <= 0 ? A{0} : sum;
    } else if (s.cell == RecurrentCell::lstm) {
      const A in = sigmoid(x[0] + p[0]), forget = sigmoid(x[hidden] + p[hidden]),
              g = std::tanh(x[2 * hidden] + p[2 * hidden]), out = sigmoid(x[3 * hidden] + p[3 * hidden]);
      const A c = forget * s.cells_now[index] + in * g;
      h = out * std::tanh(c);
      s.cells_now[index] = c;
      if (s.cells != nullptr) s.cells[index] = c;
      s.keep(b, j, in, forget, g, out);
    } else {
      const auto recurrent_part = [&](int64_t gate) -> A {
        return p[gate * hidden] + (s.bias != nullptr ? s.bias[gate * hidden + j] : A{0});
      };
      const A r = sigmoid(x[0] + recurrent_part(0)), z = sigmoid(x[hidden] + recurrent_part(1));
      const A inner = recurrent_part(2), candidate = std::tanh(x[2 * hidden] + r * inner);
      h = candidate + z * (s.state[index] - candidate);
      s.keep(b, j, r, z, candidate, inner);
    }
    s.state[index] = s.y[index] = h;
  }
}

template <class A>
struct StepBackward {
  RecurrentCell cell;
  int64_t samples, hidden;
  const A *dy, *y, *activations;
  const A *cells, *dcells;  ///< lstm; dcells may be null
  const A* before;          ///< lstm: the cells before the step; gru: the states
  const A* first;           ///< the same before the first step of a sample
  int64_t begun;            ///< samples that had a step before this one; the others begin with this one
  A* dh;  ///< gradient of the states after the step; gru: the share that passes by the gates, afterwards
  A* dc;  ///< lstm: gradient of the cells after the step; afterwards, before it
  A* dproduct;  ///< (samples, gates * hidden)
  A* dx;        ///< gru: the gradient of x
};

template <class A>
__global__ void __launch_bounds__(kBlock) recurrent_step_backward(StepBackward<A> s) {
  const int64_t gates = kernels::gates_of(s.cell), hidden = s.hidden;
  const auto sigmoid_slope = [](A v) { return v - v * v; };
  const auto tanh_slope = [](A v) { return A{1} - v * v; };
  for (int64_t index = global_index(); index < s.samples * hidden; index += global_size()) {
    const int64_t b = index / hidden, j = index - b * hidden;
    A* const to = s.dproduct + b * gates * hidden + j;
    const A dh = s.dy[index] + s.dh[index];
    if (s.cell == RecurrentCell::tanh) {
      to[0] = dh * tanh_slope(s.y[index]);
      continue;
    }
    if (s.cell == RecurrentCell::relu) {
      to[0] = s.y[index] > 0 ? dh : A{0};
      continue;
    }
    const A* const kept = s.activations + b * 4 * hidden + j;
    const A before = b < s.begun ? s.before[index] : s.first[index];
    if (s.cell == RecurrentCell::lstm) {
      const A in = kept[0], forget = kept[hidden], g = kept[2 * hidden], out = kept[3 * hidden];
      const A t = std::tanh(s.cells[index]);
      A dc = dh * out * tanh_slope(t) + s.dc[index];
      if (s.dcells != nullptr) dc += s.dcells[index];
      to[0] = dc * g * sigmoid_slope(in);
      to[hidden] = dc * before * sigmoid_slope(forget);
      to[2 * hidden] = dc * in * tanh_slope(g);
      to[3 * hidden] = dh * t * sigmoid_slope(out);
      s.dc[index] = dc * forget;
    } else {
      A* const dx = s.dx + b * gates * hidden + j;
      const A r = kept[0], z = kept[hidden], candidate = kept[2 * hidden], inner = kept[3 * hidden];
      const A dz = dh * (before - candidate) * sigmoid_slope(z);
      const A dn = dh * (A{1} - z) * tanh_slope(candidate);
      const A dr = dn * inner * sigmoid_slope(r);
      to[0] = dx[0] = dr;
      to[hidden] = dx[hidden] = dz;
      dx[2 * hidden] = dn;
      to[2 * hidden] = dn * r;
      s.dh[index] = dh * z;
    }
  }
}

/// Sets n elements of each array to 0; the second one may be null.
template <class A>
__global__ void __launch_bounds__(kBlock) set_zeros(A* first, A* second, int64_t n) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    first[i] = A{0};
    if (second != nullptr) second[i] = A{0};
  }
}

unsigned step_blocks(int64_t samples, int64_t hidden) {
  return blocks_for(samples * hidden, kBlock, 1 << 16);
}

/// c (m, n) = a (m, k) b (k, n) + beta c for contiguous arrays; `turned`: b is stored as (n, k).
template <class A>
void multiply_rows(const KernelArgs& args, const A* a, const A* b, bool turned, A* c, int64_t m, int64_t n,
                   int64_t k, double beta) {
  Product p;
  p.in = p.out = dtype_of<A>;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = {a, k, 1};
  p.b = turned ? kernels::Matrix{b, 1, k} : kernels::Matrix{b, n, 1};
  p.c = c;
  p.c_row_stride = n;
  p.beta = beta;
  multiply(args, p);
}

/// An operand that a cell may not have.
class OptionalOperand {
 public:
  OptionalOperand(const KernelArgs& args, const Tensor* tensor, DType dtype) {
    if (tensor != nullptr) operand_.emplace(args, *tensor, dtype, !tensor->contiguous());
  }
  template <class A>
  A* at(int64_t i) const {
    return operand_ ? (*operand_)->template as<A>() + i : nullptr;
  }
  const void* data() const { return operand_ ? (*operand_)->data : nullptr; }

 private:
  std::optional<Operand> operand_;
};
class OptionalResult {
 public:
  OptionalResult(const KernelArgs& args, const Tensor* tensor, DType dtype) {
    if (tensor != nullptr) result_.emplace(args, *tensor, dtype);
  }
  template <class A>
  A* at(int64_t i) const {
    return result_ ? (*result_)->template as<A>() + i : nullptr;
  }
  void store(const KernelArgs& args) const {
    if (result_) result_->store(args);
  }

 private:
  std::optional<Result> result_;
};

struct ForwardArrays {
  const Tensor *x, *weights, *h0, *c0, *bias, *y, *cells, *activations;
};

template <class A>
void forward(const KernelArgs& args, const Sequence& sequence, const ForwardArrays& arrays) {
  constexpr DType kType = dtype_of<A>;
  const int64_t hidden = arrays.weights->shape[1], gates = kernels::gates_of(sequence.cell);
  const int64_t batch = sequence.plan.batch(), width = gates * hidden;
  if (batch == 0) return;
  const Operand x = contiguous_operand(args, *arrays.x, kType),
                w = contiguous_operand(args, *arrays.weights, kType),
                // Copies, which the steps change.
      state(args, *arrays.h0, kType, true);
  const bool has_cells = arrays.c0 != nullptr;
  const Operand cells_now(args, has_cells ? *arrays.c0 : *arrays.h0, kType, has_cells);
  const OptionalOperand bias(args, arrays.bias, kType);
  const Result y(args, *arrays.y, kType);
  const OptionalResult cells(args, arrays.cells, kType), activations(args, arrays.activations, kType);
  const Operand products(args, kType, {batch, width});
  for (int64_t i = 0; i < sequence.steps(); ++i) {
    const int64_t t = sequence.step(i), row = sequence.plan.first(t), samples = sequence.plan.size(t);
    multiply_rows<A>(args, state->as<A>(), w->as<A>(), true, products->as<A>(), samples, width, hidden, 0);
    const StepForward<A> step{sequence.cell,
                              samples,
                              hidden,
                              x->as<A>() + row * width,
                              products->as<A>(),
                              bias.at<A>(0),
                              state->as<A>(),
                              has_cells ? cells_now->as<A>() : nullptr,
                              y->as<A>() + row * hidden,
                              cells.at<A>(row * hidden),
                              activations.at<A>(row * 4 * hidden)};
    launch(stream_of(args), step_blocks(samples, hidden), kBlock, 0, recurrent_step<A>, step);
  }
  y.store(args);
  cells.store(args);
  activations.store(args);
}

/// Bytes of the products of the inputs that inference computes at a time, unless one step needs more.
/// Products of so many rows give every multiprocessor work.
constexpr int64_t kProductBytes = int64_t{16} << 20;

/// The products of the inputs of some steps are computed together and then read by these steps. Their values
/// are rounded to `type`, as linear() rounds them, so that the same numbers enter the cells as when a
/// gradient is recorded.
template <class A>
void inference(const KernelArgs& args, const Sequence& sequence, const kernels::RecurrentInference& r) {
  constexpr DType kType = dtype_of<A>;
  const SequencePlan& plan = sequence.plan;
  const DType type = r.w_hh->dtype;
  const bool packed_rows = r.x->rank() == 2, lstm = sequence.cell == RecurrentCell::lstm;
  const int64_t hidden = r.w_hh->shape[1], inputs = r.w_ih->shape[1];
  const int64_t width = kernels::gates_of(sequence.cell) * hidden, batch = plan.batch();
  if (plan.rows() == 0) return;
  const std::vector<kernels::StepGroup> groups = kernels::groups_of_steps(
      plan, sequence.reverse, kProductBytes / (width * static_cast<int64_t>(sizeof(A))));
  int64_t room = 0;  // the rows of the largest group
  for (const kernels::StepGroup& group : groups) room = std::max(room, group.rows);

  const Operand w_ih = contiguous_operand(args, *r.w_ih, type), w = contiguous_operand(args, *r.w_hh, kType),
                // Copies, which the steps change.
      state(args, *r.h0, kType, true), cells(args, lstm ? *r.c0 : *r.h0, kType, lstm);
  const OptionalOperand bias(args, r.bias, type), state_bias(args, r.state_bias, kType);
  const Operand products(args, kType, {batch, width}), of_inputs(args, type, {room, width});
  const bool converts = type != kType, y_in_place = !converts && r.y->contiguous();
  const Operand wide(args, kType, {converts ? room : 0, width}),
      results(args, kType, {y_in_place ? 0 : room, hidden});
  for (const kernels::StepGroup& group : groups) {
    const auto part_of = [&](const Tensor& whole) {
      return packed_rows ? whole.narrowed(0, group.first_row, group.rows)
                         : whole.narrowed(0, group.first_step, group.end - group.begin);
    };
    {
      const Operand x = contiguous_operand(args, part_of(*r.x), type);
      Product p;
      p.in = p.out = type;
      p.m = group.rows;
      p.n = width;
      p.k = inputs;
      p.a = {x->data, inputs, 1};
      p.b = {w_ih->data, 1, inputs};
      p.c = of_inputs->data;
      p.c_row_stride = width;
      p.bias = bias.data();
      multiply(args, p);
    }
    if (converts)
      copy_elements(stream_of(args), wide->narrowed(0, 0, group.rows), of_inputs->narrowed(0, 0, group.rows));
    const A* const x = (converts ? *wide : *of_inputs).template as<A>();
    A* const y = y_in_place ? r.y->as<A>() + group.first_row * hidden : results->template as<A>();
    for (int64_t i = group.begin; i < group.end; ++i) {
      const int64_t t = sequence.step(i), row = plan.first(t) - group.first_row, samples = plan.size(t);
      multiply_rows<A>(args, state->as<A>(), w->as<A>(), true, products->as<A>(), samples, width, hidden, 0);
      const StepForward<A> step{sequence.cell,
                                samples,
                                hidden,
                                x + row * width,
                                products->as<A>(),
                                state_bias.at<A>(0),
                                state->as<A>(),
                                lstm ? cells->as<A>() : nullptr,
                                y + row * hidden,
                                nullptr,
                                nullptr};
      launch(stream_of(args), step_blocks(samples, hidden), kBlock, 0, recurrent_step<A>, step);
    }
    if (y_in_place) continue;
    const Tensor part = part_of(*r.y);
    copy_elements(stream_of(args), part, {results->data, kType, part.shape, contiguous_strides(part.shape)});
  }
  if (lstm) copy_elements(stream_of(args), *r.last_cells, *cells);
}

template <class A>
void backward(const KernelArgs& args, const Sequence& sequence, const kernels::RecurrentGradient& g) {
  constexpr DType kType = dtype_of<A>;
  const bool lstm = sequence.cell == RecurrentCell::lstm, gru = sequence.cell == RecurrentCell::gru;
  const int64_t hidden = g.weights->shape[1], width = kernels::gates_of(sequence.cell) * hidden;
  const int64_t batch = sequence.plan.batch();
  if (batch == 0) return;
  const Operand dy = contiguous_operand(args, *g.dy, kType), w = contiguous_operand(args, *g.weights, kType);
  const OptionalOperand y(args, g.y, kType), cells(args, g.cells, kType),
      activations(args, g.activations, kType), dcells(args, g.dcells, kType),
      first(args, lstm ? g.c0 : g.h0, kType);
  const Result dx(args, *g.dx, kType), dh(args, *g.dh0, kType);
  const OptionalResult dproduct(args, g.dproduct, kType), dc(args, g.dc0, kType);
  launch(stream_of(args), step_blocks(batch, hidden), kBlock, 0, set_zeros<A>, dh->as<A>(), dc.at<A>(0),
         batch * hidden);
  for (int64_t i = sequence.steps() - 1; i >= 0; --i) {
    const int64_t t = sequence.step(i), row = sequence.plan.first(t), samples = sequence.plan.size(t);
    // The step before, which may have fewer samples or more.
    const int64_t before = i == 0 ? 0 : sequence.plan.first(sequence.step(i - 1));
    const int64_t begun = i == 0 ? 0 : sequence.plan.size(sequence.step(i - 1));
    A* const products = gru ? dproduct.at<A>(row * width) : dx->as<A>() + row * width;
    const StepBackward<A> step{sequence.cell,
                               samples,
                               hidden,
                               dy->as<A>() + row * hidden,
                               y.at<A>(row * hidden),
                               activations.at<A>(row * 4 * hidden),
                               cells.at<A>(row * hidden),
                               dcells.at<A>(row * hidden),
                               lstm ? cells.at<A>(before * hidden) : y.at<A>(before * hidden),
                               first.at<A>(0),
                               begun,
                               dh->as<A>(),
                               dc.at<A>(0),
                               products,
                               dx->as<A>() + row * width};
    launch(stream_of(args), step_blocks(samples, hidden), kBlock, 0, recurrent_step_backward<A>, step);
    multiply_rows<A>(args, products, w->as<A>(), false, dh->as<A>(), samples, hidden, width, gru ? 1 : 0);
  }
  dx.store(args);
  dproduct.store(args);
  dh.store(args);
  dc.store(args);
}

void forward(const KernelArgs& args, const Sequence& sequence) {
  const bool lstm = sequence.cell == RecurrentCell::lstm, gru = sequence.cell == RecurrentCell::gru;
  const ForwardArrays arrays{&args.in[0],
                             &args.in[1],
                             &args.in[2],
                             lstm ? &args.in[3] : nullptr,
                             gru && args.in.size() > 3 ? &args.in[3] : nullptr,
                             &args.out[0],
                             lstm ? &args.out[1] : nullptr,
                             lstm  ? &args.out[2]
                             : gru ? &args.out[1]
                                   : nullptr};
  visit_real(args.in[1].dtype, [&]<class A>() { forward<A>(args, sequence, arrays); });
}

void backward(const KernelArgs& args, const Sequence& sequence) {
  const bool lstm = sequence.cell == RecurrentCell::lstm, gru = sequence.cell == RecurrentCell::gru;
  kernels::RecurrentGradient g{};
  g.dy = &args.in[0];
  g.weights = &args.in[1];
  (lstm ? g.cells : g.y) = &args.in[2];
  if (lstm || gru) g.activations = &args.in[3];
  if (lstm || gru) (lstm ? g.c0 : g.h0) = &args.in[4];
  if (lstm && args.in.size() > 5) g.dcells = &args.in[5];
  g.dx = &args.out[0];
  if (gru) g.dproduct = &args.out[1];
  g.dh0 = &args.out[gru ? 2 : 1];
  if (lstm) g.dc0 = &args.out[2];
  visit_real(args.in[1].dtype, [&]<class A>() { backward<A>(args, sequence, g); });
}

void inference(const KernelArgs& args, const Sequence& sequence) {
  const kernels::RecurrentInference operands = mx::detail::inference_operands(args, sequence.cell);
  visit_real(operands.w_hh->dtype, [&]<class A>() { inference<A>(args, sequence, operands); });
}

Sequence plain_sequence(const KernelArgs& args) {
  const auto& attrs = args.attr<RnnAttrs>();
  return sequence_of(attrs.nonlinearity == "relu" ? RecurrentCell::relu : RecurrentCell::tanh, attrs,
                     args.in[0].shape);
}
Sequence gated_sequence(const KernelArgs& args, RecurrentCell cell) {
  return sequence_of(cell, args.attr<RecurrentAttrs>(), args.in[0].shape);
}

}  // namespace

void rnn(const KernelArgs& args) { forward(args, plain_sequence(args)); }
void lstm(const KernelArgs& args) { forward(args, gated_sequence(args, RecurrentCell::lstm)); }
void gru(const KernelArgs& args) { forward(args, gated_sequence(args, RecurrentCell::gru)); }
void rnn_inference(const KernelArgs& args) { inference(args, plain_sequence(args)); }
void lstm_inference(const KernelArgs& args) { inference(args, gated_sequence(args, RecurrentCell::lstm)); }
void gru_inference(const KernelArgs& args) { inference(args, gated_sequence(args, RecurrentCell::gru)); }
void rnn_backward(const KernelArgs& args) { backward(args, plain_sequence(args)); }
void lstm_backward(const KernelArgs& args) { backward(args, gated_sequence(args, RecurrentCell::lstm)); }
void gru_backward(const KernelArgs& args) { backward(args, gated_sequence(args, RecurrentCell::gru)); }

}  // namespace mx::cuda
