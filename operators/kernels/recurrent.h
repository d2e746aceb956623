// The recurrent part of recurrent networks: one layer in one direction, over a whole sequence, and its
// gradient. The products of the inputs with their weights are computed before, for all steps at once.
//
//   tanh, relu   h' = f(x + w h)
//   lstm         i, f, o = sigmoid, g = tanh of the four parts of x + w h;  c' = f c + i g;  h' = o tanh(c')
//   gru          r, z = sigmoid of parts of x + w h + b;  n = tanh(x + r (w h + b));  h' = (1 - z) n + z h
//
// x is the product of the inputs, with the gates one after the other, in PyTorch's order: (rows, gates *
// hidden). w is (gates * hidden, hidden). A block of samples runs through all steps on one thread, because
// samples do not depend on each other. The recurrent weights are packed once per call in the order in which
// the register tile of gemm reads them. The arithmetic of a cell follows the products of its columns, while
// these are in the first-level cache.
//
// Types: f32 and f64 are computed in their own type; f16 and bf16 in f32, and y is rounded once.
//
// Repeatable: the bits of a sample do not depend on the other samples, nor on the number of threads.
//
// Thread-safety: any thread may call.
#pragma once

#include <cstdint>
#include <vector>

#include "ndarray/launch.h"
#include "ndarray/tensor.h"
#include "operators/kernels/recurrent_cell.h"

namespace mx::kernels {

/// The rows of a sequence: step t has size(t) samples, which are the rows from first(t) on. Later steps have
/// at most as many samples as earlier ones, and sample b is row b of each step that has it.
class SequencePlan {
 public:
  /// `steps` steps of `batch` samples each.
  SequencePlan(int64_t steps, int64_t batch);
  /// Precondition: the sizes are positive and do not grow.
  explicit SequencePlan(const std::vector<int64_t>& sizes);

  int64_t steps() const { return static_cast<int64_t>(first_.size()) - 1; }
  int64_t batch() const { return steps() == 0 ? 0 : size(0); }
  int64_t rows() const { return first_.back(); }
  int64_t first(int64_t t) const { return first_[static_cast<size_t>(t)]; }
  int64_t size(int64_t t) const { return first(t + 1) - first(t); }

 private:
  std::vector<int64_t> first_;  // of each step, and the number of all rows
};

struct RecurrentSequence {
  RecurrentCell cell;
  bool reverse;  ///< from the last step to the first
  const SequencePlan& plan;
};

/// Consecutive steps whose products of the inputs are computed together.
struct StepGroup {
  int64_t begin, end;  ///< numbers in the order in which the steps run
  int64_t first_step;  ///< of the sequence, whatever the direction
  int64_t first_row, rows;
};
/// Divides a sequence into groups of at most `most_rows` rows. A step that alone has more is a group.
std::vector<StepGroup> groups_of_steps(const SequencePlan& plan, bool reverse, int64_t most_rows);

/// Computes y (rows, hidden), and what the backward pass needs: for lstm the cells c (rows, hidden), and for
/// lstm and gru the activations (rows, 4 * hidden): i, f, g, o; or r, z, n and the recurrent part of n. These
/// have the type in which f16 is computed. `c0` is for lstm, and `bias` (3 * hidden), which may be null, for
/// gru; `cells` and `activations` are null for cells that have none.
void recurrent(const KernelArgs& args, const RecurrentSequence& sequence, const Tensor& x,
               const Tensor& weights, const Tensor& h0, const Tensor* c0, const Tensor* bias, const Tensor& y,
               const Tensor* cells, const Tensor* activations);

/// Operands of a pass whose gradient is not wanted. Those that a cell does not use are null.
struct RecurrentInference {
  const Tensor* x;           ///< the inputs: (steps, batch, inputs), or (rows, inputs) of a packed sequence
  const Tensor* w_ih;        ///< (gates * hidden, inputs)
  const Tensor* bias;        ///< (gates * hidden): added to the products of the inputs; may be null
  const Tensor* w_hh;        ///< (gates * hidden, hidden)
  const Tensor* h0;          ///< (batch, hidden)
  const Tensor* c0;          ///< lstm
  const Tensor* state_bias;  ///< gru, may be null: added to the products of the state
  const Tensor* y;           ///< result: x with a last dimension of `hidden`
  const Tensor* last_cells;  ///< result for lstm: (batch, hidden)
};
/// Computes the products of the inputs too, for a few steps at a time, in the type of w_hh. So the memory
/// that it needs does not grow with the length of the sequence. y has the bits of linear() and recurrent().
void recurrent_inference(const KernelArgs& args, const RecurrentSequence& sequence,
                         const RecurrentInference& operands);

/// Operands of the gradient. Those that a cell does not use are null.
struct RecurrentGradient {
  const Tensor* dy;           ///< (rows, hidden)
  const Tensor* weights;      ///< (gates * hidden, hidden)
  const Tensor* y;            ///< tanh, relu, gru
  const Tensor* cells;        ///< lstm
  const Tensor* activations;  ///< lstm, gru
  const Tensor* h0;           ///< gru
  const Tensor* c0;           ///< lstm
  const Tensor* dcells;       ///< lstm: the gradient of `cells`; null: zero
  const Tensor* dx;           ///< result: (rows, gates * hidden), the gradient of x
  const Tensor* dproduct;     ///< result for gru: the gradient of w h + b
  const Tensor* dh0;          ///< result: (batch, hidden)
  const Tensor* dc0;          ///< result for lstm
};
void recurrent_backward(const KernelArgs& args, const RecurrentSequence& sequence,
                        const RecurrentGradient& gradient);

}  // namespace mx::kernels
