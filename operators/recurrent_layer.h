// Code that the operators of recurrent layers share: one form of their attributes, and the checks of their
// operands. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "operators/kernels/recurrent.h"
#include "operators/operator.h"
#include "operators/recurrent.h"

namespace mx::detail {

/// Throws InvalidArgument, naming `op`, for another nonlinearity than "tanh" and "relu".
kernels::RecurrentCell cell_of(const char* op, const std::string& nonlinearity);

/// The attributes of all three operators in one form.
struct RecurrentLayer {
  kernels::RecurrentCell cell;
  bool reverse;
  const std::vector<int64_t>& batch_sizes;

  kernels::SequencePlan plan(const Shape& x) const {
    return batch_sizes.empty() ? kernels::SequencePlan(x[0], x[1]) : kernels::SequencePlan(batch_sizes);
  }
};

template <kernels::RecurrentCell kCell, class Call>
RecurrentLayer layer_of(const Call& call, const char* op) {
  if constexpr (kCell == kernels::RecurrentCell::tanh) {
    const RnnAttrs& attrs = call.template attr<RnnAttrs>();
    return {cell_of(op, attrs.nonlinearity), attrs.reverse, attrs.batch_sizes};
  } else {
    const RecurrentAttrs& attrs = call.template attr<RecurrentAttrs>();
    return {kCell, attrs.reverse, attrs.batch_sizes};
  }
}

/// Checks input i, which must have that shape, and the given type or the one in which that type is computed.
void check_operand(const char* op, const InferContext& c, size_t i, const char* name, const Shape& expected,
                   DType type);

struct RecurrentShapes {
  DType type;
  int64_t batch, hidden;
  /// The shape of the sequence with another last dimension.
  Shape rows_of(int64_t width) const {
    Shape shape = rows;
    shape[shape.rank() - 1] = width;
    return shape;
  }
  Shape rows;
};

/// An array of the sequence, whose last dimension is `parts` times that of the hidden state.
struct SequenceOperand {
  const char* name;
  Shape shape;
  DType type;
  int64_t parts;
};

/// Checks an array of the sequence and the weights w_hh.
RecurrentShapes check_recurrent_layer(const char* op, const RecurrentLayer& layer,
                                      const SequenceOperand& sequence, const Shape& w, DType w_type);

}  // namespace mx::detail
