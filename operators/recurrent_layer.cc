#include "operators/recurrent_layer.h"

#include <numeric>

#include "engine/base/check.h"

namespace mx::detail {

using kernels::RecurrentCell;

RecurrentCell cell_of(const char* op, const std::string& nonlinearity) {
  MX_CHECK(nonlinearity == "tanh" || nonlinearity == "relu", InvalidArgument, "[", op,
           "] expected the nonlinearity \"tanh\" or \"relu\", got \"", nonlinearity, '"');
  return nonlinearity == "tanh" ? RecurrentCell::tanh : RecurrentCell::relu;
}

void check_operand(const char* op, const InferContext& c, size_t i, const char* name, const Shape& expected,
                   DType type) {
  MX_CHECK(c.shape(i) == expected && (c.dtype(i) == type || c.dtype(i) == accumulation_type(type)),
           InvalidArgument, "[", op, "] expected ", name, " of shape ", expected, " and of ", type, ", got ",
           c.dtype(i), ' ', c.shape(i));
}

static void check_batch_sizes(const char* op, const std::vector<int64_t>& sizes, int64_t rows) {
  for (size_t i = 0; i < sizes.size(); ++i)
    MX_CHECK(sizes[i] > 0 && (i == 0 || sizes[i] <= sizes[i - 1]), InvalidArgument, "[", op,
             "] expected batch sizes of 1 or more that do not grow, got ", sizes[i], " in step ", i,
             i == 0 ? "" : concat(" after ", sizes[i - 1]));
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  MX_CHECK(total == rows, InvalidArgument, "[", op,
           "] expected as many rows of x as the sum of the batch sizes, ", total, ", got ", rows);
}

RecurrentShapes check_recurrent_layer(const char* op, const RecurrentLayer& layer,
                                      const SequenceOperand& sequence, const Shape& w, DType w_type) {
  const Shape& x = sequence.shape;
  const int64_t gates = gates_of(layer.cell);
  MX_CHECK(is_floating(sequence.type) && w_type == sequence.type, InvalidArgument, "[", op, "] expected ",
           sequence.name, " and w_hh of one floating-point type, got ", sequence.type, " and ", w_type);
  MX_CHECK(w.rank() == 2 && w[1] > 0 && w[0] == gates * w[1], InvalidArgument, "[", op, "] expected w_hh (",
           gates, " * hidden, hidden) with a hidden size of 1 or more, got ", w);
  const bool packed = !layer.batch_sizes.empty();
  MX_CHECK(x.rank() == (packed ? 2 : 3) && x.back() == sequence.parts * w[1], InvalidArgument, "[", op,
           "] expected ", sequence.name, packed ? " (rows, " : " (steps, batch, ", sequence.parts * w[1],
           ") for a hidden size of ", w[1], ", got ", x);
  if (packed) check_batch_sizes(op, layer.batch_sizes, x[0]);
  MX_CHECK(packed || x[0] > 0, InvalidArgument, "[", op, "] expected 1 step or more, got ", sequence.name,
           ' ', x);
  return {sequence.type, packed ? layer.batch_sizes[0] : x[1], w[1], x};
}

}  // namespace mx::detail
