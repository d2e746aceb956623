// The steps of a recurrent layer for a block of samples, with the processor's best instruction set. Internal
// to recurrent.cc. All arrays are contiguous. T is float or double.
#pragma once

#include <cstddef>
#include <cstdint>

#include "operators/kernels/recurrent.h"

namespace mx::kernels::detail {

/// Arrays of the forward pass; see recurrent(). Null if the cell has none.
template <class T>
struct ForwardSteps {
  RecurrentSequence sequence;
  int64_t hidden;
  const T* x;
  const T* packed;  ///< by pack_forward()
  const T* bias;
  const T *h0, *c0;
  T *y, *cells, *activations;  ///< cells and activations: null if no gradient is wanted
  /// The steps that are run: [step, step_end) in the order in which they run. x, y, cells and activations
  /// begin with row `first_row` of the sequence.
  int64_t step, step_end, first_row;
  T *h_last, *c_last;  ///< results: the state after these steps; may be h0 and c0, or null
};

/// Arrays of the backward pass; see RecurrentGradient.
template <class T>
struct BackwardSteps {
  RecurrentSequence sequence;
  int64_t hidden;
  const T* packed;  ///< by pack_backward()
  const T *dy, *y, *cells, *activations, *h0, *c0, *dcells;
  T *dx, *dproduct, *dh0, *dc0;
};

/// Elements of the packed weights.
template <class T>
size_t packed_forward_size(int gates, int64_t hidden);
template <class T>
size_t packed_backward_size(int gates, int64_t hidden);

/// Packs weights (gates * hidden, hidden), which are contiguous, on several threads.
template <class T>
void pack_forward(T* to, const T* weights, int gates, int64_t hidden);
template <class T>
void pack_backward(T* to, const T* weights, int gates, int64_t hidden);

/// Runs samples [begin, end) through all steps, on the calling thread.
template <class T>
void forward_steps(const ForwardSteps<T>& steps, int64_t begin, int64_t end);
template <class T>
void backward_steps(const BackwardSteps<T>& steps, int64_t begin, int64_t end);

}  // namespace mx::kernels::detail
