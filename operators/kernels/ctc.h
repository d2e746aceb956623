// Connectionist temporal classification: the negative logarithm of the probability that a sequence of class
// scores spells the labels, summed over all alignments.
//
// An alignment assigns a class to each time step; it spells the labels that remain if equal neighbours are
// joined and then blanks are removed. Source: Graves et al., "Connectionist temporal classification", 2006.
// The forward and backward variables are logarithms, in double. Samples are independent, so results do not
// depend on the number of threads.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// log_probs: (steps, batch, classes), of a floating-point type. targets: (batch, most labels), padded; or
/// all labels one after the other, of rank 1. The lengths are (batch,). These are i64, and all may have any
/// strides. The caller checks shapes; the functions throw InvalidArgument for a length that is out of range,
/// for targets of rank 1 that are not as many as the lengths say, and for a label that is no class or is the
/// blank.
struct CtcArgs {
  Tensor log_probs, targets, input_lengths, target_lengths;
  int64_t blank = 0;
  /// Losses that are infinite, because the input is too short for the labels, are 0, and so are their
  /// gradients. Otherwise these gradients are NaN.
  bool zero_infinity = false;
};

/// loss: (batch,).
void ctc_loss(const Tensor& loss, const CtcArgs& args);
/// The gradient with respect to log_probs, each of which counts as a variable of its own. `dloss` is
/// (batch,).
void ctc_loss_backward(const Tensor& dlog_probs, const Tensor& dloss, const CtcArgs& args);

}  // namespace mx::kernels
