// The CTC loss, as torch.nn.functional.ctc_loss defines it; kernels/ctc.h explains it.
#pragma once

#include <cstdint>
#include <string>

#include "operators/operator.h"

namespace mx {

struct CtcAttrs {
  int64_t blank = 0;
  bool zero_infinity = false;
  template <class V>
  static void fields(V&& v) {
    v("blank", &CtcAttrs::blank, "the class that stands for no label");
    v("zero_infinity", &CtcAttrs::zero_infinity,
      "whether infinite losses, of inputs that are too short, and their gradients count as 0");
  }
};

struct CtcOptions {
  IntArg blank = 0;
  /// "none", "sum" or "mean": the mean over the batch of each loss divided by the number of its labels, at
  /// least 1.
  std::string reduction = "mean";
  bool zero_infinity = false;
};

/// Returns the negative logarithm of the probability of the targets. log_probs: (steps, batch, classes), or
/// (steps, classes) for one sample. targets: labels (batch, most), padded, or all labels one after the other,
/// (sum of target_lengths,). Both lengths: one for each sample. All of these are integers. The gradient with
/// respect to log_probs takes each of them for a variable of its own; after log_softmax it is PyTorch's.
///
/// Throws InvalidArgument for shapes, types and options that do not fit. A length out of range, and a label
/// that is no class or the blank, are found when the operation runs, so waiting for the result throws.
NDArray ctc_loss(const Arg& log_probs, const NDArray& targets, const NDArray& input_lengths,
                 const NDArray& target_lengths, const CtcOptions& options = {});

}  // namespace mx
