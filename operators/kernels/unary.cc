#include "operators/kernels/unary.h"

#include "engine/base/check.h"
#include "operators/kernels/tables.h"

namespace mx::kernels {
namespace {

constexpr const char* kUnaryNames[] = {
    "copy",      "neg",         "abs",         "sign",   "square",     "relu",     "floor",  "ceil",
    "round",     "trunc",       "exp",         "exp2",   "expm1",      "log",      "log2",   "log10",
    "log1p",     "sqrt",        "rsqrt",       "cbrt",   "reciprocal", "sin",      "cos",    "tan",
    "asin",      "acos",        "atan",        "sinh",   "cosh",       "tanh",     "asinh",  "acosh",
    "atanh",     "erf",         "erfc",        "lgamma", "sigmoid",    "softplus", "silu",   "gelu",
    "gelu_tanh", "bitwise_not", "logical_not", "isnan",  "isinf",      "isfinite", "signbit"};
static_assert(sizeof(kUnaryNames) / sizeof(*kUnaryNames) == kUnaryOps);

constexpr bool of_floating(UnaryOp op) { return op >= UnaryOp::exp && op <= UnaryOp::gelu_tanh; }
constexpr bool to_bool(UnaryOp op) { return op >= UnaryOp::logical_not; }

// Returns the type that the row function reads.
DType computing_type(UnaryOp op, DType in) {
  if (in == DType::f16 || in == DType::bf16) return DType::f32;
  return of_floating(op) && !is_floating(in) ? DType::f32 : in;
}

Row find_unary_row(UnaryOp op, DType computing) {
  if (of_floating(op)) {
    if (computing == DType::f32) {
      if (const Row row = unary_f32_row(op)) return row;
    } else if (computing == DType::f64) {
      if (const Row row = unary_f64_row(op)) return row;
    }
    if (const Row row = unary_library_row(op, computing)) return row;
  }
  return unary_exact_row(op, computing);
}

struct UnaryRows {
  Row row[kUnaryOps][kDTypes];
  UnaryRows() {
    for (int op = 0; op < kUnaryOps; ++op)
      for (const DType type : kAllDTypes)
        row[op][static_cast<int>(type)] =
            find_unary_row(static_cast<UnaryOp>(op), computing_type(static_cast<UnaryOp>(op), type));
  }
};

Row row_of(UnaryOp op, DType in) {
  static const UnaryRows rows;
  return rows.row[static_cast<int>(op)][static_cast<int>(in)];
}

void check(UnaryOp op, Row row, DType result, const Tensor& out, const Tensor& in) {
  MX_CHECK(row != nullptr, InvalidArgument, "[", to_string(op),
           "] expected an element type that the operator supports, got ", in.dtype);
  MX_CHECK(out.dtype == result, InvalidArgument, "[", to_string(op), "] expected a result of ", result,
           " from ", in.dtype, ", got ", out.dtype);
  MX_CHECK(out.shape == in.shape, InvalidArgument, "[", to_string(op), "] expected a result of shape ",
           in.shape, ", got ", out.shape);
}

}  // namespace

const char* to_string(UnaryOp op) { return kUnaryNames[static_cast<int>(op)]; }

bool unary_supports(UnaryOp op, DType in) { return row_of(op, in) != nullptr; }

DType unary_result(UnaryOp op, DType in) {
  if (to_bool(op)) return DType::bool_;
  return of_floating(op) && !is_floating(in) ? DType::f32 : in;
}

void unary(UnaryOp op, const Tensor& out, const Tensor& in) {
  const Row row = row_of(op, in.dtype);
  const DType computing = computing_type(op, in.dtype);
  const DType result = unary_result(op, in.dtype);
  if (row != nullptr && run_small(row, result, computing, out, in)) [[likely]]
    return;
  check(op, row, result, out, in);
  const bool half = result == DType::f16 || result == DType::bf16;
  walk_rows<1>({row, half ? DType::f32 : result, {computing}, unary_stream_row(op, computing)}, out, {&in});
}

}  // namespace mx::kernels
