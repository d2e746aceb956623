#include "operators/kernels/binary.h"

#include "engine/base/check.h"
#include "operators/kernels/tables.h"

namespace mx::kernels {
namespace {

constexpr const char* kBinaryNames[] = {
    "add",
    "sub",
    "mul",
    "floor_div",
    "mod",
    "fmod",
    "pow",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "div",
    "atan2",
    "hypot",
    "copysign",
    "nextafter",
    "logaddexp",
    "relu_backward",
    "tanh_backward",
    "sigmoid_backward",
    "silu_backward",
    "gelu_backward",
    "gelu_tanh_backward",
    "binary_cross_entropy",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
};
static_assert(sizeof(kBinaryNames) / sizeof(*kBinaryNames) == kBinaryOps);

constexpr bool to_bool(BinaryOp op) { return op >= BinaryOp::equal && op <= BinaryOp::logical_xor; }

struct Rows {
  Row row[kBinaryOps][kDTypes];
  Rows() {
    for (int i = 0; i < kBinaryOps; ++i) {
      const auto op = static_cast<BinaryOp>(i);
      for (const DType type : kAllDTypes) {
        Row& found = row[i][static_cast<int>(type)];
        found = binary_exact_row(op, row_type(type));
        if (found == nullptr) found = binary_vector_row(op, row_type(type));
        if (found == nullptr) found = binary_library_row(op, row_type(type));
        // The neighbours of an f16 or bf16 are not those of the float32, so nextafter cannot compute in
        // float32.
        if (op == BinaryOp::nextafter && row_type(type) != type) found = nullptr;
      }
    }
  }
};

Row row_of(BinaryOp op, DType computing) {
  static const Rows rows;
  return rows.row[static_cast<int>(op)][static_cast<int>(computing)];
}

void check_shape(const char* op, const Tensor& out, const Tensor& in) {
  MX_CHECK(out.shape == in.shape, InvalidArgument, "[", op, "] expected operands of the result's shape ",
           out.shape, ", got ", in.shape);
}

void check(BinaryOp op, Row row, DType computing, const Tensor& out, const Tensor& a, const Tensor& b) {
  MX_CHECK(!to_bool(op) || out.dtype == DType::bool_, InvalidArgument, "[", to_string(op),
           "] expected a result of bool, got ", out.dtype);
  MX_CHECK(row != nullptr, InvalidArgument, "[", to_string(op),
           "] expected an element type that the operator supports, got ", computing);
  check_shape(to_string(op), out, a);
  check_shape(to_string(op), out, b);
}

}  // namespace

const char* to_string(BinaryOp op) { return kBinaryNames[static_cast<int>(op)]; }

bool binary_supports(BinaryOp op, DType computing) { return row_of(op, computing) != nullptr; }

DType binary_result(BinaryOp op, DType computing) { return to_bool(op) ? DType::bool_ : computing; }

void binary(BinaryOp op, const Tensor& out, const Tensor& a, const Tensor& b) {
  const bool logical = to_bool(op);
  const DType computing = !logical ? out.dtype : a.dtype == b.dtype ? a.dtype : promote(a.dtype, b.dtype);
  const Row row = row_of(op, computing);
  const DType type = row_type(computing), result = logical ? DType::bool_ : type;
  if (row != nullptr && run_small(row, result, type, out, a, b)) [[likely]]
    return;
  check(op, row, computing, out, a, b);
  walk_rows<2>({row, result, {type, type}, binary_stream_row(op, type)}, out, {&a, &b});
}

void where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_shape("where", out, condition);
  check_shape("where", out, a);
  check_shape("where", out, b);
  walk_rows<3>({where_row(out.dtype), out.dtype, {DType::bool_, out.dtype, out.dtype}}, out,
               {&condition, &a, &b});
}

void clamp(const Tensor& out, const Tensor& x, const Tensor& low, const Tensor& high) {
  const DType type = row_type(out.dtype);
  const Row row = clamp_row(type);
  if (run_small(row, type, type, out, x, low, high)) return;
  check_shape("clamp", out, x);
  check_shape("clamp", out, low);
  check_shape("clamp", out, high);
  walk_rows<3>({row, type, {type, type, type}}, out, {&x, &low, &high});
}

}  // namespace mx::kernels
